"""PUBLISH and the packets that acknowledge it, in both directions: the long path and the fast path.

| QoS | comes in                                   | goes out                                              |
|-----|--------------------------------------------|-------------------------------------------------------|
| 0   | PUBLISH                                    | PUBLISH                                               |
| 1   | PUBLISH ─▶ PUBACK                          | PUBLISH ─▶ PUBACK: done                               |
| 2   | PUBLISH ─▶ PUBREC, PUBREL ─▶ PUBCOMP       | PUBLISH ─▶ PUBREC: released, PUBREL ─▶ PUBCOMP: done  |

The fast path takes PUBLISH at QoS 0 and 1 to a topic with a cached route, and PUBACK: nearly all packets. At QoS 0 such a PUBLISH
is not even decoded: a run keeps its bytes and its receivers.

Invariants:
- an acknowledgement leaves at the end of the tick, after what it promises was stored;
- the fast path decides as the long path does (a property test compares them), and leaves every unusual packet to it.
"""

from dataclasses import replace
from typing import Final

from milepost.broker.admission import TopicRoute
from milepost.broker.broker import Broker
from milepost.broker.publication import TO_CONTENT, Publication
from milepost.broker.session import Session
from milepost.listeners.mqtt.connection import ENCODING_V3, ENCODING_V5, MqttConnection
from milepost.listeners.mqtt.context import MqttContext
from milepost.listeners.mqtt.requests import Accepted, serve
from milepost.model.endpoints import EndpointId
from milepost.model.instants import FOREVER, SECOND_NS, Instant
from milepost.model.reasons import Malformed, Reason, Refused
from milepost.wire.mqtt import (
    NO_PROPERTIES,
    Acknowledge,
    Code,
    PacketType,
    Properties,
    Publish,
    Version,
    code_of,
    forwarded,
    nearest_legal,
)
from milepost.wire.user_properties import (
    MESSAGE_ID,
    MessageProperties,
    check_signed_alone,
    message_to_properties,
    ordinary_properties,
    parse_message_properties,
)

_QOS_1: Final = 0x32
_FAST_PATH_FIRST_BYTES: Final = bytes((0x30, _QOS_1))
"""First byte of PUBLISH at QoS 0 and QoS 1, without RETAIN and DUP."""

_FAST_PATH_BYTES_MIN: Final = 5
"""Minimum size in bytes of such a packet."""

PUBACK: Final = 0x40
_PUBACK_BODY, _PUBACK_BYTES = 2, 4
"""Sizes of a PUBACK that holds a packet identifier and nothing else."""

_PUBACK_SUCCESS, _PUBACK_WITH_CODE, _NO_MATCHING_SUBSCRIBERS = b"\x40\x02", b"\x40\x03", b"\x10"


def publication_from(
    topic: str,
    payload: bytes,
    properties: Properties,
    metadata: MessageProperties | None,
    source: EndpointId,
    message_id: int,
    now: Instant,
) -> Publication:
    """Return the publication of a PUBLISH or a will; *metadata* are its Milepost properties: place, time and address."""
    if metadata is not None and metadata.envelope:
        raise Malformed(Reason.SIGNATURE_INVALID, "a will cannot be signed: the time of its publication is not known")
    publication = Publication(topic, payload, now, source=source, priority=metadata.priority if metadata is not None else None)
    publication.id = message_id
    if properties is NO_PROPERTIES:
        return publication
    publication.response_topic = properties.response_topic or ""
    publication.extras = forwarded(properties)  # [MQTT-3.3.2-4], [MQTT-3.3.2-15] to [MQTT-3.3.2-18], [MQTT-3.3.2-20]
    if properties.message_expiry_s is not None:  # [MQTT-3.3.2-5]
        publication.valid_until = Instant(now + properties.message_expiry_s * SECOND_NS)
    if metadata is not None:
        publication.tags, publication.place, publication.address = metadata.tags, metadata.place, metadata.address
        publication.seen_at = metadata.seen_at or now
        publication.valid_until = min(publication.valid_until, metadata.valid_until or FOREVER)
        if publication.valid_until < publication.seen_at:
            raise Malformed(
                Reason.VALIDITY_BACKWARDS,
                f"validity ends {publication.seen_at - publication.valid_until} ns before the message was seen",
            )
        publication.extras = forwarded(_forwarded_properties(properties, publication))
    publication.size += len(publication.extras)
    return publication


