"""Encoder and decoder of CONNECT, the only packet with a will, credentials and a version.

flags   7 username   6 password   5 will retain   4-3 will QoS   2 will   1 clean start   0 reserved
"""

from typing import Final

from milepost.model.reasons import Malformed, Reason
from milepost.wire.mqtt import fields
from milepost.wire.mqtt.fields import PacketType, Version, check_name, malformed, protocol_error
from milepost.wire.mqtt.packets import Connect, Will
from milepost.wire.mqtt.properties import NO_PROPERTIES, WILL, Properties, read_properties, write_properties

_NAME: Final = b"\x00\x04MQTT"
_USERNAME, _PASSWORD, _WILL_RETAIN, _WILL_QOS, _WILL, _CLEAN, _RESERVED = 0x80, 0x40, 0x20, 0x18, 0x04, 0x02, 0x01


def maybe_version(body: bytes) -> Version | None:
    """Return the version for the answer to any CONNECT, even malformed: its own or the nearest supported; None if not MQTT."""
    if len(body) <= 6 or not body.startswith(_NAME):
        return None
    return Version.V5 if body[6] >= Version.V5 else Version.V3


def read_connect(body: bytes) -> Connect:
    """Return the CONNECT of a body."""
    version = _read_version(body)
    flags, at = fields.read_byte(body, 7)
    _check_flags(flags, version)
    keep_alive_s, at = fields.read_two(body, at)
    properties, at = _read_properties(body, at, version, PacketType.CONNECT)
    client_id, at = fields.read_text(body, at)  # [MQTT-3.1.3-1], [MQTT-3.1.3-3], [MQTT-3.1.3-4]
    will, at = _read_will(body, at, version, flags) if flags & _WILL else (None, at)  # [MQTT-3.1.2-9]
    username, at = fields.read_text(body, at) if flags & _USERNAME else (None, at)  # [MQTT-3.1.2-16], [-17], [MQTT-3.1.3-12]
    password, at = fields.read_binary(body, at) if flags & _PASSWORD else (None, at)  # [MQTT-3.1.2-18], [MQTT-3.1.2-19]
    if at != len(body):
        raise malformed("CONNECT with bytes after its end")
    packet = Connect(client_id, version, flags & _CLEAN != 0, keep_alive_s, will, username, password, properties)
    _check_connect(packet)
    return packet


def write_connect(packet: Connect) -> bytes:
    """Return the body of a CONNECT."""
    _check_connect(packet)
    version, will = packet.version, packet.will
    flags = _CLEAN if packet.clean_start else 0
    parts = [fields.write_two(packet.keep_alive_s), _write_properties(packet.properties, version, PacketType.CONNECT)]
    parts.append(fields.write_text(packet.client_id))
    if will is not None:
        flags |= _WILL | will.qos << 3 | (_WILL_RETAIN if will.retain else 0)
        parts.append(_write_properties(will.properties, version, WILL))
        parts += fields.write_text(will.topic), fields.write_binary(will.payload)
    if packet.username is not None:
        flags |= _USERNAME
        parts.append(fields.write_text(packet.username))
    if packet.password is not None:
        flags |= _PASSWORD
        parts.append(fields.write_binary(packet.password))
    _check_flags(flags, version)
    return b"".join([_NAME, bytes([version, flags]), *parts])


def _read_version(body: bytes) -> Version:
    name, at = fields.read_binary(body, 0)
    level, _ = fields.read_byte(body, at)
    if name != _NAME[2:]:  # [MQTT-3.1.2-1]
        raise Malformed(Reason.PROTOCOL_UNSUPPORTED, f"the protocol name {name[:20]!r}")
    if level not in (Version.V3, Version.V5):  # [MQTT-3.1.2-2]
        raise Malformed(Reason.PROTOCOL_UNSUPPORTED, f"the protocol level {level}")
    return Version(level)


def _check_flags(flags: int, version: Version) -> None:
    if flags & _RESERVED:  # [MQTT-3.1.2-3]
        raise malformed("CONNECT with its reserved flag set")
    if not flags & _WILL and flags & (_WILL_QOS | _WILL_RETAIN):  # [MQTT-3.1.2-11], [MQTT-3.1.2-13]
        raise malformed("will QoS or will retain without a will")
    if version == Version.V3 and flags & _PASSWORD and not flags & _USERNAME:  # 3.1.1 [MQTT-3.1.2-22]
        raise malformed("a password without a user name")


def _check_connect(packet: Connect) -> None:
    if packet.version == Version.V3 and not packet.client_id and not packet.clean_start:  # 3.1.1 [MQTT-3.1.3-7]
        raise Malformed(Reason.CLIENT_ID, "an empty client identifier without a clean session")
    properties = packet.properties
    if properties.authentication_data is not None and properties.authentication_method is None:
        raise protocol_error("authentication data without an authentication method")
    if packet.will is None:
        return
    check_name(packet.will.topic)
    if packet.will.qos not in (0, 1, 2):  # [MQTT-3.1.2-12]
        raise malformed(f"a will with QoS {packet.will.qos}")


def _read_will(body: bytes, at: int, version: Version, flags: int) -> tuple[Will, int]:
    properties, at = _read_properties(body, at, version, WILL)
    topic, at = fields.read_text(body, at)  # [MQTT-3.1.3-11]
    payload, at = fields.read_binary(body, at)
    return Will(topic, payload, flags >> 3 & 3, flags & _WILL_RETAIN != 0, properties), at


def _read_properties(body: bytes, at: int, version: Version, carrier: int) -> tuple[Properties, int]:
    return (NO_PROPERTIES, at) if version == Version.V3 else read_properties(body, at, carrier)


def _write_properties(properties: Properties, version: Version, carrier: int) -> bytes:
    return b"" if version == Version.V3 else write_properties(properties, carrier)
