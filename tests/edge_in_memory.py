"""An edge without sockets: its MQTT door over streams in memory and storage in memory, in a time that the test moves."""

from collections import deque
from dataclasses import dataclass, field, replace

from milepost.broker.admission import Rules
from milepost.broker.broker import Broker
from milepost.broker.effects import Storage
from milepost.broker.limits import Limits
from milepost.broker.restore import restore
from milepost.broker.session import Session
from milepost.listeners.event_loop import ChangeWriter, TickLoop
from milepost.listeners.log import Fact
from milepost.listeners.mqtt.connection import State
from milepost.listeners.mqtt.context import MqttContext, MqttSettings
from milepost.listeners.mqtt.listener import CheckPassword, MqttListener
from milepost.model.instants import SECOND_NS, Instant
from milepost.wire.mqtt import (
    NO_PROPERTIES,
    Acknowledge,
    Code,
    Connack,
    Connect,
    Disconnect,
    Kind,
    Packet,
    Properties,
    Publish,
    Request,
    Suback,
    Subscribe,
    Version,
    Will,
    decode,
    encode,
    frame_at,
)
from storage_in_memory import KeptInMemory

START = Instant(1_900_000_000 * SECOND_NS)
SETTLES_MAX = 10_000
"""A door that wants more turns than this would want them for ever."""

SMALL = Limits(sessions_max=64, subscriptions_max=256)
"""An edge is made for every example: one made for millions would take longer to make than to test."""


class StreamInMemory:
    """What a client sends and what it has taken; `room` is how much it still takes, None for everything."""

    scheme = "mqtt"

    def __init__(self, fd: int = 0) -> None:
        self.fd = fd
        self.incoming: deque[bytes] = deque()
        self.taken = bytearray()
        self.room: int | None = None
        self.is_finished = False
        self.is_closed = False
        self.common_name: str | None = None

    def read(self) -> bytes | None:
        return self.incoming.popleft() if self.incoming else None

    def write(self, data: bytes | memoryview) -> int:
        assert not self.is_closed, "written to after its end"
        count = len(data) if self.room is None else min(self.room, len(data))
        if self.room is not None:
            self.room -= count
        self.taken += data[:count]
        return count

    @property
    def has_unsent(self) -> bool:
        return False

    def flush(self) -> None:
        """Nothing is held back."""

    def finish(self) -> None:
        self.is_finished = True

    def close(self) -> None:
        self.is_closed = True

    def maybe_common_name(self) -> str | None:
        return self.common_name


@dataclass
class LogInMemory:
    """What the door told."""

    events: list[str] = field(default_factory=list)

    def info(self, event: str, **facts: Fact) -> None:
        self.events.append(event)

    def seldom(self, event: str, **facts: Fact) -> None:
        self.events.append(event)

    def warning(self, event: str, **facts: Fact) -> None:
        self.events.append(event)


class EdgeInMemory:
    """Corridor, desk, keeper and door, joined as the service joins them."""

    def __init__(
        self,
        storage: Storage | None = None,
        *,
        limits: Limits = SMALL,
        settings: MqttSettings | None = None,
        rules: Rules | None = None,
        now: Instant = START,
        check_password: CheckPassword | None = None,
    ) -> None:
        self.storage = storage if storage is not None else KeptInMemory()
        self.limits, self.settings, self.rules = limits, settings or MqttSettings(), rules or Rules()
        self.now = now
        self.log = LogInMemory()
        self.broker = Broker(limits)
        restore(self.broker, self.storage.load(), now)
        self.broker.use(self.rules)
        self.context = MqttContext(self.broker, self.settings, self.log)
        self.door = MqttListener(self.context, check_password)
        self.settling = TickLoop(self.broker, ChangeWriter(self.broker, self.storage, self.log), self.door)
        self.fds = 0

    def restarted(self, *, after_s: float = 0, limits: Limits | None = None) -> "EdgeInMemory":
        """Another process over the same storage: this one died without a word, `after_s` ago."""
        now = Instant(self.now + int(after_s * SECOND_NS))
        return EdgeInMemory(self.storage, limits=limits or self.limits, settings=self.settings, rules=self.rules, now=now)

    def settle(self) -> None:
        """Turns until nothing more is wanted, and one to keep what the last ends left to be kept."""
        for _ in range(SETTLES_MAX):
            if not self.settling.settle(self.now):
                self.settling.settle(self.now)
                return
        raise AssertionError("the door wants turns for ever")

    def pass_time(self, seconds: float) -> None:
        self.now = Instant(self.now + int(seconds * SECOND_NS))
        self.settling.tick(self.now)
        self.settle()

    def enter(self, version: Version = Version.V5) -> "Client":
        """Somebody who has not said anything yet."""
        self.fds += 1
        return Client(self, version, StreamInMemory(self.fds))

    def connect(
        self,
        name: str,
        version: Version = Version.V5,
        *,
        clean: bool = True,
        expiry_s: int = 0,
        will: Will | None = None,
        properties: Properties = NO_PROPERTIES,
        keep_alive_s: int = 0,
    ) -> "Client":
        """A client whose CONNECT was answered."""
        client = self.enter(version)
        if expiry_s:
            properties = replace(properties, session_expiry_s=expiry_s)
        client.send(Connect(name, version, clean, keep_alive_s, will, properties=properties))
        self.settle()
        client.look()
        return client

    def session(self, name: str) -> Session:
        session = self.broker.sessions.maybe(name)
        assert session is not None, f"there is no session {name}"
        return session

    @property
    def kept(self) -> KeptInMemory:
        assert isinstance(self.storage, KeptInMemory)
        return self.storage


