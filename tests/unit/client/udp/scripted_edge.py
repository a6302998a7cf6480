"""A minimal edge without a socket, encrypted or plain, and a network in virtual time that loses, duplicates and reorders.

It follows the wire document and shares no code with the UDP listener, so that the client is tested against the specification.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import count
from random import Random

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from milepost.client.events import Arrival, Event
from milepost.client.trust import ClientTrust
from milepost.client.udp.encryption import NoiseCredentials
from milepost.client.udp.handshake import UdpSetup
from milepost.client.udp.session import UdpSession
from milepost.model.endpoints import EndpointId
from milepost.model.instants import FOREVER, SECOND_NS, Instant
from milepost.model.messages import Message, MessageId
from milepost.model.places import Place
from milepost.model.reasons import Reason, Refused
from milepost.model.reports import Report
from milepost.model.session_datagrams import (
    AcknowledgeDatagram,
    Close,
    CloseCause,
    Datagram,
    Heartbeat,
    Init,
    MessageName,
    PublishDatagram,
    ReceivedDatagram,
    SessionToken,
    SubscribeDatagram,
    SubscriptionName,
    UnsubscribeDatagram,
    refusal_of,
)
from milepost.model.subscriptions import SubscriptionId
from milepost.trust.certificates import EDGE, CertificateAuthority, issue
from milepost.trust.cookies import Macs, cookie_of, reset_key, reset_of, seal_cookie
from milepost.trust.noise import NoiseResponder, SessionKeys, public_of
from milepost.trust.replay_window import ReplayWindow
from milepost.trust.signing import Signer, signing_public_of
from milepost.wire.datagrams import decode, encode
from milepost.wire.sealed import (
    COOKIE_BYTES,
    DATA_HEAD_BYTES,
    MACS_BYTES,
    SealedType,
    counter_of,
    data_head,
    hello_from_bytes,
    nonce_of,
    reset_datagram,
    token_of,
)

NOW = Instant(1_900_000_000 * SECOND_NS)
CAR = EndpointId("car-1")
HERE = Place(48.1, 11.6)
INTERVAL_NS = SECOND_NS
KEYS_NS = 60 * SECOND_NS

CA_KEY, CAR_KEY, EDGE_KEY, SIGNING_KEY = (bytes([number]) * 32 for number in (1, 2, 3, 4))
CA = CertificateAuthority(signing_public_of(CA_KEY))
LATER = Instant(2 * NOW)
CAR_CERTIFICATE = issue(CA_KEY, id=CAR, role="vehicle", key=public_of(CAR_KEY), not_before=NOW, not_after=LATER, serial=1)
EDGE_CERTIFICATE = issue(
    CA_KEY,
    id="edge-1",
    role=EDGE,
    key=public_of(EDGE_KEY),
    not_before=NOW,
    not_after=LATER,
    serial=2,
    signing_key=signing_public_of(SIGNING_KEY),
)
SIGNER = Signer(SIGNING_KEY, EDGE_CERTIFICATE)
NOISE_CREDENTIALS = NoiseCredentials(CAR_CERTIFICATE, CAR_KEY, public_of(EDGE_KEY))


def make_session(*, is_sealed: bool = True, seed: int = 0, pending_max: int = 1_000, untaken_max: int = 1_000) -> UdpSession:
    setup = UdpSetup(
        CAR, NOISE_CREDENTIALS if is_sealed else None, ClientTrust(signing_public_of(CA_KEY)), pending_max, untaken_max
    )
    return UdpSession(setup, Random(seed).randbytes)


def report_at(now: Instant, place: Place = HERE) -> Report:
    return Report(CAR, place, now)


def message(number: int, *, source: str = CAR, reliable: bool = True, body: bytes = b"", now: Instant = NOW) -> Message:
    return Message(MessageId(number), EndpointId(source), "road/i80", now, reliable=reliable, body=body)


@dataclass
class EdgeSession:
    """The edge's state of a session."""

    keys: SessionKeys | None
    window: ReplayWindow = field(default_factory=ReplayWindow)
    counter: int = 0
    subscriptions: set[SubscriptionId] = field(default_factory=set)
    is_confirmed: bool = False


