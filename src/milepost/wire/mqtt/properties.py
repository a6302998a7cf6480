"""Properties of MQTT 5: each as an optional field, and one table that defines them all.

Invariants:
- a property that a packet may not carry is refused in both directions: the encoder writes nothing that the decoder refuses;
- None (for the two that repeat: an empty tuple) is "absent", which differs from an explicit default;
- the three limits on packets from the peer are encoded first; all properties are encoded in the order of the table.
"""

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Final, NamedTuple, TypeVar, cast

from milepost.model.reasons import Malformed, Reason
from milepost.wire.mqtt import fields
from milepost.wire.mqtt.fields import ACKNOWLEDGES, PacketType, malformed, protocol_error

T = TypeVar("T")
Value = int | str | bytes | tuple[str, str]

WILL: Final = 0
FORWARDED: Final = -1
"""Carriers of properties besides packets, numbered outside `PacketType`: the will in CONNECT, and a message between servers."""


@dataclass(frozen=True, slots=True)
class Properties:
    """The properties of a packet in MQTT 5."""

    payload_format: int | None = None
    message_expiry_s: int | None = None
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    subscription_ids: tuple[int, ...] = ()
    session_expiry_s: int | None = None
    assigned_client_id: str | None = None
    server_keep_alive_s: int | None = None
    authentication_method: str | None = None
    authentication_data: bytes | None = None
    request_problem_information: bool | None = None
    will_delay_s: int | None = None
    request_response_information: bool | None = None
    response_information: str | None = None
    server_reference: str | None = None
    reason_string: str | None = None
    receive_maximum: int | None = None
    topic_alias_maximum: int | None = None
    topic_alias: int | None = None
    maximum_qos: int | None = None
    retain_available: bool | None = None
    user: tuple[tuple[str, str], ...] = ()
    maximum_packet_size: int | None = None
    wildcard_available: bool | None = None
    subscription_ids_available: bool | None = None
    shared_available: bool | None = None


NO_PROPERTIES: Final = Properties()


def read_properties(data: bytes, at: int, carrier: int) -> tuple[Properties, int]:
    """Return the length-prefixed properties at a position in a packet, and the position after them."""
    size, start = fields.read_variable(data, at)
    end = start + size
    if end > len(data):
        raise fields.truncated("the properties")
    return (_parse(data[start:end], carrier) if size else NO_PROPERTIES), end


def write_properties(properties: Properties, carrier: int) -> bytes:
    """Return the encoded properties with length prefix."""
    if properties is NO_PROPERTIES:
        return b"\0"  # [MQTT-2.2.2-1]
    block = properties_block(properties, carrier)
    return fields.write_variable(len(block)) + block


def is_empty(properties: Properties) -> bool:
    """Return whether all properties are absent."""
    return properties is NO_PROPERTIES or properties == NO_PROPERTIES


def forwarded(properties: Properties) -> bytes:
    """Return the encoded properties that a server forwards unaltered, without length prefix; empty if there are none."""
    if properties is NO_PROPERTIES:
        return b""
    values = zip(_FORWARDED_PROPERTIES, _FORWARDED_VALUES(properties), strict=True)
    return b"".join([_written(one, value) for one, value in values if value is not None])


def parse_forwarded(data: bytes) -> Properties:
    """Return the properties that `forwarded` encoded."""
    return _parse(data, FORWARDED) if data else NO_PROPERTIES


class _Type(NamedTuple):
    """Decoder and encoder of a property's value."""

    read: Callable[[bytes, int], tuple[Value, int]]
    write: Callable[[Value], bytes]


def _type(read: Callable[[bytes, int], tuple[T, int]], write: Callable[[T], bytes]) -> _Type:
    """Return decoder and encoder of one type; that a field's value has the type in the table is checked by tests, not by mypy."""
    return _Type(cast("Callable[[bytes, int], tuple[Value, int]]", read), cast("Callable[[Value], bytes]", write))


def _read_flag(data: bytes, at: int) -> tuple[bool, int]:
    value, at = fields.read_byte(data, at)
    if value > 1:
        raise protocol_error(f"a property that is 0 or 1 has the value {value}")
    return value == 1, at


