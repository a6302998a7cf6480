"""The UDP door in all states and with all inputs: nothing is raised, and everything it knows agrees."""

from copy import copy
from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from edge_in_memory import SMALL, START
from milepost.broker.admission import AdmissionRules
from milepost.broker.alert_rules import AlertRule, AlertShape
from milepost.listeners.udp.settings import UdpSettings
from milepost.model.addresses import ToArea, ToEndpoint, ToEveryone
from milepost.model.areas import Circle
from milepost.model.endpoints import EndpointId
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.messages import MessageId
from milepost.model.places import Place
from milepost.model.priorities import Priority
from milepost.model.queries import parse_query
from milepost.model.session_datagrams import (
    AcknowledgeDatagram,
    Close,
    Datagram,
    Init,
    MessageName,
    PublishDatagram,
    ReceivedDatagram,
    ReportSent,
    SessionToken,
    SubscribeDatagram,
    SubscriptionName,
    UnsubscribeDatagram,
)
from milepost.model.subscriptions import Subscription, SubscriptionId
from milepost.trust.certificates import revoke
from milepost.vetting.access import AccessAction, AccessList, AccessRule
from milepost.wire.datagrams import encode
from milepost.wire.mqtt import Connect, Version
from milepost.wire.sealed import SealedType
from simulation.invariants import check_udp_listener
from strategies import datagrams
from udp_edge_in_memory import AUTHORITY_KEY, HOME, UdpEdge, Vehicle

NAMES = ["a", "b", "c"]
LIMITS = replace(SMALL, sessions_max=4, subscriptions_max=8, queue_messages_max=3)
SETTINGS = UdpSettings(
    in_flight_max=2,
    pending_max=4,
    cached_ciphers_max=2,
    messages_per_s=20,
    messages_burst=20,
    handshakes_per_s=20,
    key_lifetime_ns=600 * SECOND_NS,
)
NOTHING_ON_T = AdmissionRules(AccessList((AccessRule(False, AccessAction.BOTH, "t"), AccessRule(True, AccessAction.BOTH, "#"))))
ALERT = AlertRule("alarm", shape=AlertShape.CORRIDOR)

picks = st.integers(0, 2**16)
"""Which of those that there are."""


def message(vehicle: Vehicle, kind: int) -> PublishDatagram:
    near = ToArea(Circle(HOME, 2_000.0))
    match kind % 6:
        case 0:
            return PublishDatagram(vehicle.message("t", b"x", reliable=True))
        case 1:
            return PublishDatagram(vehicle.message("t", b"x", to=near, priority=Priority.EMERGENCY))
        case 2:
            return PublishDatagram(vehicle.message("alarm", b"x"))
        case 3:
            return PublishDatagram(vehicle.message("t", b"x", to=ToEveryone(), reliable=True))
        case 4:
            return PublishDatagram(vehicle.message("t", b"x", source="somebody"))
        case _:
            return PublishDatagram(vehicle.message("t", b"x", to=ToEndpoint(EndpointId("b")), reliable=True, valid_s=1))


def word(vehicle: Vehicle, kind: int, detail: int) -> Datagram:
    """Something that an endpoint says."""
    subscription = SubscriptionId(1 + detail % 3)
    match kind:
        case 0:
            return message(vehicle, detail)
        case 1:
            return SubscribeDatagram(Subscription(vehicle.name, parse_query("topic:t | topic:alarm"), id=subscription))
        case 2:
            return UnsubscribeDatagram(SubscriptionName(vehicle.name, subscription))
        case 3:
            in_flight = [
                delivery.publication for session in vehicle.edge.broker.sessions for delivery in session.in_flight.values()
            ]
            source, number = (
                (in_flight[detail % len(in_flight)].source, in_flight[detail % len(in_flight)].id)
                if in_flight
                else (vehicle.name, 1)
            )
            return ReceivedDatagram(MessageName(source, MessageId(number)))
        case 4:
            return Close(vehicle.token)
        case _:
            place = Place(HOME.latitude + (detail % 5 - 2) * 0.001, HOME.longitude)
            return ReportSent(vehicle.token, replace(vehicle.report_of(), place=place))


