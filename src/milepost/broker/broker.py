"""The broker: the facade that listeners, federation and runtime call; they call nothing behind it.

    connect ─▶ session        publish ─▶ admission ─▶ match ─▶ forward ─▶ retained ─▶ queue       tick ─▶ wills, expiries
    subscribe ─▶ admission ─▶ matching ─▶ retained messages ─▶ queue                               report ─▶ vetting ─▶ presence
    apply_record (from the site's log) ─▶ match ─▶ queue                                           drain ─▶ queued messages

Every call adds actions (messages to send, connections to close: `take_actions`) and changes (state to store: `take_changes`).

Invariants:
- `now` is an argument; the same calls give the same actions and changes;
- a call either changes nothing and returns a refusal, or takes effect as a whole;
- actions may be carried out only after the changes of the same tick were stored: whatever is acknowledged is then durable;
- while storage fails (`storage_error`), calls that need storage are refused, and all others go on.
"""

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from copy import copy
from typing import TYPE_CHECKING, Final, NamedTuple

from milepost.broker.admission import AdmissionControl, AdmissionRules
from milepost.broker.alert_rules import AlertRule, EmergencyAlerts
from milepost.broker.broker_counters import BrokerCounters
from milepost.broker.delivery import Deliveries
from milepost.broker.effects import Action, CloseConnection, Revoke, StateChanges
from milepost.broker.federation_port import FederationPort
from milepost.broker.limits import BrokerLimits
from milepost.broker.presence import ArrivalEstimator, PlausibilityRules, Presence, Verdicts
from milepost.broker.publication import Delivery
from milepost.broker.publish_path import AudienceResolver, PublishPath
from milepost.broker.read_rights import ReadRights, RevokedRights
from milepost.broker.retained_store import RetainedStore, RetainHandling
from milepost.broker.routing import RouteCache, SubscriptionTable
from milepost.broker.session import (
    NO_CONNECTION,
    Connection,
    Session,
    Sessions,
    SessionSubscription,
    SessionTimers,
    SessionWill,
    begin_receiving,
    end_receiving,
)
from milepost.broker.session_transfer import SessionTransfer
from milepost.broker.state_codec import session_to_bytes, subscription_to_bytes
from milepost.matching.matcher import Matcher, MatcherLimits
from milepost.model.endpoints import EndpointId, edge_source
from milepost.model.instants import FOREVER, SECOND_NS, Instant
from milepost.model.reasons import Malformed, Reason, Refused
from milepost.model.reports import Report
from milepost.model.subscriptions import Subscription
from milepost.vetting import ReportColumns, Reputations
from milepost.vetting.access import ClientIdentity
from milepost.vetting.ownership import Takeover, not_owner, takeover
from milepost.vetting.rates import RateLimits
from milepost.vetting.send_limits import UNKNOWN_POSITION

if TYPE_CHECKING:
    from milepost.trust.signing import Signer, Verifier

EDGE_NAME: Final = EndpointId("edge")


class ConnectResult(NamedTuple):
    """The session of a client that has connected."""

    session: Session
    is_resumed: bool


class Statistics(NamedTuple):
    """Gauges of a broker; its counters are in `Broker.counts`."""

    sessions: int
    connected: int
    subscriptions: int
    retained_messages: int
    retained_bytes: int
    queued_bytes: int
    alerts_raised: int