def signed_publication_from(topic: str, packet: Publish, envelope: bytes) -> Publication:
    """Return the publication of a PUBLISH with a signed message: only values that the signature covers."""
    from milepost.wire.datagrams import message_from_envelope  # noqa: PLC0415  # loads protobuf, which unsigned messages do without

    check_signed_alone(packet.properties.user)
    message = message_from_envelope(envelope, topic, packet.payload)
    if message.reliable != (packet.qos > 0):
        raise Malformed(
            Reason.SIGNATURE_INVALID, f"reliable is {message.reliable} in the signed message, the QoS is {packet.qos}"
        )
    address = message.address
    publication = Publication(
        topic,
        packet.payload,
        message.seen_at,
        source=message.source,
        priority=message.priority,
        valid_until=message.valid_until,
        extras=None,
        tags=message.tags,
        place=message.place,
        address=TO_CONTENT if address == TO_CONTENT else address,
        fields=message.fields,
    )
    publication.id, publication.signed = message.id, (message.signature, message.certificate)
    publication.size += len(envelope)
    return publication


def _forwarded_properties(properties: Properties, publication: Publication) -> Properties:
    """Return the properties to forward: Milepost's as the edge understood them, without the sender's report.

    This departs from [MQTT-3.3.2-17], which forwards user properties unaltered: these are not between applications.
    """
    user = (*ordinary_properties(properties.user), *message_to_properties(publication.message))
    return replace(properties, user=user)


def on_publish(context: MqttContext, connection: MqttConnection, session: Session, packet: Publish, now: Instant) -> None:
    """Handle a PUBLISH and acknowledge it."""
    if packet.properties.subscription_ids:  # [MQTT-3.3.4-6]
        context.refuse(connection, Refused(Reason.PROTOCOL_ERROR, "a subscription identifier in a client's PUBLISH"))
        return
    if packet.qos and not _is_within_receive_maximum(context, connection, session, packet):
        return
    if packet.qos == 2 and session.received is not None and packet.packet_id in session.received:
        _acknowledge(context, connection, packet, Accepted(1))  # a duplicate is not delivered again. [MQTT-4.3.3-10]
        return
    outcome: Accepted | Refused
    try:
        topic = _topic_of(context, connection, packet)
        outcome = _publish(context, connection, session, topic, packet, now)
    except Malformed as fault:
        if fault.reason in (Reason.TOPIC_ALIAS, Reason.PROTOCOL_ERROR):
            context.refuse(connection, fault.refused)
            return
        outcome = context.broker.refuse(fault.refused)
    if isinstance(outcome, Refused):
        _refuse(context, connection, packet, outcome)
    else:
        _acknowledge(context, connection, packet, outcome)


def _is_within_receive_maximum(context: MqttContext, connection: MqttConnection, session: Session, packet: Publish) -> bool:
    """Return whether the client stays within the receive maximum; disconnect it if not. [MQTT-3.3.4-7]"""
    if connection.version is Version.V3:
        return True
    received = session.received or ()
    if packet.qos == 1:
        connection.unacknowledged_in += 1
    is_new = packet.qos == 2 and packet.packet_id not in received
    is_over = connection.unacknowledged_in + len(received) + is_new > context.settings.receive_max
    if is_over:  # [MQTT-3.3.4-9]
        context.refuse(
            connection, Refused(Reason.RECEIVE_MAXIMUM_EXCEEDED, f"the receive maximum is {context.settings.receive_max}")
        )
    return not is_over


def _topic_of(context: MqttContext, connection: MqttConnection, packet: Publish) -> str:
    """Return the topic of a PUBLISH, resolving its topic alias."""
    alias = packet.properties.topic_alias
    if alias is None:
        return packet.topic
    if alias > context.settings.topic_alias_max:  # [MQTT-3.3.2-9]
        raise Malformed(Reason.TOPIC_ALIAS, f"topic alias {alias}, {context.settings.topic_alias_max} are allowed")
    if connection.aliases_in is None:
        connection.aliases_in = {}
    if packet.topic:  # [MQTT-3.3.2-12]
        connection.aliases_in[alias] = packet.topic
        return packet.topic
    if alias not in connection.aliases_in:  # [MQTT-3.3.2-7]
        raise Malformed(Reason.PROTOCOL_ERROR, f"topic alias {alias} has no topic yet")
    return connection.aliases_in[alias]


