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
from milepost.broker.publication import Publication
from milepost.broker.session import Session
from milepost.listeners.mqtt.connection import ENCODING_V3, ENCODING_V5, MqttConnection
from milepost.listeners.mqtt.context import MqttContext
from milepost.listeners.mqtt.requests import Accepted, serve
from milepost.model.endpoints import EndpointId
from milepost.model.instants import FOREVER, SECOND_NS, Instant
from milepost.model.reasons import Malformed, Reason, Refused
from milepost.wire.mqtt import NO_PROPERTIES, Acknowledge, Code, Kind, Properties, Publish, Version, code_of, fitting, forwarded
from milepost.wire.user_properties import (
    MESSAGE_ID,
    MessageWords,
    message_to_properties,
    ordinary_properties,
    words_from_properties,
)

_NUMBERED: Final = 0x32
_USUAL: Final = bytes((0x30, _NUMBERED))
"""First byte of PUBLISH at QoS 0 and QoS 1, without RETAIN and DUP."""

_SMALLEST: Final = 5
"""Minimum size in bytes of such a packet."""

PUBACK: Final = 0x40
_PUBACK_BODY, _PUBACK_BYTES = 2, 4
"""Sizes of a PUBACK that holds a packet identifier and nothing else."""

_TAKEN, _TAKEN_BY_NOBODY, _NOBODY = b"\x40\x02", b"\x40\x03", b"\x10"


def publication_from(
    topic: str,
    payload: bytes,
    properties: Properties,
    words: MessageWords | None,
    source: EndpointId,
    message_id: int,
    now: Instant,
) -> Publication:
    """Return the publication of a PUBLISH or a will; *words* are its Milepost properties: place, time and address."""
    publication = Publication(topic, payload, now, source=source, priority=words.priority if words is not None else None)
    publication.id = message_id
    if properties is NO_PROPERTIES:
        return publication
    publication.extras = forwarded(properties)  # [MQTT-3.3.2-4], [MQTT-3.3.2-15] to [MQTT-3.3.2-18], [MQTT-3.3.2-20]
    if properties.message_expiry_s is not None:  # [MQTT-3.3.2-5]
        publication.valid_until = Instant(now + properties.message_expiry_s * SECOND_NS)
    if words is not None:
        publication.tags, publication.place, publication.address = words.tags, words.place, words.address
        publication.seen_at = words.seen_at or now
        publication.valid_until = min(publication.valid_until, words.valid_until or FOREVER)
        if publication.valid_until < publication.seen_at:
            raise Malformed(
                Reason.VALIDITY_BACKWARDS, f"it ends {publication.seen_at - publication.valid_until} ns before it was seen"
            )
        publication.extras = forwarded(_told(properties, publication))
    publication.size += len(publication.extras)
    return publication


def _told(properties: Properties, publication: Publication) -> Properties:
    """Return the properties to forward: Milepost's as the edge understood them, without the sender's report.

    This departs from [MQTT-3.3.2-17], which forwards user properties unaltered: these are not between applications.
    """
    user = (*ordinary_properties(properties.user), *message_to_properties(publication.message))
    return replace(properties, user=user)


def on_publish(context: MqttContext, link: MqttConnection, session: Session, packet: Publish, now: Instant) -> None:
    """Handle a PUBLISH and acknowledge it."""
    if packet.properties.subscription_ids:  # [MQTT-3.3.4-6]
        context.refuse(link, Refused(Reason.PROTOCOL_ERROR, "a subscription identifier in a client's PUBLISH"))
        return
    if packet.qos and not _has_room(context, link, session, packet):
        return
    if packet.qos == 2 and session.received is not None and packet.number in session.received:
        _confirm(context, link, packet, Accepted(1))  # a duplicate is not delivered again. [MQTT-4.3.3-10]
        return
    outcome: Accepted | Refused
    try:
        topic = _topic_of(context, link, packet)
        outcome = _publish(context, link, session, topic, packet, now)
    except Malformed as fault:
        if fault.reason in (Reason.TOPIC_ALIAS, Reason.PROTOCOL_ERROR):
            context.refuse(link, fault.refused)
            return
        outcome = context.broker.refuse(fault.refused)
    if isinstance(outcome, Refused):
        _decline(context, link, packet, outcome)
    else:
        _confirm(context, link, packet, outcome)


