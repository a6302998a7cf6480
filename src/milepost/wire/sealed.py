"""Sealed datagrams: the outer byte layouts. The sealed content is a plain datagram (`wire.datagrams`).

    INIT   01 │ noise message 1 │ mac1 16 │ mac2 16         ASK   06 │ nonce 16 │ latitude f64 │ longitude f64 │ zeros
    ACK    02 │ noise message 2                             HERE  07 │ nonce 16 │ port u16 │ u16 │ certificate │ signature 64
    COOKIE 03 │ salt 16 │ sealed cookie 32
    DATA   04 │ token 8 │ counter u64 │ sealed datagram     integers are big-endian, except the token (little-endian)
    RESET  05 │ token 8 │ reset 16

Only sizes are checked here; `trust` verifies seals.
"""

from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

from milepost.model.instants import Instant
from milepost.model.messages import CERTIFICATE_BYTES_MAX, SIGNATURE_BYTES
from milepost.model.reasons import Malformed, Reason


class SealedType(IntEnum):
    """The type of a datagram, its first byte."""

    INIT = 1
    ACK = 2
    COOKIE = 3
    DATA = 4
    RESET = 5
    ASK = 6
    HERE = 7


TAG_BYTES: Final = 16
KEY_BYTES: Final = 32
MAC_BYTES: Final = 16
MACS_BYTES: Final = 2 * MAC_BYTES
NONCE_BYTES: Final = 16
COOKIE_BYTES: Final = 16
TOKEN_BYTES: Final = 8
ASK_BYTES: Final = 600
"""Size of ASK and maximum size of its answer: an answer longer than the request would allow amplification attacks."""

INIT_BYTES_MIN: Final = 1 + KEY_BYTES + KEY_BYTES + TAG_BYTES + 10 + TAG_BYTES + MACS_BYTES
INIT_BYTES_MAX: Final = INIT_BYTES_MIN + CERTIFICATE_BYTES_MAX + 1_000
ACK_BYTES_MIN: Final = 1 + KEY_BYTES + TAG_BYTES
COOKIE_DATAGRAM_BYTES: Final = 1 + NONCE_BYTES + COOKIE_BYTES + TAG_BYTES
DATA_HEAD_BYTES: Final = 1 + TOKEN_BYTES + 8
DATA_BYTES_MIN: Final = DATA_HEAD_BYTES + TAG_BYTES
RESET_DATAGRAM_BYTES: Final = 1 + TOKEN_BYTES + 16

NONCE_ZEROS: Final = bytes(4)
"""A nonce is these zeros followed by the counter, encoded as in DATA."""

_HELLO: Final = Struct(">QH")
_DATA: Final = Struct("<BQ")
_COUNTER: Final = Struct(">Q")
_ASK: Final = Struct(">B16sdd")
_HERE: Final = Struct(">B16sHH")


class Hello(NamedTuple):
    """Payload of the first message of the handshake, from the endpoint."""

    sent_at: Instant
    certificate: bytes
    datagram: bytes
    """A plain datagram INIT."""


class DiscoveryRequest(NamedTuple):
    """Request for an edge that covers a place."""

    nonce: bytes
    latitude: float
    """NaN if any edge may answer."""
    longitude: float


class DiscoveryReply(NamedTuple):
    """An edge's answer to `DiscoveryRequest`; `signature` is over `signed`."""

    nonce: bytes
    port: int
    certificate: bytes
    """Empty if the edge seals nothing."""
    signature: bytes
    signed: bytes


def hello_to_bytes(hello: Hello) -> bytes:
    """Return the payload of the handshake's first message."""
    return _HELLO.pack(hello.sent_at, len(hello.certificate)) + hello.certificate + hello.datagram


def hello_from_bytes(data: bytes) -> Hello:
    """Return the value of the payload of the handshake's first message."""
    if len(data) < _HELLO.size:
        raise Malformed(Reason.MALFORMED, f"a handshake with {len(data)} bytes inside, at least {_HELLO.size} are needed")
    sent_at, size = _HELLO.unpack_from(data)
    at = _HELLO.size + size
    if not 0 < size <= CERTIFICATE_BYTES_MAX or at > len(data):
        raise Malformed(Reason.CERTIFICATE_INVALID, f"a certificate of {size} bytes in a handshake of {len(data)}")
    return Hello(sent_at, data[_HELLO.size : at], data[at:])


def data_head(token: int, counter: int) -> bytes:
    """Return the head of DATA; the sealed datagram follows it."""
    return _DATA.pack(SealedType.DATA, token) + _COUNTER.pack(counter)


def token_of(data: bytes) -> int:
    """Return the session token of DATA or RESET."""
    return int.from_bytes(data[1 : 1 + TOKEN_BYTES], "little")


def counter_of(data: bytes) -> int:
    """Return the counter of DATA."""
    return int.from_bytes(data[1 + TOKEN_BYTES : DATA_HEAD_BYTES], "big")


def nonce_of(counter: int) -> bytes:
    """Return the nonce of a counter."""
    return NONCE_ZEROS + _COUNTER.pack(counter)


def reset_datagram(token: int, reset: bytes) -> bytes:
    """Return the RESET of a session that the edge does not know; *reset* proves that the edge issued the session."""
    return _DATA.pack(SealedType.RESET, token) + reset


def discovery_request_to_bytes(ask: DiscoveryRequest) -> bytes:
    """Return the bytes of ASK, as long as any answer to it."""
    return _ASK.pack(SealedType.ASK, ask.nonce, ask.latitude, ask.longitude).ljust(ASK_BYTES, b"\0")


def discovery_request_from_bytes(data: bytes) -> DiscoveryRequest:
    """Return the value of ASK; raises `Malformed` if it is shorter than an answer may be."""
    if len(data) < ASK_BYTES:
        raise Malformed(Reason.MALFORMED, f"ASK has {len(data)} bytes, at least {ASK_BYTES} are needed")
    _, nonce, latitude, longitude = _ASK.unpack_from(data)
    return DiscoveryRequest(nonce, latitude, longitude)


def unsigned_discovery_reply(nonce: bytes, port: int, certificate: bytes) -> bytes:
    """Return the bytes of HERE without its signature, which is over these bytes."""
    return _HERE.pack(SealedType.HERE, nonce, port, len(certificate)) + certificate


def discovery_reply_from_bytes(data: bytes) -> DiscoveryReply:
    """Return the value of HERE."""
    if len(data) < _HERE.size:
        raise Malformed(Reason.MALFORMED, f"HERE has {len(data)} bytes, at least {_HERE.size} are needed")
    _, nonce, port, size = _HERE.unpack_from(data)
    at = _HERE.size + size
    if len(data) != (at + SIGNATURE_BYTES if size else at):
        raise Malformed(Reason.MALFORMED, f"HERE has {len(data)} bytes and a certificate of {size}")
    return DiscoveryReply(nonce, port, data[_HERE.size : at], data[at:], data[:at])
