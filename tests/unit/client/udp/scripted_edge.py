"""A tiny edge without a socket, sealed or plain, and a network in virtual time that loses, doubles and reorders.

It keeps to the wire document and to nothing else: what the client is tried on is not what the door is made of.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import count
from random import Random

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from milepost.client.events import Arrival, Event
from milepost.client.udp.handshake import UdpSetup
from milepost.client.udp.seals import Credentials
from milepost.client.udp.session import UdpSession
from milepost.model.endpoints import EndpointId
from milepost.model.instants import FOREVER, SECOND_NS, Instant
from milepost.model.messages import Message, MessageId
from milepost.model.places import Place
from milepost.model.reasons import Reason, Refused
from milepost.model.reports import Report
from milepost.model.sessions import (
    Acknowledge,
    Close,
    CloseCause,
    Datagram,
    Heartbeat,
    Init,
    MessageName,
    Publish,
    Received,
    SessionToken,
    Subscribe,
    SubscriptionName,
    Unsubscribe,
    refusal_of,
)
from milepost.model.subscriptions import SubscriptionId
from milepost.trust.certificates import EDGE, Authority, issue
from milepost.trust.cookies import Macs, cookie_of, reset_key, reset_of, seal_cookie
from milepost.trust.noise import Keys, Responder, public_of
from milepost.trust.replay_window import Window
from milepost.trust.signing import Signer, signing_public_of
from milepost.wire.datagrams import decode, encode
from milepost.wire.sealed import (
    COOKIE_BYTES,
    DATA_HEAD_BYTES,
    MACS_BYTES,
    Kind,
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

AUTHORITY_KEY, CAR_KEY, EDGE_KEY, SIGNING_KEY = (bytes([number]) * 32 for number in (1, 2, 3, 4))
AUTHORITY = Authority(signing_public_of(AUTHORITY_KEY))
LATER = Instant(2 * NOW)
CAR_CERTIFICATE = issue(AUTHORITY_KEY, id=CAR, role="vehicle", key=public_of(CAR_KEY), not_before=NOW, not_after=LATER, serial=1)
EDGE_CERTIFICATE = issue(
    AUTHORITY_KEY,
    id="edge-1",
    role=EDGE,
    key=public_of(EDGE_KEY),
    not_before=NOW,
    not_after=LATER,
    serial=2,
    signing_key=signing_public_of(SIGNING_KEY),
)
SIGNER = Signer(SIGNING_KEY, EDGE_CERTIFICATE)
TRUST = Credentials(CAR_CERTIFICATE, CAR_KEY, public_of(EDGE_KEY))


def make_session(*, is_sealed: bool = True, seed: int = 0, waiting_max: int = 1_000, held_max: int = 1_000) -> UdpSession:
    setup = UdpSetup(CAR, TRUST if is_sealed else None, AUTHORITY, waiting_max, held_max)
    return UdpSession(setup, Random(seed).randbytes)


def report_at(now: Instant, place: Place = HERE) -> Report:
    return Report(CAR, place, now)


def message(number: int, *, source: str = CAR, reliable: bool = True, body: bytes = b"", now: Instant = NOW) -> Message:
    return Message(MessageId(number), EndpointId(source), "road/i80", now, reliable=reliable, body=body)


@dataclass
class Known:
    """What the edge knows of a session."""

    keys: Keys | None
    window: Window = field(default_factory=Window)
    counter: int = 0
    subscriptions: set[SubscriptionId] = field(default_factory=set)
    is_confirmed: bool = False


class ScriptedEdge:
    """Answers as the wire document says; tests set its fields to have it answer otherwise."""

    def __init__(self, *, is_sealed: bool = True, keys_ns: int | None = KEYS_NS, interval_ns: int = INTERVAL_NS) -> None:
        self.is_sealed = is_sealed
        self.keys_ns = keys_ns if is_sealed else None
        self.interval_ns = interval_ns
        self.asks_for_cookie = False
        self.refuses: dict[type[Datagram], Refused] = {}
        self.heard: list[Datagram] = []
        self.inits: list[bytes] = []
        self.sessions: dict[int, Known] = {}
        self._acks: dict[bytes, bytes] = {}
        self._sent_at = 0
        self._tokens = count(1_000)
        self._random = Random(7)
        self._responder = Responder(EDGE_KEY)
        self._macs = Macs(public_of(EDGE_KEY))

    @property
    def token(self) -> int:
        """The newest session."""
        return max(self.sessions)

    def names(self) -> list[tuple[str, int]]:
        """The messages that came, in their order."""
        return [one.message.key for one in self.heard if isinstance(one, Publish)]

    def of(self, kind: type[Datagram]) -> list[Datagram]:
        return [one for one in self.heard if isinstance(one, kind)]

    def forget(self) -> None:
        """Lose all sessions, as a restart does."""
        self.sessions.clear()
        self._acks.clear()

    def on_datagram(self, data: bytes, now: Instant) -> list[bytes]:
        if not self.is_sealed:
            return self._on_plain(decode(data), data)
        if data[0] == Kind.INIT:
            return self._on_init(data)
        assert data[0] == Kind.DATA
        token = token_of(data)
        if token not in self.sessions:
            return [reset_datagram(token, reset_of(reset_key(EDGE_KEY), token))]
        known = self.sessions[token]
        assert known.keys is not None
        if not known.window.is_new(counter_of(data)):
            return []
        plain = AESGCM(known.keys.receive).decrypt(nonce_of(counter_of(data)), data[DATA_HEAD_BYTES:], None)
        known.window.take(counter_of(data))
        return self._on_value(decode(plain), token)

    def _on_init(self, data: bytes) -> list[bytes]:
        self.inits.append(data)
        assert self._macs.is_first_right(data)
        cookie = cookie_of(b"secret", b"address")
        if self.asks_for_cookie and not self._macs.is_second_right(data, cookie):
            salt = self._random.randbytes(16)
            mac1 = data[-MACS_BYTES : -MACS_BYTES + COOKIE_BYTES]
            return [bytes([Kind.COOKIE]) + salt + seal_cookie(public_of(EDGE_KEY), salt, cookie, mac1)]
        body = data[:-MACS_BYTES]
        if body not in self._acks:
            heard = self._responder.read(body[1:])
            hello = hello_from_bytes(heard.payload)
            assert hello.certificate == CAR_CERTIFICATE.data
            if hello.sent_at <= self._sent_at:  # a later one has come
                return []
            self._sent_at = hello.sent_at
            init = decode(hello.datagram)
            assert isinstance(init, Init)
            said = self._acknowledge(init)
            answer, keys = self._responder.answer(heard, self._random.randbytes(32), encode(said))
            self.sessions[said.session].keys = keys
            self._acks[body] = bytes([Kind.ACK]) + answer
        return [self._acks[body]]

    def _acknowledge(self, init: Init) -> Acknowledge:
        self.heard.append(init)
        token = next(self._tokens)
        former = self.sessions.get(init.former or 0)
        self.sessions[token] = Known(None, subscriptions=set() if former is None else set(former.subscriptions))
        reset = reset_of(reset_key(EDGE_KEY), token) if self.is_sealed else b""
        return Acknowledge(SessionToken(token), self.interval_ns, EndpointId("edge-1"), former is not None, reset, self.keys_ns)

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
        self.heard.append(value)
        known = self.sessions[token]
        known.is_confirmed = True
        name: MessageName | SubscriptionName | None = None
        match value:
            case Publish() if value.message.reliable:
                name = MessageName(value.message.source, value.message.id)
            case Subscribe():
                name = SubscriptionName(value.subscription.owner, value.subscription.id)
                known.subscriptions.add(value.subscription.id)
            case Unsubscribe():
                name = value.subscription
                known.subscriptions.discard(value.subscription.id)
            case _:
                pass
        if type(value) in self.refuses:
            return [self.say(refusal_of(self.refuses[type(value)], name), token)]
        if isinstance(value, Close):
            del self.sessions[token]
        return [] if name is None else [self.say(Received(name), token)]

    def say(self, value: Datagram, token: int | None = None) -> bytes:
        """A datagram of a session, of the newest if it is not said which."""
        token = self.token if token is None else token
        assert not isinstance(value, Init)
        data = encode(replace(value, session=SessionToken(token)))
        if not self.is_sealed:
            return data
        known = self.sessions[token]
        assert known.keys is not None
        known.counter += 1
        return data_head(token, known.counter) + AESGCM(known.keys.send).encrypt(nonce_of(known.counter), data, None)

    def heartbeat(self) -> bytes:
        return self.say(Heartbeat(SessionToken(1)))

    def closing(self, cause: CloseCause) -> bytes:
        return self.say(Close(SessionToken(1), cause))

    def reset(self, *, is_right: bool = True) -> bytes:
        """That the newest session is not known."""
        if not self.is_sealed:
            token = SessionToken(self.token if is_right else self.token + 5)
            return encode(refusal_of(Refused(Reason.SESSION_UNKNOWN), session=token))
        return reset_datagram(self.token, reset_of(reset_key(EDGE_KEY if is_right else CAR_KEY), self.token))


class Talk:
    """A session and an edge with nothing between them; time passes when it is told to."""

    def __init__(self, *, is_sealed: bool = True, keys_ns: int | None = KEYS_NS, held_max: int = 1_000) -> None:
        self.session = make_session(is_sealed=is_sealed, held_max=held_max)
        self.edge = ScriptedEdge(is_sealed=is_sealed, keys_ns=keys_ns)
        self.now = NOW
        self.events: list[Event] = []
        self.is_cut = False

    def start(self) -> "Talk":
        self.session.start(report_at(self.now), self.now)
        self.pass_on()
        return self

    def pass_on(self) -> list[Event]:
        """Carry datagrams both ways until there are none; gives what happened."""
        first = len(self.events)
        while outgoing := self.session.take_outgoing():
            for data in outgoing:
                for answer in [] if self.is_cut else self.edge.on_datagram(data, self.now):
                    self.session.on_datagram(answer, self.now)
        self.events += self.session.take_events()
        return self.events[first:]

    def hear(self, *datagrams: bytes) -> list[Event]:
        for data in datagrams:
            self.session.on_datagram(data, self.now)
        return self.pass_on()

    def wait(self, seconds: float) -> list[Event]:
        """Let time pass, tick by tick."""
        first, until = len(self.events), Instant(self.now + round(seconds * SECOND_NS))
        while self.session.next_at <= until:
            self.now = max(self.now, self.session.next_at)
            self.session.on_tick(self.now)
            self.pass_on()
        self.now = until
        return self.events[first:]

    def live(self, seconds: int) -> list[Event]:
        """The same, and the edge is heard every second."""
        first = len(self.events)
        for _ in range(seconds):
            self.wait(1)
            self.hear(self.edge.heartbeat())
        return self.events[first:]


class Network:
    """Between a session and an edge: each datagram is lost, doubled or late as a seed says, until it heals."""

    def __init__(self, session: UdpSession, edge: ScriptedEdge, seed: int, *, loss: float, doubling: float) -> None:
        self.session, self.edge = session, edge
        self.now = NOW
        self.events: list[Event] = []
        self.loss, self.doubling = loss, doubling
        self.takes: Callable[[], bool] = lambda: True
        self._random = Random(seed)
        self._order = count()
        self._way: list[tuple[Instant, int, bool, bytes]] = []

    def send(self, data: bytes, *, to_edge: bool) -> None:
        copies = (self._random.random() >= self.loss) + (self._random.random() < self.doubling)
        for _ in range(copies):
            at = Instant(self.now + self._random.randint(1, SECOND_NS // 2))
            heappush(self._way, (at, next(self._order), to_edge, data))

    def run_until(self, until: Instant) -> None:
        """Let time pass; messages are taken as soon as they are shown, if `takes` says so."""
        while True:
            self._collect()
            at = min(self.session.next_at, self._way[0][0] if self._way else FOREVER)
            if at > until:
                self.now = until
                return
            self.now = max(self.now, at)
            if self._way and self._way[0][0] <= self.now:
                _, _, to_edge, data = heappop(self._way)
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
            if isinstance(event, Arrival) and event.receipt is not None and self.takes():
                self.session.acknowledge(event.receipt)
        for data in self.session.take_outgoing():
            self.send(data, to_edge=True)

    def shown(self) -> list[tuple[str, int]]:
        return [event.received.message.key for event in self.events if isinstance(event, Arrival)]
