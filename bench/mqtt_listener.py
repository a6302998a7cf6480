"""What each way of doing less gives: the MQTT door without sockets, with and without it, in one run.

`python -m bench.mqtt_listener` prints µs of processor time a message; no broker, no network, no peer.
"""

import tempfile
import time
from pathlib import Path
from unittest.mock import patch

from rich.console import Console
from rich.table import Table

from milepost.broker.broker import Broker
from milepost.broker.limits import Limits
from milepost.broker.routing import RouteCache
from milepost.config.log_settings import Level
from milepost.listeners.event_loop import ChangeWriter, TickLoop
from milepost.listeners.mqtt import listener as door_module
from milepost.listeners.mqtt.connection import MqttConnection
from milepost.listeners.mqtt.context import MqttContext, MqttSettings
from milepost.listeners.mqtt.listener import MqttListener
from milepost.model.durability import Durability
from milepost.model.instants import Instant
from milepost.runtime.logs import Log
from milepost.storage import open_storage
from milepost.wire.mqtt import Connect, Publish, Request, Subscribe, Version, encode

PUBLISHERS, TAKERS, MESSAGES, REPEATS = 100, 20, 4_000, 5
DISCONNECT = b"\xe0\x00"


class Nowhere:
    """A connection that takes everything."""

    scheme = "mqtt"
    has_unsent = False
    fd = 0

    def read(self) -> bytes | None:
        return None

    def write(self, data: bytes | memoryview) -> int:
        return len(data)

    def flush(self) -> None: ...

    def finish(self) -> None: ...

    def close(self) -> None: ...

    def maybe_common_name(self) -> str | None:
        return None


class Edge:
    """A door with publishers at it, and takers of what they say."""

    def __init__(self, qos: int, durability: Durability, folder: Path, *, is_kept: bool = False) -> None:
        broker = Broker(Limits(queue_messages_max=50_000))
        log = Log(Level.ERROR)
        self._storage = open_storage(folder, durability)
        self._storage.load()
        context = MqttContext(broker, MqttSettings(), log)
        self._door = MqttListener(context)
        self._settling = TickLoop(broker, ChangeWriter(broker, self._storage, log), self._door)
        self._qos = qos
        self._takers = [self._connect(f"taker-{number}", is_fresh=not is_kept) for number in range(1 if is_kept else TAKERS)]
        for taker in self._takers:
            self._send(taker, encode(Subscribe(1, (Request("bench/#", qos),)), Version.V3))
            if is_kept:
                self._send(taker, DISCONNECT)
        self._takers = [] if is_kept else self._takers
        self._givers = [self._connect(f"giver-{number}") for number in range(PUBLISHERS)]
        number = 1 if qos else None
        self._packets = [
            encode(Publish(f"bench/{one}", b"x" * 64, qos=qos, number=number), Version.V3) for one in range(PUBLISHERS)
        ]

    def close(self) -> None:
        self._storage.close()

    def forget_plans(self) -> None:
        self._door.context.broker.route_cache.change()

    def publish(self, count: int, a_turn: int) -> None:
        """So many messages, so many of them in one turn; everybody acknowledges at once."""
        for start in range(0, count, a_turn):
            now = Instant(time.time_ns())
            for one in range(start, start + a_turn):
                self._door.on_bytes(self._givers[one % PUBLISHERS], self._packets[one % PUBLISHERS], now)
            self._settling.settle(now)
            if self._qos and self._takers:
                for taker in self._takers:
                    assert taker.session is not None
                    numbers = list(taker.session.in_flight)
                    self._door.on_bytes(taker, b"".join(b"\x40\x02" + one.to_bytes(2, "big") for one in numbers), now)
                self._settling.settle(now)

    def _connect(self, name: str, *, is_fresh: bool = True) -> MqttConnection:
        link = self._door.enter(Nowhere(), "bench")
        self._send(link, encode(Connect(name, Version.V3, clean_start=is_fresh), Version.V3))
        return link

    def _send(self, link: MqttConnection, data: bytes) -> None:
        now = Instant(time.time_ns())
        self._door.on_bytes(link, data, now)
        self._settling.settle(now)


def us_a_message(edge: Edge, a_turn: int = 50) -> float:
    """The best of a few: noise only adds."""
    edge.publish(MESSAGES // 4, a_turn)
    found = []
    for _ in range(REPEATS):
        began = time.process_time()
        edge.publish(MESSAGES, a_turn)
        found.append((time.process_time() - began) / MESSAGES * 1e6)
    return min(found)


def without_short_way(edge: Edge) -> float:
    """The same with every packet taken apart."""

    def stay(*words: object) -> object:
        return words[-2] if len(words) == 6 else words[-1]

    with patch.object(door_module, "take_plain", stay), patch.object(door_module, "take_acknowledged", stay):
        return us_a_message(edge)


def without_plans(edge: Edge) -> float:
    """The same with takers looked for anew for each message."""
    with patch.object(RouteCache, "maybe_lasting", lambda *_: None), patch("milepost.broker.routing.PLANS_MAX", 0):
        edge.forget_plans()
        found = without_short_way(edge)
    edge.forget_plans()
    return found


def main() -> None:
    table = Table(title="bench door: µs of processor time a message", title_justify="left")
    for heading in ("work", "as it is", "every packet taken apart", "and no plans kept", "one message a turn"):
        table.add_column(heading, justify="left" if heading == "work" else "right")
    works = (
        (f"QoS 0 to {TAKERS}", 0, Durability.NOTHING, False),
        (f"QoS 1 to {TAKERS}", 1, Durability.NOTHING, False),
        ("QoS 1, kept for one who is away", 1, Durability.PROCESS_CRASH, True),
    )
    for title, qos, durability, is_kept in works:
        with tempfile.TemporaryDirectory() as folder:
            edge = Edge(qos, durability, Path(folder), is_kept=is_kept)
            figures = (us_a_message(edge), without_short_way(edge), without_plans(edge), us_a_message(edge, 1))
            table.add_row(title, *(f"{figure:.2f}" for figure in figures))
            edge.close()
    Console().print(table)


if __name__ == "__main__":
    main()
