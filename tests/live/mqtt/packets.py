"""MQTT packets by hand: exact bytes out, fields in. Independent of Milepost's codec; packets to send are not checked.

| kind << 4 + flags | remaining length, 1-4 bytes | body |
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TypedDict, Unpack

V4, V5 = 4, 5
PINGREQ = b"\xc0\x00"
PINGRESP = b"\xd0\x00"


class Kind(IntEnum):
    """Table 2-1: the packet types."""

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


class P(IntEnum):
    """Table 2-4: the properties."""

    PAYLOAD_FORMAT = 1
    MESSAGE_EXPIRY = 2
    CONTENT_TYPE = 3
    RESPONSE_TOPIC = 8
    CORRELATION_DATA = 9
    SUBSCRIPTION_ID = 11
    SESSION_EXPIRY = 17
    ASSIGNED_CLIENT_ID = 18
    SERVER_KEEP_ALIVE = 19
    AUTH_METHOD = 21
    AUTH_DATA = 22
    REQUEST_PROBLEM_INFORMATION = 23
    WILL_DELAY = 24
    REQUEST_RESPONSE_INFORMATION = 25
    RESPONSE_INFORMATION = 26
    SERVER_REFERENCE = 28
    REASON_STRING = 31
    RECEIVE_MAXIMUM = 33
    TOPIC_ALIAS_MAXIMUM = 34
    TOPIC_ALIAS = 35
    MAXIMUM_QOS = 36
    RETAIN_AVAILABLE = 37
    USER_PROPERTY = 38
    MAXIMUM_PACKET_SIZE = 39
    WILDCARD_AVAILABLE = 40
    SUBSCRIPTION_ID_AVAILABLE = 41
    SHARED_AVAILABLE = 42


BYTE = {P.PAYLOAD_FORMAT, P.REQUEST_PROBLEM_INFORMATION, P.REQUEST_RESPONSE_INFORMATION, P.MAXIMUM_QOS, P.RETAIN_AVAILABLE}
BYTE |= {P.WILDCARD_AVAILABLE, P.SUBSCRIPTION_ID_AVAILABLE, P.SHARED_AVAILABLE}
TWO_BYTES = {P.SERVER_KEEP_ALIVE, P.RECEIVE_MAXIMUM, P.TOPIC_ALIAS_MAXIMUM, P.TOPIC_ALIAS}
FOUR_BYTES = {P.MESSAGE_EXPIRY, P.SESSION_EXPIRY, P.WILL_DELAY, P.MAXIMUM_PACKET_SIZE}
BINARY = {P.CORRELATION_DATA, P.AUTH_DATA}

Value = int | str | bytes | tuple[str, str]
Properties = Sequence[tuple[int, Value]]


@dataclass(frozen=True, slots=True)
class Will:
    """The will in CONNECT."""

    topic: str
    payload: bytes = b"gone"
    qos: int = 0
    retain: bool = False
    props: Properties = ()


class ConnectOptions(TypedDict, total=False):
    """Options of `connect`; `flags` and `protocol` override the correct values."""

    clean: bool
    keep_alive: int
    props: Properties
    will: Will | None
    user: str | None
    password: bytes | None
    flags: int
    protocol: bytes
    level_byte: int


class PublishOptions(TypedDict, total=False):
    """Options of `publish` beside topic and payload."""

    qos: int
    packet_id: int
    retain: bool
    dup: bool
    props: Properties


def varint(number: int) -> bytes:
    """1.5.5 Variable Byte Integer."""
    found = bytearray()
    while True:
        number, low = divmod(number, 128)
        found.append(low | (0x80 if number else 0))
        if not number:
            return bytes(found)


def short(number: int) -> bytes:
    return number.to_bytes(2, "big")


def text(value: str | bytes) -> bytes:
    """1.5.4 UTF-8 string, 1.5.6 binary data: two bytes of length first. Bytes are taken as they are, valid or not."""
    raw = value.encode() if isinstance(value, str) else value
    return short(len(raw)) + raw


def packet(first: int, body: bytes) -> bytes:
    return bytes([first]) + varint(len(body)) + body


def encoded(identifier: int, value: Value) -> bytes:
    """One property with its identifier."""
    head = varint(identifier)
    if isinstance(value, tuple):
        return head + text(value[0]) + text(value[1])
    if isinstance(value, str | bytes):
        return head + text(value)
    if identifier == P.SUBSCRIPTION_ID:
        return head + varint(value)
    return head + value.to_bytes(1 if identifier in BYTE else 2 if identifier in TWO_BYTES else 4, "big")


def properties(items: Properties, level: int = V5) -> bytes:
    """All properties with their length; nothing at all in 3.1.1."""
    if level < V5:
        return b""
    body = b"".join(encoded(identifier, value) for identifier, value in items)
    return varint(len(body)) + body


def connect(client_id: str | bytes, level: int = V5, **options: Unpack[ConnectOptions]) -> bytes:
    will, user, password = options.get("will"), options.get("user"), options.get("password")
    flags = 0x02 if options.get("clean", True) else 0
    payload = text(client_id)
    if will:
        flags |= 0x04 | will.qos << 3 | (0x20 if will.retain else 0)
        payload += properties(will.props, level) + text(will.topic) + text(will.payload)
    if user is not None:
        flags |= 0x80
        payload += text(user)
    if password is not None:
        flags |= 0x40
        payload += text(password)
    head = text(options.get("protocol", b"MQTT")) + bytes([options.get("level_byte", level), options.get("flags", flags)])
    return packet(0x10, head + short(options.get("keep_alive", 60)) + properties(options.get("props", ()), level) + payload)


def publish(topic: str | bytes, payload: bytes = b"", level: int = V5, **options: Unpack[PublishOptions]) -> bytes:
    qos = options.get("qos", 0)
    first = 0x30 | qos << 1 | (0x08 if options.get("dup") else 0) | (0x01 if options.get("retain") else 0)
    identifier = short(options.get("packet_id", 0)) if qos else b""
    return packet(first, text(topic) + identifier + properties(options.get("props", ()), level) + payload)


def ack(kind: Kind, packet_id: int, reason: int = 0, props: Properties = (), level: int = V5) -> bytes:
    """PUBACK, PUBREC, PUBREL or PUBCOMP; the short form where the reason is 0 and there are no properties."""
    first = kind << 4 | (0x02 if kind == Kind.PUBREL else 0)
    rest = bytes([reason]) + properties(props) if level == V5 and (reason or props) else b""
    return packet(first, short(packet_id) + rest)


def subscribe(packet_id: int, *filters: tuple[str | bytes, int], props: Properties = (), level: int = V5) -> bytes:
    """Each filter comes with its options byte: QoS, no local 0x04, retain as published 0x08, retain handling 0x10 and 0x20."""
    body = b"".join(text(one) + bytes([options]) for one, options in filters)
    return packet(0x82, short(packet_id) + properties(props, level) + body)


def unsubscribe(packet_id: int, *filters: str | bytes, props: Properties = (), level: int = V5) -> bytes:
    return packet(0xA2, short(packet_id) + properties(props, level) + b"".join(text(one) for one in filters))


def disconnect(reason: int = 0, props: Properties = (), level: int = V5) -> bytes:
    if level < V5 or (not reason and not props):
        return b"\xe0\x00"
    return packet(0xE0, bytes([reason]) + properties(props))


def auth(reason: int, props: Properties = ()) -> bytes:
    return packet(0xF0, bytes([reason]) + properties(props))


@dataclass(frozen=True, slots=True)
class Packet:
    """A received packet and its fields; fields that its type does not have keep their defaults."""

    kind: Kind
    flags: int
    body: bytes
    size: int
    packet_id: int = 0
    reason: int = 0
    session_present: bool = False
    topic: str = ""
    payload: bytes = b""
    codes: tuple[int, ...] = ()
    properties: tuple[tuple[int, Value], ...] = ()

    @property
    def qos(self) -> int:
        return self.flags >> 1 & 3

    @property
    def is_dup(self) -> bool:
        return bool(self.flags & 8)

    @property
    def is_retained(self) -> bool:
        return bool(self.flags & 1)

    def all(self, wanted: int) -> list[Value]:
        """Every value of a property, in order."""
        return [value for identifier, value in self.properties if identifier == wanted]

    def one(self, wanted: int) -> Value | None:
        """Return the value of a property that occurs at most once."""
        values = self.all(wanted)
        assert len(values) <= 1, f"{P(wanted).name} occurs {len(values)} times"
        return values[0] if values else None

    def number(self, wanted: int) -> int:
        value = self.one(wanted)
        assert isinstance(value, int), f"{P(wanted).name} is {value!r}"
        return value


class Reader:
    """Reads the fields of a body in order; an incomplete field fails an assertion."""

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.at = 0

    def take(self, count: int) -> bytes:
        found = self.body[self.at : self.at + count]
        assert len(found) == count, f"the body ends too early: {self.body!r}"
        self.at += count
        return found

    def number(self, width: int) -> int:
        return int.from_bytes(self.take(width), "big")

    def varint(self) -> int:
        total = 0
        for place in range(4):
            byte = self.number(1)
            total |= (byte & 0x7F) << 7 * place
            if byte < 0x80:
                return total
        raise AssertionError(f"a length of more than four bytes: {self.body!r}")

    def text(self) -> str:
        return self.take(self.number(2)).decode()

    def rest(self) -> bytes:
        return self.take(len(self.body) - self.at)

    def is_done(self) -> bool:
        return self.at == len(self.body)

    def properties(self) -> tuple[tuple[int, Value], ...]:
        inner = Reader(self.take(self.varint()))
        found = []
        while not inner.is_done():
            identifier = inner.varint()
            found.append((identifier, inner.value(identifier)))
        return tuple(found)

    def value(self, identifier: int) -> Value:
        if identifier in BYTE:
            return self.number(1)
        if identifier in TWO_BYTES:
            return self.number(2)
        if identifier in FOUR_BYTES:
            return self.number(4)
        if identifier == P.SUBSCRIPTION_ID:
            return self.varint()
        if identifier == P.USER_PROPERTY:
            return self.text(), self.text()
        if identifier in BINARY:
            return self.take(self.number(2))
        assert identifier in set(P), f"unknown property {identifier}"
        return self.text()


def maybe_split(stream: bytes | bytearray) -> tuple[int, int] | None:
    """Return start and end of the body of the first packet; None while it is incomplete."""
    length = 0
    for place in range(4):
        if len(stream) < place + 2:
            return None
        byte = stream[place + 1]
        length |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            end = place + 2 + length
            return (place + 2, end) if len(stream) >= end else None
    raise AssertionError(f"the server sent a length of more than four bytes: {bytes(stream[:8])!r}")


def parse(first: int, body: bytes, size: int, level: int) -> Packet:
    """The fields of a packet from the server. Whatever the specification does not allow a server to send is an assertion."""
    kind, flags = Kind(first >> 4), first & 15
    if kind == Kind.PUBLISH:
        return _parse_publish(flags, body, size, level)
    assert flags == (2 if kind == Kind.PUBREL else 0), f"reserved flags {flags} in {kind.name}"
    read = Reader(body)
    fields = Packet(kind, flags, body, size)
    match kind:
        case Kind.CONNACK:
            present, reason = read.number(1), read.number(1)
            assert present in (0, 1), f"reserved acknowledge flags {present}"
            is_old = level < V5 or reason == 1  # 1: an unsupported version, answered in the form of 3.1.1
            found = () if is_old else read.properties()
            fields = Packet(kind, flags, body, size, reason=reason, session_present=bool(present), properties=found)
        case Kind.PUBACK | Kind.PUBREC | Kind.PUBREL | Kind.PUBCOMP:
            packet_id = read.number(2)
            reason, found = _reason_and_properties(read, level)
            fields = Packet(kind, flags, body, size, packet_id=packet_id, reason=reason, properties=found)
        case Kind.SUBACK | Kind.UNSUBACK:
            packet_id = read.number(2)
            found = read.properties() if level == V5 else ()
            fields = Packet(kind, flags, body, size, packet_id=packet_id, codes=tuple(read.rest()), properties=found)
        case Kind.DISCONNECT | Kind.AUTH:
            assert level == V5, f"3.1.1 knows no {kind.name} from a server"
            reason, found = _reason_and_properties(read, level)
            fields = Packet(kind, flags, body, size, reason=reason, properties=found)
        case Kind.PINGRESP:
            pass
        case _:
            raise AssertionError(f"a server never sends {kind.name}")
    assert read.is_done(), f"bytes too many in {kind.name}: {body!r}"
    return fields


def _reason_and_properties(read: Reader, level: int) -> tuple[int, tuple[tuple[int, Value], ...]]:
    if read.is_done() or level < V5:
        return 0, ()
    reason = read.number(1)
    return reason, () if read.is_done() else read.properties()


def _parse_publish(flags: int, body: bytes, size: int, level: int) -> Packet:
    qos = flags >> 1 & 3
    assert qos < 3, "a PUBLISH with QoS 3"
    read = Reader(body)
    topic = read.text()
    packet_id = read.number(2) if qos else 0
    assert not qos or packet_id, "a packet identifier of 0"
    found = read.properties() if level == V5 else ()
    payload = read.rest()
    return Packet(Kind.PUBLISH, flags, body, size, packet_id=packet_id, topic=topic, payload=payload, properties=found)