def _publish(
    context: MqttContext, connection: MqttConnection, session: Session, topic: str, packet: Publish, now: Instant
) -> Accepted | Refused:
    """Pass a message or a request to the broker."""
    broker = context.broker
    if broker.route(session, topic, now).is_request:
        return serve(context, session, topic, packet, now)
    metadata = parse_message_properties(packet.properties.user, sender=session.name, now=now) if packet.properties.user else None
    if metadata is not None and metadata.report is not None:
        refused = broker.report(session, metadata.report, now)
        if refused is not None and refused.reason is not Reason.REPORT_OUT_OF_ORDER:
            return refused
    if metadata is not None and metadata.envelope:
        publication = signed_publication_from(topic, packet, metadata.envelope)
    else:
        message_id = metadata.id if metadata is not None and metadata.id is not None else broker.next_id(now)
        publication = publication_from(topic, packet.payload, packet.properties, metadata, session.name, message_id, now)
    publication.origin, publication.qos, publication.is_retained = session.number, packet.qos, packet.retain
    packet_id = packet.packet_id if packet.qos == 2 and packet.packet_id is not None else 0
    outcome = broker.publish(session, publication, now, is_plain=metadata is None, packet_id=packet_id)
    return (
        outcome
        if isinstance(outcome, Refused)
        else Accepted(outcome, publication.id if metadata is not None or connection.wants_message_ids else 0)
    )


def _acknowledge(context: MqttContext, connection: MqttConnection, packet: Publish, accepted: Accepted) -> None:
    """Acknowledge a message, with its id if the publisher uses Milepost's properties or asked for response information."""
    if packet.packet_id is None:
        return
    connection.awaits_storage = True
    kind = PacketType.PUBACK if packet.qos == 1 else PacketType.PUBREC  # [MQTT-4.3.2-4], [MQTT-4.3.3-8]
    code = Code.SUCCESS if accepted.receivers or connection.version is Version.V3 else Code.NO_MATCHING_SUBSCRIBERS
    has_id = accepted.message_id and connection.version is Version.V5
    properties = Properties(user=((MESSAGE_ID, str(accepted.message_id)),)) if has_id else NO_PROPERTIES
    context.reply(connection, Acknowledge(kind, packet.packet_id, code, properties))


def _refuse(context: MqttContext, connection: MqttConnection, packet: Publish, refused: Refused) -> None:
    """Refuse a message with a reason code, or in MQTT 3.1.1 by disconnecting."""
    client = connection.identity.client_id if connection.identity else ""
    context.log.info_limited(
        "message refused", client=client, topic=packet.topic, reason=refused.reason.name, detail=refused.detail
    )
    if packet.packet_id is None:
        return
    if connection.version is Version.V3:  # its PUBACK cannot refuse. 3.1.1 [MQTT-3.3.5-2]
        context.disconnect(connection, code_of(refused.reason), refused)
        return
    kind = PacketType.PUBACK if packet.qos == 1 else PacketType.PUBREC
    code = nearest_legal(code_of(refused.reason), kind)
    context.reply(connection, Acknowledge(kind, packet.packet_id, code, context.reason_properties(connection, refused)))


def on_acknowledge(context: MqttContext, connection: MqttConnection, session: Session, packet: Acknowledge) -> None:
    """Handle PUBACK, PUBREC, PUBREL or PUBCOMP."""
    broker, number = context.broker, packet.packet_id
    match packet.kind:
        case PacketType.PUBACK:
            broker.acknowledge(session, number)
        case PacketType.PUBREC if packet.code >= Code.UNSPECIFIED_ERROR:  # [MQTT-4.3.3-4]: the receiver refuses it
            broker.acknowledge(session, number)
        case PacketType.PUBREC:
            is_known = broker.release(session, number)
            code = Code.SUCCESS if is_known else Code.PACKET_IDENTIFIER_NOT_FOUND
            context.reply(connection, Acknowledge(PacketType.PUBREL, number, code))
        case PacketType.PUBREL:
            is_known = broker.end_receipt(session, number)
            code = Code.SUCCESS if is_known else Code.PACKET_IDENTIFIER_NOT_FOUND
            context.reply(connection, Acknowledge(PacketType.PUBCOMP, number, code))  # [MQTT-4.3.3-11]
        case _:
            broker.complete(session, number)


