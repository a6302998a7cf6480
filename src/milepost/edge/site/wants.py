"""Wants: whether one endpoint is meant by a message, asked for the few that are on the move and not in matching."""

from collections.abc import Iterable
from typing import NamedTuple

from milepost.edge.parcels import Delivery, Parcel
from milepost.model.addresses import ToArea, ToContent, ToEndpoint, ToEveryone, ToTold
from milepost.model.areas import Area, Around, Circle
from milepost.model.endpoints import EndpointId
from milepost.model.instants import Instant
from milepost.model.messages import Message
from milepost.model.places import Place
from milepost.model.queries import holds
from milepost.model.sites import Held
from milepost.model.subscriptions import Subscription


class Somebody(NamedTuple):
    """An endpoint, where it is, and what it asks for."""

    endpoint: EndpointId
    place: Place | None
    held: tuple[Held, ...]


def maybe_delivery(parcel: Parcel, message: Message, who: Somebody, now: Instant) -> Delivery | None:
    """A message as an endpoint gets it; nothing if it is not meant."""
    if message.is_expired(now):
        return None
    match message.address:
        case ToContent(within):
            if within is not None and not _is_in(within, who.place):
                return None
            return _by_subscription(parcel, message, who, now)
        case ToEndpoint(endpoint):
            return Delivery(parcel, parcel.qos) if endpoint == who.endpoint else None
        case ToArea(area):
            return Delivery(parcel, parcel.qos) if _is_in(area, who.place) else None
        case ToEveryone() | ToTold():  # who was told is asked before
            return Delivery(parcel, parcel.qos)


def matching(held: Iterable[Held], message: Message, place: Place | None, now: Instant) -> list[Held]:
    """The subscriptions that a message matches, of one endpoint."""
    return [one for one in held if is_asked_for(one.subscription, message, place, now)]


def is_asked_for(asked: Subscription, message: Message, place: Place | None, now: Instant) -> bool:
    """Whether a subscription asks for a message, if its owner is at a place."""
    if not holds(asked.query, message.topic, message.tags):
        return False
    if not asked.frame.holds(message.seen_at) or asked.frame.is_over(now):
        return False
    area = asked.area
    if isinstance(area, Around):
        return place is not None and _is_in(Circle(place, area.radius_m), message.place)
    return area is None or _is_in(area, message.place)


def _by_subscription(parcel: Parcel, message: Message, who: Somebody, now: Instant) -> Delivery | None:
    found = matching(who.held, message, who.place, now)
    if not found or (message.source == who.endpoint and all(one.is_not_own for one in found)):
        return None
    labels = tuple(sorted(one.subscription.id for one in found if one.subscription.id))
    qos = min(parcel.qos, max(one.subscription.qos for one in found))
    is_shown = any(one.is_retain_shown for one in found)
    return Delivery(parcel, qos, labels, is_from_store=parcel.is_retained and is_shown)


def _is_in(area: Area, place: Place | None) -> bool:
    return place is not None and bool(area.contains(place.vector.reshape(1, 3))[0])
