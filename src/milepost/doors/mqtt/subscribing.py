"""Subscribing: SUBSCRIBE and UNSUBSCRIBE."""

from milepost.doors.mqtt.desk import Desk
from milepost.doors.mqtt.link import MqttLink
from milepost.edge.retained import WantsRetained
from milepost.edge.sessions import Session
from milepost.model.instants import Instant
from milepost.model.queries import OnTopic
from milepost.model.reasons import Malformed, Reason, Refused
from milepost.model.subscriptions import SubscriptionId
from milepost.wire.asks import subscription_from
from milepost.wire.mqtt import NO_PROPERTIES, Code, Kind, Request, Suback, Subscribe, Unsuback, Unsubscribe, code_of, fitting

_FILTER_FAULTS = frozenset(
    {
        Reason.TOPIC_EMPTY,
        Reason.TOPIC_TOO_LONG,
        Reason.TOPIC_CHARACTER,
        Reason.TOPIC_WILDCARD,
        Reason.TOPIC_TOO_DEEP,
        Reason.SHARE_NAME,
    }
)
_GRANTED = (Code.SUCCESS, Code.GRANTED_QOS_1, Code.GRANTED_QOS_2)


def on_subscribe(desk: Desk, link: MqttLink, session: Session, packet: Subscribe, now: Instant) -> None:
    """A client asks for messages; every filter is answered for itself. [MQTT-3.8.4-5], [MQTT-3.8.4-6]"""
    codes: list[Code] = []
    refusals: list[Refused] = []
    for request in packet.requests:
        refused = _subscribe(desk, link, session, packet, request, now)
        codes.append(_GRANTED[request.qos] if refused is None else _code(refused))  # [MQTT-3.8.4-7]
        if refused is not None:
            refusals.append(desk.counted(refused))
            desk.log.seldom("subscription refused", client=session.name, filter=request.filter, reason=refused.reason.name)
    properties = desk.because(link, refusals[0]) if refusals else NO_PROPERTIES
    desk.reply(link, Suback(packet.number, tuple(codes), properties))  # [MQTT-3.8.4-1], [MQTT-3.8.4-2]


def _subscribe(desk: Desk, link: MqttLink, session: Session, packet: Subscribe, request: Request, now: Instant) -> Refused | None:
    if not desk.may_subscribe_now(link, now):
        return Refused(Reason.RATE_TOO_HIGH, f"{desk.settings.limits.subscribes_per_s} subscriptions a second")
    levels_max = desk.corridor.limits.topic_levels_max
    if request.filter.count("/") >= levels_max + 2 * request.filter.startswith("$share/"):
        return Refused(Reason.TOPIC_TOO_DEEP, f"{levels_max} levels are allowed")
    label = packet.properties.subscription_ids[0] if packet.properties.subscription_ids else 0
    try:
        subscription = subscription_from(
            request.filter, packet.properties.user, owner=session.name, qos=request.qos, number=SubscriptionId(label), now=now
        )
    except Malformed as fault:
        return fault.refused
    assert link.who is not None, "an open link is somebody's"
    is_plain = isinstance(subscription.query, OnTopic)
    access = desk.rules.access
    refused = access.may_subscribe(link.who, request.filter) if is_plain else access.may_ask(link.who, subscription.query)
    if refused is not None:
        return refused
    return desk.corridor.subscribe(
        session,
        request.filter,  # [MQTT-3.8.4-3]
        subscription,
        now,
        is_not_own=request.no_local,  # [MQTT-3.8.3-3]
        is_retain_shown=request.retain_as_published,
        wants_retained=WantsRetained(request.retain_handling),
    )


def _code(refused: Refused) -> Code:
    if refused.reason in _FILTER_FAULTS:
        return Code.TOPIC_FILTER_INVALID
    return fitting(code_of(refused.reason), Kind.SUBACK)


def ask_again(desk: Desk, link: MqttLink, session: Session) -> None:
    """Hold the subscriptions of a client to rules that came after them; those that are not allowed any more end."""
    assert link.who is not None, "an open link is somebody's"
    for name, asked in list(session.subscriptions.items()):
        refused = desk.rules.access.may_ask(link.who, asked.subscription.query)
        if refused is not None:
            desk.corridor.unsubscribe(session, name)
            desk.log.seldom("subscription ended", client=session.name, name=name, reason=refused.reason.name)


def on_unsubscribe(desk: Desk, link: MqttLink, session: Session, packet: Unsubscribe) -> None:
    """A client asks no longer; what was queued before still comes. [MQTT-3.10.4-1] to [MQTT-3.10.4-6]"""
    ended = [desk.corridor.unsubscribe(session, name) for name in packet.filters]
    codes = tuple(Code.SUCCESS if was_there else Code.NO_SUBSCRIPTION_EXISTED for was_there in ended)
    desk.reply(link, Unsuback(packet.number, codes))
