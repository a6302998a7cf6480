"""The files that a message runs through are few, and the ones that docs/walk.md names, in its order."""

import socket
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from time import monotonic

from edge_in_memory import SMALL, START, LogInMemory
from milepost.broker.broker import Broker, ConnectResult
from milepost.broker.session import Connection
from milepost.eventlog.memory import MemoryStore
from milepost.federation.limits import SiteLimits
from milepost.federation.member import SiteMember
from milepost.listeners.acceptor import MqttAcceptor, TcpAcceptor, listen_at
from milepost.listeners.event_loop import ChangeWriter, EventLoop, TickCommitter
from milepost.listeners.mqtt.context import MqttContext, MqttSettings
from milepost.listeners.mqtt.listener import MqttListener
from milepost.model.endpoints import EndpointId
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.queries import OnTopic
from milepost.model.site_records import EdgeRef
from milepost.model.subscriptions import Subscription
from milepost.runtime.membership import SiteLink
from milepost.vetting.access import ClientIdentity
from milepost.vetting.rates import UNLIMITED
from milepost.wire.mqtt import (
    Acknowledge,
    Connack,
    Connect,
    FilterRequest,
    Packet,
    Properties,
    Publish,
    Suback,
    Subscribe,
    Version,
    decode,
    encode,
    frame_at,
)
from storage_in_memory import StorageInMemory
from tracing import traced_files, walk_files, without_model

PUBLISH_FILES_MAX = 20
MOVE_FILES_MAX = 34
CAR = EndpointId("car")
WAIT_S = 20.0


class TcpEdge:
    """An edge over real sockets, whose event loop runs only while the test runs it."""

    def __init__(self) -> None:
        self.loop = EventLoop()
        self.broker = Broker(SMALL)
        log = LogInMemory()
        self.listener = MqttListener(MqttContext(self.broker, MqttSettings(), log))
        tick = TickCommitter(self.broker, ChangeWriter(self.broker, StorageInMemory(), log), self.listener)
        self.loop.at_end_of_tick(tick.commit)
        self._acceptor = TcpAcceptor(self.loop, listen_at("127.0.0.1", 0), MqttAcceptor(self.loop, self.listener).accept)
        self.address = ("127.0.0.1", int(self._acceptor.address.rpartition(":")[2]))

    def close(self) -> None:
        self._acceptor.close()
        self.turn_until(lambda: not self.listener.connections)  # it detects that its clients have disconnected
        self.loop.close()

    def turn_until(self, is_done: Callable[[], bool]) -> None:
        deadline = monotonic() + WAIT_S
        while not is_done():
            assert monotonic() < deadline, "nothing came"
            self.loop.run_once(0.01)


class TcpClient:
    """A client that decodes only outside of the traced part."""

    def __init__(self, edge: TcpEdge, name: str) -> None:
        self.edge = edge
        self.socket = socket.create_connection(edge.address)
        self.socket.setblocking(False)
        self.data = b""
        self.exchange(Connect(name, Version.V5), Connack)

    def read(self) -> bytes:
        with suppress(BlockingIOError):
            self.data += self.socket.recv(65_536)
        return self.data

    def exchange(self, packet: Packet, expected: type[Packet]) -> None:
        self.socket.sendall(encode(packet, Version.V5))
        self.edge.turn_until(lambda: bool(self.read()))
        assert isinstance(self.take(), expected)

    def take(self) -> Packet:
        frame = frame_at(self.data, 0, len(self.data) + 1)
        assert frame is not None
        packet = decode(self.data[0], self.data[frame[0] : frame[1]], Version.V5)
        self.data = self.data[frame[1] :]
        return packet


@contextmanager
def edge_with_two_clients() -> Iterator[tuple[TcpEdge, TcpClient, TcpClient]]:
    edge = TcpEdge()
    publisher, receiver = TcpClient(edge, "p"), TcpClient(edge, "r")
    receiver.exchange(Subscribe(1, (FilterRequest("road/#", 1),)), Suback)
    try:
        yield edge, publisher, receiver
    finally:
        publisher.socket.close()
        receiver.socket.close()
        edge.close()


def test_an_mqtt_publish_runs_through_few_files_and_those_of_the_walk() -> None:
    """A PUBLISH at QoS 1 with a property takes the long path: from the socket through every stage, back to a socket."""
    with edge_with_two_clients() as (edge, publisher, receiver):
        packet = encode(Publish("road/i80", b"ice", 1, False, False, 7, Properties(content_type="text/plain")), Version.V5)

        def publish() -> None:
            publisher.socket.sendall(packet)
            edge.turn_until(lambda: bool(publisher.read()) and bool(receiver.read()))

        publish()  # the topic is known from now on
        assert isinstance(publisher.take(), Acknowledge)
        assert isinstance(receiver.take(), Publish)
        files = without_model(traced_files(publish))
    assert len(files) <= PUBLISH_FILES_MAX, sorted(files)
    assert files == walk_files("An MQTT publish")


class SiteEdge:
    """An edge of a site, without listeners: its broker, its membership and the log in memory."""

    def __init__(self, store: MemoryStore, name: str) -> None:
        self.broker = Broker(SMALL, EndpointId(name))
        self.member = SiteMember(self.broker, EdgeRef("north", name), SiteLimits())
        self.calls: deque[Callable[[Instant], None]] = deque()
        self.connection = SiteLink(self.member, store.open(), self.calls.append, LogInMemory())
        self.connection.start()


class SmallSite:
    """Two edges that share a log; time passes only while they settle."""

    def __init__(self) -> None:
        self.now = START
        self.store = MemoryStore(lambda: self.now)
        self.edges = [SiteEdge(self.store, name) for name in "ab"]
        self.settle()

    def settle(self) -> None:
        for _ in range(20):
            self.now = Instant(self.now + 10_000_000)
            for edge in self.edges:
                while edge.calls:
                    edge.calls.popleft()(self.now)
                edge.broker.take_changes()
                edge.broker.take_actions()
                edge.connection.flush(self.now)
            self.store.run_all()

    def connect(self, edge: SiteEdge) -> ConnectResult:
        """Connect the car at an edge, as a listener does: wait for its session first, if that is elsewhere."""
        identity = ClientIdentity(CAR)
        if edge.broker.arrive(CAR, identity, None, self.now, clean_start=False) is False:
            self.settle()
        opened = edge.broker.connect(
            CAR,
            connection=Connection(),
            identity=identity,
            rates=UNLIMITED,
            clean_start=False,
            expiry_ns=1_000 * SECOND_NS,
            window=10,
            encoding=5,
            will=None,
            now=self.now,
        )
        assert isinstance(opened, ConnectResult)
        self.settle()
        return opened


def test_a_move_between_edges_runs_through_the_files_of_the_walk() -> None:
    """A stored session with a subscription moves from one edge to the other, and back."""
    site = SmallSite()
    first, second = site.edges
    opened = site.connect(first)
    subscription = Subscription(CAR, OnTopic("t/#"), qos=1)
    assert first.broker.subscribe(opened.session, "t/#", subscription, site.now) is None
    site.settle()
    assert list(site.connect(second).session.subscriptions) == ["t/#"]
    assert site.connect(first).is_resumed
    files = without_model(traced_files(lambda: site.connect(second)))
    assert len(files) <= MOVE_FILES_MAX, sorted(files)
    assert files == walk_files("A move between edges")
