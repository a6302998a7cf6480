"""Protection of a session's datagrams: none (`PlainProtection`), or Noise (`NoiseProtection`), behind one interface.

    Protection ──begin──▶ Handshake ──read_answer──▶ AcceptedHandshake: ACKNOWLEDGE and a Channel

Invariants:
- for arbitrary input bytes the only exception is `Malformed`, and no state changes;
- an INIT is repeated byte for byte, except for mac2 once there is a cookie; the next one has a later `sent_at`;
- a counter is used once; a received one is marked as used only after its datagram was decrypted.
"""

import hmac
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from milepost.client.transport import Draw
from milepost.model.instants import BEGINNING, SECOND_NS, Instant
from milepost.model.reasons import Malformed, Reason
from milepost.model.session_datagrams import AcknowledgeDatagram, Datagram, Init, Refusal, SessionToken
from milepost.trust.certificates import Certificate
from milepost.trust.cookies import Macs, open_cookie
from milepost.trust.noise import NoiseInitiator, SessionKeys
from milepost.trust.replay_window import ReplayWindow
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
    SealedType,
    counter_of,
    data_head,
    hello_to_bytes,
    nonce_of,
    token_of,
)

COOKIE_NS: Final = 120 * SECOND_NS
"""Validity of a cookie."""

PLAIN_INIT_BYTES: Final = 256
"""Size to which a plain INIT is padded, because an edge never answers with more bytes than it received."""

_PADDING: Final = b"\xc2\x3e"  # field 1000, bytes; its length follows in two bytes


@dataclass(frozen=True, slots=True)
class NoiseCredentials:
    """The endpoint's certificate and private key, and the edge's public key."""

    certificate: Certificate
    key: bytes
    """The private key of the certificate."""
    edge_key: bytes
    """The edge's public key."""


class AcceptedHandshake(NamedTuple):
    """A handshake that the edge accepted."""

    acknowledge: AcknowledgeDatagram
    channel: "Channel"


class Channel(Protocol):
    """The encoding and decoding of one session's datagrams."""

    @property
    def token(self) -> SessionToken:
        """The session's token."""

    def seal(self, value: Datagram) -> bytes:
        """Encode and encrypt a datagram."""

    def open(self, data: bytes) -> Datagram:
        """Decrypt and decode a datagram of this session; raise `Malformed` for a replayed one."""

    def is_reset(self, data: bytes) -> bool:
        """Return whether this is an authentic notice that the edge does not know the session."""


class Handshake(Protocol):
    """One pending INIT."""

    def datagram(self, now: Instant) -> bytes:
        """Return the INIT."""

    def has_new_cookie(self, data: bytes, now: Instant) -> bool:
        """Process a COOKIE; return whether it is a new one, so that INIT is resent at once."""

    def read_answer(self, data: bytes) -> AcceptedHandshake | Refusal:
        """Decode the edge's answer."""


class Protection(Protocol):
    """A method to open sessions with one edge."""

    def kind_of(self, data: bytes) -> SealedType:
        """Return the kind of a datagram."""

    def switch_edge(self, edge_key: bytes) -> None:
        """Switch to another edge, or to another key of the same edge."""

    def begin(self, init: Init, now: Instant, draw: Draw) -> Handshake:
        """Build a new INIT."""


class PlainProtection:
    """No encryption."""

    def kind_of(self, data: bytes) -> SealedType:
        """Return the kind that an encrypted datagram with this content would have."""
        value = decode(data)
        if isinstance(value, Refusal) and value.reason == Reason.SESSION_UNKNOWN and value.about is None:
            return SealedType.RESET
        is_answer = isinstance(value, AcknowledgeDatagram) or (isinstance(value, Refusal) and value.session is None)
        return SealedType.ACK if is_answer else SealedType.DATA

    def switch_edge(self, edge_key: bytes) -> None:
        """Do nothing: plain sessions do not depend on the edge's key."""

    def begin(self, init: Init, now: Instant, draw: Draw) -> "PlainHandshake":
        """Build a new INIT."""
        del now, draw
        return PlainHandshake(_padded(encode(init)))


def _padded(data: bytes) -> bytes:
    """Append an unknown field, which decoders skip, so that any answer is shorter."""
    missing = PLAIN_INIT_BYTES - len(data) - len(_PADDING) - 2
    return data + _PADDING + bytes((missing & 0x7F | 0x80, missing >> 7)) + bytes(missing) if missing > 0 else data


class PlainHandshake:
    """An INIT without authentication of the edge."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def datagram(self, now: Instant) -> bytes:
        """Return the INIT."""
        del now
        return self._data

    def has_new_cookie(self, data: bytes, now: Instant) -> bool:
        """Return False: plain handshakes have no cookies."""
        del data, now
        return False

    def read_answer(self, data: bytes) -> AcceptedHandshake | Refusal:
        """Decode the edge's answer."""
        return _answer(decode(data), lambda acknowledge: PlainChannel(acknowledge.session))


class PlainChannel:
    """A session identified only by its token."""

    def __init__(self, token: SessionToken) -> None:
        self.token = token

    def seal(self, value: Datagram) -> bytes:
        """Encode a datagram."""
        return encode(value)

    def open(self, data: bytes) -> Datagram:
        """Decode a datagram of this session."""
        return _of_session(decode(data), self.token)

    def is_reset(self, data: bytes) -> bool:
        """Return whether the edge answered that it does not know this session."""
        value = decode(data)
        return isinstance(value, Refusal) and value.session in (None, self.token)


