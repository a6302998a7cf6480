"""Sealed datagrams: the outer layouts, byte by byte. What is inside a seal is a plain datagram (`wire.datagrams`).

    INIT   01 │ noise message 1 │ mac1 16 │ mac2 16         ASK   06 │ nonce 16 │ latitude f64 │ longitude f64 │ zeros
    ACK    02 │ noise message 2                             HERE  07 │ nonce 16 │ port u16 │ u16 │ certificate │ signature 64
    COOKIE 03 │ salt 16 │ sealed cookie 32
    DATA   04 │ token 8 │ counter u64 │ sealed datagram     integers are big-endian, but the token (fixed64)
    RESET  05 │ token 8 │ reset 16

Sizes are checked here; whether a seal is whole is for `trust` to say.
"""

from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

from milepost.model.instants import Instant
from milepost.model.messages import CERTIFICATE_BYTES_MAX, SIGNATURE_BYTES
from milepost.model.reasons import Malformed, Reason


class Kind(IntEnum):
    """What a datagram is: its first byte."""

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
"""As long as the longest answer may be: nobody is answered with more than he sent."""

INIT_BYTES_MIN: Final = 1 + KEY_BYTES + KEY_BYTES + TAG_BYTES + 10 + TAG_BYTES + MACS_BYTES
INIT_BYTES_MAX: Final = INIT_BYTES_MIN + CERTIFICATE_BYTES_MAX + 1_000
ACK_BYTES_MIN: Final = 1 + KEY_BYTES + TAG_BYTES
COOKIE_DATAGRAM_BYTES: Final = 1 + NONCE_BYTES + COOKIE_BYTES + TAG_BYTES
DATA_HEAD_BYTES: Final = 1 + TOKEN_BYTES + 8
DATA_BYTES_MIN: Final = DATA_HEAD_BYTES + TAG_BYTES
RESET_DATAGRAM_BYTES: Final = 1 + TOKEN_BYTES + 16

NONCE_ZEROS: Final = bytes(4)
"""A nonce is these and the counter as DATA has it."""

_HELLO: Final = Struct(">QH")
_DATA: Final = Struct("<BQ")
_COUNTER: Final = Struct(">Q")
_ASK: Final = Struct(">B16sdd")
_HERE: Final = Struct(">B16sHH")


class Hello(NamedTuple):
    """What an endpoint says inside the first message of the handshake."""

    sent_at: Instant
    certificate: bytes
    datagram: bytes
    """A plain datagram INIT."""


class Ask(NamedTuple):
    """Is there an edge that covers this place?"""

    nonce: bytes
    latitude: float
    """Not a number if any edge will do."""
    longitude: float


class Here(NamedTuple):
    """An edge's answer; `signed` is what the signature is about."""

    nonce: bytes
    port: int
    certificate: bytes
    """Empty if the edge seals nothing."""
    signature: bytes
    signed: bytes


def hello_to_bytes(hello: Hello) -> bytes:
    """The payload of the handshake's first message."""
    return _HELLO.pack(hello.sent_at, len(hello.certificate)) + hello.certificate + hello.datagram


def hello_from_bytes(data: bytes) -> Hello:
    """What the payload of the handshake's first message says."""
    if len(data) < _HELLO.size:
        raise Malformed(Reason.MALFORMED, f"a handshake with {len(data)} bytes inside, at least {_HELLO.size} are needed")
    sent_at, size = _HELLO.unpack_from(data)
    at = _HELLO.size + size
    if not 0 < size <= CERTIFICATE_BYTES_MAX or at > len(data):
        raise Malformed(Reason.CERTIFICATE_INVALID, f"a certificate of {size} bytes in a handshake of {len(data)}")
    return Hello(sent_at, data[_HELLO.size : at], data[at:])


def data_head(token: int, counter: int) -> bytes:
    """The beginning of DATA; the sealed datagram follows."""
    return _DATA.pack(Kind.DATA, token) + _COUNTER.pack(counter)


def token_of(data: bytes) -> int:
    """The session that DATA or RESET names."""
    return int.from_bytes(data[1 : 1 + TOKEN_BYTES], "little")


def counter_of(data: bytes) -> int:
    """The counter of DATA."""
    return int.from_bytes(data[1 + TOKEN_BYTES : DATA_HEAD_BYTES], "big")


def nonce_of(counter: int) -> bytes:
    """The nonce that belongs to a counter."""
    return NONCE_ZEROS + _COUNTER.pack(counter)


def reset_datagram(token: int, reset: bytes) -> bytes:
    """The edge does not know a session, and shows that it once gave it out."""
    return _DATA.pack(Kind.RESET, token) + reset


def ask_to_bytes(ask: Ask) -> bytes:
    """The question, as long as any answer to it."""
    return _ASK.pack(Kind.ASK, ask.nonce, ask.latitude, ask.longitude).ljust(ASK_BYTES, b"\0")


def ask_from_bytes(data: bytes) -> Ask:
    """What a question says; one that is shorter than the answer may be is refused."""
    if len(data) < ASK_BYTES:
        raise Malformed(Reason.MALFORMED, f"ASK has {len(data)} bytes, at least {ASK_BYTES} are needed")
    _, nonce, latitude, longitude = _ASK.unpack_from(data)
    return Ask(nonce, latitude, longitude)


def here_unsigned(nonce: bytes, port: int, certificate: bytes) -> bytes:
    """The answer without its signature, which is about just these bytes."""
    return _HERE.pack(Kind.HERE, nonce, port, len(certificate)) + certificate


def here_from_bytes(data: bytes) -> Here:
    """What an answer says."""
    if len(data) < _HERE.size:
        raise Malformed(Reason.MALFORMED, f"HERE has {len(data)} bytes, at least {_HERE.size} are needed")
    _, nonce, port, size = _HERE.unpack_from(data)
    at = _HERE.size + size
    if len(data) != (at + SIGNATURE_BYTES if size else at):
        raise Malformed(Reason.MALFORMED, f"HERE has {len(data)} bytes and a certificate of {size}")
    return Here(nonce, port, data[_HERE.size : at], data[at:], data[:at])
