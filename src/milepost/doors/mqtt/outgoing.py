"""Outgoing: deliveries as the bytes of PUBLISH packets, once for all takers of a dialect."""

from base64 import b64encode
from typing import Final

from milepost.doors.mqtt.link import DIALECT_V3, DIALECT_V5, MqttLink
from milepost.edge.parcels import Delivery, Parcel
from milepost.edge.plans import Group
from milepost.edge.sessions import Session
from milepost.model.instants import FOREVER, SECOND_NS, Instant
from milepost.model.messages import Scalar
from milepost.model.priorities import Priority
from milepost.wire.asks import message_user_properties
from milepost.wire.asks.messages import PROPERTY_BYTES_MAX
from milepost.wire.asks.properties import PREFIX
from milepost.wire.mqtt import Properties, Version, encode_length, forwarded, publish_head
from milepost.wire.mqtt.framing import PACKET_BYTES_MAX, frame_at

_EXPIRY: Final = b"\x02"
_SUBSCRIPTION_ID: Final = b"\x0b"
_SUBSCRIPTION_ID_MAX: Final = 268_435_455
"""Subscriptions made by JSON may have greater ones; MQTT has no way to say these."""
_TOPIC_ALIAS: Final = b"\x23"
_DUP, _RETAIN = 0b1000, 0b0001


def packet_of(delivery: Delivery, number: int, dialect: int, now: Instant, *, is_again: bool) -> bytes:
    """A PUBLISH for every session of a dialect."""
    parcel = delivery.parcel
    flags = _flags(delivery, is_again=is_again)
    if dialect == DIALECT_V3:
        head = publish_head(parcel.topic.encode(), flags, Version.V3, b"", len(parcel.body), number or None)
    else:
        properties = properties_of(delivery, now)
        head = publish_head(parcel.topic.encode(), flags, Version.V5, properties, len(parcel.body), number or None)
    return head + parcel.body


def packet_for(link: MqttLink, delivery: Delivery, number: int, now: Instant, *, is_again: bool) -> bytes | None:
    """A PUBLISH for one connection that is not like others; nothing if it is larger than the client allows. [MQTT-3.1.2-24]"""
    parcel = delivery.parcel
    topic, properties = parcel.topic.encode(), properties_of(delivery, now)
    topic, properties = _aliased(link, parcel.topic, topic, properties)
    head = publish_head(topic, _flags(delivery, is_again=is_again), Version.V5, properties, len(parcel.body), number or None)
    if link.packet_max and len(head) + len(parcel.body) > link.packet_max:
        if topic and link.aliases_out:  # the client was not told what this alias stands for
            link.aliases_out.pop(parcel.topic, None)
        return None
    return head + parcel.body


def _aliased(link: MqttLink, name: str, topic: bytes, properties: bytes) -> tuple[bytes, bytes]:
    """The first topics of a connection get a number each; from then on the number stands for the topic."""
    if not link.aliases_out_max:
        return topic, properties
    if link.aliases_out is None:
        link.aliases_out = {}
    alias = link.aliases_out.get(name)
    if alias is not None:
        return b"", properties + _TOPIC_ALIAS + alias.to_bytes(2, "big")
    if len(link.aliases_out) >= link.aliases_out_max:  # [MQTT-3.1.2-26]
        return topic, properties
    alias = link.aliases_out[name] = len(link.aliases_out) + 1
    return topic, properties + _TOPIC_ALIAS + alias.to_bytes(2, "big")


def _flags(delivery: Delivery, *, is_again: bool) -> int:
    flags = delivery.qos << 1
    if is_again and delivery.qos:  # [MQTT-3.3.1-1], [MQTT-3.3.1-2]
        flags |= _DUP
    return flags | _RETAIN if delivery.is_from_store else flags


def properties_of(delivery: Delivery, now: Instant) -> bytes:
    """The properties of a PUBLISH in MQTT 5, without their length."""
    parcel = delivery.parcel
    found = _extras_of(parcel)
    if parcel.valid_until != FOREVER:  # what is left of it. [MQTT-3.3.2-6]
        left_s = max(0, -((now - parcel.valid_until) // SECOND_NS))
        found += _EXPIRY + min(left_s, 0xFFFFFFFF).to_bytes(4, "big")
    return found + labels_block(delivery.labels) if delivery.labels else found


def _extras_of(parcel: Parcel) -> bytes:
    """What receivers are told in user properties; put into words now if the message came in by another door."""
    if parcel.extras is None:
        fields = tuple((name, _text_of(value)) for name, value in sorted(parcel.fields.items()) if not name.startswith(PREFIX))
        sayable = tuple((name, text) for name, text in fields if "\0" not in text and len(text.encode()) <= PROPERTY_BYTES_MAX)
        parcel.extras = forwarded(Properties(user=(*sayable, *message_user_properties(parcel.message))))
    return parcel.extras


def _text_of(value: Scalar) -> str:
    """A field as a user property, which is always text: as JSON would write it, bytes in base64."""
    match value:
        case bool():
            return "true" if value else "false"
        case bytes():
            return b64encode(value).decode()
        case _:
            return str(value)


def labels_block(labels: tuple[int, ...]) -> bytes:
    """Subscription identifiers as properties. [MQTT-3.3.4-3] to [MQTT-3.3.4-5]"""
    return b"".join(_SUBSCRIPTION_ID + encode_length(label) for label in labels if label <= _SUBSCRIPTION_ID_MAX)


def chunk_for(group: Group, packets: list[bytes], dialect: int) -> bytes:
    """Packets of quality 0 that came in one dialect, as all sessions of a group get them."""
    if group.dialect == dialect and not group.labels:
        return packets[0] if len(packets) == 1 else b"".join(packets)
    if group.form is None:
        group.form = labels_block(group.labels) if group.dialect != DIALECT_V3 else b""
    version = Version.V3 if group.dialect == DIALECT_V3 else Version.V5
    return b"".join([_converted(packet, dialect, version, group.form) for packet in packets])


def _converted(packet: bytes, dialect: int, version: Version, properties: bytes) -> bytes:
    topic, body = _taken_apart(packet, dialect)
    return publish_head(topic, 0, version, properties, len(body), None) + body


def parcel_of(packet: bytes, dialect: int, origin: Session, priority: Priority, now: Instant) -> Parcel:
    """What a packet of quality 0 says, for those who cannot be sent it as it is."""
    topic, body = _taken_apart(packet, dialect)
    return Parcel(topic.decode(), body, now, source=origin.name, origin=origin.number, priority=priority)


def _taken_apart(packet: bytes, dialect: int) -> tuple[bytes, bytes]:
    """Topic and payload of a PUBLISH of quality 0 without properties."""
    frame = frame_at(packet, 0, PACKET_BYTES_MAX)
    assert frame is not None, "a whole packet was put into the run"
    start, _ = frame
    end = start + 2 + int.from_bytes(packet[start : start + 2], "big")
    return packet[start + 2 : end], packet[end if dialect == DIALECT_V3 else end + 1 :]


def is_shared_form(dialect: int) -> bool:
    """Whether all sessions of a dialect can be sent the same packets."""
    return dialect in (DIALECT_V3, DIALECT_V5)
