"""What each optimisation of the MQTT listener saves, measured without sockets: with and without it, in one run.

`python -m bench.mqtt_listener` prints CPU µs per message; no broker process, no network, no peer.
"""

import tempfile
import time
from pathlib import Path
from unittest.mock import patch

from rich.console import Console
from rich.table import Table

from bench.edge_load.brokers import access_rules
from milepost.broker.admission import AdmissionRules
from milepost.broker.broker import Broker
from milepost.broker.limits import BrokerLimits
from milepost.broker.routing import RouteCache
from milepost.config.log_format import Level
from milepost.listeners.event_loop import ChangeWriter, TickCommitter
from milepost.listeners.mqtt import listener as listener_module
from milepost.listeners.mqtt.connection import MqttConnection
from milepost.listeners.mqtt.context import MqttContext, MqttSettings
from milepost.listeners.mqtt.listener import MqttListener
from milepost.model.durability import Durability
from milepost.model.instants import Instant
from milepost.runtime.structured_log import StructuredLog
from milepost.storage import open_storage
from milepost.vetting import AccessList
from milepost.wire.mqtt import Connect, FilterRequest, Publish, Subscribe, Version, encode

PUBLISHERS, SUBSCRIBERS, MESSAGES, REPEATS = 100, 20, 4_000, 5
DISCONNECT = b"\xe0\x00"


class NullStream:
    """A stream that accepts and discards all data."""

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

    def maybe_certificate_user(self) -> str | None:
        return None


class Edge:
    """A listener with publishers and subscribers."""

    def __init__(
        self, qos: int, durability: Durability, folder: Path, *, is_durable: bool = False, has_rules: bool = False
    ) -> None:
        broker = Broker(BrokerLimits(queue_messages_max=50_000))
        if has_rules:
            broker.use_rules(AdmissionRules(AccessList(access_rules())))
        log = StructuredLog(Level.ERROR)
        self._storage = open_storage(folder, durability)
        self._storage.load()
        context = MqttContext(broker, MqttSettings(), log)
        self._listener = MqttListener(context)
        self._committer = TickCommitter(broker, ChangeWriter(broker, self._storage, log), self._listener)
        self._qos = qos
        self._subscribers = [
            self._connect(f"subscriber-{number}", clean_start=not is_durable)
            for number in range(1 if is_durable else SUBSCRIBERS)
        ]
        for subscriber in self._subscribers:
            self._send(subscriber, encode(Subscribe(1, (FilterRequest("bench/#", qos),)), Version.V3))
            if is_durable:
                self._send(subscriber, DISCONNECT)
        self._subscribers = [] if is_durable else self._subscribers
        self._publishers = [self._connect(f"publisher-{number}") for number in range(PUBLISHERS)]
        number = 1 if qos else None
        self._packets = [
            encode(Publish(f"bench/{one}", b"x" * 64, qos=qos, packet_id=number), Version.V3) for one in range(PUBLISHERS)
        ]

    def close(self) -> None:
        self._storage.close()

    def clear_route_cache(self) -> None:
        self._listener.context.broker.route_cache.change()

    def publish(self, count: int, per_tick: int) -> None:
        """Publish *count* messages, *per_tick* of them in one tick; all subscribers acknowledge at once."""
        for start in range(0, count, per_tick):
            now = Instant(time.time_ns())
            for one in range(start, start + per_tick):
                self._listener.on_bytes(self._publishers[one % PUBLISHERS], self._packets[one % PUBLISHERS], now)
            self._committer.commit(now)
            if self._qos and self._subscribers:
                for subscriber in self._subscribers:
                    assert subscriber.session is not None
                    numbers = list(subscriber.session.in_flight)
                    self._listener.on_bytes(subscriber, b"".join(b"\x40\x02" + one.to_bytes(2, "big") for one in numbers), now)
                self._committer.commit(now)

    def _connect(self, name: str, *, clean_start: bool = True) -> MqttConnection:
        connection = self._listener.add_connection(NullStream(), "bench")
        self._send(connection, encode(Connect(name, Version.V3, clean_start=clean_start), Version.V3))
        return connection

    def _send(self, connection: MqttConnection, data: bytes) -> None:
        now = Instant(time.time_ns())
        self._listener.on_bytes(connection, data, now)
        self._committer.commit(now)


def us_per_message(edge: Edge, per_tick: int = 50) -> float:
    """Return the best of a few rounds: noise only adds time."""
    edge.publish(MESSAGES // 4, per_tick)
    times_us = []
    for _ in range(REPEATS):
        began = time.process_time()
        edge.publish(MESSAGES, per_tick)
        times_us.append((time.process_time() - began) / MESSAGES * 1e6)
    return min(times_us)


def without_fast_path(edge: Edge) -> float:
    """Measure with every packet decoded in full."""

    def skip(*arguments: object) -> object:
        return arguments[-2] if len(arguments) == 6 else arguments[-1]

    with patch.object(listener_module, "publish_fast_path", skip), patch.object(listener_module, "acknowledge_fast_path", skip):
        return us_per_message(edge)


def without_route_cache(edge: Edge) -> float:
    """Measure without cached routes: subscribers are matched anew for each message."""
    with (
        patch.object(RouteCache, RouteCache.find_cacheable.__name__, lambda *_: None),
        patch("milepost.broker.routing.ROUTES_MAX", 0),
    ):
        edge.clear_route_cache()
        times_us = without_fast_path(edge)
    edge.clear_route_cache()
    return times_us


def main() -> None:
    table = Table(title="Benchmark: MQTT listener, CPU µs per message", title_justify="left")
    for heading in ("workload", "optimised", "no fast path", "nor route cache", "one message per tick"):
        table.add_column(heading, justify="left" if heading == "workload" else "right")
    workloads = (
        (f"QoS 0 to {SUBSCRIBERS}", 0, Durability.NONE, False, False),
        (f"QoS 0 to {SUBSCRIBERS}, 20 access rules", 0, Durability.NONE, False, True),
        (f"QoS 1 to {SUBSCRIBERS}", 1, Durability.NONE, False, False),
        (f"QoS 1 to {SUBSCRIBERS}, 20 access rules", 1, Durability.NONE, False, True),
        ("QoS 1, stored for an offline session", 1, Durability.PROCESS_CRASH, True, False),
    )
    for title, qos, durability, is_durable, has_rules in workloads:
        with tempfile.TemporaryDirectory() as folder:
            edge = Edge(qos, durability, Path(folder), is_durable=is_durable, has_rules=has_rules)
            results = (us_per_message(edge), without_fast_path(edge), without_route_cache(edge), us_per_message(edge, 1))
            table.add_row(title, *(f"{result:.2f}" for result in results))
            edge.close()
    Console().print(table)


if __name__ == "__main__":
    main()
