"""An edge without sockets: an MQTT listener over streams and storage in memory, in a time that the test controls."""

from collections import deque
from dataclasses import dataclass, field, replace

from milepost.broker.admission import AdmissionRules
from milepost.broker.broker import Broker
from milepost.broker.effects import Storage
from milepost.broker.limits import BrokerLimits
from milepost.broker.restore import restore
from milepost.broker.session import Session
from milepost.listeners.diagnostic_log import LogValue
from milepost.listeners.event_loop import ChangeWriter, TickCommitter
from milepost.listeners.mqtt.connection import MqttConnectionState
from milepost.listeners.mqtt.context import MqttContext, MqttSettings
from milepost.listeners.mqtt.listener import CheckPassword, MqttListener
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.priorities import Priority
from milepost.vetting.access import AccessAction, AccessList, AccessRule
from milepost.wire.mqtt import (
    NO_PROPERTIES,
    Acknowledge,
    Code,
    Connack,
    Connect,
    Disconnect,
    FilterRequest,
    Packet,
    PacketType,
    Properties,
    Publish,
    Suback,
    Subscribe,
    Version,
    Will,
    decode,
    encode,
    frame_at,
)
from storage_in_memory import StorageInMemory

START = Instant(1_900_000_000 * SECOND_NS)
TICKS_MAX = 10_000
"""Maximum ticks until the edge is idle; more would be an endless loop."""

OPEN = AdmissionRules(AccessList([AccessRule(True, AccessAction.SEND, "#", priority=Priority.EMERGENCY)]))
"""Rules that allow all clients to send any message, for tests of the stages after admission."""

SMALL = BrokerLimits(sessions_max=64, subscriptions_max=256)
"""Small tables: an edge is created for every example of a property test."""


class StreamInMemory:
    """Bytes from a client, and bytes written to it; `capacity`: bytes that it still accepts, None: unlimited."""

    scheme = "mqtt"

    def __init__(self, fd: int = 0) -> None:
        self.fd = fd
        self.incoming: deque[bytes] = deque()
        self.written = bytearray()
        self.capacity: int | None = None
        self.is_finished = False
        self.is_closed = False
        self.user: str | None = None
        """The user in the client's certificate."""

    def read(self) -> bytes | None:
        return self.incoming.popleft() if self.incoming else None

    def write(self, data: bytes | memoryview) -> int:
        assert not self.is_closed, "written to after it was closed"
        count = len(data) if self.capacity is None else min(self.capacity, len(data))
        if self.capacity is not None:
            self.capacity -= count
        self.written += data[:count]
        return count

    @property
    def has_unsent(self) -> bool:
        return False

    def flush(self) -> None:
        """Do nothing: no bytes are buffered."""

    def finish(self) -> None:
        self.is_finished = True

    def close(self) -> None:
        self.is_closed = True

    def maybe_certificate_user(self) -> str | None:
        return self.user


@dataclass
class LogInMemory:
    """The events that the listeners logged."""

    events: list[str] = field(default_factory=list)

    def info(self, event: str, **fields: LogValue) -> None:
        self.events.append(event)

    def info_limited(self, event: str, **fields: LogValue) -> None:
        self.events.append(event)

    def warning(self, event: str, **fields: LogValue) -> None:
        self.events.append(event)


class EdgeInMemory:
    """Broker, storage and MQTT listener, assembled as in the running edge."""

    def __init__(
        self,
        storage: Storage | None = None,
        *,
        limits: BrokerLimits = SMALL,
        settings: MqttSettings | None = None,
        rules: AdmissionRules | None = None,
        now: Instant = START,
        check_password: CheckPassword | None = None,
    ) -> None:
        self.storage = storage if storage is not None else StorageInMemory()
        self.limits, self.settings, self.rules = limits, settings or MqttSettings(), rules or OPEN
        self.now = now
        self.log = LogInMemory()
        self.broker = Broker(limits)
        self.broker.use_rules(self.rules)
        restore(self.broker, self.storage.load(), now)
        self.broker.enforce_rights()
        self.context = MqttContext(self.broker, self.settings, self.log)
        self.listener = MqttListener(self.context, check_password)
        self.committer = TickCommitter(self.broker, ChangeWriter(self.broker, self.storage, self.log), self.listener)
        self.fds = 0

    def restarted(self, *, after_s: float = 0, limits: BrokerLimits | None = None) -> "EdgeInMemory":
        """Return a new process over the same storage, `after_s` after this one crashed."""
        now = Instant(self.now + int(after_s * SECOND_NS))
        return EdgeInMemory(self.storage, limits=limits or self.limits, settings=self.settings, rules=self.rules, now=now)

    def run_ticks(self) -> None:
        """Run ticks until none is needed, and one more to store what the last one left."""
        for _ in range(TICKS_MAX):
            if not self.committer.commit(self.now):
                self.committer.commit(self.now)
                return
        raise AssertionError("the edge never becomes idle")

    def pass_time(self, seconds: float) -> None:
        self.now = Instant(self.now + int(seconds * SECOND_NS))
        self.committer.on_timer(self.now)
        self.run_ticks()

    def open_connection(self, version: Version = Version.V5) -> "Client":
        """Return a client that has not sent CONNECT yet."""
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
        """Return a client whose CONNECT was answered."""
        client = self.open_connection(version)
        if expiry_s:
            properties = replace(properties, session_expiry_s=expiry_s)
        client.send(Connect(name, version, clean, keep_alive_s, will, properties=properties))
        self.run_ticks()
        client.read_packets()
        return client

    def session(self, name: str) -> Session:
        session = self.broker.sessions.find(name)
        assert session is not None, f"there is no session {name}"
        return session

    @property
    def stored(self) -> StorageInMemory:
        assert isinstance(self.storage, StorageInMemory)
        return self.storage


