"""A UDP fleet in virtual time: one edge with the production listener, and endpoints with the client library's session.

Guarantees that are checked on every run:
- messages queued for a session that lives on are delivered to its application, none twice;
- a reliable message is answered in the end, once; within one session it is accepted once, however often it was repeated;
- when the network has recovered, every endpoint has a session with its subscriptions;
- then nothing is left over on either side.
"""

from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import count

from edge_in_memory import START, Client
from milepost.broker.session import Session as EdgeSession
from milepost.client.events import Arrival, Done, Ended, Event
from milepost.client.trust import ClientTrust
from milepost.client.udp.encryption import NoiseCredentials
from milepost.client.udp.handshake import UdpSetup
from milepost.client.udp.session import UdpPhase, UdpSession
from milepost.listeners.udp.batch_io import sockaddr_of
from milepost.listeners.udp.connection import UdpConnection
from milepost.listeners.udp.settings import UdpSettings
from milepost.model.addresses import ToContent, ToEveryone
from milepost.model.endpoints import EndpointId
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.messages import Message, MessageId
from milepost.model.queries import parse_query
from milepost.model.reports import Report
from milepost.model.session_datagrams import MessageName
from milepost.model.subscriptions import Subscription, SubscriptionId
from milepost.trust.noise import public_of
from milepost.trust.signing import signing_public_of
from simulation.invariants import check_udp_listener
from simulation.network import Network
from udp_edge_in_memory import AUTHORITY_KEY, EDGE_STATIC, HOME, UdpEdge, certificate_of

TICK_S = 0.25
BATCH_S = 0.004
"""Datagrams that arrive within this time are one batch."""

EDGE_ADDRESS = sockaddr_of("10.0.0.254", 4433)
GATHER_S = 0.002
SETTINGS = UdpSettings(key_lifetime_ns=12 * SECOND_NS, in_flight_max=4, batch_wait_ns=round(GATHER_S * SECOND_NS))
"""Short-lived keys, so that every run renews some."""

Key = tuple[str, int]
"""Source and id of a message."""


class SimulatedEdge:
    """The edge: it can be restarted, and its clock can be set."""

    def __init__(self, network: Network, *, is_sealed: bool) -> None:
        self.network = network
        self.is_sealed = is_sealed
        self.clock_off_ns = 0
        self.promised: dict[EdgeSession, set[Key]] = {}
        """Messages queued for each session; ended sessions are removed."""
        self.sessions_of: dict[str, set[EdgeSession]] = {}
        self.accepted: Counter[Key] = Counter()
        self._arrived: list[tuple[bytes, bytes]] = []
        self._seed = 1
        self._sent = 0
        self.edge: UdpEdge
        self._listener: Client
        self.start()
        network.listen(EDGE_ADDRESS, self._on_datagram)
        network.after(TICK_S, self._tick)

    def start(self) -> None:
        """Start a new process with the same keys and no state."""
        self._seed += 1
        self.edge = UdpEdge(is_sealed=self.is_sealed, udp=SETTINGS, seed=self._seed)
        self._sent = 0
        self._arrived.clear()
        self.promised.clear()
        self._set_clocks()
        self._listener = self.edge.connect("listener")
        self._listener.subscribe("#")

    def _set_clocks(self) -> None:
        self.edge.now = Instant(START + self.network.now_ns + self.clock_off_ns)
        self.edge.monotonic_now = 10**15 + self.network.now_ns

    def _on_datagram(self, data: bytes, source: bytes) -> None:
        if not self._arrived:
            self.network.after(BATCH_S, partial(self._run_tick, self.edge))
        self._arrived.append((data, source))

    def _run_tick(self, edge: UdpEdge) -> None:
        if edge is self.edge and self._arrived:
            self._set_clocks()
            arrived, self._arrived = self._arrived, []
            edge.on_batch(*arrived)
            self._run_ticks()

    def _tick(self) -> None:
        self._set_clocks()
        self.edge.pass_time(0)
        self._run_ticks()
        self.network.after(TICK_S, self._tick)

    def _run_ticks(self) -> None:
        edge = self.edge
        edge.run_ticks()
        order = edge.output.order
        for address, data in order[self._sent :]:
            self.network.send(data, EDGE_ADDRESS, address)
        self._sent = len(order)
        self._note_promises()
        if edge.udp.is_gathering:
            self.network.after(GATHER_S, partial(self._run_ticks_later, edge))

    def _run_ticks_later(self, edge: UdpEdge) -> None:
        if edge is self.edge:
            self._set_clocks()
            self._run_ticks()

    def _note_promises(self) -> None:
        for message in self._listener.messages():
            self.accepted[dict(message.properties.user)["milepost-source"], int(message.payload)] += 1
        here = [session for session in self.edge.broker.sessions if isinstance(session.connection, UdpConnection)]
        for session in here:
            self.sessions_of.setdefault(session.name, set()).add(session)
            waiting = session.queue.all() if session.queue is not None else []
            held = [*session.in_flight.values(), *(delivery for _, delivery in waiting)]
            if held:
                self.promised.setdefault(session, set()).update((one.publication.source, one.publication.id) for one in held)
        for session in set(self.promised) - set(here):
            del self.promised[session]