class ListenerMachine(RuleBasedStateMachine):
    """Endpoints, attackers that replay their datagrams, and an MQTT client, at one edge."""

    @initialize(is_sealed=st.booleans(), batch_wait_ns=st.sampled_from([0, 2_000_000, 100_000_000]))
    def begin(self, is_sealed: bool, batch_wait_ns: int) -> None:
        self.edge = UdpEdge(is_sealed=is_sealed, limits=LIMITS, udp=replace(SETTINGS, batch_wait_ns=batch_wait_ns))
        self.edge.broker.alerts.rules = (ALERT,)
        self.first = [Vehicle(self.edge, name, serial=10 + number) for number, name in enumerate(NAMES)]
        self.answered: list[Vehicle] = []
        self.opened: list[Vehicle] = []
        """All sessions opened so far, including those that have ended."""
        self.recorded: list[tuple[bytes, bytes]] = []
        for who in range(2):
            self.ask_for_a_session(who, "none")
            self.send_first_datagram(0, 5, 0)

    def _receive(self, *datagrams_in: tuple[bytes, bytes]) -> None:
        """Receive datagrams; replies outside of sessions are no longer than the datagrams they answer (no amplification)."""
        self.recorded = (self.recorded + list(datagrams_in))[-50:]
        first, was_room = len(self.edge.output.order), self.edge.output.capacity
        self.edge.receive(*datagrams_in)
        if self.edge.identity is None or was_room is not None:
            return
        replies = [(address, data) for address, data in self.edge.output.order[first:] if data[0] != SealedType.DATA]
        for address in {address for _, address in datagrams_in}:
            answered = sum(len(reply) for to, reply in replies if to == address)
            assert answered <= sum(len(sent) for sent, came_from in datagrams_in if came_from == address)

    def _a_session(self, pick: int) -> Vehicle:
        return self.opened[-1 - pick % min(6, len(self.opened))]

    @rule(who=st.sampled_from(range(3)), former=st.sampled_from(["none", "own", "another", "unknown"]))
    def ask_for_a_session(self, who: int, former: str) -> None:
        vehicle = copy(self.first[who])
        vehicle.move_network()
        token = SessionToken(99) if former == "unknown" else None
        own = [one for one in self.opened if (one.name == vehicle.name) == (former == "own")]
        if former in ("own", "another") and own:
            token = own[-1].token
        self.edge.now = Instant(self.edge.now + 1)
        data, initiator = vehicle.init_bytes(former=token)
        self._receive((data, vehicle.address))
        for answer in vehicle.received_raw()[-1:]:
            if initiator is None or answer[0] == SealedType.ACK:
                reply = vehicle.read_answer(answer, initiator)
                if isinstance(reply, AcknowledgeDatagram):
                    vehicle.accept(reply)
                    self.answered.append(vehicle)

    @precondition(lambda self: self.answered)
    @rule(pick=picks, kind=st.integers(0, 7), detail=picks)
    def send_first_datagram(self, pick: int, kind: int, detail: int) -> None:
        vehicle = self.answered.pop(-1 - pick % min(3, len(self.answered)))
        self.opened.append(vehicle)
        self.edge.now = Instant(self.edge.now + 1)
        self._receive(vehicle.datagram_of(word(vehicle, kind, detail)))

    @precondition(lambda self: self.opened)
    @rule(words=st.lists(st.tuples(picks, st.integers(0, 7), picks), min_size=1, max_size=5))
    def send_datagrams(self, words: list[tuple[int, int, int]]) -> None:
        self.edge.now = Instant(self.edge.now + 1)
        self._receive(*(one.datagram_of(word(one, kind, detail)) for one, kind, detail in self._words(words)))

    def _words(self, words: list[tuple[int, int, int]]) -> list[tuple[Vehicle, int, int]]:
        return [(self._a_session(pick), kind, detail) for pick, kind, detail in words]

    @precondition(lambda self: self.opened)
    @rule(pick=picks, value=datagrams, is_own=st.booleans())
    def send_any_datagram(self, pick: int, value: Datagram, is_own: bool) -> None:
        vehicle = self._a_session(pick)
        if is_own and not isinstance(value, Init):
            value = replace(value, session=vehicle.token)
        self._receive((vehicle.sealed(encode(value)), vehicle.address))

    @precondition(lambda self: self.opened)
    @rule(pick=picks, plain=st.binary(max_size=60), is_begun=st.booleans())
    def send_invalid_datagram(self, pick: int, plain: bytes, is_begun: bool) -> None:
        vehicle = self._a_session(pick)
        head = b"\x08\x01\x11" + vehicle.token.to_bytes(8, "little") if is_begun else b""
        self._receive((vehicle.sealed(head + plain), vehicle.address))

    @precondition(lambda self: self.recorded)
    @rule(pick=picks, change=st.sampled_from(["none", "cut", "flip", "longer", "kind"]), at=picks, is_elsewhere=st.booleans())
    def send_again(self, pick: int, change: str, at: int, is_elsewhere: bool) -> None:
        data, address = self.recorded[pick % len(self.recorded)]
        if is_elsewhere:
            self.first[0].move_network()
            address = self.first[0].address
        if data:
            self._receive((_changed(data, change, at % len(data)), address))

    @rule(data=st.binary(max_size=700), kind=st.none() | st.sampled_from(SealedType))
    def send_noise(self, data: bytes, kind: SealedType | None) -> None:
        self._receive((data if kind is None else bytes((kind,)) + data, self.first[0].address))

    @precondition(lambda self: self.opened)
    @rule(pick=picks)
    def move_to_another_network(self, pick: int) -> None:
        self._a_session(pick).move_network()

    @rule(seconds=st.sampled_from([0.1, 0.3, 1.0, 2.0, 4.0, 11.0, 130.0, 3_600.0]))
    def let_time_pass(self, seconds: float) -> None:
        self.edge.pass_time(seconds)

    @rule(hours=st.sampled_from([-5, -1, 1, 5]))
    def set_the_clock(self, hours: int) -> None:
        before = len(self.edge.udp.session_table)
        self.edge.now = Instant(self.edge.now + hours * 3_600 * SECOND_NS)
        self.edge.pass_time(0)
        assert len(self.edge.udp.session_table) == before

    @rule(is_allowed=st.booleans())
    def change_the_rules(self, is_allowed: bool) -> None:
        self.edge.broker.use_rules(AdmissionRules() if is_allowed else NOTHING_ON_T)
        self.edge.run_ticks()

    @precondition(lambda self: self.edge.identity is not None)
    @rule()
    def revoke_one(self) -> None:
        assert self.edge.identity is not None
        self.edge.identity.certificate_authority.use(revoke(AUTHORITY_KEY, None, [12], START))
        self.edge.udp.expel_revoked(self.edge.now)
        self.edge.run_ticks()
        assert "c" not in {connection.session.name for connection in self.edge.udp.session_table}

    @rule(name=st.sampled_from([*NAMES, "d"]), then=st.sampled_from(["settle", "speak", "tick", "open"]), pick=picks)
    def come_by_mqtt(self, name: str, then: str, pick: int) -> None:
        """Connect by the MQTT listener, and cause another event in the same tick."""
        self.edge.open_connection().send(Connect(name, Version.V5))
        if then == "speak" and self.opened:
            vehicle = self._a_session(pick)
            datagrams_in = [vehicle.datagram_of(word(vehicle, kind, pick)) for kind in (0, 5, 4)]
            self.edge.on_batch(*datagrams_in)
        elif then == "open" and self.answered:
            vehicle = self.answered.pop()
            self.opened.append(vehicle)
            self.edge.on_batch(vehicle.datagram_of(word(vehicle, 5, pick)))
        elif then == "tick":
            self.edge.pass_time(4.0)
        self.edge.run_ticks()

    @rule(room=st.none() | st.integers(0, 3))
    def have_room_for(self, room: int | None) -> None:
        self.edge.output.capacity = room

    @invariant()
    def listener_is_consistent(self) -> None:
        check_udp_listener(self.edge)


def _changed(data: bytes, change: str, at: int) -> bytes:
    match change:
        case "cut":
            return data[:at]
        case "flip":
            return data[:at] + bytes((data[at] ^ 1 << at % 8,)) + data[at + 1 :]
        case "longer":
            return data + b"\0"
        case "kind":
            return bytes((data[0] % 7 + 1,)) + data[1:]
        case _:
            return data


TestListener = ListenerMachine.TestCase
TestListener.settings = settings(stateful_step_count=30)
