"""Client values ↔ messages and subscriptions of the model, which datagrams carry; refusals as `RefusedByEdge`."""

from base64 import b64encode
from typing import Final

from milepost.client.errors import RefusedByEdge
from milepost.client.messages import OutgoingMessage, ReceivedMessage, SubscriptionRequest
from milepost.model.endpoints import EndpointId
from milepost.model.instants import FOREVER, SECOND_NS, Instant
from milepost.model.messages import Message, MessageId, Scalar
from milepost.model.queries import And, OnTopic
from milepost.model.reasons import Malformed, Reason, shown
from milepost.model.session_datagrams import Refusal
from milepost.model.subscriptions import Subscription, SubscriptionId

_BOOL_TEXTS: Final = {True: "true", False: "false"}


def message_of(publication: OutgoingMessage, source: EndpointId, number: MessageId, now: Instant) -> Message:
    """Return the message; raise `Malformed` before anything reaches the edge."""
    if publication.retain:
        raise Malformed(Reason.FIELD_RANGE, "retain: retained messages are not available over udp; publish over MQTT")
    fields = dict(publication.properties)
    if len(fields) < len(publication.properties):
        raise Malformed(Reason.FIELD_RANGE, "two properties have the same name; over udp each name may occur once")
    seen_at = now if publication.seen_at is None else publication.seen_at
    return Message(
        number,
        source,
        publication.topic,
        seen_at,
        publication.tags,
        publication.address,
        publication.place,
        _valid_until(publication, now),
        publication.priority,
        publication.qos > 0,
        fields,
        publication.body,
    )


def received_from(message: Message, now: Instant, *, is_signed: bool) -> ReceivedMessage:
    """Return the received message; all its fields become user properties."""
    return ReceivedMessage(
        message.topic,
        message.body,
        now,
        message.tags,
        message.place,
        message.source,
        message.seen_at,
        message.valid_until,
        message.priority,
        message.address,
        qos=1 if message.reliable else 0,
        properties=tuple((name, _text_of(value)) for name, value in message.fields.items()),
        id=message.id,
        is_signed=is_signed,
    )


def subscription_of(request: SubscriptionRequest, owner: EndpointId, subscription_id: int) -> Subscription:
    """Return the subscription; topic filter and query must both match, as over MQTT."""
    on_topic = OnTopic(request.filter)
    query = on_topic if request.query is None else And((on_topic, request.query))
    return Subscription(
        owner, query, request.area, request.time_window, SubscriptionId(subscription_id), request.qos, request.share
    )


def _valid_until(publication: OutgoingMessage, now: Instant) -> Instant:
    if publication.valid_for_s is not None:
        return Instant(now + round(publication.valid_for_s * SECOND_NS))
    return FOREVER if publication.valid_until is None else publication.valid_until


def _text_of(value: Scalar) -> str:
    match value:
        case str():
            return value
        case bool():  # before int, its base class
            return _BOOL_TEXTS[value]
        case bytes():
            return b64encode(value).decode()
        case int() | float():
            return repr(value)
        case _:
            raise AssertionError(f"a field contains {shown(value)}")


TRANSIENT: Final = frozenset(
    {
        Reason.ENDPOINTS_FULL,
        Reason.SESSION_UNKNOWN,
        Reason.RATE_TOO_HIGH,
        Reason.CONNECTIONS_FULL,
        Reason.HANDSHAKES_FULL,
        Reason.STORAGE_UNAVAILABLE,
        Reason.SHUTTING_DOWN,
        Reason.PREFIX_RATE_TOO_HIGH,
        Reason.EDGE_RATE_TOO_HIGH,
        Reason.HANDSHAKE_STALE,
        Reason.COOKIE_NEEDED,
    }
)
"""Transient reasons to refuse a session; after all others a new request is pointless."""


def refused_by(refusal: Refusal) -> RefusedByEdge:
    """Return the refusal, with advice if this release knows the reason code."""
    is_known = refusal.reason in Reason.__members__.values()
    return RefusedByEdge(refusal.reason, refusal.name, refusal.detail, Reason(refusal.reason).advice if is_known else "")


def is_final(refusal: Refusal) -> bool:
    """Return whether repeating INIT is pointless after this refusal."""
    return refusal.reason not in TRANSIENT
