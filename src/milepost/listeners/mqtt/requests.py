"""Requests to the edge itself, as JSON on topics below `$milepost/`, so that any MQTT client can send them.

Every request is answered on `$milepost/reply`, if the client subscribes to it; only accepted reports are not. A refusal is also
the reason code of the acknowledgement, where the protocol version has one.
"""

from typing import NamedTuple

from milepost.broker.broker import Broker
from milepost.broker.publication import Publication
from milepost.broker.session import Session
from milepost.listeners.mqtt.context import MqttContext
from milepost.model.instants import Instant
from milepost.model.messages import MessageId
from milepost.model.priorities import Priority
from milepost.model.reasons import Malformed, Reason, Refused
from milepost.wire.mqtt import Properties, Publish, forwarded
from milepost.wire.requests import (
    REPLY_TOPIC,
    RequestKind,
    message_from_json,
    reply_to_json,
    report_from_json,
    request_kind_at,
    subscription_from_json,
    unsubscription_from_json,
)
from milepost.wire.user_properties import message_to_properties


class Accepted(NamedTuple):
    """A message or request that was accepted."""

    receivers: int
    message_id: int = 0
    """Id to return to the publisher; 0: none."""


def serve(context: MqttContext, session: Session, topic: str, packet: Publish, now: Instant) -> Accepted | Refused:
    """Carry out a request and reply to it."""
    broker = context.broker
    refused = broker.admit_request(session, broker.route(session, topic, now), packet.payload, now)
    if refused is not None:
        return broker.refuse(refused)
    service = request_kind_at(topic)
    number: int | None = None
    try:
        match service:
            case RequestKind.REPORT:
                refused = broker.report(session, report_from_json(packet.payload, session.name, now), now)
            case RequestKind.SUBSCRIBE:
                number, refused = _subscribe(broker, session, packet, now)
            case RequestKind.UNSUBSCRIBE:
                number, refused = _unsubscribe(broker, session, packet)
            case RequestKind.PUBLISH:
                number, refused = _publish(broker, session, packet, now)
    except Malformed as fault:
        refused = broker.refuse(fault.refused)
    if refused is not None or service is not RequestKind.REPORT:  # reports are frequent: reply only to refused ones
        broker.reply(session, REPLY_TOPIC, reply_to_json(service, number, refused), now)
    if refused is None and packet.qos == 2 and packet.packet_id is not None:
        broker.begin_receipt(session, packet.packet_id)  # [MQTT-4.3.3-8]
    return refused or Accepted(1)


def _key_of(number: int) -> str:
    """Return the key of a JSON subscription in its session, which cannot be a valid topic filter."""
    return f"#{number}"


def _subscribe(broker: Broker, session: Session, packet: Publish, now: Instant) -> tuple[int | None, Refused | None]:
    subscription = subscription_from_json(packet.payload, session.name, now)
    refused = broker.subscribe(session, _key_of(subscription.id), subscription, now)
    return subscription.id, None if refused is None else broker.refuse(refused)


def _unsubscribe(broker: Broker, session: Session, packet: Publish) -> tuple[int | None, Refused | None]:
    number = unsubscription_from_json(packet.payload)
    if broker.unsubscribe(session, _key_of(number)):
        return number, None
    return number, broker.refuse(Refused(Reason.FIELD_RANGE, f"there is no subscription {number}"))


def _publish(broker: Broker, session: Session, packet: Publish, now: Instant) -> tuple[int | None, Refused | None]:
    message = message_from_json(packet.payload, session.name, now, MessageId(broker.next_id(now)))
    publication = Publication(
        message.topic,
        message.body,
        message.seen_at,
        source=message.source,
        origin=session.number,
        qos=packet.qos,
        is_retained=packet.retain,
        priority=None if message.priority is Priority.CONVENIENCE else message.priority,
        valid_until=message.valid_until,
        extras=None if message.signature else forwarded(Properties(user=message_to_properties(message))),
        tags=message.tags,
        place=message.place,
        address=message.address,
        fields=message.fields,
    )
    publication.id = message.id
    if message.signature:
        publication.signed = message.signature, message.certificate
    outcome = broker.publish(session, publication, now)
    return message.id, outcome if isinstance(outcome, Refused) else None
