"""Where one packet ends and the next begins, and what its first bytes alone say against it.

    0        1 … 4              body_start            end
    ┌────────┬──────────────────┬─────────────────────┐
    │ first  │ remaining length │ body                │      first = kind << 4 | flags
    └────────┴──────────────────┴─────────────────────┘

What cannot become a packet is refused before its body has arrived: no memory is spent on it.
"""

from typing import Final

from milepost.model.reasons import Malformed, Reason
from milepost.wire.mqtt.fields import malformed, write_variable
from milepost.wire.mqtt.kinds import Kind

PACKET_BYTES_MAX: Final = 1 + 4 + 268_435_455
"""The largest packet that the protocol itself allows."""

_FLAGS: Final = {
    Kind.PUBLISH: (0b0000, 0b0001, 0b0010, 0b0011, 0b0100, 0b0101, 0b1010, 0b1011, 0b1100, 0b1101),  # DUP, QoS, QoS, RETAIN
    Kind.PUBREL: (0b0010,),  # [MQTT-3.6.1-1]
    Kind.SUBSCRIBE: (0b0010,),  # [MQTT-3.8.1-1]
    Kind.UNSUBSCRIBE: (0b0010,),  # [MQTT-3.10.1-1]
}
LEGAL_FIRST: Final = frozenset(kind << 4 | flags for kind in Kind for flags in _FLAGS.get(kind, (0,)))  # [MQTT-2.1.3-1]
"""The first bytes that a packet may have."""

encode_length = write_variable
"""A remaining length is the integer of variable length that properties have too."""


def check_first(first: int) -> None:
    """Refuse a packet by its first byte: a reserved type, or flags that its type does not have."""
    if first in LEGAL_FIRST:
        return
    kind, flags = first >> 4, first & 0x0F
    if kind == 0:
        raise malformed("a packet of type 0")
    if kind == Kind.PUBLISH and flags & 0b0110 == 0b0110:  # [MQTT-3.3.1-4]
        raise malformed("PUBLISH with QoS 3")
    if kind == Kind.PUBLISH:  # [MQTT-3.3.1-2]
        raise malformed("PUBLISH with DUP and QoS 0")
    raise malformed(f"{Kind(kind).name} with the flags {flags:04b}")  # [MQTT-3.14.1-1], [MQTT-3.15.1-1]


def frame_at(data: bytes, start: int, size_max: int) -> tuple[int, int] | None:
    """Where the body of the packet at `start` begins and ends; nothing while it is not all there."""
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