class ScriptedEdge:
    """Answers as the wire document requires; tests set its fields to make it deviate."""

    def __init__(self, *, is_sealed: bool = True, keys_ns: int | None = KEYS_NS, interval_ns: int = INTERVAL_NS) -> None:
        self.is_sealed = is_sealed
        self.keys_ns = keys_ns if is_sealed else None
        self.interval_ns = interval_ns
        self.requires_cookie = False
        self.refuses: dict[type[Datagram], Refused] = {}
        self.received: list[Datagram] = []
        self.inits: list[bytes] = []
        self.sessions: dict[int, EdgeSession] = {}
        self._acks: dict[bytes, bytes] = {}
        self._sent_at = 0
        self._tokens = count(1_000)
        self._random = Random(7)
        self._responder = NoiseResponder(EDGE_KEY)
        self._macs = Macs(public_of(EDGE_KEY))

    @property
    def token(self) -> int:
        """The newest session."""
        return max(self.sessions)

    def names(self) -> list[tuple[str, int]]:
        """Return the keys of the received messages, in order."""
        return [one.message.key for one in self.received if isinstance(one, PublishDatagram)]

    def of(self, kind: type[Datagram]) -> list[Datagram]:
        return [one for one in self.received if isinstance(one, kind)]

    def forget(self) -> None:
        """Lose all sessions, as a restart does."""
        self.sessions.clear()
        self._acks.clear()

    def on_datagram(self, data: bytes, now: Instant) -> list[bytes]:
        if not self.is_sealed:
            return self._on_plain(decode(data), data)
        if data[0] == SealedType.INIT:
            return self._on_init(data)
        assert data[0] == SealedType.DATA
        token = token_of(data)
        if token not in self.sessions:
            return [reset_datagram(token, reset_of(reset_key(EDGE_KEY), token))]
        session = self.sessions[token]
        assert session.keys is not None
        if not session.window.is_new(counter_of(data)):
            return []
        plain = AESGCM(session.keys.receive).decrypt(nonce_of(counter_of(data)), data[DATA_HEAD_BYTES:], None)
        session.window.take(counter_of(data))
        return self._on_value(decode(plain), token)

    def _on_init(self, data: bytes) -> list[bytes]:
        self.inits.append(data)
        assert self._macs.is_mac1_valid(data)
        cookie = cookie_of(b"secret", b"address")
        if self.requires_cookie and not self._macs.is_mac2_valid(data, cookie):
            salt = self._random.randbytes(16)
            mac1 = data[-MACS_BYTES : -MACS_BYTES + COOKIE_BYTES]
            return [bytes([SealedType.COOKIE]) + salt + seal_cookie(public_of(EDGE_KEY), salt, cookie, mac1)]
        body = data[:-MACS_BYTES]
        if body not in self._acks:
            request = self._responder.read(body[1:])
            hello = hello_from_bytes(request.payload)
            assert hello.certificate == CAR_CERTIFICATE.data
            if hello.sent_at <= self._sent_at:  # a later one has arrived
                return []
            self._sent_at = hello.sent_at
            init = decode(hello.datagram)
            assert isinstance(init, Init)
            acknowledge = self._acknowledge(init)
            answer, keys = self._responder.answer(request, self._random.randbytes(32), encode(acknowledge))
            self.sessions[acknowledge.session].keys = keys
            self._acks[body] = bytes([SealedType.ACK]) + answer
        return [self._acks[body]]

    def _acknowledge(self, init: Init) -> AcknowledgeDatagram:
        self.received.append(init)
        token = next(self._tokens)
        previous = self.sessions.get(init.former or 0)
        self.sessions[token] = EdgeSession(None, subscriptions=set() if previous is None else set(previous.subscriptions))
        reset = reset_of(reset_key(EDGE_KEY), token) if self.is_sealed else b""
        return AcknowledgeDatagram(
            SessionToken(token), self.interval_ns, EndpointId("edge-1"), previous is not None, reset, self.keys_ns
        )

    def _on_plain(self, value: Datagram, data: bytes) -> list[bytes]:
        if isinstance(value, Init):
            self.inits.append(data)
            if data not in self._acks:
                self._acks[data] = encode(self._acknowledge(value))
            return [self._acks[data]]
        token = value.session
        assert token is not None
        if token not in self.sessions:
            return [encode(refusal_of(Refused(Reason.SESSION_UNKNOWN), session=token))]
        return self._on_value(value, token)

    def _on_value(self, value: Datagram, token: int) -> list[bytes]:
        self.received.append(value)
        session = self.sessions[token]
        session.is_confirmed = True
        name: MessageName | SubscriptionName | None = None
        match value:
            case PublishDatagram() if value.message.reliable:
                name = MessageName(value.message.source, value.message.id)
            case SubscribeDatagram():
                name = SubscriptionName(value.subscription.owner, value.subscription.id)
                session.subscriptions.add(value.subscription.id)
            case UnsubscribeDatagram():
                name = value.subscription
                session.subscriptions.discard(value.subscription.id)
            case _:
                pass
        if type(value) in self.refuses:
            return [self.datagram_of(refusal_of(self.refuses[type(value)], name), token)]
        if isinstance(value, Close):
            del self.sessions[token]
        return [] if name is None else [self.datagram_of(ReceivedDatagram(name), token)]

    def datagram_of(self, value: Datagram, token: int | None = None) -> bytes:
        """Return a datagram of a session, by default of the newest."""
        token = self.token if token is None else token
        assert not isinstance(value, Init)
        data = encode(replace(value, session=SessionToken(token)))
        if not self.is_sealed:
            return data
        session = self.sessions[token]
        assert session.keys is not None
        session.counter += 1
        return data_head(token, session.counter) + AESGCM(session.keys.send).encrypt(nonce_of(session.counter), data, None)

    def heartbeat(self) -> bytes:
        return self.datagram_of(Heartbeat(SessionToken(1)))

    def close_datagram(self, cause: CloseCause) -> bytes:
        return self.datagram_of(Close(SessionToken(1), cause))

    def reset(self, *, is_valid: bool = True) -> bytes:
        """Return a RESET of the newest session."""
        if not self.is_sealed:
            token = SessionToken(self.token if is_valid else self.token + 5)
            return encode(refusal_of(Refused(Reason.SESSION_UNKNOWN), session=token))
        return reset_datagram(self.token, reset_of(reset_key(EDGE_KEY if is_valid else CAR_KEY), self.token))


