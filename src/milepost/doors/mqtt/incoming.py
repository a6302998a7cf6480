"""Incoming: what a PUBLISH or a will says, as a parcel."""

from dataclasses import replace

from milepost.edge.parcels import Parcel
from milepost.model.endpoints import EndpointId
from milepost.model.instants import FOREVER, SECOND_NS, Instant
from milepost.model.priorities import Priority
from milepost.model.reasons import Malformed, Reason
from milepost.wire.asks import MessageWords, message_user_properties, ordinary_properties
from milepost.wire.mqtt import NO_PROPERTIES, Properties, forwarded


def parcel_from(
    topic: str,
    payload: bytes,
    properties: Properties,
    words: MessageWords | None,
    source: EndpointId,
    priority: Priority,
    now: Instant,
) -> Parcel:
    """A message as the corridor takes it, with what `words` say about where, when and to whom."""
    parcel = Parcel(topic, payload, now, source=source, priority=priority)
    if properties is NO_PROPERTIES:
        return parcel
    parcel.extras = forwarded(properties)  # [MQTT-3.3.2-4], [MQTT-3.3.2-15] to [MQTT-3.3.2-18], [MQTT-3.3.2-20]
    if properties.message_expiry_s is not None:  # [MQTT-3.3.2-5]
        parcel.valid_until = Instant(now + properties.message_expiry_s * SECOND_NS)
    if words is not None:
        parcel.tags, parcel.place, parcel.address = words.tags, words.place, words.address
        parcel.priority = priority if words.priority is None else words.priority
        parcel.seen_at = words.seen_at or now
        parcel.valid_until = min(parcel.valid_until, words.valid_until or FOREVER)
        if parcel.valid_until < parcel.seen_at:
            raise Malformed(Reason.VALIDITY_BACKWARDS, f"it ends {parcel.seen_at - parcel.valid_until} ns before it was seen")
        parcel.extras = forwarded(_told(properties, parcel))
    parcel.size += len(parcel.extras)
    return parcel


def _told(properties: Properties, parcel: Parcel) -> Properties:
    """What receivers are told: our words as the edge understood them. Where the sender is, was said to the edge alone.

    A departure from [MQTT-3.3.2-17], which wants user properties passed on unaltered: these are not between applications.
    """
    user = (*ordinary_properties(properties.user), *message_user_properties(parcel.message))
    return replace(properties, user=user)
