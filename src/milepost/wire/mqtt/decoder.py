"""Strict decoder of packets: any input gives the packet that was sent, or `Malformed` with a reason.

PUBLISH and its acknowledgements are decoded inline for speed, because nearly all packets are of these kinds. The caller
validates filters, and topic names except for wildcards: a bad filter is answered in SUBACK and does not end the connection.
"""

from collections.abc import Callable
from typing import Final

from milepost.model.reasons import Malformed, Reason
from milepost.model.topics import SHARE_PREFIX
from milepost.wire.mqtt.connect import read_connect
from milepost.wire.mqtt.fields import (
    LEGAL_FIRST,
    PacketType,
    Version,
    check_first,
    check_name,
    malformed,
    protocol_error,
    read_text,
    read_two,
    truncated,
)
from milepost.wire.mqtt.packets import (
    Acknowledge,
    Auth,
    Connack,
    Disconnect,
    FilterRequest,
    Packet,
    Ping,
    Pong,
    Publish,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from milepost.wire.mqtt.properties import NO_PROPERTIES, Properties, read_properties
from milepost.wire.mqtt.reason_codes import LEGAL_CODES, Code, check_code, from_return_code

_V3: Final = Version.V3
_SUCCESS: Final = Code.SUCCESS
_PING: Final = Ping()
_PONG: Final = Pong()
_GRANTED_V3: Final = (Code.SUCCESS, Code.GRANTED_QOS_1, Code.GRANTED_QOS_2, Code.UNSPECIFIED_ERROR)


def decode(first: int, body: bytes, version: Version) -> Packet:
    """Return the packet with this first byte and body; CONNECT carries its own version."""
    return _READERS[first](first, body, version)


def _read_publish(first: int, body: bytes, version: Version) -> Publish:
    size = len(body)
    if size < 2 or (at := (body[0] << 8 | body[1]) + 2) > size:
        raise truncated("the topic")
    try:
        topic = body[2:at].decode()  # [MQTT-3.3.2-1], [MQTT-1.5.4-1]
    except UnicodeDecodeError:
        raise malformed("a topic that is not UTF-8") from None
    if "\0" in topic:  # [MQTT-1.5.4-2]
        raise malformed("a topic with U+0000")
    if "+" in topic or "#" in topic:
        check_name(topic)  # [MQTT-3.3.2-2]
    qos = first >> 1 & 3
    number = None
    if qos:  # [MQTT-2.2.1-2]
        at += 2
        if at > size:
            raise truncated("the packet identifier")
        number = body[at - 2] << 8 | body[at - 1]
        if not number:  # [MQTT-2.2.1-3], [MQTT-2.2.1-4]
            raise protocol_error("the packet identifier 0")
    properties = NO_PROPERTIES
    if version != _V3:
        if at < size and not body[at]:
            at += 1
        else:
            properties, at = read_properties(body, at, PacketType.PUBLISH)
    if not topic and properties.topic_alias is None:
        raise _without_topic(version)
    return Publish(topic, body[at:], qos, first & 1 != 0, first & 8 != 0, number, properties)


def _without_topic(version: Version) -> Malformed:
    if version == _V3:  # 3.1.1 [MQTT-4.7.3-1]
        return Malformed(Reason.TOPIC_EMPTY)
    return protocol_error("PUBLISH with neither topic nor topic alias")


def _read_acknowledge(first: int, body: bytes, version: Version) -> Acknowledge:
    size = len(body)
    if size < 2:
        raise truncated("the packet identifier")
    number = body[0] << 8 | body[1]
    if not number:
        raise protocol_error("the packet identifier 0")
    kind = _KINDS[first]
    if size == 2:
        return Acknowledge(kind, number)
    if version == _V3:
        raise _trailing(kind)
    code = LEGAL_CODES[kind].get(body[2]) or check_code(body[2], kind)
    if size == 3:
        return Acknowledge(kind, number, code)
    return Acknowledge(kind, number, code, _last_properties(body, 3, kind))


def _read_connack(_first: int, body: bytes, version: Version) -> Connack:
    if len(body) < 2:
        raise truncated("the reason code")
    if body[0] > 1:  # [MQTT-3.2.2-1]
        raise malformed(f"CONNACK with the flags {body[0]:08b}")
    if version == _V3:
        code, properties = from_return_code(body[1]), NO_PROPERTIES
        _check_end(body, 2, PacketType.CONNACK)
    else:
        code, properties = check_code(body[1], PacketType.CONNACK), _last_properties(body, 2, PacketType.CONNACK)
    if body[0] and code != _SUCCESS:  # [MQTT-3.2.2-6]
        raise protocol_error("CONNACK with a session and a failure")
    return Connack(body[0] == 1, code, properties)


def _read_subscribe(_first: int, body: bytes, version: Version) -> Subscribe:
    number, properties, at = _read_opening(body, version, PacketType.SUBSCRIBE)
    requests = []
    while at < len(body):
        topic_filter, at = read_text(body, at)  # [MQTT-3.8.3-1]
        if at >= len(body):
            raise truncated("the options of a filter")
        requests.append(_read_request(topic_filter, body[at], version))
        at += 1
    if not requests:  # [MQTT-3.8.3-2]
        raise protocol_error("SUBSCRIBE without a filter")
    return Subscribe(number, tuple(requests), properties)


def _read_request(topic_filter: str, options: int, version: Version) -> FilterRequest:
    """Return a filter with its options: reserved 2, retain handling 2, retain as published 1, no local 1, QoS 2 bits."""
    if options & (0xC0 if version != _V3 else 0xFC):  # [MQTT-3.8.3-5], 3.1.1 [MQTT-3-8.3-4]
        raise malformed(f"a filter with the options {options:08b}")
    qos, handling, no_local = options & 3, options >> 4 & 3, options & 4 != 0
    if qos == 3 or handling == 3:
        raise protocol_error("a filter with QoS 3" if qos == 3 else "a filter with retain handling 3")
    if no_local and topic_filter.startswith(SHARE_PREFIX):  # [MQTT-3.8.3-4]
        raise protocol_error("no local on a shared subscription")
    return FilterRequest(topic_filter, qos, no_local, options & 8 != 0, handling)


def _read_suback(_first: int, body: bytes, version: Version) -> Suback:
    number, properties, at = _read_opening(body, version, PacketType.SUBACK)
    codes = tuple(check_code(byte, PacketType.SUBACK) for byte in body[at:])
    if not codes:  # [MQTT-3.8.4-6]
        raise protocol_error("SUBACK without a code")
    if version == _V3 and any(code not in _GRANTED_V3 for code in codes):  # 3.1.1 [MQTT-3.9.3-2]
        raise malformed("SUBACK with a reserved return code")
    return Suback(number, codes, properties)


def _read_unsubscribe(_first: int, body: bytes, version: Version) -> Unsubscribe:
    number, properties, at = _read_opening(body, version, PacketType.UNSUBSCRIBE)
    filters = []
    while at < len(body):
        topic_filter, at = read_text(body, at)  # [MQTT-3.10.3-1]
        filters.append(topic_filter)
    if not filters:  # [MQTT-3.10.3-2]
        raise protocol_error("UNSUBSCRIBE without a filter")
    return Unsubscribe(number, tuple(filters), properties)


def _read_unsuback(_first: int, body: bytes, version: Version) -> Unsuback:
    number, properties, at = _read_opening(body, version, PacketType.UNSUBACK)
    if version == _V3:
        _check_end(body, at, PacketType.UNSUBACK)
        return Unsuback(number)
    codes = tuple(check_code(byte, PacketType.UNSUBACK) for byte in body[at:])
    if not codes:  # [MQTT-3.11.3-2]
        raise protocol_error("UNSUBACK without a code")
    return Unsuback(number, codes, properties)


def _read_ping(_first: int, body: bytes, _version: Version) -> Ping:
    _check_end(body, 0, PacketType.PINGREQ)
    return _PING


def _read_pong(_first: int, body: bytes, _version: Version) -> Pong:
    _check_end(body, 0, PacketType.PINGRESP)
    return _PONG


def _read_disconnect(_first: int, body: bytes, version: Version) -> Disconnect:
    if not body:
        return Disconnect()
    if version == _V3:
        raise _trailing(PacketType.DISCONNECT)
    code = check_code(body[0], PacketType.DISCONNECT)
    if len(body) == 1:
        return Disconnect(code)
    return Disconnect(code, _last_properties(body, 1, PacketType.DISCONNECT))


def _read_auth(_first: int, body: bytes, version: Version) -> Auth:
    if version == _V3:  # 3.1.1: type 15 is reserved
        raise malformed("AUTH in MQTT 3.1.1")
    if not body:  # its short form; all others have properties [MQTT-2.2.2-1]
        return Auth()
    code = check_code(body[0], PacketType.AUTH)
    properties = _last_properties(body, 1, PacketType.AUTH)
    if properties.authentication_method is None:  # [MQTT-4.12.0-5]
        raise protocol_error("AUTH without an authentication method")
    return Auth(code, properties)


def _read_connect(_first: int, body: bytes, _version: Version) -> Packet:
    return read_connect(body)


def _read_nothing(first: int, _body: bytes, _version: Version) -> Packet:
    check_first(first)
    raise AssertionError(f"a legal first byte 0x{first:02X} without a reader")


def _read_opening(body: bytes, version: Version, kind: PacketType) -> tuple[int, Properties, int]:
    """Return the packet identifier and properties at the start of subscription packets, and the position after them."""
    number, at = read_two(body, 0)
    if not number:  # [MQTT-2.2.1-3]
        raise protocol_error("the packet identifier 0")
    if version == _V3:
        return number, NO_PROPERTIES, at
    properties, at = read_properties(body, at, kind)
    return number, properties, at


def _last_properties(body: bytes, at: int, kind: PacketType) -> Properties:
    properties, at = read_properties(body, at, kind)
    _check_end(body, at, kind)
    return properties


def _check_end(body: bytes, at: int, kind: PacketType) -> None:
    if at != len(body):
        raise _trailing(kind)


def _trailing(kind: PacketType) -> Malformed:
    return malformed(f"{kind.name} with bytes after its end")


_KINDS: Final = {first: PacketType(first >> 4) for first in LEGAL_FIRST}
_OF_KIND: Final[dict[PacketType, Callable[[int, bytes, Version], Packet]]] = {
    PacketType.CONNECT: _read_connect,
    PacketType.CONNACK: _read_connack,
    PacketType.PUBLISH: _read_publish,
    PacketType.PUBACK: _read_acknowledge,
    PacketType.PUBREC: _read_acknowledge,
    PacketType.PUBREL: _read_acknowledge,
    PacketType.PUBCOMP: _read_acknowledge,
    PacketType.SUBSCRIBE: _read_subscribe,
    PacketType.SUBACK: _read_suback,
    PacketType.UNSUBSCRIBE: _read_unsubscribe,
    PacketType.UNSUBACK: _read_unsuback,
    PacketType.PINGREQ: _read_ping,
    PacketType.PINGRESP: _read_pong,
    PacketType.DISCONNECT: _read_disconnect,
    PacketType.AUTH: _read_auth,
}
_READERS: Final = tuple(_OF_KIND[PacketType(first >> 4)] if first in LEGAL_FIRST else _read_nothing for first in range(256))