_BYTE: Final = _type(fields.read_byte, fields.write_byte)
_FLAG: Final = _type(_read_flag, fields.write_byte)
_TWO: Final = _type(fields.read_two, fields.write_two)
_FOUR: Final = _type(fields.read_four, fields.write_four)
_VARIABLE: Final = _type(fields.read_variable, fields.write_variable)
_TEXT: Final = _type(fields.read_text, fields.write_text)
_BINARY: Final = _type(fields.read_binary, fields.write_binary)
_PAIR: Final = _type(fields.read_pair, fields.write_pair)


def _any(value: Value) -> None:
    """Accept every value of the type."""


def _bit(value: Value) -> None:
    if value not in (0, 1):
        raise protocol_error(f"a property that is 0 or 1 has the value {value!r}")


def _not_zero(value: Value) -> None:
    if value == 0:
        raise protocol_error("a property that is at least 1 is 0")


def _alias(value: Value) -> None:
    if value == 0:  # [MQTT-3.3.2-8]
        raise Malformed(Reason.TOPIC_ALIAS, "the topic alias is 0")


def _topic(value: Value) -> None:
    fields.check_name(str(value))  # [MQTT-3.3.2-14]


class Property(NamedTuple):
    """A row of the table: a field of `Properties`, its identifier, type, allowed carriers, check, and where it may repeat."""

    name: str
    number: int
    type: _Type
    carriers: frozenset[int]
    check: Callable[[Value], None] = _any
    repeats_in: frozenset[int] = frozenset()


def _in(*carriers: int) -> frozenset[int]:
    return frozenset(carriers)


_OPENING: Final = _in(PacketType.CONNECT, PacketType.CONNACK)
_MESSAGE: Final = _in(PacketType.PUBLISH, WILL)
_FORWARDED_MESSAGE: Final = _in(PacketType.PUBLISH, WILL, FORWARDED)
_AUTHENTICATION: Final = _in(PacketType.CONNECT, PacketType.CONNACK, PacketType.AUTH)
_CONNACK: Final = _in(PacketType.CONNACK)
_OUTCOMES: Final = _in(
    PacketType.CONNACK, *ACKNOWLEDGES, PacketType.SUBACK, PacketType.UNSUBACK, PacketType.DISCONNECT, PacketType.AUTH
)
_EVERYWHERE: Final = _OUTCOMES | _FORWARDED_MESSAGE | {PacketType.CONNECT, PacketType.SUBSCRIBE, PacketType.UNSUBSCRIBE}

TABLE: Final = (
    Property("topic_alias_maximum", 0x22, _TWO, _OPENING),
    Property("maximum_packet_size", 0x27, _FOUR, _OPENING, _not_zero),
    Property("receive_maximum", 0x21, _TWO, _OPENING, _not_zero),
    Property("payload_format", 0x01, _BYTE, _FORWARDED_MESSAGE, _bit),
    Property("message_expiry_s", 0x02, _FOUR, _MESSAGE),
    Property("content_type", 0x03, _TEXT, _FORWARDED_MESSAGE),  # [MQTT-3.3.2-19]
    Property("response_topic", 0x08, _TEXT, _FORWARDED_MESSAGE, _topic),  # [MQTT-3.3.2-13]
    Property("correlation_data", 0x09, _BINARY, _FORWARDED_MESSAGE),
    Property(
        "subscription_ids", 0x0B, _VARIABLE, _in(PacketType.PUBLISH, PacketType.SUBSCRIBE), _not_zero, _in(PacketType.PUBLISH)
    ),
    Property("session_expiry_s", 0x11, _FOUR, _in(PacketType.CONNECT, PacketType.CONNACK, PacketType.DISCONNECT)),
    Property("assigned_client_id", 0x12, _TEXT, _CONNACK),
    Property("server_keep_alive_s", 0x13, _TWO, _CONNACK),
    Property("authentication_method", 0x15, _TEXT, _AUTHENTICATION),
    Property("authentication_data", 0x16, _BINARY, _AUTHENTICATION),
    Property("request_problem_information", 0x17, _FLAG, _in(PacketType.CONNECT), _bit),
    Property("will_delay_s", 0x18, _FOUR, _in(WILL)),
    Property("request_response_information", 0x19, _FLAG, _in(PacketType.CONNECT), _bit),
    Property("response_information", 0x1A, _TEXT, _CONNACK),
    Property("server_reference", 0x1C, _TEXT, _in(PacketType.CONNACK, PacketType.DISCONNECT)),
    Property("reason_string", 0x1F, _TEXT, _OUTCOMES),
    Property("topic_alias", 0x23, _TWO, _in(PacketType.PUBLISH), _alias),
    Property("maximum_qos", 0x24, _BYTE, _CONNACK, _bit),
    Property("retain_available", 0x25, _FLAG, _CONNACK, _bit),
    Property("user", 0x26, _PAIR, _EVERYWHERE, _any, _EVERYWHERE),
    Property("wildcard_available", 0x28, _FLAG, _CONNACK, _bit),
    Property("subscription_ids_available", 0x29, _FLAG, _CONNACK, _bit),
    Property("shared_available", 0x2A, _FLAG, _CONNACK, _bit),
)

