"""Services: what clients ask of the edge itself, as JSON on topics below `$milepost/`, so that any MQTT client can.

Every request is answered on `$milepost/reply`, if the client that asked subscribes to it; a refusal is also in the packet that
confirms the request, where MQTT has words for it.
"""

from milepost.doors.mqtt.desk import Desk
from milepost.doors.mqtt.link import MqttLink
from milepost.edge.parcels import Delivery, Parcel
from milepost.edge.sessions import Session
from milepost.model.endpoints import EndpointId
from milepost.model.instants import Instant
from milepost.model.messages import MessageId
from milepost.model.reasons import Malformed, Reason, Refused
from milepost.wire.asks import (
    REPLY_TOPIC,
    Service,
    message_from_json,
    message_user_properties,
    reply_json,
    report_from_json,
    service_at,
    subscription_from_json,
    unsubscription_from_json,
)
from milepost.wire.mqtt import Properties, Publish, forwarded


def serve(desk: Desk, link: MqttLink, session: Session, topic: str, packet: Publish, now: Instant) -> int | Refused:
    """Do what is asked, and answer."""
    service = service_at(topic)
    number: int | None = None
    refused: Refused | None = None
    try:
        match service:
            case Service.REPORT:
                refused = desk.corridor.report(session, report_from_json(packet.payload, session.name, now), now)
            case Service.SUBSCRIBE:
                number, refused = _subscribe(desk, link, session, packet, now)
            case Service.UNSUBSCRIBE:
                number = unsubscription_from_json(packet.payload)
                is_known = desk.corridor.unsubscribe(session, _name_of(number))
                refused = None if is_known else desk.counted(Refused(Reason.FIELD_RANGE, f"there is no subscription {number}"))
            case Service.PUBLISH:
                number, refused = _publish(desk, link, session, packet, now)
    except Malformed as fault:
        refused = desk.counted(fault.refused)
    if refused is not None or service is not Service.REPORT:  # reports are many, and no news is good news
        _answer(desk, session, reply_json(service, number, refused), now)
    return refused or 1


def _name_of(number: int) -> str:
    """Under which name a session has a subscription made by JSON: no topic filter looks like it."""
    return f"#{number}"


def _subscribe(desk: Desk, link: MqttLink, session: Session, packet: Publish, now: Instant) -> tuple[int | None, Refused | None]:
    subscription = subscription_from_json(packet.payload, session.name, now)
    assert link.who is not None, "an open link is somebody's"
    refused = desk.rules.access.may_ask(link.who, subscription.query)
    if refused is None and not desk.may_subscribe_now(link, now):
        refused = Refused(Reason.RATE_TOO_HIGH, f"{desk.settings.limits.subscribes_per_s} subscriptions a second")
    if refused is None:
        refused = desk.corridor.subscribe(session, _name_of(subscription.id), subscription, now)
    return subscription.id, None if refused is None else desk.counted(refused)


def _publish(desk: Desk, link: MqttLink, session: Session, packet: Publish, now: Instant) -> tuple[int | None, Refused | None]:
    message = message_from_json(packet.payload, session.name, now, MessageId(now))
    route = desk.route(link, message.topic, now)
    refused = route.refused or (route.check(message.body) if route.check is not None else None)
    if refused is None and route.is_service:
        refused = Refused(Reason.TOPIC_RESERVED, f"a message on {message.topic}")
    if refused is not None:
        return message.id, desk.counted(refused)
    parcel = Parcel(
        message.topic,
        message.body,
        message.seen_at,
        source=message.source,
        origin=session.number,
        qos=packet.qos,
        is_retained=packet.retain,
        priority=message.priority,
        valid_until=message.valid_until,
        extras=forwarded(Properties(user=message_user_properties(message))),
        tags=message.tags,
        place=message.place or desk.corridor.place_of(session),
        address=message.address,
        fields=message.fields,
    )
    parcel.id = message.id
    refused = desk.corridor.vet(parcel, session, route.within_m, now)
    if refused is not None:
        return message.id, desk.counted(refused)
    outcome = desk.corridor.publish(parcel, now)
    return message.id, outcome if isinstance(outcome, Refused) else None


def _answer(desk: Desk, session: Session, body: bytes, now: Instant) -> None:
    asked = session.subscriptions.get(REPLY_TOPIC)
    if asked is not None:
        labels = (asked.subscription.id,) if asked.subscription.id else ()
        parcel = Parcel(REPLY_TOPIC, body, now, source=EndpointId("edge"))
        desk.corridor.deliveries.hand_one(Delivery(parcel, 0, labels), session)
