"""The audience of a message, and endpoints that enter the area of an active one.

    address of a message ─▶ fan_for: matching, positions, notified sessions or the session table (M5)
    accepted reports     ─▶ moved: sessions that have entered ─▶ delivery

Invariants:
- an endpoint from another edge receives active messages only once it is known which of them it already has, or that this
  will not become known;
- a session that `moved` delivers to is recorded as notified in the same call, so that nothing is delivered twice.
"""

from collections.abc import Callable

from milepost.broker.active_alerts import ActiveAlerts
from milepost.broker.delivery import Deliveries
from milepost.broker.presence import Presence
from milepost.broker.publication import Publication
from milepost.broker.routing import NO_FAN, Fan, RouteCache, group_by_encoding
from milepost.broker.session import NOWHERE, Session, Sessions
from milepost.model.addresses import ToArea, ToContent, ToEndpoint, ToEveryone, ToNotified
from milepost.model.areas import Going
from milepost.model.instants import Instant
from milepost.model.places import vectors
from milepost.vetting import Batch

IsSettled = Callable[[Session, Instant], bool]
"""Whether the messages an endpoint received at its previous edge are known, or never will be."""


class Audience:
    """The audiences of messages."""

    def __init__(
        self, route_cache: RouteCache, sessions: Sessions, watch: Presence, deliveries: Deliveries, is_settled: IsSettled
    ) -> None:
        self._route_cache = route_cache
        self._sessions = sessions
        self._watch = watch
        self._deliveries = deliveries
        self._is_settled = is_settled
        self._unsettled: set[str] = set()
        """Endpoints to be checked again in the next tick, even without a new report."""
        watch.moved = self.moved

    @property
    def _standing(self) -> ActiveAlerts:
        return self._deliveries.standing

    def fan_for(self, publication: Publication, now: Instant) -> Fan:
        """Return the receivers of a message."""
        if publication.valid_until < now:
            return NO_FAN
        match publication.address:
            case ToContent():
                return self._route_cache.plan(publication.message, now).fan_for(publication.origin)
            case ToArea(area):
                return group_by_encoding([self._sessions[number] for number in self._watch.who_is_in(area).tolist()])
            case ToNotified(incidents):
                told = self._standing.who_was_told(publication.source, incidents)
                return group_by_encoding([self._sessions[number] for number in told])
            case ToEndpoint(name):
                session = self._sessions.maybe(name)
                return group_by_encoding([session] if session is not None else [])
            case ToEveryone():
                return group_by_encoding([session for session in self._sessions if session.link is not NOWHERE])

    def moved(self, batch: Batch, now: Instant) -> None:
        """Deliver active messages to endpoints whose reports place them in the area."""
        if not len(self._standing):
            return
        going = Going(batch.headings, batch.speeds)
        for publication, numbers in self._standing.entering(batch.numbers, vectors(batch.latitudes, batch.longitudes), going):
            self._hand(publication, [self._sessions[number] for number in numbers], now)

    def look_again(self, session: Session) -> None:
        """Check an endpoint in the next tick: its position became known other than by its own report."""
        if len(self._standing):
            self._unsettled.add(session.name)

    def tick(self, now: Instant) -> None:
        """Expire active messages, and check again the endpoints that were not settled."""
        self._standing.expire(now, self._deliveries.changes)
        names, self._unsettled = self._unsettled, set()
        for name in names:
            session = self._sessions.maybe(name)
            if session is not None and len(self._standing) and self._watch.tracks.is_known(session.number):
                numbers, where, going = self._watch.whereabouts(session)
                for publication, _ in self._standing.entering(numbers, where, going):
                    self._hand(publication, [session], now)

    def _hand(self, publication: Publication, sessions: list[Session], now: Instant) -> None:
        if publication.valid_until < now:
            return
        settled = [session for session in sessions if self._is_settled(session, now)]
        self._unsettled |= {session.name for session in sessions} - {session.name for session in settled}
        if settled:
            self._deliveries.hand_out(publication, group_by_encoding(settled))
