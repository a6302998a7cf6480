"""SUBSCRIBE and UNSUBSCRIBE."""

from milepost.broker.retained_store import RetainHandling
from milepost.broker.session import Session
from milepost.listeners.mqtt.connection import MqttConnection
from milepost.listeners.mqtt.context import MqttContext
from milepost.model.instants import Instant
from milepost.model.reasons import Malformed, Reason, Refused
from milepost.model.subscriptions import SubscriptionId
from milepost.wire.mqtt import (
    NO_PROPERTIES,
    Code,
    FilterRequest,
    PacketType,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
    code_of,
    nearest_legal,
)
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


def on_subscribe(context: MqttContext, connection: MqttConnection, session: Session, packet: Subscribe, now: Instant) -> None:
    """Handle SUBSCRIBE; every filter has its own reason code. [MQTT-3.8.4-5], [MQTT-3.8.4-6]"""
    codes: list[Code] = []
    refusals: list[Refused] = []
    for request in packet.requests:
        refused = _subscribe(context, session, packet, request, now)
        codes.append(_GRANTED[request.qos] if refused is None else _code(refused))  # [MQTT-3.8.4-7]
        if refused is not None:
            refusals.append(context.broker.refuse(refused))
            context.log.info_limited(
                "subscription refused",
                client=session.name,
                filter=request.filter,
                reason=refused.reason.name,
                detail=refused.detail,
            )
    properties = context.reason_properties(connection, refusals[0]) if refusals else NO_PROPERTIES
    context.reply(connection, Suback(packet.packet_id, tuple(codes), properties))  # [MQTT-3.8.4-1], [MQTT-3.8.4-2]


def _subscribe(context: MqttContext, session: Session, packet: Subscribe, request: FilterRequest, now: Instant) -> Refused | None:
    levels_max = context.broker.limits.topic_levels_max
    if request.filter.count("/") >= levels_max + 2 * request.filter.startswith("$share/"):
        return Refused(Reason.TOPIC_TOO_DEEP, f"at most {levels_max} levels are allowed")
    subscription_id = packet.properties.subscription_ids[0] if packet.properties.subscription_ids else 0
    try:
        subscription = subscription_from_properties(
            request.filter,
            packet.properties.user,
            owner=session.name,
            qos=request.qos,
            number=SubscriptionId(subscription_id),
            now=now,
        )
    except Malformed as fault:
        return fault.refused
    return context.broker.subscribe(
        session,
        request.filter,  # [MQTT-3.8.4-3]
        subscription,
        now,
        no_local=request.no_local,  # [MQTT-3.8.3-3]
        retain_as_published=request.retain_as_published,
        retain_handling=RetainHandling(request.retain_handling),
    )


def _code(refused: Refused) -> Code:
    if refused.reason in _FILTER_FAULTS:
        return Code.TOPIC_FILTER_INVALID
    return nearest_legal(code_of(refused.reason), PacketType.SUBACK)


def on_unsubscribe(context: MqttContext, connection: MqttConnection, session: Session, packet: Unsubscribe) -> None:
    """Handle UNSUBSCRIBE; messages already queued are still delivered. [MQTT-3.10.4-1] to [MQTT-3.10.4-6]"""
    ended = [context.broker.unsubscribe(session, name) for name in packet.filters]
    codes = tuple(Code.SUCCESS if existed else Code.NO_SUBSCRIPTION_EXISTED for existed in ended)
    context.reply(connection, Unsuback(packet.packet_id, codes))