class Broker(PublishPath, SessionTransfer):
    """The broker of one edge."""

    def __init__(self, limits: BrokerLimits, name: EndpointId = EDGE_NAME) -> None:
        self.limits = limits
        self.counts = BrokerCounters()
        self.sessions = Sessions(limits.sessions_max)
        self.retained = RetainedStore(limits.retained_max, limits.retained_bytes_max)
        self.storage_error: str | None = None
        """Why storage is unavailable; None while it works."""
        self.matcher = Matcher(MatcherLimits(limits.subscriptions_max, limits.sessions_max, limits.subscriptions_max))
        self.rights = ReadRights()
        self.route_cache = RouteCache(self.matcher, self.sessions, self.rights)
        self.deliveries = Deliveries(limits, self.counts, StateChanges())
        self.presence = Presence(limits, self.matcher, self.counts)
        self.deliveries.arrivals = ArrivalEstimator(self.presence)
        self.alerts = EmergencyAlerts()
        self.federation: FederationPort | None = None
        """None: this edge is not federated."""
        self.audience = AudienceResolver(
            self.route_cache, self.sessions, self.rights, self.presence, self.deliveries, self._is_settled
        )
        self.name = name
        self.source = edge_source(name)
        """The source of messages of the edge itself."""
        self.verifier: Verifier | None = None
        """None: this edge has no certificate authority."""
        self._last_id = 0
        self._reputations = Reputations()
        self._session_timers = SessionTimers(self.sessions)
        self.subscription_table = SubscriptionTable(self.matcher, self.route_cache)
        self._admission = AdmissionControl(limits.topic_levels_max, self.presence.share_of)

    def take_changes(self) -> StateChanges:
        """Return the changes of this tick, to be stored, and start an empty set."""
        changes, self.deliveries.changes = self.deliveries.changes, StateChanges()
        return changes

    def take_actions(self) -> list[Action]:
        """Return the actions of this tick, to be carried out, and start an empty list."""
        actions, self.deliveries.actions = self.deliveries.actions, []
        return actions

    @property
    def has_actions(self) -> bool:
        """Whether anything is to be sent or closed in this tick."""
        return bool(self.deliveries.actions)

    @property
    def rules(self) -> AdmissionRules:
        """The rules in force."""
        return self._admission.rules

    def use_rules(self, rules: AdmissionRules) -> RevokedRights:
        """Replace the rules, with effect on all sessions; return what they ended. Messages of this tick must be sent already."""
        self._admission.use_rules(rules)
        self.rights.use(rules.access)
        self.route_cache.change()
        return self.enforce_rights()

    def enforce_rights(self) -> RevokedRights:
        """Apply the rules to all sessions, connected or not; return what they ended."""
        revoked = RevokedRights()
        for session in self.sessions:
            session.routes = self._admission.new_routes() if session.connection is not NO_CONNECTION else None
            revoked = revoked.plus(*self._enforce_rights(session))
        return revoked

    def _enforce_rights(self, session: Session) -> tuple[int, int]:
        """End the subscriptions and queued messages that a session may no longer receive; return the number of each."""
        ended = 0
        for name, held in list(session.subscriptions.items()):
            refused = self._admission.refuse_query(session, held.subscription.query)
            if refused is not None:
                self.unsubscribe(session, name)
                self.deliveries.actions.append(Revoke(session, name, held.subscription.id, refused))
                ended += 1
        if not self.rights.are_restricted or (session.queue is None and not session.in_flight):
            return ended, 0
        return ended, self.deliveries.drop_denied(session, lambda publication: self.rights.may_receive(session, publication))

    def expel_users(self, users: AbstractSet[str]) -> int:
        """Disconnect the clients of users that can no longer log in, without their wills; return how many sessions there are.

        Durable sessions live on until they expire, should a user come back.
        """
        found = [session for session in self.sessions if session.identity.user in users]
        for session in found:
            session.will, session.will_at = None, FOREVER
            if session.is_durable:
                self.changes.sessions[session.number] = session_to_bytes(session, self.place_of(session))
            if session.connection is not NO_CONNECTION:
                refused = Refused(Reason.BAD_CREDENTIALS, f"the user {session.identity.user} was removed or has a new password")
                self.deliveries.actions.append(CloseConnection(session.connection, refused))
        return len(found)

    def arrive(
        self, name: EndpointId, identity: ClientIdentity, will: SessionWill | None, now: Instant, *, clean_start: bool
    ) -> bool | Refused:
        """Return whether a client may `connect` now; False: its session is on its way from another edge (see `Welcome`)."""
        refused = self.refuse_takeover(name, identity, now) or self._refuse_will(name, identity, will, now)
        if refused is not None:
            return refused
        return self.federation is None or self.federation.arrive(name, identity, now, clean_start=clean_start)

    def refuse_takeover(self, name: EndpointId, identity: ClientIdentity, now: Instant) -> Refused | None:
        """Check that a client may have the session of its endpoint: here and, as far as this edge knows, at other edges."""
        existing = self.sessions.find(name)
        is_kept = existing is not None and not _is_over(existing, now)
        if existing is not None and is_kept and takeover(existing.identity, identity, self.rules.other_user) is Takeover.REFUSE:
            return not_owner(identity)
        return None if self.federation is None else self.federation.refuse_claim(name, identity, now)

    def _refuse_will(self, name: EndpointId, identity: ClientIdentity, will: SessionWill | None, now: Instant) -> Refused | None:
        """Check a will while its client can still be refused; it is checked again when it is published."""
        if will is None:
            return None
        publication = will.publication
        try:
            route = self._admission.route(identity, self._admission.new_routes(), publication.topic)
        except Malformed as fault:
            return fault.refused
        if route.is_request and route.refused is None:
            return Refused(Reason.TOPIC_RESERVED, f"a will on {publication.topic}")
        if publication.response_topic:
            refused = self._admission.refuse_response_topic(identity, publication.response_topic)
            if refused is not None:
                return refused
        no_session = Session(name, -1)
        no_session.identity = identity
        publication = copy(publication)  # its defaults are those of the time when it is published
        if will.valid_ns is not None:
            publication.valid_until = Instant(now + will.valid_ns)
        self._admission.apply_defaults(publication, route)
        nowhere = self._plausibility()._replace(position_of=lambda _: UNKNOWN_POSITION)  # where it will be then is not known
        return self._admission.refuse(no_session, publication, route, nowhere, now)

    def connect(
        self,
        name: EndpointId,
        *,
        connection: Connection,
        identity: ClientIdentity,
        rates: RateLimits,
        clean_start: bool,
        expiry_ns: int,
        window: int,
        encoding: int,
        will: SessionWill | None,
        now: Instant,
    ) -> ConnectResult | Refused:
        """Open a session for an endpoint, or resume the one it has; an older connection of the same name is closed.

        The session of another owner is never resumed: it is replaced, or the client is refused (`vetting.ownership`).
        """
        expiry_ns = min(expiry_ns, self.limits.session_expiry_s_max * SECOND_NS)
        if expiry_ns and self.storage_error is not None:
            return Refused(Reason.STORAGE_UNAVAILABLE, self.storage_error)
        refused = self.refuse_takeover(name, identity, now)
        if refused is not None:
            return refused
        existing = self._maybe_own(name, identity, now)
        if existing is not None and existing.connection is not NO_CONNECTION:
            self._take_over(existing, clean_start=clean_start, now=now)
        if existing is not None and (clean_start or not existing.is_durable):
            self._end(existing, now, is_replaced=True)
            existing = None
        if existing is None:
            try:
                session = self.sessions.add(name)
            except Malformed as fault:
                return fault.refused
            self.counts.sessions_opened += 1
        else:
            session = existing
            self.counts.sessions_resumed += 1
        if session.subscriptions and session.identity != identity:  # cached routes include only sessions that may read the topic
            self.route_cache.change()
        session.identity, session.rates, session.routes = identity, rates, self._admission.new_routes()
        self._enforce_rights(session)
        if len(self._reputations):
            self.presence.limit_rates({session.number: self._reputations.share_of(name)})
        self._attach(session, connection, expiry_ns=expiry_ns, window=window, encoding=encoding, will=will, now=now)
        if self.federation is not None:
            self.federation.opened(session, now, clean_start=clean_start)
        return ConnectResult(session, existing is not None)

    def _maybe_own(self, name: EndpointId, identity: ClientIdentity, now: Instant) -> Session | None:
        """Return the session of an endpoint if it belongs to *identity*; end one that is over or belongs to another owner."""
        existing = self.sessions.find(name)
        if existing is None or (existing.identity.owner == identity.owner and not _is_over(existing, now)):
            return existing
        if _is_over(existing, now):
            self._end(existing, now)
        else:
            self.counts.sessions_replaced += 1
            self.discard_session(existing, Refused(Reason.SESSION_TAKEN_OVER, f"{name} has connected with another identity"))
        return None

    def _take_over(self, session: Session, *, clean_start: bool, now: Instant) -> None:
        self.deliveries.actions.append(CloseConnection(session.connection, Refused(Reason.SESSION_TAKEN_OVER)))
        session.connection = NO_CONNECTION
        self.deliveries.disconnect(session)
        will, session.will = session.will, None
        # A will with a delay is not sent if the session goes on. [MQTT-3.1.3-9]
        if will is not None and (clean_start or not session.is_durable or not will.delay_ns):
            self._publish_will(session, will, now)

    def _attach(
        self,
        session: Session,
        connection: Connection,
        *,
        expiry_ns: int,
        window: int,
        encoding: int,
        will: SessionWill | None,
        now: Instant,
    ) -> None:
        if session.is_durable and not expiry_ns:
            self.deliveries.delete_stored(session)
            self._delete_stored(session)
        is_as_before = session.encoding in (0, encoding)
        if session.subscriptions and session.encoding != encoding:  # cached routes include disconnected sessions
            self.route_cache.change()
        session.connection, session.encoding = connection, encoding
        session.window = min(window, self.limits.in_flight_max)
        session.expiry_ns, session.expires_at, session.is_durable = expiry_ns, FOREVER, expiry_ns > 0
        session.will, session.will_at = will, FOREVER
        # Messages of this tick may be queued in the former encoding: let them wait, to be encoded again.
        session.is_ready = is_as_before and (session.queue is None or not session.queue.has_plain)
        if session.is_durable:
            self.changes.sessions[session.number] = session_to_bytes(session, self.place_of(session))
        self.deliveries.resend(session, now)

    def disconnect(self, session: Session, now: Instant, *, publishes_will: bool, expiry_ns: int | None = None) -> None:
        """Detach a session from its connection; it lives on until it expires. `publishes_will`: its will is published."""
        session.connection = NO_CONNECTION
        self.deliveries.disconnect(session)
        if expiry_ns is not None:
            session.expiry_ns = min(expiry_ns, self.limits.session_expiry_s_max * SECOND_NS)
        if not publishes_will:
            session.will = None
        if not session.is_durable or not session.expiry_ns:
            self._end(session, now)
            return
        session.expires_at = Instant(now + session.expiry_ns)
        self.start_timers(session, now)
        self.changes.sessions[session.number] = session_to_bytes(session, self.place_of(session))

    def start_timers(self, session: Session, now: Instant) -> None:
        """Start the timers of a durable session without a connection: expiry, and the delay of its will."""
        if session.expires_at == FOREVER:
            session.expires_at = Instant(now + session.expiry_ns)
        if session.will is not None:
            if session.will_at == FOREVER:
                session.will_at = Instant(now + session.will.delay_ns)
            self._publish_will_if_due(session, now)
        self._session_timers.schedule(session)

    def _end(self, session: Session, now: Instant, *, is_replaced: bool = False) -> None:
        will, session.will = session.will, None
        self.deliveries.end(session)
        self.remove(session, is_replaced=is_replaced)
        if will is not None:  # the session's end comes before the delay's. [MQTT-3.1.2-8]
            self._publish_will(session, will, now)

    def remove(self, session: Session, *, is_replaced: bool = False) -> None:
        """Remove a session whose deliveries are dealt with; `is_replaced`: its owner opens a new one now."""
        if session.is_durable:
            self._delete_stored(session)
        for name in list(session.subscriptions):
            self._drop_subscription(session, name)
        self.presence.forget(session)
        self.deliveries.active_alerts.forget_session(session, self.changes)
        self.sessions.remove(session)
        if self.federation is not None:
            self.federation.ended(session, is_replaced=is_replaced)

    def _delete_stored(self, session: Session) -> None:
        """Delete a session's stored state, subscriptions and open QoS 2 receipts."""
        self.changes.sessions[session.number] = None
        self.changes.subscriptions |= {(session.number, name): None for name in session.subscriptions}
        self.changes.received |= {(session.number, packet_id): None for packet_id in session.received or ()}
        self.deliveries.active_alerts.delete_stored(session, self.changes)

    def subscribe(
        self,
        session: Session,
        name: str,
        subscription: Subscription,
        now: Instant,
        *,
        no_local: bool = False,
        retain_as_published: bool = False,
        retain_handling: RetainHandling = RetainHandling.ALWAYS,
    ) -> Refused | None:
        """Add a subscription under *name*, in place of the one there; refuse it over rate or without access."""
        refused = self._refuse_subscription(session, subscription, now)
        if refused is not None:
            return refused
        if session.is_durable and self.storage_error is not None:
            return Refused(Reason.STORAGE_UNAVAILABLE, self.storage_error)
        is_new = name not in session.subscriptions
        if is_new and len(session.subscriptions) >= self.limits.subscriptions_per_session_max:
            return Refused(Reason.SUBSCRIPTIONS_FULL, f"the limit per session is {self.limits.subscriptions_per_session_max}")
        if subscription.time_window.is_over(now):
            return Refused(Reason.TIME_WINDOW_OVER, f"it ended {(now - subscription.time_window.end) // SECOND_NS} s ago")
        try:
            row = self.matcher.add(session.number, subscription)
        except Malformed as fault:
            return fault.refused
        if not is_new:
            self._drop_subscription(session, name)
        held = SessionSubscription(subscription, row, no_local=no_local, retain_as_published=retain_as_published)
        self.subscription_table.enter(session, name, held)
        if session.is_durable:
            self.changes.subscriptions[session.number, name] = subscription_to_bytes(held)
        if self.federation is not None:
            self.federation.subscribed(session, name)
        if retain_handling is RetainHandling.ALWAYS or (retain_handling is RetainHandling.IF_NEW and is_new):
            self._deliver_retained(session, subscription, now)
        return None

    def _refuse_subscription(self, session: Session, subscription: Subscription, now: Instant) -> Refused | None:
        if subscription.owner != session.name:
            return Refused(Reason.SOURCE_FORGED, f"a subscription of {subscription.owner}")
        return self._admission.refuse_subscription(session, subscription.query, now)

    def _deliver_retained(self, session: Session, subscription: Subscription, now: Instant) -> None:
        if subscription.share is not None or not len(self.retained):  # [MQTT-3.8.4-4] and its note on shared ones
            return
        subscription_ids = (subscription.id,) if subscription.id else ()
        for publication in self.retained.matching(subscription, self.place_of(session), now):
            if not self.rights.may_receive(session, publication):
                continue
            delivery = Delivery(publication, min(publication.qos, subscription.qos), subscription_ids, has_retain_flag=True)
            self.deliveries.deliver_to(delivery, session)

    def unsubscribe(self, session: Session, name: str) -> bool:
        """End a subscription; return whether there was one."""
        if name not in session.subscriptions:
            return False
        self._drop_subscription(session, name)
        if session.is_durable:
            self.changes.subscriptions[session.number, name] = None
        return True

    def _drop_subscription(self, session: Session, name: str) -> None:
        self.subscription_table.drop(session, name)
        if self.federation is not None:
            self.federation.unsubscribed(session, name)

    def _is_settled(self, session: Session, now: Instant) -> bool:
        return self.federation is None or self.federation.is_settled(session, now)

    def acknowledge(self, session: Session, packet_id: int) -> None:
        """Settle a QoS 1 delivery (PUBACK), or a QoS 2 delivery that the receiver refused."""
        self.deliveries.acknowledge(session, packet_id)

    def release(self, session: Session, packet_id: int) -> bool:
        """Note that a receiver has a QoS 2 message (PUBREC); return whether the packet identifier is in use."""
        return self.deliveries.release(session, packet_id)

    def complete(self, session: Session, packet_id: int) -> None:
        """End a QoS 2 delivery (PUBCOMP)."""
        self.deliveries.complete(session, packet_id)

    def begin_receipt(self, session: Session, packet_id: int) -> None:
        """Note the packet identifier of an accepted QoS 2 message, so that the message is not accepted again."""
        begin_receiving(session, packet_id, self.changes)

    def end_receipt(self, session: Session, packet_id: int) -> bool:
        """End a QoS 2 exchange of a publisher (PUBREL); return whether the packet identifier was in use."""
        return end_receiving(session, packet_id, self.changes)

    def drain(self, session: Session, now: Instant, size_max: int) -> int:
        """Send queued messages to a session that can take more, up to *size_max* bytes; return the bytes, 0 if none went."""
        return self.deliveries.drain(session, now, size_max)

    def fail(self, session: Session, packet_id: int, delivery: Delivery, reason: Reason) -> None:
        """Count a message that cannot be delivered as dropped, and free its packet identifier."""
        self.deliveries.fail(session, packet_id, delivery, reason)

    def subscriptions(self) -> Iterator[Subscription]:
        """Iterate over the subscriptions of all sessions."""
        return (held.subscription for session in self.sessions for held in session.subscriptions.values())

    def session_of(self, number: int) -> Session:
        """Return the session that has *number*."""
        return self.sessions[number]

    def configure(self, plausibility_rules: PlausibilityRules, alert_rules: tuple[AlertRule, ...]) -> None:
        """Replace coverage, plausibility limits and the rules by which emergencies raise alerts."""
        self.presence.plausibility_rules = plausibility_rules
        self.alerts.rules = alert_rules

    def sign_with(self, signer: "Signer | None") -> None:
        """Sign the alerts that this edge raises; None: sign them no more."""
        self.alerts.signer = signer

    def verify_with(self, verifier: "Verifier") -> None:
        """Verify the signatures of messages: without a verifier those of clients are refused, those in the log believed."""
        self._admission.verifier = self.verifier = verifier

    def statistics(self) -> Statistics:
        """Return the gauges of this broker."""
        return Statistics(
            len(self.sessions),
            sum(session.connection is not NO_CONNECTION for session in self.sessions),
            len(self.matcher),
            len(self.retained),
            self.retained.size,
            self.deliveries.queued_bytes,
            self.alerts.raised,
        )

    def report_batch(self, batch: ReportColumns, now: Instant) -> Verdicts:
        """Process reports of many endpoints; return, for each, 0 or the reason code of its refusal."""
        return self.presence.process(batch, now)

    def report(self, session: Session, report: Report, now: Instant) -> Refused | None:
        """Process one report; refuse it if it is not plausible."""
        refused = self.presence.process_report(session, report, now)
        if refused is None and self.federation is not None:
            self.federation.forward_report(report)
        return refused

    def use_reputations(self, reputations: Reputations, names: Iterable[EndpointId] | None = None) -> None:
        """Use other reputations from now on, for present and future sessions; `names`: only those of these endpoints changed."""
        self._reputations = reputations
        some = self.sessions if names is None else filter(None, map(self.sessions.find, names))
        self.presence.limit_rates({session.number: reputations.share_of(session.name) for session in some})

    def tick(self, now: Instant) -> None:
        """Publish due wills, end expired sessions and subscriptions, and drop expired messages."""
        for session in self._session_timers.due(now):
            self._publish_will_if_due(session, now)
            if session.expires_at <= now:
                self._end(session, now)
            elif session.expires_at != FOREVER:
                self._session_timers.schedule(session)
        self.audience.tick(now)
        for topic in self.retained.expire(now):
            self.changes.retained[topic] = None
        for session, name in self.subscription_table.expire(now):
            if session.is_durable:
                self.changes.subscriptions[session.number, name] = None
            if self.federation is not None:
                self.federation.unsubscribed(session, name)

    def _publish_will_if_due(self, session: Session, now: Instant) -> None:
        if session.will is not None and session.will_at <= now:
            will, session.will, session.will_at = session.will, None, FOREVER
            self._publish_will(session, will, now)
            self.changes.sessions[session.number] = session_to_bytes(session, self.place_of(session))

    def _publish_will(self, session: Session, will: SessionWill, now: Instant) -> None:
        """Publish a will: user, plausibility, access and payload are checked as of now; its rate was spent at CONNECT."""
        publication = will.publication
        publication.origin, publication.seen_at = session.number, now
        if will.valid_ns is not None:
            publication.valid_until = Instant(now + will.valid_ns)
        try:
            route = self._admission.route(session.identity, session.routes or self._admission.new_routes(), publication.topic)
            self._fill_in(publication, route, session, now)
            refused = self._admission.refuse_user(session.identity) or self._refuse(
                session, publication, route, now, is_plain=publication.is_plain, packet_id=0
            )
        except Malformed as fault:
            refused = fault.refused
        if refused is None:
            self.accept(publication, None, now)
        else:
            self.refuse(refused)


def _is_over(session: Session, now: Instant) -> bool:
    """Return whether a session has expired and is not removed yet."""
    return session.connection is NO_CONNECTION and session.expires_at <= now