class Client:
    """The client side of one connection; `inbox` holds packets that were received and not taken yet."""

    def __init__(self, edge: EdgeInMemory, version: Version, stream: StreamInMemory) -> None:
        self.edge, self.version, self.stream = edge, version, stream
        self.connection = edge.listener.add_connection(stream, "10.0.0.1")
        self.inbox: list[Packet] = []
        self.connack: Connack | None = None
        self._at = 0
        self._number = 0

    @property
    def is_open(self) -> bool:
        return self.connection.state < MqttConnectionState.CLOSING

    def next_number(self) -> int:
        self._number = self._number % 65_535 + 1
        return self._number

    def send(self, *packets: Packet) -> None:
        """Send packets; replies follow at the end of the tick."""
        self.send_bytes(b"".join(encode(packet, self.version) for packet in packets))

    def send_bytes(self, *chunks: bytes) -> None:
        for chunk in chunks:
            self.stream.incoming.append(chunk)
            self.edge.listener.on_readable(self.connection, self.edge.now)

    def request(self, *packets: Packet) -> list[Packet]:
        """Send packets, run the edge until it is idle, and return what was received."""
        self.send(*packets)
        self.edge.run_ticks()
        return self.take()

    def read_packets(self) -> None:
        """Decode the packets received since."""
        data = bytes(self.stream.written)
        while (frame := frame_at(data, self._at, len(data) + 1)) is not None:
            packet = decode(data[self._at], data[frame[0] : frame[1]], self.version)
            self._at = frame[1]
            if isinstance(packet, Connack):
                self.connack = packet
            else:
                self.inbox.append(packet)

    def take(self) -> list[Packet]:
        """Return and remove all received packets."""
        self.read_packets()
        found, self.inbox = self.inbox, []
        return found

    def messages(self) -> list[Publish]:
        """Return the received messages, and remove all received packets."""
        return [packet for packet in self.take() if isinstance(packet, Publish)]

    def bodies(self) -> list[bytes]:
        return [message.payload for message in self.messages()]

    def subscribe(
        self, *requests: FilterRequest | str, qos: int = 0, subscription_id: int = 0, properties: Properties = NO_PROPERTIES
    ) -> Suback:
        """Subscribe and return the SUBACK; other packets remain in the inbox."""
        filters = tuple(FilterRequest(one, qos) if isinstance(one, str) else one for one in requests)
        if subscription_id:
            properties = replace(properties, subscription_ids=(subscription_id,))
        self.send(Subscribe(self.next_number(), filters, properties))
        self.edge.run_ticks()
        self.read_packets()
        (answer,) = [packet for packet in self.inbox if isinstance(packet, Suback)]
        self.inbox.remove(answer)
        return answer

    def publish(
        self, topic: str, body: bytes = b"", qos: int = 0, *, retain: bool = False, properties: Properties = NO_PROPERTIES
    ) -> int | None:
        """Publish, run the edge until it is idle, and return the packet id."""
        number = self.next_number() if qos else None
        self.send(Publish(topic, body, qos, retain, False, number, properties))
        self.edge.run_ticks()
        return number

    def acknowledge(self, kind: PacketType, number: int | None, code: Code = Code.SUCCESS) -> list[Packet]:
        assert number is not None, "a packet without an id is not acknowledged"
        return self.request(Acknowledge(kind, number, code))

    def ended_with(self) -> Code | None:
        """Return the code of DISCONNECT, if that was the last packet received."""
        self.read_packets()
        last = self.inbox[-1] if self.inbox else None
        return last.code if isinstance(last, Disconnect) else None

    def drop_connection(self) -> None:
        """Break the connection."""
        self.stream.incoming.append(b"")
        self.edge.listener.on_readable(self.connection, self.edge.now)
        self.edge.run_ticks()

    def disconnect(self, code: Code = Code.SUCCESS, properties: Properties = NO_PROPERTIES) -> None:
        """Send DISCONNECT and close the connection."""
        self.send(Disconnect(code, properties))
        self.edge.run_ticks()
        self.drop_connection()

    def read_more(self, room: int | None = None) -> None:
        """Let the client read again: the connection is writable."""
        self.stream.capacity = room
        self.edge.listener.on_writable(self.connection, self.edge.now)
        self.edge.run_ticks()
