"""What a session's datagrams are wrapped in: nothing (`Plain`), or Noise (`Sealed`); the session cannot tell the two apart.

    Seal ──begin──▶ Handshake ──read_answer──▶ Opening: ACKNOWLEDGE and a Channel

What must hold:
- whatever bytes arrive, the one fault is `Malformed`, and it changes nothing;
- an INIT is repeated byte by byte, but for mac2 once there is a cookie; the next one has a later `sent_at`;
- a counter is used once; one that came is taken after its datagram was opened.
"""

import hmac
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from milepost.client.udp.waits import Draw
from milepost.model.instants import BEGINNING, SECOND_NS, Instant
from milepost.model.reasons import Malformed, Reason
from milepost.model.sessions import Acknowledge, Datagram, Init, Refusal, SessionToken
from milepost.trust.certificates import Certificate
from milepost.trust.macs import Macs, open_cookie
from milepost.trust.noise import Initiator, Keys
from milepost.trust.windows import Window
from milepost.wire.datagrams import decode, encode
from milepost.wire.sealed import (
    COOKIE_DATAGRAM_BYTES,
    DATA_BYTES_MIN,
    DATA_HEAD_BYTES,
    KEY_BYTES,
    MAC_BYTES,
    NONCE_BYTES,
    RESET_DATAGRAM_BYTES,
    TOKEN_BYTES,
    Hello,
    Kind,
    counter_of,
    data_head,
    hello_to_bytes,
    nonce_of,
    token_of,
)

COOKIE_NS: Final = 120 * SECOND_NS
"""So long a cookie is good."""

PLAIN_INIT_BYTES: Final = 256
"""No edge answers with more bytes than it was sent: a plain INIT is made this long."""

_PADDING: Final = b"\xc2\x3e"  # field 1000, bytes; its length follows in two bytes


@dataclass(frozen=True, slots=True)
class Credentials:
    """By what an endpoint shows who it is, and knows its edge."""

    certificate: Certificate
    key: bytes
    """The private key that the certificate is about."""
    edge_key: bytes
    """The edge's public key."""


class Opened(NamedTuple):
    """A handshake that the edge answered with yes."""

    said: Acknowledge
    channel: "Channel"


class Channel(Protocol):
    """One session's way to the edge and back."""

    @property
    def token(self) -> SessionToken:
        """The session's token."""

    def seal(self, value: Datagram) -> bytes:
        """The datagram that says a value."""

    def open(self, data: bytes) -> Datagram:
        """What a datagram of this session says, if it is new."""

    def is_reset(self, data: bytes) -> bool:
        """Whether the edge says, and may be believed, that it does not know this session."""


class Handshake(Protocol):
    """One INIT that is under way."""

    def datagram(self, now: Instant) -> bytes:
        """The INIT."""

    def has_new_cookie(self, data: bytes, now: Instant) -> bool:
        """Take a COOKIE; whether it is another one than we had, so that INIT is to be sent again at once."""

    def read_answer(self, data: bytes) -> Opened | Refusal:
        """What the edge answered."""


class Seal(Protocol):
    """A way to open sessions with one edge."""

    def kind_of(self, data: bytes) -> Kind:
        """What a datagram is."""

    def meet(self, edge_key: bytes) -> None:
        """From now on it is another edge, or the same under another key."""

    def begin(self, init: Init, now: Instant, draw: Draw) -> Handshake:
        """A new INIT."""


class Plain:
    """Nothing is sealed."""

    def kind_of(self, data: bytes) -> Kind:
        """What a datagram is, in the words of sealed ones."""
        value = decode(data)
        if isinstance(value, Refusal) and value.reason == Reason.SESSION_UNKNOWN and value.about is None:
            return Kind.RESET
        is_answer = isinstance(value, Acknowledge) or (isinstance(value, Refusal) and value.session is None)
        return Kind.ACK if is_answer else Kind.DATA

    def meet(self, edge_key: bytes) -> None:
        """One edge is like the other."""

    def begin(self, init: Init, now: Instant, draw: Draw) -> "PlainHandshake":
        """A new INIT."""
        del now, draw
        return PlainHandshake(_padded(encode(init)))


def _padded(data: bytes) -> bytes:
    """The same with a field that readers pass over, so that any answer is shorter."""
    missing = PLAIN_INIT_BYTES - len(data) - len(_PADDING) - 2
    return data + _PADDING + bytes((missing & 0x7F | 0x80, missing >> 7)) + bytes(missing) if missing > 0 else data


