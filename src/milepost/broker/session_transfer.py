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
from typing import TYPE_CHECKING, Final

from milepost.broker.broker_counters import BrokerCounters
from milepost.broker.delivery import Deliveries
from milepost.broker.effects import CloseConnection, Redirect, StateChanges, Welcome
from milepost.broker.federation_port import FederationPort
from milepost.broker.limits import BrokerLimits
from milepost.broker.presence import Presence, ReportObserver
from milepost.broker.publication import Delivery, DeliveryObserver, Publication
from milepost.broker.publish_path import AudienceResolver
from milepost.broker.read_rights import ReadRights
from milepost.broker.routing import SUSPENDED, RouteCache, SubscriptionTable
from milepost.broker.session import NO_CONNECTION, Session, Sessions, SessionSubscription
from milepost.broker.state_codec import publication_from_bytes, publication_to_bytes, session_to_bytes, subscription_to_bytes
from milepost.model.addresses import ToArea, ToNotified
from milepost.model.areas import Area
from milepost.model.endpoints import EndpointId
from milepost.model.instants import FOREVER, Instant
from milepost.model.places import Place
from milepost.model.reasons import Malformed, Reason, Refused
from milepost.model.site_records import EndpointPosition, HeldSubscription, NotifiedIncident, QueuedMessage
from milepost.trust.alert_origin import UNSIGNED, signer_in
from milepost.vetting.access import ClientIdentity

if TYPE_CHECKING:
    from milepost.trust.signing import Verifier

TAKEN_OVER_ELSEWHERE: Final = Refused(Reason.SESSION_TAKEN_OVER, "at another edge")

_UNKNOWN: Final = EndpointId("unknown")


@dataclass(frozen=True, slots=True)
class SessionSnapshot:
    """A session as a value, for another edge."""

    endpoint: EndpointId
    expiry_ns: int
    place: Place | None
    subscriptions: tuple[HeldSubscription, ...]
    queued: tuple[QueuedMessage, ...]
    """Released, then in flight, then queued messages."""
    received: tuple[int, ...]
    """Packet ids that the endpoint uses for its own publications at QoS 2."""
    notified: tuple[NotifiedIncident, ...]
    identity: ClientIdentity
    """The owner of the session, which takes its ownership along."""


