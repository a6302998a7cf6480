"""Outgoing: deliveries as the content of datagrams, once for all takers."""

from typing import Final

from milepost.edge.parcels import Delivery, Parcel
from milepost.model.messages import FIELD_NAME_CHARACTERS_MAX, FIELDS_MAX, MessageId, Scalar
from milepost.model.sessions import MATCHES_MAX, Publish
from milepost.model.subscriptions import SubscriptionId
from milepost.wire.asks import ordinary_properties
from milepost.wire.datagrams import encode
from milepost.wire.mqtt import parse_forwarded

FORWARDED: Final = 1 << 63
"""Sets the ids of what leaves its edge, which are its numbers there, apart from those of what does not."""


def content_of(delivery: Delivery, number: int) -> bytes:
    """A message as all its takers get it, after version and token; raises `Malformed` if it is too large for a datagram.

    What has a delivery number is to be answered with received, whatever its sender wanted.
    """
    parcel = delivery.parcel
    if parcel.extras and not parcel.fields:
        parcel.fields = _fields_in(parcel.extras)
    labels = tuple(map(SubscriptionId, delivery.labels[:MATCHES_MAX]))
    message = parcel.message_as(reliable=number > 0)
    return encode(Publish(message, None, labels))[2:]


def name_parcel(parcel: Parcel, number: int) -> None:
    """Give a message an id if it came in without one: at every edge the same to what is said at others too."""
    if not parcel.id:
        parcel.id = MessageId(FORWARDED | parcel.said_number if parcel.said_number else number)


def _fields_in(extras: bytes) -> dict[str, Scalar]:
    """The application's own words on a message that came in over MQTT, as fields; the first so many."""
    words = ordinary_properties(parse_forwarded(extras).user)
    usable = [(name, text) for name, text in words if 0 < len(name) <= FIELD_NAME_CHARACTERS_MAX and name.isprintable()]
    return dict(usable[:FIELDS_MAX])
