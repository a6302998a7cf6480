"""Publishing: a PUBLISH and the packets that confirm it, in both directions.

| quality | comes in                                   | goes out                                              |
|---------|--------------------------------------------|-------------------------------------------------------|
| 0       | PUBLISH                                    | PUBLISH                                               |
| 1       | PUBLISH ─▶ PUBACK                          | PUBLISH ─▶ PUBACK: done                               |
| 2       | PUBLISH ─▶ PUBREC, PUBREL ─▶ PUBCOMP       | PUBLISH ─▶ PUBREC: released, PUBREL ─▶ PUBCOMP: done  |

An answer leaves in the turn's end, after what it promises was kept.
"""

from milepost.doors.mqtt.desk import Desk
from milepost.doors.mqtt.incoming import parcel_from
from milepost.doors.mqtt.link import MqttLink
from milepost.doors.mqtt.routes import Route
from milepost.doors.mqtt.services import serve
from milepost.edge.parcels import Parcel
from milepost.edge.receiving import end_receiving, receive
from milepost.edge.sessions import Session
from milepost.model.instants import Instant
from milepost.model.reasons import Malformed, Reason, Refused
from milepost.wire.asks import words_of_message
from milepost.wire.mqtt import NO_PROPERTIES, Acknowledge, Code, Kind, Publish, Version, code_of, fitting


def on_publish(desk: Desk, link: MqttLink, session: Session, packet: Publish, now: Instant) -> None:
    """A client says something."""
    if packet.properties.subscription_ids:  # [MQTT-3.3.4-6]
        desk.refuse(link, Refused(Reason.PROTOCOL_ERROR, "a subscription identifier in a client's PUBLISH"))
        return
    if packet.qos and not _has_room(desk, link, session, packet):
        return
    if packet.qos == 2 and session.received is not None and packet.number in session.received:
        _confirm(desk, link, packet, 1)  # here already, and not handed out again. [MQTT-4.3.3-10]
        return
    try:
        topic = _topic_of(desk, link, packet)
        refused = _publish(desk, link, session, topic, packet, now)
    except Malformed as fault:
        if fault.reason in (Reason.TOPIC_ALIAS, Reason.PROTOCOL_ERROR):
            desk.refuse(link, fault.refused)
            return
        refused = desk.counted(fault.refused)
    if isinstance(refused, Refused):
        _decline(desk, link, packet, refused)
    else:
        _confirm(desk, link, packet, refused)


def _has_room(desk: Desk, link: MqttLink, session: Session, packet: Publish) -> bool:
    """Whether the client keeps to the number of messages it may send without an answer. [MQTT-3.3.4-7]"""
    if link.version is Version.V3:
        return True
    received = session.received or ()
    if packet.qos == 1:
        link.open_in += 1
    is_new = packet.qos == 2 and packet.number not in received
    is_over = link.open_in + len(received) + is_new > desk.settings.receive_max
    if is_over:  # [MQTT-3.3.4-9]
        desk.refuse(link, Refused(Reason.WINDOW_EXCEEDED, f"{desk.settings.receive_max} may be open"))
    return not is_over


def _topic_of(desk: Desk, link: MqttLink, packet: Publish) -> str:
    """The topic, also where a number stands for it."""
    alias = packet.properties.topic_alias
    if alias is None:
        return packet.topic
    if alias > desk.settings.topic_alias_max:  # [MQTT-3.3.2-9]
        raise Malformed(Reason.TOPIC_ALIAS, f"{alias}, {desk.settings.topic_alias_max} are allowed")
    if link.aliases_in is None:
        link.aliases_in = {}
    if packet.topic:  # [MQTT-3.3.2-12]
        link.aliases_in[alias] = packet.topic
        return packet.topic
    if alias not in link.aliases_in:  # [MQTT-3.3.2-7]
        raise Malformed(Reason.PROTOCOL_ERROR, f"the topic alias {alias} stands for nothing")
    return link.aliases_in[alias]


