"""Kafka's metadata request over a bare socket: which brokers a broker knows to be alive.

request   length i32 · api key i16 = 3 · version i16 = 4 · correlation i32 · client · topics i32 = 0 · create u8
response  length i32 · correlation i32 · throttle i32 · brokers i32 × (node i32 · host · port i32 · rack) …

A text is its length, an i16, and its bytes; a length of -1 stands for no text.
"""

import socket
import struct
from typing import Final

_ANSWER_S_MAX: Final = 2.0
_ANSWER_BYTES_MAX: Final = 1_000_000
_CLIENT: Final = b"milepost"
_REQUEST: Final = struct.pack(f">hhih{len(_CLIENT)}siB", 3, 4, 1, len(_CLIENT), _CLIENT, 0, 0)


def live_brokers(host: str, port: int) -> set[int]:
    """The ids of the brokers; an OSError if there is no answer, or one that makes no sense."""
    with socket.create_connection((host, port), timeout=_ANSWER_S_MAX) as stream:
        stream.sendall(struct.pack(">i", len(_REQUEST)) + _REQUEST)
        (size,) = struct.unpack(">i", _read(stream, 4))
        if not 0 < size <= _ANSWER_BYTES_MAX:
            raise OSError(f"an answer of {size} bytes is none of Kafka's")
        return brokers_in(_read(stream, size))


def brokers_in(answer: bytes) -> set[int]:
    """The ids of the brokers that an answer lists."""
    try:
        (count,) = struct.unpack_from(">i", answer, 8)
        at = 12
        found = set()
        for _ in range(count):
            (node,) = struct.unpack_from(">i", answer, at)
            at = _after_text(answer, _after_text(answer, at + 4) + 4)
            found.add(node)
    except struct.error:
        raise OSError("the answer is none of Kafka's: it ends too early") from None
    return found


def _after_text(answer: bytes, at: int) -> int:
    length: int = struct.unpack_from(">h", answer, at)[0]
    return at + 2 + max(length, 0)


def _read(stream: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = stream.recv(size - len(parts))
        if not part:
            raise OSError("the connection ended in the middle of an answer")
        parts += part
    return bytes(parts)
