"""The data types of MQTT: texts, binary data, pairs and integers of variable length, read from bytes and written to them.

A reader takes the bytes and where to begin, and gives the value and where it ends; past the end of the bytes is `Malformed`.
"""

from typing import Final

from milepost.model.reasons import Malformed, Reason

SIZE_MAX: Final = 0xFFFF
VARIABLE_MAX: Final = 268_435_455

_ONE_BYTE: Final = tuple(bytes([number]) for number in range(128))


def malformed(detail: str) -> Malformed:
    """The error about bytes that cannot be read as the packet they claim to be."""
    return Malformed(Reason.PACKET_MALFORMED, detail)


def protocol_error(detail: str) -> Malformed:
    """The error about a packet that can be read and says what it may not."""
    return Malformed(Reason.PROTOCOL_ERROR, detail)


def cut_short(what: str) -> Malformed:
    """The error about something that goes on beyond the end of its packet."""
    return malformed(f"the packet ends inside {what}")


def read_byte(data: bytes, at: int) -> tuple[int, int]:
    """One byte."""
    if at >= len(data):
        raise cut_short("a byte")
    return data[at], at + 1


def read_two(data: bytes, at: int) -> tuple[int, int]:
    """An integer of two bytes."""
    if (end := at + 2) > len(data):
        raise cut_short("an integer")
    return data[at] << 8 | data[at + 1], end


def read_four(data: bytes, at: int) -> tuple[int, int]:
    """An integer of four bytes."""
    if (end := at + 4) > len(data):
        raise cut_short("an integer")
    return int.from_bytes(data[at:end], "big"), end


def read_variable(data: bytes, at: int) -> tuple[int, int]:
    """An integer of one to four bytes, seven bits in each, the lowest first."""
    value = 0
    for shift in (0, 7, 14, 21):
        if at >= len(data):
            raise cut_short("a length")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if not byte and shift:  # [MQTT-1.5.5-1]
                raise malformed("a length in more bytes than it needs")
            return value, at
    raise malformed("a length of more than four bytes")


def read_binary(data: bytes, at: int) -> tuple[bytes, int]:
    """Bytes with their number in front."""
    start = at + 2
    if start > len(data):
        raise cut_short("a length")
    end = start + (data[at] << 8 | data[at + 1])
    if end > len(data):
        raise cut_short("a text or binary data")
    return data[start:end], end


def read_text(data: bytes, at: int) -> tuple[str, int]:
    """A text: UTF-8 with the number of its bytes in front."""
    found, end = read_binary(data, at)
    try:
        text = found.decode()  # [MQTT-1.5.4-1]; [MQTT-1.5.4-3]: "utf-8" leaves U+FEFF where it is
    except UnicodeDecodeError as fault:
        raise malformed(f"a text that is not UTF-8: {fault.reason} at {fault.start}") from None
    if "\0" in text:  # [MQTT-1.5.4-2]
        raise malformed("a text with U+0000")
    return text, end


def read_pair(data: bytes, at: int) -> tuple[tuple[str, str], int]:
    """Two texts: a name and its value."""
    name, at = read_text(data, at)  # [MQTT-1.5.7-1]
    value, at = read_text(data, at)
    return (name, value), at


def write_byte(value: int) -> bytes:
    """One byte."""
    return _integer(value, 1)


def write_two(value: int) -> bytes:
    """An integer of two bytes."""
    return _integer(value, 2)


def write_four(value: int) -> bytes:
    """An integer of four bytes."""
    return _integer(value, 4)


def write_variable(value: int) -> bytes:
    """An integer in as few of one to four bytes as it needs."""
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
    """Bytes with their number in front."""
    if len(value) > SIZE_MAX:
        raise Malformed(Reason.FIELD_RANGE, f"a text or binary data of {len(value)} bytes, {SIZE_MAX} are allowed")
    return len(value).to_bytes(2, "big") + value


def write_text(value: str) -> bytes:
    """A text: UTF-8 with the number of its bytes in front."""
    return write_binary(text_bytes(value))


def text_bytes(value: str) -> bytes:
    """The UTF-8 of a text that MQTT can carry."""
    if "\0" in value:  # [MQTT-1.5.4-2]
        raise Malformed(Reason.FIELD_RANGE, "a text with U+0000")
    try:
        return value.encode()  # [MQTT-1.5.4-1]
    except UnicodeEncodeError as fault:
        raise Malformed(Reason.FIELD_RANGE, f"a lone surrogate in {value[:20]!r}", at=fault.start) from None


def write_pair(value: tuple[str, str]) -> bytes:
    """Two texts: a name and its value."""
    return write_text(value[0]) + write_text(value[1])  # [MQTT-1.5.7-1]


def check_name(topic: str) -> None:
    """Refuse what can be no topic name anywhere: nothing at all, or a wildcard; the rest is the caller's."""
    if not topic:  # [MQTT-4.7.3-1]
        raise Malformed(Reason.TOPIC_EMPTY)
    if "+" in topic or "#" in topic:  # [MQTT-4.7.0-1]
        raise Malformed(Reason.TOPIC_CHARACTER, "a topic name with a wildcard")


def _integer(value: int, size: int) -> bytes:
    try:
        return value.to_bytes(size, "big")
    except OverflowError:
        raise Malformed(Reason.FIELD_RANGE, f"{value} does not fit into {size} bytes") from None