class NoiseProtection:
    """Noise handshakes, with MACs and cookies."""

    def __init__(self, credentials: NoiseCredentials) -> None:
        self.credentials = credentials
        self.macs = Macs(credentials.edge_key)
        self.cookie = b""
        self.cookie_at = BEGINNING
        self._sent_at = BEGINNING

    def kind_of(self, data: bytes) -> SealedType:
        """Return the kind of a datagram, its first byte."""
        try:
            return SealedType(data[0])
        except (IndexError, ValueError):
            raise Malformed(Reason.MALFORMED, f"{len(data)} bytes that are not an encrypted datagram") from None

    def switch_edge(self, edge_key: bytes) -> None:
        """Switch to another edge, or to another key of the same edge; pending handshakes become invalid."""
        self.credentials = replace(self.credentials, edge_key=edge_key)
        self.macs = Macs(edge_key)
        self.cookie = b""

    def begin(self, init: Init, now: Instant, draw: Draw) -> "NoiseHandshake":
        """Build a new INIT; its time is later than the last one's even if the clock stands still."""
        self._sent_at = Instant(max(now, self._sent_at + 1))
        initiator = NoiseInitiator(self.credentials.key, self.credentials.edge_key, draw(KEY_BYTES))
        hello = Hello(self._sent_at, self.credentials.certificate.data, encode(init))
        return NoiseHandshake(self, initiator, initiator.write(hello_to_bytes(hello)))


class NoiseHandshake:
    """An INIT that only the edge can answer."""

    def __init__(self, protection: NoiseProtection, initiator: NoiseInitiator, message: bytes) -> None:
        self._protection = protection
        self._initiator = initiator
        self._data = bytes([SealedType.INIT]) + message

    def datagram(self, now: Instant) -> bytes:
        """Return the INIT, with mac2 while there is a valid cookie."""
        protection = self._protection
        cookie = protection.cookie if now - protection.cookie_at <= COOKIE_NS else b""
        return self._data + protection.macs.stamp(self._data, cookie)

    def has_new_cookie(self, data: bytes, now: Instant) -> bool:
        """Process a COOKIE; reject one that answers another INIT."""
        if len(data) != COOKIE_DATAGRAM_BYTES:
            raise Malformed(Reason.MALFORMED, f"COOKIE has {len(data)} bytes, not {COOKIE_DATAGRAM_BYTES}")
        protection = self._protection
        mac1 = protection.macs.stamp(self._data)[:MAC_BYTES]
        nonce, sealed = data[1 : 1 + NONCE_BYTES], data[1 + NONCE_BYTES :]
        cookie = open_cookie(protection.credentials.edge_key, nonce, sealed, mac1)
        is_new = cookie != protection.cookie or now - protection.cookie_at > COOKIE_NS
        protection.cookie, protection.cookie_at = cookie, now
        return is_new

    def read_answer(self, data: bytes) -> AcceptedHandshake | Refusal:
        """Decode the edge's answer."""
        payload, keys = self._initiator.read(data[1:])
        return _answer(decode(payload), lambda acknowledge: NoiseChannel(acknowledge, keys))


class NoiseChannel:
    """A session encrypted with one key per direction."""

    def __init__(self, acknowledge: AcknowledgeDatagram, keys: SessionKeys) -> None:
        self.token = acknowledge.session
        self._reset = acknowledge.reset
        self._send, self._receive = AESGCM(keys.send), AESGCM(keys.receive)
        self._counter = 0
        self._window = ReplayWindow()

    def seal(self, value: Datagram) -> bytes:
        """Encode and encrypt a datagram under the next counter."""
        counter, self._counter = self._counter, self._counter + 1
        return data_head(self.token, counter) + self._send.encrypt(nonce_of(counter), encode(value), None)

    def open(self, data: bytes) -> Datagram:
        """Decrypt and decode a datagram of this session; raise `Malformed` for a replayed one."""
        if len(data) < DATA_BYTES_MIN or token_of(data) != self.token:
            raise Malformed(Reason.SESSION_UNKNOWN, "a datagram of another session")
        counter = counter_of(data)
        if not self._window.is_new(counter):
            raise Malformed(Reason.REPLAYED, f"counter {counter}")
        try:
            plain = self._receive.decrypt(nonce_of(counter), data[DATA_HEAD_BYTES:], None)
        except InvalidTag:
            raise Malformed(Reason.DECRYPTION_FAILED, f"counter {counter}") from None
        self._window.take(counter)
        return _of_session(decode(plain), self.token)

    def is_reset(self, data: bytes) -> bool:
        """Return whether a RESET contains the reset token from ACKNOWLEDGE."""
        is_ours = len(data) == RESET_DATAGRAM_BYTES and token_of(data) == self.token
        return is_ours and bool(self._reset) and hmac.compare_digest(data[1 + TOKEN_BYTES :], self._reset)


class _ChannelFactory(Protocol):
    def __call__(self, acknowledge: AcknowledgeDatagram) -> Channel: ...


def _answer(value: Datagram, make_channel: _ChannelFactory) -> AcceptedHandshake | Refusal:
    if isinstance(value, Refusal):
        return value
    if isinstance(value, AcknowledgeDatagram):
        return AcceptedHandshake(value, make_channel(value))
    raise Malformed(Reason.MALFORMED, f"{type(value).__name__} in answer to INIT")


def _of_session(value: Datagram, token: SessionToken) -> Datagram:
    if isinstance(value, Init) or value.session != token:
        raise Malformed(Reason.SESSION_UNKNOWN, "a datagram of another session")
    return value