class PlainHandshake:
    """An INIT that anybody may answer."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def datagram(self, now: Instant) -> bytes:
        """The INIT."""
        del now
        return self._data

    def has_new_cookie(self, data: bytes, now: Instant) -> bool:
        """There are none."""
        del data, now
        return False

    def read_answer(self, data: bytes) -> Opened | Refusal:
        """What the edge answered."""
        return _answer(decode(data), lambda said: PlainChannel(said.session))


class PlainChannel:
    """A session that is known by its token alone."""

    def __init__(self, token: SessionToken) -> None:
        self.token = token

    def seal(self, value: Datagram) -> bytes:
        """The datagram that says a value."""
        return encode(value)

    def open(self, data: bytes) -> Datagram:
        """What a datagram of this session says."""
        return _of_session(decode(data), self.token)

    def is_reset(self, data: bytes) -> bool:
        """Whether the edge says that it does not know this session."""
        value = decode(data)
        return isinstance(value, Refusal) and value.session in (None, self.token)


class Sealed:
    """Noise, and what is around it."""

    def __init__(self, trust: Credentials) -> None:
        self.trust = trust
        self.macs = Macs(trust.edge_key)
        self.cookie = b""
        self.cookie_at = BEGINNING
        self._sent_at = BEGINNING

    def kind_of(self, data: bytes) -> Kind:
        """What a datagram is: its first byte says so."""
        try:
            return Kind(data[0])
        except (IndexError, ValueError):
            raise Malformed(Reason.MALFORMED, f"{len(data)} bytes that are no sealed datagram") from None

    def meet(self, edge_key: bytes) -> None:
        """From now on it is another edge, or the same under another key; what was under way is of no use any more."""
        self.trust = replace(self.trust, edge_key=edge_key)
        self.macs = Macs(edge_key)
        self.cookie = b""

    def begin(self, init: Init, now: Instant, draw: Draw) -> "SealedHandshake":
        """A new INIT; later than the last, also if the clock stands still."""
        self._sent_at = Instant(max(now, self._sent_at + 1))
        initiator = Initiator(self.trust.key, self.trust.edge_key, draw(KEY_BYTES))
        hello = Hello(self._sent_at, self.trust.certificate.data, encode(init))
        return SealedHandshake(self, initiator, initiator.write(hello_to_bytes(hello)))


class SealedHandshake:
    """An INIT that only the edge can answer."""

    def __init__(self, seal: Sealed, initiator: Initiator, message: bytes) -> None:
        self._seal = seal
        self._initiator = initiator
        self._data = bytes([Kind.INIT]) + message

    def datagram(self, now: Instant) -> bytes:
        """The INIT, with a second mac while there is a cookie."""
        seal = self._seal
        cookie = seal.cookie if now - seal.cookie_at <= COOKIE_NS else b""
        return self._data + seal.macs.stamp(self._data, cookie)

    def has_new_cookie(self, data: bytes, now: Instant) -> bool:
        """Take a COOKIE; one that answers another INIT is refused."""
        if len(data) != COOKIE_DATAGRAM_BYTES:
            raise Malformed(Reason.MALFORMED, f"COOKIE has {len(data)} bytes, not {COOKIE_DATAGRAM_BYTES}")
        seal = self._seal
        first = seal.macs.stamp(self._data)[:MAC_BYTES]
        cookie = open_cookie(seal.trust.edge_key, data[1 : 1 + NONCE_BYTES], data[1 + NONCE_BYTES :], first)
        is_new = cookie != seal.cookie or now - seal.cookie_at > COOKIE_NS
        seal.cookie, seal.cookie_at = cookie, now
        return is_new

    def read_answer(self, data: bytes) -> Opened | Refusal:
        """What the edge answered."""
        payload, keys = self._initiator.read(data[1:])
        return _answer(decode(payload), lambda said: SealedChannel(said, keys))


class SealedChannel:
    """A session under two keys."""

    def __init__(self, said: Acknowledge, keys: Keys) -> None:
        self.token = said.session
        self._reset = said.reset
        self._send, self._receive = AESGCM(keys.send), AESGCM(keys.receive)
        self._counter = 0
        self._window = Window()

    def seal(self, value: Datagram) -> bytes:
        """The datagram that says a value, under the next counter."""
        counter, self._counter = self._counter, self._counter + 1
        return data_head(self.token, counter) + self._send.encrypt(nonce_of(counter), encode(value), None)

    def open(self, data: bytes) -> Datagram:
        """What a datagram of this session says, if it is new."""
        if len(data) < DATA_BYTES_MIN or token_of(data) != self.token:
            raise Malformed(Reason.SESSION_UNKNOWN, "a datagram of another session")
        counter = counter_of(data)
        if not self._window.is_new(counter):
            raise Malformed(Reason.REPLAYED, f"counter {counter}")
        try:
            plain = self._receive.decrypt(nonce_of(counter), data[DATA_HEAD_BYTES:], None)
        except InvalidTag:
            raise Malformed(Reason.SEAL_BROKEN, f"counter {counter}") from None
        self._window.take(counter)
        return _of_session(decode(plain), self.token)

    def is_reset(self, data: bytes) -> bool:
        """Whether a RESET shows what ACKNOWLEDGE gave us."""
        is_ours = len(data) == RESET_DATAGRAM_BYTES and token_of(data) == self.token
        return is_ours and bool(self._reset) and hmac.compare_digest(data[1 + TOKEN_BYTES :], self._reset)


class _Make(Protocol):
    def __call__(self, said: Acknowledge) -> Channel: ...


def _answer(value: Datagram, channel_of: _Make) -> Opened | Refusal:
    if isinstance(value, Refusal):
        return value
    if isinstance(value, Acknowledge):
        return Opened(value, channel_of(value))
    raise Malformed(Reason.MALFORMED, f"{type(value).__name__} in answer to INIT")


def _of_session(value: Datagram, token: SessionToken) -> Datagram:
    if isinstance(value, Init) or value.session != token:
        raise Malformed(Reason.SESSION_UNKNOWN, "a datagram of another session")
    return value
