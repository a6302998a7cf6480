"""The lowest layer of MQTT: packet types, the fixed header, and the data types of all packets.

    0        1 … 4              body_start            end
    ┌────────┬──────────────────┬─────────────────────┐
    │ first  │ remaining length │ body                │      first = kind << 4 | flags
    └────────┴──────────────────┴─────────────────────┘

Invariants:
- `read_x` takes the bytes and a position, and returns the value and the position after it; raises `Malformed` beyond the end;
- bytes that cannot become a packet are refused before the body has arrived, so that no memory is spent on it.
"""

from enum import IntEnum
from typing import Final

from milepost.model.reasons import Malformed, Reason


class PacketType(IntEnum):
    """The type of a control packet, the upper half of its first byte."""

    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    PUBREC = 5
    PUBREL = 6
    PUBCOMP = 7
    SUBSCRIBE = 8
    SUBACK = 9
    UNSUBSCRIBE = 10
    UNSUBACK = 11
    PINGREQ = 12
    PINGRESP = 13
    DISCONNECT = 14
    AUTH = 15


class Version(IntEnum):
    """The protocol level in CONNECT: 4 is MQTT 3.1.1, 5 is MQTT 5."""

    V3 = 4
    V5 = 5


ACKNOWLEDGES: Final = (PacketType.PUBACK, PacketType.PUBREC, PacketType.PUBREL, PacketType.PUBCOMP)
"""The packets that acknowledge a PUBLISH or each other, all with the same layout."""


SIZE_MAX: Final = 0xFFFF
VARIABLE_MAX: Final = 268_435_455

_ONE_BYTE: Final = tuple(bytes([number]) for number in range(128))


def malformed(detail: str) -> Malformed:
    """Return the error for a malformed packet."""
    return Malformed(Reason.PACKET_MALFORMED, detail)


def protocol_error(detail: str) -> Malformed:
    """Return the error for a well-formed packet that violates the protocol."""
    return Malformed(Reason.PROTOCOL_ERROR, detail)


def truncated(what: str) -> Malformed:
    """Return the error for a field that extends beyond the end of its packet."""
    return malformed(f"the packet ends inside {what}")


def read_byte(data: bytes, at: int) -> tuple[int, int]:
    """Read one byte."""
    if at >= len(data):
        raise truncated("a byte")
    return data[at], at + 1


def read_two(data: bytes, at: int) -> tuple[int, int]:
    """Read a two byte integer."""
    if (end := at + 2) > len(data):
        raise truncated("an integer")
    return data[at] << 8 | data[at + 1], end


def read_four(data: bytes, at: int) -> tuple[int, int]:
    """Read a four byte integer."""
    if (end := at + 4) > len(data):
        raise truncated("an integer")
    return int.from_bytes(data[at:end], "big"), end


def read_variable(data: bytes, at: int) -> tuple[int, int]:
    """Read a variable byte integer: one to four bytes, seven bits in each, the lowest first."""
    value = 0
    for shift in (0, 7, 14, 21):
        if at >= len(data):
            raise truncated("a length")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if not byte and shift:  # [MQTT-1.5.5-1]
                raise malformed("a length in more bytes than it needs")
            return value, at
    raise malformed("a length of more than four bytes")


def read_binary(data: bytes, at: int) -> tuple[bytes, int]:
    """Read binary data with a two byte length prefix."""
    start = at + 2
    if start > len(data):
        raise truncated("a length")
    end = start + (data[at] << 8 | data[at + 1])
    if end > len(data):
        raise truncated("a text or binary data")
    return data[start:end], end


def read_text(data: bytes, at: int) -> tuple[str, int]:
    """Read UTF-8 text with a two byte length prefix."""
    found, end = read_binary(data, at)
    try:
        text = found.decode()  # [MQTT-1.5.4-1]; [MQTT-1.5.4-3]: "utf-8" does not strip U+FEFF
    except UnicodeDecodeError as fault:
        raise malformed(f"a text that is not UTF-8: {fault.reason} at {fault.start}") from None
    if "\0" in text:  # [MQTT-1.5.4-2]
        raise malformed("a text with U+0000")
    return text, end


def read_pair(data: bytes, at: int) -> tuple[tuple[str, str], int]:
    """Read a string pair: a name and its value."""
    name, at = read_text(data, at)  # [MQTT-1.5.7-1]
    value, at = read_text(data, at)
    return (name, value), at


def write_byte(value: int) -> bytes:
    """Encode one byte."""
    return _integer(value, 1)


def write_two(value: int) -> bytes:
    """Encode a two byte integer."""
    return _integer(value, 2)


def write_four(value: int) -> bytes:
    """Encode a four byte integer."""
    return _integer(value, 4)