class Car:
    """An endpoint with the client library's session."""

    def __init__(self, network: Network, name: str, number: int, *, is_sealed: bool) -> None:
        self.network = network
        self.name = EndpointId(name)
        self.clock_off_ns = 0
        self.delivered: Counter[Key] = Counter()
        self.answered: Counter[int] = Counter()
        self.published: set[int] = set()
        self.refused: list[tuple[int, str]] = []
        self.ended: list[Ended] = []
        self._ids = count(1)
        self._ports = count(20_000 + 1_000 * number)
        self._wake_at: int | None = None
        static = bytes((number + 1,)) * 32
        credentials = NoiseCredentials(certificate_of(name, static), static, public_of(EDGE_STATIC)) if is_sealed else None
        trust = ClientTrust(signing_public_of(AUTHORITY_KEY))
        self.session = UdpSession(UdpSetup(self.name, credentials, trust), network.random.randbytes)
        self.address = b""
        self.rebind()

    @property
    def now(self) -> Instant:
        return Instant(START + self.network.now_ns + self.clock_off_ns)

    def start(self) -> None:
        self.session.start(Report(self.name, HOME, self.now), self.now)
        self.session.subscribe(Subscription(self.name, parse_query("topic:road/#"), id=SubscriptionId(1)), self.now)
        self._process()

    def rebind(self) -> None:
        """Change the address."""
        if self.address:
            self.network.leave(self.address)
        self.address = sockaddr_of("10.0.0.1", next(self._ports))
        self.network.listen(self.address, self._on_datagram)

    def publish(self, *, is_to_all: bool) -> None:
        number = next(self._ids)
        self.published.add(number)
        address = ToEveryone() if is_to_all else ToContent()
        body = str(number).encode()
        message = Message(MessageId(number), self.name, "road/1", self.now, address=address, reliable=True, body=body)
        self.session.publish(message, self.now)
        self._process()

    def _on_datagram(self, data: bytes, source: bytes) -> None:
        assert source == EDGE_ADDRESS
        self.session.on_datagram(data, self.now)
        self._process()

    def _process(self) -> None:
        for event in self.session.take_events():
            self._on_event(event)
        for data in self.session.take_outgoing():
            self.network.send(data, self.address, EDGE_ADDRESS)
        self._schedule_wake()

    def _on_event(self, event: Event) -> None:
        if isinstance(event, Arrival):
            self.delivered[event.received.message.source, event.received.message.id] += 1
            if event.receipt is not None:
                self.session.acknowledge(event.receipt)
        elif isinstance(event, Done) and isinstance(event.key, MessageName):
            self.answered[event.key.id] += 1
            if event.refused is not None:
                self.refused.append((event.key.id, event.refused.name))
        elif isinstance(event, Ended):
            self.ended.append(event)

    def _schedule_wake(self) -> None:
        """Schedule the next timer of the session; an outdated one does nothing."""
        wake_at = self.session.next_at
        if wake_at != self._wake_at and wake_at < START + 10**15:
            self._wake_at = wake_at
            self.network.after(max(0.0, (wake_at - self.now) / SECOND_NS), partial(self._wake, wake_at))

    def _wake(self, wake_at: int) -> None:
        if wake_at == self._wake_at:
            self._wake_at = None
            self.session.on_tick(self.now)
            self._process()


class UdpFleet:
    """The network, the edge and the endpoints of one run."""

    def __init__(self, seed: int, *, cars: int = 3, is_sealed: bool = True) -> None:
        self.network = Network(seed)
        self.server = SimulatedEdge(self.network, is_sealed=is_sealed)
        self.cars = [Car(self.network, f"car-{number}", number, is_sealed=is_sealed) for number in range(cars)]
        for car in self.cars:
            car.start()

    def run(self, seconds: float) -> None:
        """Advance the time, then check the listener."""
        self.network.run(seconds)
        check_udp_listener(self.server.edge)

    def run_until(self, is_reached: Callable[[], bool], seconds: float) -> float | None:
        """Advance the time until a condition holds; return the seconds, or None."""
        for step in range(round(seconds * 20)):
            if is_reached():
                return step / 20
            self.run(0.05)
        return None

    def all_have_sessions(self) -> bool:
        names = {connection.session.name for connection in self.server.edge.udp.session_table}
        are_open = all(car.session.phase in (UdpPhase.OPEN, UdpPhase.RENEWING) for car in self.cars)
        return are_open and names == {car.name for car in self.cars}

    def check_promises(self) -> None:
        """Check the guarantees that hold at any time."""
        for car in self.cars:
            assert not car.ended, f"{car.name} was ended: {car.ended}"
            assert max(car.delivered.values(), default=0) <= 1, f"{car.name} received a message twice"
            assert max(car.answered.values(), default=0) <= 1
            for number in car.published:
                sessions = len(self.server.sessions_of.get(car.name, ()))
                assert self.server.accepted[car.name, number] <= sessions, (
                    f"{car.name} {number} was accepted twice in one session"
                )

    def check_at_rest(self) -> None:
        """Check the guarantees that hold when the network has been perfect for a while."""
        self.check_promises()
        edge = self.server.edge
        assert self.all_have_sessions()
        for car in self.cars:
            assert set(car.answered) == car.published
            for number in car.published - {number for number, _ in car.refused}:
                assert self.server.accepted[car.name, number] >= 1
            session = edge.session(car.name)
            assert list(session.subscriptions) == ["#1"], f"{car.name} does not have its subscription"
            missed = self.server.promised.get(session, set()) - set(car.delivered)
            assert not missed, f"{car.name} never received {missed}"
            assert (session.in_flight, session.queue) == ({}, None)
            assert len(car.session._outbound) == 0
        assert (len(edge.udp._retransmission), edge.udp.sender.has_unsent) == (0, False)
        assert edge.udp.pending <= len(self.cars), "some may be renewing their keys"
        assert len(edge.udp.session_table._previous) <= 2 * len(self.cars), (
            "keys change every 8 s, previous ones are known for 10 s"
        )