class SessionTransfer:
    """Base class of `Broker`."""

    limits: BrokerLimits
    counts: BrokerCounters
    sessions: Sessions
    route_cache: RouteCache
    rights: ReadRights
    deliveries: Deliveries
    presence: Presence
    audience: AudienceResolver
    subscription_table: SubscriptionTable
    federation: FederationPort | None
    verifier: "Verifier | None"

    @property
    def changes(self) -> StateChanges:
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

    def start_timers(self, session: Session, now: Instant) -> None:
        """Start the timers of a session without a connection."""
        raise NotImplementedError

    # Sessions and their state

    def join_federation(self, port: FederationPort) -> None:
        """Report sessions, subscriptions and publications of this edge to *port* from now on."""
        self.federation = port

    def find_session(self, name: str) -> Session | None:
        """Return the session of an endpoint, if it has one."""
        return self.sessions.find(name)

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
        return self.presence.plausibility_rules.coverage

    def subscriptions_of(self, session: Session) -> tuple[HeldSubscription, ...]:
        """Return the subscriptions of a session as values."""
        return tuple(
            HeldSubscription(name, own.subscription, own.no_local, own.retain_as_published)
            for name, own in session.subscriptions.items()
        )

    def in_transit(self, session: Session) -> set[tuple[str, int]]:
        """Return the messages queued or in flight, by the edge that forwarded them and their numbers there."""
        waiting = session.queue.all() if session.queue is not None else []
        deliveries = (*session.in_flight.values(), *session.released.values(), *(delivery for _, delivery in waiting))
        return {(one.publication.forwarded_by, one.publication.forwarded_number) for one in deliveries}

    def last_position_of(self, session: Session) -> EndpointPosition | None:
        """Return the last report of an endpoint, if there is one."""
        last_reports, number = self.presence.last_reports, session.number
        place = last_reports.find_place(number)
        if place is None:
            return None
        seen_at = Instant(last_reports.seen_at(number))
        return EndpointPosition(session.name, place, last_reports.find_heading(number), last_reports.find_speed(number), seen_at)

    def observe_reports(self, observer: ReportObserver) -> None:
        """Call *observer* with every batch of reports and the verdict on each."""
        self.presence.observer = observer

    def observe_deliveries(self, observer: DeliveryObserver) -> None:
        """Call *observer* with the delivery state of every message to an area, by endpoint."""
        self.deliveries.observer = observer

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
        scheme = session.connection.scheme
        return bool(scheme) and address.startswith(f"{scheme}://")

    def redirect(self, session: Session, address: str) -> None:
        """Disconnect an endpoint and send it to the edge at *address*."""
        self.deliveries.actions.append(Redirect(session.connection, address))

    def _drop_connection(self, session: Session, refused: Refused = TAKEN_OVER_ELSEWHERE) -> None:
        """Disconnect an endpoint that is connected elsewhere, or has another owner now; its will is not published here."""
        session.will = None
        if session.connection is not NO_CONNECTION:
            self.deliveries.actions.append(CloseConnection(session.connection, refused))
            session.connection = NO_CONNECTION

    # Sessions that leave

    def export_session(self, session: Session) -> SessionSnapshot:
        """Disconnect and remove a session; return it as a value."""
        self._drop_connection(session)
        self.deliveries.disconnect(session)
        snapshot = SessionSnapshot(
            session.name,
            session.expiry_ns,
            self.place_of(session),
            self.subscriptions_of(session),
            tuple(_waiting_of(session)),
            tuple(sorted(session.received or ())),
            self.deliveries.active_alerts.notifications_of(session),
            session.identity,
        )
        self.deliveries.remove_all(session)
        self.remove(session)
        return snapshot

    def discard_session(self, session: Session, refused: Refused = TAKEN_OVER_ELSEWHERE) -> None:
        """Disconnect and remove a session that a new one has replaced, here or at another edge; its queue is dropped."""
        self._drop_connection(session, refused)
        self.deliveries.disconnect(session)
        self.deliveries.end(session, refused.reason)
        self.remove(session)

    # Sessions that arrive

    def adopt_session(self, snapshot: SessionSnapshot, now: Instant) -> Session | Refused:
        """Create the session of an endpoint that is not connected here, or not yet; its subscriptions are suspended.

        The rights of its client are checked when it connects.
        """
        try:
            session = self.sessions.add(snapshot.endpoint)
        except Malformed as fault:
            return fault.refused
        session.identity = snapshot.identity
        session.is_durable, session.expiry_ns, session.expires_at = snapshot.expiry_ns > 0, snapshot.expiry_ns, FOREVER
        if session.is_durable:
            self.start_timers(session, now)
            self.changes.sessions[session.number] = session_to_bytes(session, None)
        for one in snapshot.queued:
            self.deliveries.adopt(session, one.packet_id, _delivery(one), is_released=one.is_released)
        if snapshot.received:
            session.received = set(snapshot.received)
            if session.is_durable:
                self.changes.received |= {(session.number, packet_id): True for packet_id in snapshot.received}
        self._adopt_state(session, snapshot)
        return session

    def merge_session(self, session: Session, snapshot: SessionSnapshot) -> None:
        """Add a session of the same endpoint to the one that exists; subscriptions that are new here are suspended."""
        for one in snapshot.queued:
            delivery = _delivery(one)
            if one.is_released or self.rights.may_receive(session, delivery.publication):
                self.deliveries.add(session, one.packet_id, delivery, is_released=one.is_released)
            else:
                self.deliveries.count_denied(session, delivery.publication)
        self._adopt_state(session, snapshot)

    def _adopt_state(self, session: Session, snapshot: SessionSnapshot) -> None:
        self.deliveries.active_alerts.adopt(session, snapshot.notified, self.changes)
        if snapshot.place is not None and self.place_of(session) is None:
            self.presence.restore_position(session, snapshot.place)
        self.audience.recheck(session)
        for held in snapshot.subscriptions:
            if held.name not in session.subscriptions:
                own = SessionSubscription(
                    held.subscription, SUSPENDED, no_local=held.no_local, retain_as_published=held.retain_as_published
                )
                session.subscriptions[held.name] = own
                if session.is_durable:
                    self.changes.subscriptions[session.number, held.name] = subscription_to_bytes(own)

    def withdraw(self, session: Session, was_delivered: Callable[[Delivery], bool]) -> None:
        """Take queued messages back that the endpoint received at another edge."""
        self.deliveries.withdraw(session, was_delivered)

    # Subscriptions and deliveries during catch-up

    def suspend_subscription(self, session: Session, name: str) -> None:
        """Take a subscription out of matching."""
        self.subscription_table.suspend(session, name)

    def resume_subscription(self, session: Session, name: str) -> None:
        """Put a suspended subscription back into matching; if there is no room for it, that is counted."""
        own = session.subscriptions[name]
        if own.row == SUSPENDED:
            try:
                self.subscription_table.insert(session, name, own)
            except Malformed as fault:
                self.counts.refused[fault.reason] += 1

    def apply_record(self, publication: Publication, now: Instant, *, except_for: frozenset[str] = frozenset()) -> None:
        """Deliver a publication of another edge, read from the log, to its audience here without *except_for*."""
        if not self.is_authentic(publication, now):
            return
        if publication.is_retained:
            self.retain(publication)
        self.deliveries.deliver(publication, self.audience.receivers_for(publication, now).without(except_for))

    def is_authentic(self, publication: Publication, now: Instant) -> bool:
        """Return whether a message from the log is unsigned or validly signed; without a verifier, believe it.

        Set its signer. A refused message is counted once, unless it has merely expired.
        """
        if publication.signed is None or self.verifier is None:
            return True
        if publication.signer is None:
            verdict = self.verifier.check(publication.message, now)
            publication.signer = UNSIGNED if isinstance(verdict, Refused) else signer_in(publication.signed[1])
            if isinstance(verdict, Refused) and verdict.reason is not Reason.EXPIRED:
                self.counts.refused[verdict.reason] += 1
        return publication.signer != UNSIGNED

    def deliver(self, delivery: Delivery, session: Session) -> None:
        """Deliver a message to one session, past matching, if the session may receive it."""
        if self.rights.may_receive(session, delivery.publication):
            self.deliveries.deliver_to(delivery, session)

    def lacks_alert(self, session: Session, publication: Publication) -> bool:
        """Return whether a message read again is to be delivered to a session.

        One to an area that is still active is left to the next check of the endpoint's position; one to those notified is
        delivered if the session is one of them; one to any other address always is.
        """
        alerts = self.deliveries.active_alerts
        match publication.address:
            case ToArea():
                if alerts.is_active(publication):
                    self.audience.recheck(session)
                    return False
                return not alerts.was_delivered(session, publication)
            case ToNotified():
                return alerts.was_notified(session, publication)
            case _:
                return True

    def has_received_alert(self, session: Session, publication: Publication) -> bool:
        """Return whether a message to an area was delivered to a session."""
        return self.deliveries.active_alerts.was_delivered(session, publication)


