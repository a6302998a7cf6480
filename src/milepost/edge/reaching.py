"""Reaching: when an endpoint reaches what a message to an area on roads is about, and that it has passed it.

    waits for somebody  ─▶ maybe_at: the instant at which it gets there, by its last report and as roads allow
    somebody takes more ─▶ sift: the instants of now; what it has passed, and what something newer replaces, is given up

What must hold:
- only where an area is on roads is anything known: a message to a circle waits as any other does;
- who is not on the stretches any more, or goes another way, has passed; it may have been the noise of one report, so whoever is
  told that something was given up as passed must see to it that it is handed again when the endpoint is back.
"""

from typing import NamedTuple

from milepost.edge.lanes import Lanes
from milepost.edge.parcels import Delivery, Parcel
from milepost.edge.sessions import Session
from milepost.edge.standing import Key, key_of
from milepost.edge.watching import Watch
from milepost.model.addresses import ToArea
from milepost.model.areas import asks_which_way, seconds_to_reach
from milepost.model.instants import SECOND_NS
from milepost.model.reasons import Reason


class GivenUp(NamedTuple):
    """Something that waited and is of no use any more."""

    number: int
    delivery: Delivery
    reason: Reason


class Reaching:
    """Knows where endpoints are, and which way they go."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def maybe_at(self, session: Session, parcel: Parcel) -> int | None:
        """When somebody reaches what a message is about; nothing if that is not known, or it is not on its way there."""
        area = parcel.address.area if isinstance(parcel.address, ToArea) else None
        if area is None or not asks_which_way(area) or not self._watch.tracks.is_known(session.number):
            return None
        _, where, going = self._watch.whereabouts(session)
        seconds = float(seconds_to_reach(area, where, going)[0])
        if seconds != seconds:  # NaN: it is not inside
            return None
        return self._watch.tracks.seen_at(session.number) + int(seconds * SECOND_NS)

    def sift(self, session: Session, lanes: Lanes) -> list[GivenUp]:
        """Put what waits for somebody into the order in which it reaches it; gives what is to be given up."""
        reports = self._watch.tracks.reports_of(session.number)
        if lanes.sifted_at == reports:
            return []
        lanes.sifted_at = reports
        found, seen = [], set[Key]()
        waiting = sorted(lanes.take_areas(), key=lambda one: one[1].parcel.seen_at, reverse=True)
        for number, delivery in waiting:
            parcel = delivery.parcel
            key = key_of(parcel)
            at = self.maybe_at(session, parcel)
            if key in seen:
                found.append(GivenUp(number, delivery, Reason.REPLACED))
            elif at is None and self._is_passed(session, parcel):
                found.append(GivenUp(number, delivery, Reason.PASSED))
            else:
                lanes.put(number, delivery, at)
            seen.add(key)
        return found

    def _is_passed(self, session: Session, parcel: Parcel) -> bool:
        is_on_roads = isinstance(parcel.address, ToArea) and asks_which_way(parcel.address.area)
        return is_on_roads and self._watch.tracks.is_known(session.number)
