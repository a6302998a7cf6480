"""Moves between sites: what an endpoint must still get of what was said while it was on its way (D8).

A handover to another site arrives in that site's cross-hub. Whoever acts for one of the other sites, reading it there,

1. from then on copies to the receiver's site whatever the endpoint asks for,
2. and sends as `Extra` what that site said, the endpoint asks for, its former edge had not read, and was not copied.

What must hold: the two together are everything, and nothing twice. Which extras were sent stands in the receiver's cross-hub, as
the handover does: of a centre that was killed in between, the next one sends what is missing, under the same numbers.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from milepost.model.addresses import ToArea, ToContent, ToEndpoint
from milepost.model.areas import Area, Around
from milepost.model.endpoints import EndpointId
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.messages import Message
from milepost.model.places import Place
from milepost.model.queries import holds
from milepost.model.sites import CENTRE, EdgeRef, Epoch, Extra, Handover, Said
from milepost.model.subscriptions import Subscription
from milepost.wire.records import to_record

SLACK_NS: Final = 60 * SECOND_NS
"""Clocks of edges and logs, and what is on its way, differ by less."""
EXTRA_BYTES: Final = 500_000
"""So many bytes of messages go into one extra; in JSON that stays below what a log takes."""
PARTS_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class Move:
    """An endpoint on its way to another site."""

    at: int
    """Where its handover stands in the cross-hub of the receiver's site."""
    endpoint: EndpointId
    epoch: Epoch
    sender: EdgeRef
    receiver: EdgeRef
    subscriptions: tuple[Subscription, ...]
    place: Place | None
    marks: dict[str, int]
    offset: int
    as_of: Instant
    seen_at: Instant
    left: set[str]
    """The sites whose extra is still to come."""

    @property
    def since(self) -> Instant:
        """Nothing that was appended before this is missing."""
        return Instant(max(0, self.as_of - SLACK_NS))

    def mark_of(self, sender: str) -> int:
        """Up to which number the endpoint had its share of what an edge said."""
        return self.marks.get(sender, self.since)

    def asks_about(self, topic: str) -> bool:
        """Whether the endpoint may ask for a plain message on a topic; if not, it does not want it."""
        return any(holds(one.query, topic, frozenset()) for one in self.subscriptions)

    def wants(self, message: Message) -> bool:
        """Whether the endpoint gets a message, as far as can be said from here; what moves with it is left to its edge."""
        match message.address:
            case ToEndpoint(endpoint):
                return endpoint == self.endpoint
            case ToArea(area):
                return self.place is None or _holds(area, self.place)
            case ToContent():
                return any(_asks_for(one, message) for one in self.subscriptions)
            case _:
                return True


def move_of(handover: Handover, at: int, now: Instant, sites: Iterable[str]) -> Move:
    """What is needed of a handover, without what waits."""
    return Move(
        at,
        handover.endpoint,
        handover.epoch,
        handover.sender,
        handover.receiver,
        tuple(held.subscription for held in handover.subscriptions),
        handover.place,
        dict(handover.marks),
        handover.offset,
        handover.as_of,
        now,
        set(sites) - {handover.receiver.site},
    )


def extras_of(move: Move, site: str, said: Iterable[tuple[Said, int]]) -> Iterator[bytes]:
    """The records that bring what a site said, each with its size, to the endpoint alone; at least one.

    The last one has the last number of this move, however many there are: whoever sends them again gives it the same.
    """
    parts: list[list[Said]] = [[]]
    total = 0
    for one, size in said:
        if parts[-1] and total + size > EXTRA_BYTES:
            parts.append([])
            total = 0
        parts[-1].append(one)
        total += size
    parts = parts[:PARTS_MAX]
    for at, part in enumerate(parts, PARTS_MAX - len(parts)):
        number, is_last = move.at * PARTS_MAX + at, at == PARTS_MAX - 1
        sender = EdgeRef(site, CENTRE)
        yield to_record(Extra(move.endpoint, move.epoch, sender, move.receiver, number, tuple(part), is_last))


def last_of(extra: Extra) -> int | None:
    """The handover's offset of which this is the last extra of its site, if it is the last."""
    return extra.number // PARTS_MAX if extra.is_last else None


def _asks_for(subscription: Subscription, message: Message) -> bool:
    if not holds(subscription.query, message.topic, message.tags) or not subscription.frame.holds(message.seen_at):
        return False
    if subscription.area is None or isinstance(subscription.area, Around):
        return True
    return message.place is not None and _holds(subscription.area, message.place)


def _holds(area: Area, place: Place) -> bool:
    return bool(area.contains(place.vector[None, :])[0])