def publication_of(waiting: QueuedMessage) -> Publication:
    """Return the publication of a row of a handover."""
    return publication_from_bytes(waiting.publication)


def _waiting_of(session: Session) -> Iterable[QueuedMessage]:
    for packet_id, delivery in session.released.items():
        yield _waiting(packet_id, delivery, is_sent=True, is_released=True)
    for packet_id, delivery in session.in_flight.items():
        yield _waiting(packet_id, delivery, is_sent=True)
    for packet_id, delivery in session.queue.all() if session.queue is not None else ():
        if packet_id:
            yield _waiting(packet_id, delivery, is_sent=delivery.is_duplicate)


def _waiting(packet_id: int, delivery: Delivery, *, is_sent: bool, is_released: bool = False) -> QueuedMessage:
    publication = delivery.publication
    return QueuedMessage(
        packet_id,
        delivery.qos,
        is_sent,
        is_released,
        delivery.subscription_ids,
        delivery.has_retain_flag,
        publication.forwarded_by,
        publication.forwarded_number,
        b"" if is_released else publication_to_bytes(publication),
    )


def _delivery(one: QueuedMessage) -> Delivery:
    publication = (
        publication_from_bytes(one.publication) if one.publication else Publication("released", b"", Instant(0), source=_UNKNOWN)
    )
    publication.forwarded_by, publication.forwarded_number = one.forwarded_by, one.forwarded_number
    return Delivery(publication, one.qos, one.subscription_ids, has_retain_flag=one.has_retain_flag, is_duplicate=one.is_sent)