def _publish(desk: Desk, link: MqttLink, session: Session, topic: str, packet: Publish, now: Instant) -> int | Refused:
    """Look at a message and give it to the corridor; tells how many get it."""
    route = desk.route(link, topic, now)
    refused = _why_not(link, route, packet)
    if refused is not None:
        return desk.counted(refused)
    if route.is_service:
        return _taken(desk, session, packet, serve(desk, link, session, topic, packet, now))
    words = words_of_message(packet.properties.user, sender=session.name, now=now) if packet.properties.user else None
    if words is not None and words.report is not None:
        refused = desk.corridor.report(session, words.report, now)
        if refused is not None and refused.reason is not Reason.REPORT_OUT_OF_ORDER:
            return refused
    parcel = parcel_from(topic, packet.payload, packet.properties, words, session.name, route.priority, now)
    parcel.origin, parcel.qos, parcel.is_retained = session.number, packet.qos, packet.retain
    if parcel.place is None:
        parcel.place = desk.corridor.place_of(session)
    if words is not None and (refused := desk.corridor.vet(parcel, session, route.within_m, now)) is not None:
        return desk.counted(refused)
    return _hand_in(desk, session, parcel, packet, route, now)


def _hand_in(desk: Desk, session: Session, parcel: Parcel, packet: Publish, route: Route, now: Instant) -> int | Refused:
    """Give a message to the corridor; under quality 2 its number is taken in the same moment."""
    corridor = desk.corridor
    if packet.qos == 2 and session.is_kept and corridor.trouble is not None:  # that it is here must be kept too
        return desk.counted(Refused(Reason.STORAGE_UNAVAILABLE, corridor.trouble))
    is_plain = packet.properties is NO_PROPERTIES and (parcel.place is None or not corridor.matcher.has_areas)
    return _taken(desk, session, packet, corridor.publish(parcel, now, route.plan if is_plain else None))


def _taken(desk: Desk, session: Session, packet: Publish, outcome: int | Refused) -> int | Refused:
    if packet.qos == 2 and packet.number is not None and not isinstance(outcome, Refused):
        receive(session, packet.number, desk.corridor.changes)  # [MQTT-4.3.3-8]
    return outcome


def _why_not(link: MqttLink, route: Route, packet: Publish) -> Refused | None:
    if link.is_over_rate:
        return Refused(Reason.RATE_TOO_HIGH)
    if route.refused is not None:
        return route.refused
    is_removal = packet.retain and not packet.payload
    if route.check is not None and not is_removal:
        return route.check(packet.payload)
    return None


def _confirm(desk: Desk, link: MqttLink, packet: Publish, takers: int) -> None:
    if packet.number is None:
        return
    link.has_promised = True
    kind = Kind.PUBACK if packet.qos == 1 else Kind.PUBREC  # [MQTT-4.3.2-4], [MQTT-4.3.3-8]
    code = Code.SUCCESS if takers or link.version is Version.V3 else Code.NO_MATCHING_SUBSCRIBERS
    desk.reply(link, Acknowledge(kind, packet.number, code))


def _decline(desk: Desk, link: MqttLink, packet: Publish, refused: Refused) -> None:
    """Tell the sender, as far as its version has words for it."""
    client = link.who.client if link.who else ""
    desk.log.seldom("message refused", client=client, topic=packet.topic, reason=refused.reason.name, detail=refused.detail)
    if packet.number is None:
        return
    if link.version is Version.V3:  # there is no way to say no but to go. 3.1.1 [MQTT-3.3.5-2]
        desk.end(link, code_of(refused.reason), refused)
        return
    kind = Kind.PUBACK if packet.qos == 1 else Kind.PUBREC
    code = fitting(code_of(refused.reason), kind)
    desk.reply(link, Acknowledge(kind, packet.number, code, desk.because(link, refused)))


def on_acknowledge(desk: Desk, link: MqttLink, session: Session, packet: Acknowledge) -> None:
    """A client confirms what it was sent, or ends an exchange of quality 2."""
    deliveries, number = desk.corridor.deliveries, packet.number
    match packet.kind:
        case Kind.PUBACK:
            deliveries.acknowledge(session, number)
        case Kind.PUBREC if packet.code >= Code.UNSPECIFIED_ERROR:  # [MQTT-4.3.3-4]: it will not take it
            deliveries.acknowledge(session, number)
        case Kind.PUBREC:
            is_known = deliveries.release(session, number)
            code = Code.SUCCESS if is_known else Code.PACKET_IDENTIFIER_NOT_FOUND
            desk.reply(link, Acknowledge(Kind.PUBREL, number, code))
        case Kind.PUBREL:
            is_known = end_receiving(session, number, desk.corridor.changes)
            code = Code.SUCCESS if is_known else Code.PACKET_IDENTIFIER_NOT_FOUND
            desk.reply(link, Acknowledge(Kind.PUBCOMP, number, code))  # [MQTT-4.3.3-11]
        case _:
            deliveries.complete(session, number)