_FORWARDED_PROPERTIES: Final = tuple(one for one in TABLE if FORWARDED in one.carriers)
_VALUES: Final = cast("Callable[[Properties], tuple[object, ...]]", attrgetter(*(one.name for one in TABLE)))
_FORWARDED_VALUES: Final = cast(
    "Callable[[Properties], tuple[object, ...]]", attrgetter(*(one.name for one in _FORWARDED_PROPERTIES))
)
_ABSENT: Final = _VALUES(NO_PROPERTIES)
_BY_NUMBER: Final = {one.number: (index, one) for index, one in enumerate(TABLE)}
# Creating a frozen dataclass takes 3 µs through its constructor, 1 µs through its slots.
_SETTERS: Final[tuple[Callable[[Properties, object], None], ...]] = tuple(Properties.__dict__[one.name].__set__ for one in TABLE)


def properties_block(properties: Properties, carrier: int) -> bytes:
    """Return the encoded properties without length prefix."""
    block = b""
    for one, value, absent in zip(TABLE, _VALUES(properties), _ABSENT, strict=True):
        if value is absent or value == absent:
            continue
        if carrier not in one.carriers:
            raise protocol_error(f"{_carrier_name(carrier)} with {one.name}")
        if absent == () and carrier not in one.repeats_in and len(cast("tuple[Value, ...]", value)) > 1:
            raise protocol_error(f"{_carrier_name(carrier)} with {one.name} more than once")
        block += _written(one, value)
    return block


def _written(one: Property, value: object) -> bytes:
    _, number, (_, write), _, check, repeats_in = one
    tag = bytes((number,))
    if not repeats_in:
        check(cast("Value", value))
        return tag + write(cast("Value", value))
    values = cast("tuple[Value, ...]", value)
    for each in values:
        check(each)
    return b"".join([tag + write(each) for each in values])


def _parse(block: bytes, carrier: int) -> Properties:
    values: list[object] = list(_ABSENT)
    repeated: dict[int, list[Value]] = {}  # lists, so that the time is linear in the packet's size
    at = 0
    while at < len(block):
        index, one = _found(block[at], carrier)
        value, at = one.type.read(block, at + 1)
        one.check(value)
        if carrier in one.repeats_in:
            repeated.setdefault(index, []).append(value)
        elif values[index] is _ABSENT[index]:
            values[index] = (value,) if one.repeats_in else value
        else:
            raise protocol_error(f"{one.name} more than once")
    for index, several in repeated.items():
        values[index] = tuple(several)
    made = object.__new__(Properties)
    for set_value, item in zip(_SETTERS, values, strict=True):
        set_value(made, item)
    return made


def _found(number: int, carrier: int) -> tuple[int, Property]:
    """Return the row of the table; raises `Malformed` if the carrier may not have it. All identifiers are one byte long."""
    found = _BY_NUMBER.get(number)
    if found is None:
        raise malformed(f"the property 0x{number:02X}, which does not exist")
    if carrier not in found[1].carriers:
        raise malformed(f"{_carrier_name(carrier)} with {found[1].name}")
    return found


def _carrier_name(carrier: int) -> str:
    return PacketType(carrier).name if carrier > 0 else "a will or a forwarded message"