def publish_fast_path(
    context: MqttContext, connection: MqttConnection, session: Session, data: bytes, at: int, now: Instant
) -> int:
    """Handle the packets from *at* on that suit the fast path; return the offset of the first that does not."""
    broker = context.broker
    routes = broker.find_fast_routes(session)
    if routes is None:
        return at
    epoch, size, size_max = broker.route_epoch, len(data), context.settings.packet_bytes_max
    encoding = ENCODING_V5 if connection.version is Version.V5 else ENCODING_V3
    is_v5 = connection.version is Version.V5
    run = broker.find_last_fast_batch(encoding)
    while size - at >= _FAST_PATH_BYTES_MIN and data[at] in _FAST_PATH_FIRST_BYTES:
        start, length = at + 2, data[at + 1]
        if length > 0x7F:  # a length of two bytes; longer ones take the long path
            if not 0 < data[start] <= 0x7F:
                break
            length += (data[start] << 7) - 0x80
            start += 1
        end = start + length
        if end > size or end - at > size_max or length < 2:
            break
        topic_end = start + 2 + (data[start] << 8 | data[start + 1])
        route = routes.get(data[start + 2 : topic_end])
        if route is None or route.receivers is None or route.epoch != epoch:
            break
        is_qos_1 = data[at] == _QOS_1
        body = topic_end + is_v5 + 2 * is_qos_1
        if body > end or (is_v5 and data[body - 1]):  # truncated, or with properties
            break
        if route.check is not None and route.check(data[body:end]) is not None:
            break
        if is_qos_1:
            if not _publish_qos_1(context, connection, session, route, data[topic_end : topic_end + 2], data[body:end], now):
                break
            run = None
        else:
            if run is None or run.receivers is not route.receivers or run.priority is not route.priority:
                run = broker.start_fast_batch(route.receivers, encoding, route.priority)
            run.packets.append(data[at:end])
            run.origins.append(session)
        connection.uncharged_messages += 1
        at = end
    return at


def _publish_qos_1(
    context: MqttContext,
    connection: MqttConnection,
    session: Session,
    route: TopicRoute,
    number: bytes,
    body: bytes,
    now: Instant,
) -> bool:
    """Publish at QoS 1 and acknowledge; return False, with nothing done, if the packet needs the long path."""
    is_v5 = connection.version is Version.V5
    is_over = is_v5 and connection.unacknowledged_in + len(session.received or ()) >= context.settings.receive_max
    if is_over or connection.wants_message_ids or number == b"\0\0" or context.broker.storage_error is not None:
        return False
    connection.unacknowledged_in += 1
    connection.awaits_storage = True
    publication = Publication(route.topic, body, now, source=session.name, origin=session.number, qos=1, priority=route.priority)
    publication.id, publication.place = context.broker.next_id(now), context.broker.place_of(session)
    receivers = context.broker.accept(publication, route.audience, now)
    context.sender.put(
        connection, _PUBACK_SUCCESS + number if receivers or not is_v5 else _PUBACK_WITH_CODE + number + _NO_MATCHING_SUBSCRIBERS
    )
    return True


def acknowledge_fast_path(broker: Broker, session: Session, data: bytes, at: int) -> int:
    """Handle the PUBACKs without reason code from *at* on; return the offset of the first other packet."""
    in_flight, needs_broker = session.in_flight, session.is_durable or session.is_traced
    last = len(data) - _PUBACK_BYTES
    while at <= last and data[at] == PUBACK and data[at + 1] == _PUBACK_BODY:
        number = data[at + 2] << 8 | data[at + 3]
        if needs_broker or number not in in_flight:
            if not number:  # [MQTT-2.2.1-3]: the long path refuses it
                break
            broker.acknowledge(session, number)
        else:
            del in_flight[number]
        at += _PUBACK_BYTES
    return at