def _has_room(context: MqttContext, link: MqttConnection, session: Session, packet: Publish) -> bool:
    """Return whether the client stays within the receive maximum; disconnect it if not. [MQTT-3.3.4-7]"""
    if link.version is Version.V3:
        return True
    received = session.received or ()
    if packet.qos == 1:
        link.open_in += 1
    is_new = packet.qos == 2 and packet.number not in received
    is_over = link.open_in + len(received) + is_new > context.settings.receive_max
    if is_over:  # [MQTT-3.3.4-9]
        context.refuse(link, Refused(Reason.WINDOW_EXCEEDED, f"{context.settings.receive_max} may be open"))
    return not is_over


def _topic_of(context: MqttContext, link: MqttConnection, packet: Publish) -> str:
    """Return the topic of a PUBLISH, resolving its topic alias."""
    alias = packet.properties.topic_alias
    if alias is None:
        return packet.topic
    if alias > context.settings.topic_alias_max:  # [MQTT-3.3.2-9]
        raise Malformed(Reason.TOPIC_ALIAS, f"{alias}, {context.settings.topic_alias_max} are allowed")
    if link.aliases_in is None:
        link.aliases_in = {}
    if packet.topic:  # [MQTT-3.3.2-12]
        link.aliases_in[alias] = packet.topic
        return packet.topic
    if alias not in link.aliases_in:  # [MQTT-3.3.2-7]
        raise Malformed(Reason.PROTOCOL_ERROR, f"the topic alias {alias} stands for nothing")
    return link.aliases_in[alias]


def _publish(
    context: MqttContext, link: MqttConnection, session: Session, topic: str, packet: Publish, now: Instant
) -> Accepted | Refused:
    """Pass a message or a request to the broker."""
    broker = context.broker
    if broker.route(session, topic, now).is_request:
        return serve(context, session, topic, packet, now)
    words = words_from_properties(packet.properties.user, sender=session.name, now=now) if packet.properties.user else None
    if words is not None and words.report is not None:
        refused = broker.report(session, words.report, now)
        if refused is not None and refused.reason is not Reason.REPORT_OUT_OF_ORDER:
            return refused
    message_id = words.id if words is not None and words.id is not None else broker.next_id(now)
    publication = publication_from(topic, packet.payload, packet.properties, words, session.name, message_id, now)
    publication.origin, publication.qos, publication.is_retained = session.number, packet.qos, packet.retain
    packet_id = packet.number if packet.qos == 2 and packet.number is not None else 0
    outcome = broker.publish(session, publication, now, is_plain=words is None, packet_id=packet_id)
    return (
        outcome
        if isinstance(outcome, Refused)
        else Accepted(outcome, publication.id if words is not None or link.wants_ids else 0)
    )


def _confirm(context: MqttContext, link: MqttConnection, packet: Publish, accepted: Accepted) -> None:
    """Acknowledge a message, with its id if the publisher uses Milepost's properties or asked for response information."""
    if packet.number is None:
        return
    link.has_promised = True
    kind = Kind.PUBACK if packet.qos == 1 else Kind.PUBREC  # [MQTT-4.3.2-4], [MQTT-4.3.3-8]
    code = Code.SUCCESS if accepted.receivers or link.version is Version.V3 else Code.NO_MATCHING_SUBSCRIBERS
    is_told = accepted.message_id and link.version is Version.V5
    properties = Properties(user=((MESSAGE_ID, str(accepted.message_id)),)) if is_told else NO_PROPERTIES
    context.reply(link, Acknowledge(kind, packet.number, code, properties))


def _decline(context: MqttContext, link: MqttConnection, packet: Publish, refused: Refused) -> None:
    """Refuse a message with a reason code, or in MQTT 3.1.1 by disconnecting."""
    client = link.who.client if link.who else ""
    context.log.seldom("message refused", client=client, topic=packet.topic, reason=refused.reason.name, detail=refused.detail)
    if packet.number is None:
        return
    if link.version is Version.V3:  # its PUBACK cannot refuse. 3.1.1 [MQTT-3.3.5-2]
        context.end(link, code_of(refused.reason), refused)
        return
    kind = Kind.PUBACK if packet.qos == 1 else Kind.PUBREC
    code = fitting(code_of(refused.reason), kind)
    context.reply(link, Acknowledge(kind, packet.number, code, context.because(link, refused)))


