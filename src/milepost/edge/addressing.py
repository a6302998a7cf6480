"""Addressing: who is meant by a message, and who comes into the area of one that stands.

    address of a message ─▶ fan_for: matching, the map, what is known of who was told, or the list of sessions (M5)
    reports let in       ─▶ moved: who has come in ─▶ delivery

What must hold:
- who may have been told where it comes from is told nothing of what stands before that is known, or has become unlikely;
- nothing here decides twice: whoever is handed something by `moved` is noted as told in the same call.
"""

from collections.abc import Callable

from milepost.edge.delivery import Deliveries
from milepost.edge.parcels import Parcel
from milepost.edge.plans import NO_FAN, Fan, Planner, group_by_dialect
from milepost.edge.sessions import NOWHERE, Session, Sessions
from milepost.edge.standing import Standing
from milepost.edge.watching import Watch
from milepost.model.addresses import ToArea, ToContent, ToEndpoint, ToEveryone, ToTold
from milepost.model.areas import Going
from milepost.model.instants import Instant
from milepost.model.places import vectors
from milepost.vetting import Batch

IsSettled = Callable[[Session, Instant], bool]
"""Whether it is known what an endpoint was told before it came here, or will not be."""


class Addressing:
    """Whom messages are for."""

    def __init__(self, planner: Planner, sessions: Sessions, watch: Watch, deliveries: Deliveries, is_settled: IsSettled) -> None:
        self._planner = planner
        self._sessions = sessions
        self._watch = watch
        self._deliveries = deliveries
        self._is_settled = is_settled
        self._unsettled: set[str] = set()
        """Who is to be looked at again though it says nothing new."""
        watch.moved = self.moved

    @property
    def _standing(self) -> Standing:
        return self._deliveries.standing

    def fan_for(self, parcel: Parcel, now: Instant) -> Fan:
        """The takers of a message."""
        if parcel.valid_until < now:
            return NO_FAN
        match parcel.address:
            case ToContent():
                return self._planner.plan(parcel.message, now).fan_for(parcel.origin)
            case ToArea(area):
                return group_by_dialect([self._sessions[number] for number in self._watch.who_is_in(area).tolist()])
            case ToTold(incidents):
                told = self._standing.who_was_told(parcel.source, incidents)
                return group_by_dialect([self._sessions[number] for number in told])
            case ToEndpoint(name):
                session = self._sessions.maybe(name)
                return group_by_dialect([session] if session is not None else [])
            case ToEveryone():
                return group_by_dialect([session for session in self._sessions if session.link is not NOWHERE])

    def moved(self, batch: Batch, now: Instant) -> None:
        """Endpoints have said where they are: hand them what stands there."""
        if not len(self._standing):
            return
        going = Going(batch.headings, batch.speeds)
        for parcel, numbers in self._standing.entering(batch.numbers, vectors(batch.latitudes, batch.longitudes), going):
            self._hand(parcel, [self._sessions[number] for number in numbers], now)

    def look_again(self, session: Session) -> None:
        """Where an endpoint is became known otherwise than by a report of its own."""
        if len(self._standing):
            self._unsettled.add(session.name)

    def tick(self, now: Instant) -> None:
        """What stands no more is taken away; those who were not settled may be now."""
        self._standing.expire(now, self._deliveries.changes)
        names, self._unsettled = self._unsettled, set()
        for name in names:
            session = self._sessions.maybe(name)
            if session is not None and len(self._standing) and self._watch.tracks.is_known(session.number):
                numbers, where, going = self._watch.whereabouts(session)
                for parcel, _ in self._standing.entering(numbers, where, going):
                    self._hand(parcel, [session], now)

    def _hand(self, parcel: Parcel, sessions: list[Session], now: Instant) -> None:
        if parcel.valid_until < now:
            return
        settled = [session for session in sessions if self._is_settled(session, now)]
        self._unsettled |= {session.name for session in sessions} - {session.name for session in settled}
        if settled:
            self._deliveries.hand_out(parcel, group_by_dialect(settled))
