"""Packets → bytes, each in its shortest legal form.

For MQTT 3.1.1, everything that version lacks is omitted (properties, reason codes, options of a filter except the QoS), so that
a server answers both versions with the same value. Packets that are invalid in both are `Malformed`, as in the decoder.
"""

from typing import Final, assert_never

from milepost.model.reasons import Malformed, Reason
from milepost.model.topics import SHARE_PREFIX
from milepost.wire.mqtt.connect import write_connect
from milepost.wire.mqtt.fields import (
    ACKNOWLEDGES,
    SIZE_MAX,
    PacketType,
    Version,
    check_name,
    encode_length,
    malformed,
    protocol_error,
    text_bytes,
    write_text,
)
from milepost.wire.mqtt.packets import (
    Acknowledge,
    Auth,
    Connack,
    Connect,
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
from milepost.wire.mqtt.properties import NO_PROPERTIES, Properties, is_empty, properties_block, write_properties
from milepost.wire.mqtt.reason_codes import Code, check_code, to_return_code

_V3: Final = Version.V3
_SUCCESS: Final = Code.SUCCESS
_FIRST: Final = {
    kind: kind << 4 | (kind in (PacketType.PUBREL, PacketType.SUBSCRIBE, PacketType.UNSUBSCRIBE)) << 1 for kind in PacketType
}
_SHORT_ACKNOWLEDGE: Final = {kind: bytes([_FIRST[kind], 2]) for kind in ACKNOWLEDGES}
_PUBLISH_FIRST: Final = tuple(bytes([PacketType.PUBLISH << 4 | flags]) for flags in range(16))


def encode(packet: Packet, version: Version) -> bytes:
    """Return the bytes of a packet; CONNECT is encoded in its own version."""
    match packet:
        case Publish():
            return _write_publish(packet, version)
        case Acknowledge():
            return _write_acknowledge(packet, version)
        case Ping():
            return _whole(PacketType.PINGREQ, b"")
        case Pong():
            return _whole(PacketType.PINGRESP, b"")
        case Connect():
            return _whole(PacketType.CONNECT, write_connect(packet))
        case Connack():
            return _whole(PacketType.CONNACK, _connack(packet, version))
        case Subscribe():
            return _whole(PacketType.SUBSCRIBE, _subscribe(packet, version))
        case Suback():
            return _whole(PacketType.SUBACK, _suback(packet, version))
        case Unsubscribe():
            return _whole(PacketType.UNSUBSCRIBE, _unsubscribe(packet, version))
        case Unsuback():
            return _whole(PacketType.UNSUBACK, _unsuback(packet, version))
        case Disconnect():
            return _whole(PacketType.DISCONNECT, _disconnect(packet, version))
        case Auth():
            return _whole(PacketType.AUTH, _auth(packet, version))
        case _:
            assert_never(packet)


def publish_head(
    topic_bytes: bytes, flags: int, version: Version, properties: bytes, payload_size: int, packet_id: int | None
) -> bytes:
    """Return a PUBLISH up to its payload; `flags` is the low half of the first byte, `properties` have no length prefix."""
    middle = len(topic_bytes).to_bytes(2, "big") + topic_bytes
    if packet_id is not None:
        middle += packet_id.to_bytes(2, "big")
    if version != _V3:
        middle += (encode_length(len(properties)) + properties) if properties else b"\0"  # [MQTT-2.2.2-1]
    return _PUBLISH_FIRST[flags] + encode_length(len(middle) + payload_size) + middle


def _write_publish(packet: Publish, version: Version) -> bytes:
    topic, number, properties = packet.topic, packet.packet_id, packet.properties
    if topic:
        check_name(topic)  # [MQTT-3.3.2-2]
    elif version == _V3 or properties.topic_alias is None:
        raise Malformed(Reason.TOPIC_EMPTY)
    if len(topic_bytes := text_bytes(topic)) > SIZE_MAX:  # [MQTT-4.7.3-3]
        raise Malformed(Reason.TOPIC_TOO_LONG, f"{len(topic_bytes)} bytes, {SIZE_MAX} are allowed")
    if packet.qos not in (0, 1, 2) or (packet.dup and not packet.qos):  # [MQTT-3.3.1-4], [MQTT-3.3.1-2]
        raise malformed(f"PUBLISH with QoS {packet.qos} and DUP {packet.dup}")
    if (number is None) != (packet.qos == 0):  # [MQTT-2.2.1-2]
        raise protocol_error("a packet identifier belongs to QoS 1 and 2 alone")
    if number is not None:
        _check_number(number)
    flags = packet.dup << 3 | packet.qos << 1 | packet.retain
    block = b"" if version == _V3 or properties is NO_PROPERTIES else properties_block(properties, PacketType.PUBLISH)
    return publish_head(topic_bytes, flags, version, block, len(packet.payload), number) + packet.payload


def _write_acknowledge(packet: Acknowledge, version: Version) -> bytes:
    code, properties = packet.code, packet.properties
    number = _number(packet.packet_id)
    if version == _V3 or (code == _SUCCESS and is_empty(properties)):
        return _SHORT_ACKNOWLEDGE[packet.kind] + number
    check_code(code, packet.kind)  # [MQTT-3.4.2-1], [MQTT-3.5.2-1], [MQTT-3.6.2-1], [MQTT-3.7.2-1]
    return _whole(packet.kind, number + _outcome(code, properties, packet.kind))


def _connack(packet: Connack, version: Version) -> bytes:
    if packet.session_present and packet.code != _SUCCESS:  # [MQTT-3.2.2-6]
        raise protocol_error("CONNACK with a session and a failure")
    if version == _V3:
        return bytes([packet.session_present, to_return_code(packet.code)])
    check_code(packet.code, PacketType.CONNACK)  # [MQTT-3.2.2-8]
    return bytes([packet.session_present, packet.code]) + write_properties(packet.properties, PacketType.CONNACK)


def _subscribe(packet: Subscribe, version: Version) -> bytes:
    if not packet.requests:  # [MQTT-3.8.3-2]
        raise protocol_error("SUBSCRIBE without a filter")
    opening = _opening(packet.packet_id, packet.properties, version, PacketType.SUBSCRIBE)
    return opening + b"".join([write_text(one.filter) + bytes([_options(one, version)]) for one in packet.requests])


def _options(request: FilterRequest, version: Version) -> int:
    if not 0 <= request.qos <= 2 or not 0 <= request.retain_handling <= 2:
        raise protocol_error(f"a filter with QoS {request.qos} and retain handling {request.retain_handling}")
    if version == _V3:
        return request.qos  # 3.1.1 [MQTT-3-8.3-4]
    if request.no_local and request.filter.startswith(SHARE_PREFIX):  # [MQTT-3.8.3-4]
        raise protocol_error("no local on a shared subscription")
    return request.retain_handling << 4 | request.retain_as_published << 3 | request.no_local << 2 | request.qos


def _suback(packet: Suback, version: Version) -> bytes:
    if not packet.codes:  # [MQTT-3.8.4-6]
        raise protocol_error("SUBACK without a code")
    for code in packet.codes:
        check_code(code, PacketType.SUBACK)  # [MQTT-3.9.3-2]
    opening = _opening(packet.packet_id, packet.properties, version, PacketType.SUBACK)
    return opening + bytes(packet.codes if version != _V3 else [min(code, 0x80) for code in packet.codes])


def _unsubscribe(packet: Unsubscribe, version: Version) -> bytes:
    if not packet.filters:  # [MQTT-3.10.3-2]
        raise protocol_error("UNSUBSCRIBE without a filter")
    opening = _opening(packet.packet_id, packet.properties, version, PacketType.UNSUBSCRIBE)
    return opening + b"".join(map(write_text, packet.filters))


def _unsuback(packet: Unsuback, version: Version) -> bytes:
    opening = _opening(packet.packet_id, packet.properties, version, PacketType.UNSUBACK)
    if version == _V3:
        return opening
    if not packet.codes:  # [MQTT-3.11.3-2]
        raise protocol_error("UNSUBACK without a code")
    for code in packet.codes:
        check_code(code, PacketType.UNSUBACK)
    return opening + bytes(packet.codes)


def _disconnect(packet: Disconnect, version: Version) -> bytes:
    if version == _V3 or (packet.code == _SUCCESS and is_empty(packet.properties)):
        return b""
    check_code(packet.code, PacketType.DISCONNECT)  # [MQTT-3.14.2-1]
    return _outcome(packet.code, packet.properties, PacketType.DISCONNECT)


def _auth(packet: Auth, version: Version) -> bytes:
    if version == _V3:
        raise malformed("AUTH in MQTT 3.1.1")
    if packet.code == _SUCCESS and is_empty(packet.properties):
        return b""
    check_code(packet.code, PacketType.AUTH)  # [MQTT-3.15.2-1]
    if packet.properties.authentication_method is None:  # [MQTT-4.12.0-5]
        raise protocol_error("AUTH without an authentication method")
    return bytes([packet.code]) + write_properties(packet.properties, PacketType.AUTH)


def _outcome(code: Code, properties: Properties, kind: PacketType) -> bytes:
    """Return the reason code and properties at the end of a packet, where empty properties need no length."""
    return bytes([code]) if is_empty(properties) else bytes([code]) + write_properties(properties, kind)


def _opening(number: int, properties: Properties, version: Version, kind: PacketType) -> bytes:
    return _number(number) if version == _V3 else _number(number) + write_properties(properties, kind)


def _number(number: int) -> bytes:
    _check_number(number)
    return number.to_bytes(2, "big")


def _check_number(number: int) -> None:
    if not 0 < number <= SIZE_MAX:  # [MQTT-2.2.1-3], [MQTT-2.2.1-4]
        raise protocol_error(f"the packet identifier {number}")


def _whole(kind: PacketType, body: bytes) -> bytes:
    return bytes([_FIRST[kind]]) + encode_length(len(body)) + body