class SessionHarness:
    """A session and an edge without a network in between; the test advances the time."""

    def __init__(self, *, is_sealed: bool = True, keys_ns: int | None = KEYS_NS, untaken_max: int = 1_000) -> None:
        self.session = make_session(is_sealed=is_sealed, untaken_max=untaken_max)
        self.edge = ScriptedEdge(is_sealed=is_sealed, keys_ns=keys_ns)
        self.now = NOW
        self.events: list[Event] = []
        self.is_disconnected = False

    def start(self) -> "SessionHarness":
        self.session.start(report_at(self.now), self.now)
        self.exchange()
        return self

    def exchange(self) -> list[Event]:
        """Carry datagrams both ways until there are none; return the events."""
        first = len(self.events)
        while outgoing := self.session.take_outgoing():
            for data in outgoing:
                for answer in [] if self.is_disconnected else self.edge.on_datagram(data, self.now):
                    self.session.on_datagram(answer, self.now)
        self.events += self.session.take_events()
        return self.events[first:]

    def receive(self, *datagrams: bytes) -> list[Event]:
        for data in datagrams:
            self.session.on_datagram(data, self.now)
        return self.exchange()

    def wait(self, seconds: float) -> list[Event]:
        """Advance the time, tick by tick; return the events."""
        first, until = len(self.events), Instant(self.now + round(seconds * SECOND_NS))
        while self.session.next_at <= until:
            self.now = max(self.now, self.session.next_at)
            self.session.on_tick(self.now)
            self.exchange()
        self.now = until
        return self.events[first:]

    def run_with_heartbeats(self, seconds: int) -> list[Event]:
        """Like `wait`, with a HEARTBEAT of the edge every second."""
        first = len(self.events)
        for _ in range(seconds):
            self.wait(1)
            self.receive(self.edge.heartbeat())
        return self.events[first:]


class Network:
    """A network between a session and an edge: loses, duplicates and delays datagrams by a seed."""

    def __init__(self, session: UdpSession, edge: ScriptedEdge, seed: int, *, loss: float, doubling: float) -> None:
        self.session, self.edge = session, edge
        self.now = NOW
        self.events: list[Event] = []
        self.loss, self.doubling = loss, doubling
        self.takes_messages: Callable[[], bool] = lambda: True
        self._random = Random(seed)
        self._order = count()
        self._in_transit: list[tuple[Instant, int, bool, bytes]] = []

    def send(self, data: bytes, *, to_edge: bool) -> None:
        copies = (self._random.random() >= self.loss) + (self._random.random() < self.doubling)
        for _ in range(copies):
            at = Instant(self.now + self._random.randint(1, SECOND_NS // 2))
            heappush(self._in_transit, (at, next(self._order), to_edge, data))

    def run_until(self, until: Instant) -> None:
        """Advance the time; the application takes delivered messages at once if `takes_messages` returns true."""
        while True:
            self._collect()
            at = min(self.session.next_at, self._in_transit[0][0] if self._in_transit else FOREVER)
            if at > until:
                self.now = until
                return
            self.now = max(self.now, at)
            if self._in_transit and self._in_transit[0][0] <= self.now:
                _, _, to_edge, data = heappop(self._in_transit)
                if not to_edge:
                    self.session.on_datagram(data, self.now)
                    continue
                for answer in self.edge.on_datagram(data, self.now):
                    self.send(answer, to_edge=False)
            else:
                self.session.on_tick(self.now)

    def _collect(self) -> None:
        for event in self.session.take_events():
            self.events.append(event)
            if isinstance(event, Arrival) and event.receipt is not None and self.takes_messages():
                self.session.acknowledge(event.receipt)
        for data in self.session.take_outgoing():
            self.send(data, to_edge=True)

    def delivered(self) -> list[tuple[str, int]]:
        return [event.received.message.key for event in self.events if isinstance(event, Arrival)]