def on_acknowledge(context: MqttContext, link: MqttConnection, session: Session, packet: Acknowledge) -> None:
    """Handle PUBACK, PUBREC, PUBREL or PUBCOMP."""
    broker, number = context.broker, packet.number
    match packet.kind:
        case Kind.PUBACK:
            broker.acknowledge(session, number)
        case Kind.PUBREC if packet.code >= Code.UNSPECIFIED_ERROR:  # [MQTT-4.3.3-4]: the receiver refuses it
            broker.acknowledge(session, number)
        case Kind.PUBREC:
            is_known = broker.release(session, number)
            code = Code.SUCCESS if is_known else Code.PACKET_IDENTIFIER_NOT_FOUND
            context.reply(link, Acknowledge(Kind.PUBREL, number, code))
        case Kind.PUBREL:
            is_known = broker.end_receipt(session, number)
            code = Code.SUCCESS if is_known else Code.PACKET_IDENTIFIER_NOT_FOUND
            context.reply(link, Acknowledge(Kind.PUBCOMP, number, code))  # [MQTT-4.3.3-11]
        case _:
            broker.complete(session, number)


def take_plain(context: MqttContext, link: MqttConnection, session: Session, data: bytes, at: int, now: Instant) -> int:
    """Handle the packets from *at* on that suit the fast path; return the offset of the first that does not."""
    broker = context.broker
    routes = broker.find_fast_routes(session)
    if routes is None:
        return at
    epoch, size, size_max = broker.route_epoch, len(data), context.settings.packet_bytes_max
    encoding = ENCODING_V5 if link.version is Version.V5 else ENCODING_V3
    is_v5 = link.version is Version.V5
    run = broker.find_last_run(encoding)
    while size - at >= _SMALLEST and data[at] in _USUAL:
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
        if route is None or route.fan is None or route.epoch != epoch:
            break
        is_numbered = data[at] == _NUMBERED
        body = topic_end + is_v5 + 2 * is_numbered
        if body > end or (is_v5 and data[body - 1]):  # truncated, or with properties
            break
        if route.check is not None and route.check(data[body:end]) is not None:
            break
        if is_numbered:
            if not _take_numbered(context, link, session, route, data[topic_end : topic_end + 2], data[body:end], now):
                break
            run = None
        else:
            if run is None or run.fan is not route.fan or run.priority is not route.priority:
                run = broker.start_run(route.fan, encoding, route.priority)
            run.packets.append(data[at:end])
            run.origins.append(session)
        link.owed_messages += 1
        at = end
    return at


def _take_numbered(
    context: MqttContext, link: MqttConnection, session: Session, route: TopicRoute, number: bytes, body: bytes, now: Instant
) -> bool:
    """Publish at QoS 1 and acknowledge; return False, with nothing done, if the packet needs the long path."""
    is_v5 = link.version is Version.V5
    is_over = is_v5 and link.open_in + len(session.received or ()) >= context.settings.receive_max
    if is_over or link.wants_ids or number == b"\0\0" or context.broker.trouble is not None:
        return False
    link.open_in += 1
    link.has_promised = True
    publication = Publication(route.topic, body, now, source=session.name, origin=session.number, qos=1, priority=route.priority)
    publication.id, publication.place = context.broker.next_id(now), context.broker.place_of(session)
    takers = context.broker.accept(publication, route.audience, now)
    context.sender.put(link, _TAKEN + number if takers or not is_v5 else _TAKEN_BY_NOBODY + number + _NOBODY)
    return True


def take_acknowledged(broker: Broker, session: Session, data: bytes, at: int) -> int:
    """Handle the PUBACKs without reason code from *at* on; return the offset of the first other packet."""
    in_flight, is_told = session.in_flight, session.is_kept or session.is_heeded
    last = len(data) - _PUBACK_BYTES
    while at <= last and data[at] == PUBACK and data[at + 1] == _PUBACK_BODY:
        number = data[at + 2] << 8 | data[at + 3]
        if is_told or number not in in_flight:
            if not number:  # [MQTT-2.2.1-3]: the long path refuses it
                break
            broker.acknowledge(session, number)
        else:
            del in_flight[number]
        at += _PUBACK_BYTES
    return at
