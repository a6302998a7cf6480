"""Client values ↔ messages and subscriptions of the model, which datagrams carry; refusals as `RefusedByEdge`."""

from typing import Final

from milepost.client.errors import RefusedByEdge
from milepost.client.messages import OutgoingMessage, SubscriptionRequest, message_of
from milepost.model.endpoints import EndpointId
from milepost.model.instants import Instant
from milepost.model.messages import Message, MessageId
from milepost.model.queries import And, OnTopic
from milepost.model.reasons import Malformed, Reason
from milepost.model.session_datagrams import Refusal
from milepost.model.subscriptions import Subscription, SubscriptionId


def udp_message_of(publication: OutgoingMessage, source: EndpointId, number: MessageId, now: Instant) -> Message:
    """Return the message; raise `Malformed` before anything reaches the edge."""
    if publication.retain:
        raise Malformed(Reason.FIELD_RANGE, "retain: retained messages are not available over udp; publish over MQTT")
    return message_of(publication, source, number, now)


def subscription_of(request: SubscriptionRequest, owner: EndpointId, subscription_id: int) -> Subscription:
    """Return the subscription; topic filter and query must both match, as over MQTT."""
    on_topic = OnTopic(request.filter)
    query = on_topic if request.query is None else And((on_topic, request.query))
    return Subscription(
        owner, query, request.area, request.time_window, SubscriptionId(subscription_id), request.qos, request.share
    )


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
