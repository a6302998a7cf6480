"""The part of the broker's facade that federation uses: sessions exported, adopted and merged, and records from the log.

Invariants:
- a message that was sent and not acknowledged keeps its packet id and is marked as a duplicate; queued messages keep their order
  [MQTT-4.4.0-1];
- an existing session keeps its subscriptions and packet ids; messages merged into it keep theirs where they are free;
- a suspended subscription is in no route: federation delivers its messages from the log;
- federation gets values and sessions; it does not see the parts of the broker.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from milepost.broker.counts import Counts
from milepost.broker.delivery import Deliveries
from milepost.broker.effects import Changes, Expel, Redirect, Welcome
from milepost.broker.federation_port import FederationPort
from milepost.broker.limits import Limits
from milepost.broker.persistence import asked_to_bytes, publication_from_bytes, publication_to_bytes, session_to_bytes
from milepost.broker.presence import Heed as ReportObserver
from milepost.broker.presence import Presence
from milepost.broker.publication import Delivery, Publication
from milepost.broker.publication import Heed as DeliveryObserver
from milepost.broker.publish_path import Audience
from milepost.broker.routing import ASIDE, Asking, RouteCache
from milepost.broker.session import NOWHERE, Asked, Session, Sessions
from milepost.model.addresses import ToArea, ToNotified
from milepost.model.areas import Area
from milepost.model.endpoints import EndpointId
from milepost.model.instants import FOREVER, Instant
from milepost.model.places import Place
from milepost.model.reasons import Malformed, Reason, Refused
from milepost.model.sites import EndpointPosition, HeldSubscription, NotifiedIncident, QueuedMessage

TAKEN_OVER_ELSEWHERE: Final = Refused(Reason.SESSION_TAKEN_OVER, "at another edge")

_UNKNOWN: Final = EndpointId("unknown")


@dataclass(frozen=True, slots=True)
class SessionSnapshot:
    """A session as a value, for another edge."""

    endpoint: EndpointId
    expiry_ns: int
    place: Place | None
    subscriptions: tuple[HeldSubscription, ...]
    waiting: tuple[QueuedMessage, ...]
    """Released, then in flight, then queued messages."""
    received: tuple[int, ...]
    """Packet ids that the endpoint uses for its own publications at QoS 2."""
    notified: tuple[NotifiedIncident, ...]


class RoamingSupport:
    """Base class of `Broker`."""

    limits: Limits
    counts: Counts
    sessions: Sessions
    route_cache: RouteCache
    deliveries: Deliveries
    watch: Presence
    audience: Audience
    asking: Asking
    federation: FederationPort | None

    @property
    def changes(self) -> Changes:
        """The state to be stored at the end of this tick."""
        raise NotImplementedError

    def place_of(self, session: Session) -> Place | None:
        """Return the last position of an endpoint, if it is known."""
        raise NotImplementedError

    def retain(self, publication: Publication) -> None:
        """Store a retained message; an empty one deletes it."""
        raise NotImplementedError

    def remove(self, session: Session) -> None:
        """Remove a session whose deliveries are dealt with."""
        raise NotImplementedError

    def take_leave(self, session: Session, now: Instant) -> None:
        """Start the timers of a session without a connection."""
        raise NotImplementedError

    # Sessions and their state

    def join_federation(self, port: FederationPort) -> None:
        """Report sessions, subscriptions and publications of this edge to *port* from now on."""
        self.federation = port

    def find_session(self, name: str) -> Session | None:
        """Return the session of an endpoint, if it has one."""
        return self.sessions.maybe(name)

    def all_sessions(self) -> list[Session]:
        """Return every session, connected or not."""
        return list(self.sessions)

    def names_of(self, numbers: list[int]) -> list[EndpointId]:
        """Return the endpoints of live sessions, by session number."""
        return self.sessions.names_of(numbers)

    @property
    def sessions_max(self) -> int:
        """Maximum number of sessions; session numbers are below it."""
        return self.limits.sessions_max

    @property
    def coverage(self) -> Area | None:
        """The area this edge covers; None: everywhere."""
        return self.watch.ground.coverage

    def subscriptions_of(self, session: Session) -> tuple[HeldSubscription, ...]:
        """Return the subscriptions of a session as values."""
        return tuple(
            HeldSubscription(name, asked.subscription, asked.is_not_own, asked.is_retain_shown)
            for name, asked in session.subscriptions.items()
        )

    def in_transit(self, session: Session) -> set[tuple[str, int]]:
        """Return the messages queued or in flight, by the edge that forwarded them and their numbers there."""
        waiting = session.waiting.all() if session.waiting is not None else []
        deliveries = (*session.in_flight.values(), *session.released.values(), *(delivery for _, delivery in waiting))
        return {(one.publication.forwarded_by, one.publication.forwarded_number) for one in deliveries}

    def last_position_of(self, session: Session) -> EndpointPosition | None:
        """Return the last report of an endpoint, if there is one."""
        tracks, number = self.watch.tracks, session.number
        place = tracks.maybe_place(number)
        if place is None:
            return None
        seen_at = Instant(tracks.seen_at(number))
        return EndpointPosition(session.name, place, tracks.maybe_heading(number), tracks.maybe_speed(number), seen_at)

    def observe_reports(self, observer: ReportObserver) -> None:
        """Call *observer* with every batch of reports and the verdict on each."""
        self.watch.heed = observer

    def observe_deliveries(self, observer: DeliveryObserver) -> None:
        """Call *observer* with the fate of every message to an area, by endpoint."""
        self.deliveries.heed = observer

    def routes_changed(self) -> None:
        """Drop cached routes: the interest of other edges has changed."""
        self.route_cache.change()

    def count_dropped(self, reason: Reason, messages: int = 1) -> None:
        """Count messages that could not be delivered or forwarded."""
        self.counts.dropped[reason] += messages

    # State of the federation, stored in the same transaction as the sessions

    def store_outbox(self, number: int, record: bytes | None) -> None:
        """Store a record that waits for the log; None deletes it."""
        self.changes.outbox[number] = record

    def store_cursor(self, name: str, number: int) -> None:
        """Store up to where a stream was read."""
        self.changes.cursors[name] = number

    def store_residency(self, key: str, residency: bytes | None) -> None:
        """Store a residency or an open handover; None deletes it."""
        self.changes.residencies[key] = residency

    # Connections

    def welcome(self, endpoint: EndpointId, refused: Refused | None = None) -> None:
        """Let a client that waits for its session connect, or refuse it."""
        self.deliveries.actions.append(Welcome(endpoint, refused))

    def can_redirect(self, session: Session, address: str) -> bool:
        """Return whether the endpoint can be redirected to *address*: the scheme of its connection is the same."""
        scheme = session.link.scheme
        return bool(scheme) and address.startswith(f"{scheme}://")

    def redirect(self, session: Session, address: str) -> None:
        """Disconnect an endpoint and send it to the edge at *address*."""
        self.deliveries.actions.append(Redirect(session.link, address))

    def _drop_connection(self, session: Session) -> None:
        """Disconnect an endpoint that is connected at another edge; its will is not published here."""
        session.will = None
        if session.link is not NOWHERE:
            self.deliveries.actions.append(Expel(session.link, TAKEN_OVER_ELSEWHERE))
            session.link = NOWHERE

    # Sessions that leave

    def export_session(self, session: Session) -> SessionSnapshot:
        """Disconnect and remove a session; return it as a value."""
        self._drop_connection(session)
        self.deliveries.leave(session)
        snapshot = SessionSnapshot(
            session.name,
            session.expiry_ns,
            self.place_of(session),
            self.subscriptions_of(session),
            tuple(_waiting_of(session)),
            tuple(sorted(session.received or ())),
            self.deliveries.standing.told_of(session),
        )
        self.deliveries.let_go(session)
        self.remove(session)
        return snapshot

    def discard_session(self, session: Session) -> None:
        """Disconnect and remove a session that the endpoint has replaced by a new one at another edge."""
        self._drop_connection(session)
        self.deliveries.end(session)
        self.remove(session)

    # Sessions that arrive

    def adopt_session(self, snapshot: SessionSnapshot, now: Instant) -> Session | Refused:
        """Create the session of an endpoint that is not connected here, or not yet; its subscriptions are suspended."""
        try:
            session = self.sessions.add(snapshot.endpoint)
        except Malformed as fault:
            return fault.refused
        session.is_kept, session.expiry_ns, session.expires_at = snapshot.expiry_ns > 0, snapshot.expiry_ns, FOREVER
        if session.is_kept:
            self.take_leave(session, now)
            self.changes.sessions[session.number] = session_to_bytes(session, None)
        for one in snapshot.waiting:
            self.deliveries.adopt(session, one.number, _delivery(one), is_released=one.is_released)
        if snapshot.received:
            session.received = set(snapshot.received)
            if session.is_kept:
                self.changes.received |= {(session.number, number): True for number in snapshot.received}
        self._adopt_state(session, snapshot)
        return session

    def merge_session(self, session: Session, snapshot: SessionSnapshot) -> None:
        """Add a session of the same endpoint to the one that exists; subscriptions that are new here are suspended."""
        for one in snapshot.waiting:
            self.deliveries.add(session, one.number, _delivery(one), is_released=one.is_released)
        self._adopt_state(session, snapshot)

    def _adopt_state(self, session: Session, snapshot: SessionSnapshot) -> None:
        self.deliveries.standing.bring(session, snapshot.notified, self.changes)
        if snapshot.place is not None and self.place_of(session) is None:
            self.watch.put_place(session, snapshot.place)
        self.audience.look_again(session)
        for held in snapshot.subscriptions:
            if held.name not in session.subscriptions:
                asked = Asked(held.subscription, ASIDE, is_not_own=held.is_not_own, is_retain_shown=held.is_retain_shown)
                session.subscriptions[held.name] = asked
                if session.is_kept:
                    self.changes.subscriptions[session.number, held.name] = asked_to_bytes(asked)

    def withdraw(self, session: Session, was_delivered: Callable[[Delivery], bool]) -> None:
        """Take queued messages back that the endpoint received at another edge."""
        self.deliveries.withdraw(session, was_delivered)

    # Subscriptions and deliveries during catch-up

    def suspend_subscription(self, session: Session, name: str) -> None:
        """Take a subscription out of matching."""
        self.asking.set_aside(session, name)

    def resume_subscription(self, session: Session, name: str) -> None:
        """Put a suspended subscription back into matching; if there is no room for it, that is counted."""
        asked = session.subscriptions[name]
        if asked.row == ASIDE:
            try:
                self.asking.take_up(session, name, asked)
            except Malformed as fault:
                self.counts.refused[fault.reason] += 1

    def apply_record(self, publication: Publication, now: Instant, *, except_for: frozenset[str] = frozenset()) -> None:
        """Deliver a publication of another edge, read from the log, to its audience here without *except_for*."""
        if publication.is_retained:
            self.retain(publication)
        self.deliveries.hand_out(publication, self.audience.fan_for(publication, now).without(except_for))

    def deliver(self, delivery: Delivery, session: Session) -> None:
        """Deliver a message to one session, past matching."""
        self.deliveries.hand_one(delivery, session)

    def lacks_alert(self, session: Session, publication: Publication) -> bool:
        """Return whether a message read again is to be delivered to a session.

        One to an area that is still active is left to the next check of the endpoint's position; one to those notified is
        delivered if the session is one of them; one to any other address always is.
        """
        alerts = self.deliveries.standing
        match publication.address:
            case ToArea():
                if alerts.stands(publication):
                    self.audience.look_again(session)
                    return False
                return not alerts.has_had(session, publication)
            case ToNotified(incidents):
                return alerts.was_told(session, publication.source, incidents)
            case _:
                return True

    def has_received_alert(self, session: Session, publication: Publication) -> bool:
        """Return whether a message to an area was delivered to a session."""
        return self.deliveries.standing.has_had(session, publication)


def publication_of(waiting: QueuedMessage) -> Publication:
    """Return the publication of a row of a handover."""
    return publication_from_bytes(waiting.publication)


def _waiting_of(session: Session) -> Iterable[QueuedMessage]:
    for number, delivery in session.released.items():
        yield _waiting(number, delivery, is_sent=True, is_released=True)
    for number, delivery in session.in_flight.items():
        yield _waiting(number, delivery, is_sent=True)
    for number, delivery in session.waiting.all() if session.waiting is not None else ():
        if number:
            yield _waiting(number, delivery, is_sent=delivery.is_again)


def _waiting(number: int, delivery: Delivery, *, is_sent: bool, is_released: bool = False) -> QueuedMessage:
    publication = delivery.publication
    return QueuedMessage(
        number,
        delivery.qos,
        is_sent,
        is_released,
        delivery.labels,
        delivery.is_from_store,
        publication.forwarded_by,
        publication.forwarded_number,
        b"" if is_released else publication_to_bytes(publication),
    )


def _delivery(one: QueuedMessage) -> Delivery:
    publication = (
        publication_from_bytes(one.publication) if one.publication else Publication("released", b"", Instant(0), source=_UNKNOWN)
    )
    publication.forwarded_by, publication.forwarded_number = one.forwarded_by, one.forwarded_number
    return Delivery(publication, one.qos, one.labels, is_from_store=one.is_from_store, is_again=one.is_sent)
