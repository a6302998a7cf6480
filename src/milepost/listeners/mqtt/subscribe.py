"""SUBSCRIBE and UNSUBSCRIBE."""

from milepost.broker.retained_store import WantsRetained
from milepost.broker.session import Session
from milepost.listeners.mqtt.connection import MqttConnection
from milepost.listeners.mqtt.context import MqttContext
from milepost.model.instants import Instant
from milepost.model.reasons import Malformed, Reason, Refused
from milepost.model.subscriptions import SubscriptionId
from milepost.wire.mqtt import NO_PROPERTIES, Code, Kind, Request, Suback, Subscribe, Unsuback, Unsubscribe, code_of, fitting
from milepost.wire.user_properties import subscription_from_properties

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


def on_subscribe(context: MqttContext, link: MqttConnection, session: Session, packet: Subscribe, now: Instant) -> None:
    """Handle SUBSCRIBE; every filter has its own reason code. [MQTT-3.8.4-5], [MQTT-3.8.4-6]"""
    codes: list[Code] = []
    refusals: list[Refused] = []
    for request in packet.requests:
        refused = _subscribe(context, session, packet, request, now)
        codes.append(_GRANTED[request.qos] if refused is None else _code(refused))  # [MQTT-3.8.4-7]
        if refused is not None:
            refusals.append(context.broker.refuse(refused))
            context.log.seldom("subscription refused", client=session.name, filter=request.filter, reason=refused.reason.name)
    properties = context.because(link, refusals[0]) if refusals else NO_PROPERTIES
    context.reply(link, Suback(packet.number, tuple(codes), properties))  # [MQTT-3.8.4-1], [MQTT-3.8.4-2]


def _subscribe(context: MqttContext, session: Session, packet: Subscribe, request: Request, now: Instant) -> Refused | None:
    levels_max = context.broker.limits.topic_levels_max
    if request.filter.count("/") >= levels_max + 2 * request.filter.startswith("$share/"):
        return Refused(Reason.TOPIC_TOO_DEEP, f"{levels_max} levels are allowed")
    label = packet.properties.subscription_ids[0] if packet.properties.subscription_ids else 0
    try:
        subscription = subscription_from_properties(
            request.filter, packet.properties.user, owner=session.name, qos=request.qos, number=SubscriptionId(label), now=now
        )
    except Malformed as fault:
        return fault.refused
    return context.broker.subscribe(
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


def on_unsubscribe(context: MqttContext, link: MqttConnection, session: Session, packet: Unsubscribe) -> None:
    """Handle UNSUBSCRIBE; messages already queued are still delivered. [MQTT-3.10.4-1] to [MQTT-3.10.4-6]"""
    ended = [context.broker.unsubscribe(session, name) for name in packet.filters]
    codes = tuple(Code.SUCCESS if was_there else Code.NO_SUBSCRIPTION_EXISTED for was_there in ended)
    context.reply(link, Unsuback(packet.number, codes))