def write_variable(value: int) -> bytes:
    """Encode a variable byte integer in the fewest bytes."""
    if 0 <= value < 128:
        return _ONE_BYTE[value]
    if not 0 <= value <= VARIABLE_MAX:
        raise Malformed(Reason.FIELD_RANGE, f"a length of {value}, {VARIABLE_MAX} is the greatest")
    found = bytearray()
    while value > 0x7F:  # [MQTT-1.5.5-1]
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def write_binary(value: bytes) -> bytes:
    """Encode binary data with a two byte length prefix."""
    if len(value) > SIZE_MAX:
        raise Malformed(Reason.FIELD_RANGE, f"a text or binary data of {len(value)} bytes, {SIZE_MAX} are allowed")
    return len(value).to_bytes(2, "big") + value


def write_text(value: str) -> bytes:
    """Encode UTF-8 text with a two byte length prefix."""
    return write_binary(text_bytes(value))


def text_bytes(value: str) -> bytes:
    """Return the UTF-8 of a text that MQTT allows."""
    if "\0" in value:  # [MQTT-1.5.4-2]
        raise Malformed(Reason.FIELD_RANGE, "a text with U+0000")
    try:
        return value.encode()  # [MQTT-1.5.4-1]
    except UnicodeEncodeError as fault:
        raise Malformed(Reason.FIELD_RANGE, f"a lone surrogate in {value[:20]!r}", at=fault.start) from None


def write_pair(value: tuple[str, str]) -> bytes:
    """Encode a string pair: a name and its value."""
    return write_text(value[0]) + write_text(value[1])  # [MQTT-1.5.7-1]


def check_name(topic: str) -> None:
    """Raise `Malformed` if a topic name is empty or has a wildcard; the caller makes all other checks."""
    if not topic:  # [MQTT-4.7.3-1]
        raise Malformed(Reason.TOPIC_EMPTY)
    if "+" in topic or "#" in topic:  # [MQTT-4.7.0-1]
        raise Malformed(Reason.TOPIC_CHARACTER, "a topic name with a wildcard")


def _integer(value: int, size: int) -> bytes:
    try:
        return value.to_bytes(size, "big")
    except OverflowError:
        raise Malformed(Reason.FIELD_RANGE, f"{value} does not fit into {size} bytes") from None


# The fixed header.

PACKET_BYTES_MAX: Final = 1 + 4 + 268_435_455
"""Maximum packet size of the protocol."""

_FLAGS: Final = {
    PacketType.PUBLISH: (0b0000, 0b0001, 0b0010, 0b0011, 0b0100, 0b0101, 0b1010, 0b1011, 0b1100, 0b1101),  # DUP, QoS, QoS, RETAIN
    PacketType.PUBREL: (0b0010,),  # [MQTT-3.6.1-1]
    PacketType.SUBSCRIBE: (0b0010,),  # [MQTT-3.8.1-1]
    PacketType.UNSUBSCRIBE: (0b0010,),  # [MQTT-3.10.1-1]
}
LEGAL_FIRST: Final = frozenset(kind << 4 | flags for kind in PacketType for flags in _FLAGS.get(kind, (0,)))  # [MQTT-2.1.3-1]
"""All legal first bytes of a packet."""

encode_length = write_variable
"""The remaining length is a variable byte integer, like the length of properties."""


def check_first(first: int) -> None:
    """Raise `Malformed` if the first byte has a reserved type, or flags that its type does not have."""
    if first in LEGAL_FIRST:
        return
    kind, flags = first >> 4, first & 0x0F
    if kind == 0:
        raise malformed("a packet of type 0")
    if kind == PacketType.PUBLISH and flags & 0b0110 == 0b0110:  # [MQTT-3.3.1-4]
        raise malformed("PUBLISH with QoS 3")
    if kind == PacketType.PUBLISH:  # [MQTT-3.3.1-2]
        raise malformed("PUBLISH with DUP and QoS 0")
    raise malformed(f"{PacketType(kind).name} with the flags {flags:04b}")  # [MQTT-3.14.1-1], [MQTT-3.15.1-1]


def frame_at(data: bytes, start: int, size_max: int) -> tuple[int, int] | None:
    """Return the start and the end of the body of the packet at *start*; None while it is incomplete."""
    have = len(data)
    if have <= start:
        return None
    if data[start] not in LEGAL_FIRST:
        check_first(data[start])
    at = start + 1
    size = shift = 0
    while True:
        if at >= have:
            return None
        byte = data[at]
        at += 1
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 21:
            raise malformed("a remaining length of more than four bytes")
    if not byte and shift:  # [MQTT-1.5.5-1]
        raise malformed("a remaining length in more bytes than it needs")
    end = at + size
    if end - start > size_max:  # [MQTT-3.1.2-24], [MQTT-3.2.2-15]
        raise Malformed(Reason.PACKET_TOO_LARGE, f"{end - start} bytes, {size_max} are allowed")
    return (at, end) if end <= have else None