class Client:
    """One connection as its client sees it; `inbox` holds what came and nobody looked at yet."""

    def __init__(self, edge: EdgeInMemory, version: Version, stream: StreamInMemory) -> None:
        self.edge, self.version, self.stream = edge, version, stream
        self.link = edge.door.enter(stream, "10.0.0.1")
        self.inbox: list[Packet] = []
        self.connack: Connack | None = None
        self._at = 0
        self._number = 0

    @property
    def is_open(self) -> bool:
        return self.link.state < State.CLOSING

    def next_number(self) -> int:
        self._number = self._number % 65_535 + 1
        return self._number

    def send(self, *packets: Packet) -> None:
        """Say something; nothing is answered before the turn is over."""
        self.send_bytes(b"".join(encode(packet, self.version) for packet in packets))

    def send_bytes(self, *chunks: bytes) -> None:
        for chunk in chunks:
            self.stream.incoming.append(chunk)
            self.edge.door.on_readable(self.link, self.edge.now)

    def ask(self, *packets: Packet) -> list[Packet]:
        """Say something and see what comes before everything is quiet."""
        self.send(*packets)
        self.edge.settle()
        return self.take()

    def look(self) -> None:
        """Read what has come since."""
        data = bytes(self.stream.taken)
        while (frame := frame_at(data, self._at, len(data) + 1)) is not None:
            packet = decode(data[self._at], data[frame[0] : frame[1]], self.version)
            self._at = frame[1]
            if isinstance(packet, Connack):
                self.connack = packet
            else:
                self.inbox.append(packet)

    def take(self) -> list[Packet]:
        """All that came, taken out."""
        self.look()
        found, self.inbox = self.inbox, []
        return found

    def messages(self) -> list[Publish]:
        """The messages that came, taken out together with all else."""
        return [packet for packet in self.take() if isinstance(packet, Publish)]

    def bodies(self) -> list[bytes]:
        return [message.payload for message in self.messages()]

    def subscribe(self, *requests: Request | str, qos: int = 0, label: int = 0, properties: Properties = NO_PROPERTIES) -> Suback:
        """Subscribe; gives the answer, what else came stays in the inbox."""
        asked = tuple(Request(one, qos) if isinstance(one, str) else one for one in requests)
        if label:
            properties = replace(properties, subscription_ids=(label,))
        self.send(Subscribe(self.next_number(), asked, properties))
        self.edge.settle()
        self.look()
        (answer,) = [packet for packet in self.inbox if isinstance(packet, Suback)]
        self.inbox.remove(answer)
        return answer

    def publish(
        self, topic: str, body: bytes = b"", qos: int = 0, *, retain: bool = False, properties: Properties = NO_PROPERTIES
    ) -> int | None:
        """Publish and let the turn end; gives the number it went under."""
        number = self.next_number() if qos else None
        self.send(Publish(topic, body, qos, retain, False, number, properties))
        self.edge.settle()
        return number

    def acknowledge(self, kind: Kind, number: int | None, code: Code = Code.SUCCESS) -> list[Packet]:
        assert number is not None, "what has no number is not acknowledged"
        return self.ask(Acknowledge(kind, number, code))

    def ended_with(self) -> Code | None:
        """The code of DISCONNECT, if that was the last thing heard."""
        self.look()
        last = self.inbox[-1] if self.inbox else None
        return last.code if isinstance(last, Disconnect) else None

    def lose(self) -> None:
        """The connection breaks."""
        self.stream.incoming.append(b"")
        self.edge.door.on_readable(self.link, self.edge.now)
        self.edge.settle()

    def leave(self, code: Code = Code.SUCCESS, properties: Properties = NO_PROPERTIES) -> None:
        """The client says goodbye and goes."""
        self.send(Disconnect(code, properties))
        self.edge.settle()
        self.lose()

    def take_more(self, room: int | None = None) -> None:
        """The client reads again: the connection can be written."""
        self.stream.room = room
        self.edge.door.on_writable(self.link, self.edge.now)
        self.edge.settle()
