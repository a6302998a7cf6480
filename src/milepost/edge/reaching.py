"""Reaching: when an endpoint reaches what a message to an area on roads is about, and that it has passed it.

    somebody takes more ─▶ sift: what waits goes by the instant at which it gets there, by its last report and as roads allow;
                                 what it has passed, and what something newer replaces, is given up

What must hold:
- only where an area is on roads is anything known: a message to a circle waits as any other does;
- who is not on the stretches any more, or goes another way, has passed; it may have been the noise of one report, so whoever is
  told that something was given up as passed must see to it that it is handed again when the endpoint is back.
"""

from typing import Final, NamedTuple

from milepost.edge.lanes import Lanes
from milepost.edge.parcels import Delivery, Parcel
from milepost.edge.sessions import Session
from milepost.edge.standing import Key, key_of
from milepost.edge.watching import Watch
from milepost.model.addresses import ToArea
from milepost.model.areas import seconds_to_reach
from milepost.model.instants import SECOND_NS
from milepost.model.reasons import Reason

SIFTED_MAX: Final = 64
"""Of more that waits for one the rest keeps its place: each costs some hundred microseconds."""


class GivenUp(NamedTuple):
    """Something that waited and is of no use any more."""

    number: int
    delivery: Delivery
    reason: Reason


class Reaching:
    """Knows where endpoints are, and which way they go."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def sift(self, session: Session, lanes: Lanes) -> list[GivenUp]:
        """Put what waits for somebody into the order in which it reaches it; gives what is to be given up."""
        tracks = self._watch.tracks
        reports = tracks.reports_of(session.number)
        if lanes.sifted_at == reports or not tracks.is_known(session.number):
            return []
        waiting = lanes.take_roads(SIFTED_MAX)
        latest: dict[Key, int] = {}
        for _, delivery in waiting:
            key = key_of(delivery.parcel)
            latest[key] = max(delivery.parcel.seen_at, latest.get(key, 0))
        found = []
        for number, delivery in waiting:
            at = self._maybe_at(session, delivery.parcel)
            if delivery.parcel.seen_at < latest[key_of(delivery.parcel)]:
                found.append(GivenUp(number, delivery, Reason.REPLACED))
            elif at is None:
                found.append(GivenUp(number, delivery, Reason.PASSED))
            else:
                lanes.put(number, delivery, at)
        lanes.sifted_at = reports
        return found

    def _maybe_at(self, session: Session, parcel: Parcel) -> int | None:
        """When somebody reaches what a message is about; nothing if it is not on its way there."""
        assert isinstance(parcel.address, ToArea), "others are not sifted"
        _, where, going = self._watch.whereabouts(session)
        seconds = float(seconds_to_reach(parcel.address.area, where, going)[0])
        is_inside = seconds == seconds  # NaN is unequal to itself
        return self._watch.tracks.seen_at(session.number) + int(seconds * SECOND_NS) if is_inside else None
