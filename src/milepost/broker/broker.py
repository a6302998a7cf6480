"""The broker: the facade that listeners, federation and runtime call; they call nothing behind it.

    connect ─▶ session        publish ─▶ admission ─▶ match ─▶ forward ─▶ retained ─▶ queue       tick ─▶ wills, expiries
    subscribe ─▶ admission ─▶ matching ─▶ retained messages ─▶ queue                               report ─▶ vetting ─▶ presence
    apply_record (from the site's log) ─▶ match ─▶ queue                                           drain ─▶ queued messages

Every call adds actions (messages to send, connections to close: `take_actions`) and changes (state to store: `take_changes`).

Invariants:
- `now` is an argument; the same calls give the same actions and changes;
- a call either changes nothing and returns a refusal, or takes effect as a whole;
- actions may be carried out only after the changes of the same tick were stored: whatever is acknowledged is then durable;
- while storage fails (`trouble`), calls that need storage are refused, and all others go on.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from milepost.broker.admission import Admission, Rules
from milepost.broker.counts import Counts
from milepost.broker.delivery import Deliveries
from milepost.broker.effects import Action, Changes, Expel, Revoke
from milepost.broker.emergency import AlertRule, Alerts
from milepost.broker.federation_port import FederationPort
from milepost.broker.limits import Limits
from milepost.broker.persistence import asked_to_bytes, session_to_bytes
from milepost.broker.presence import Ground, Presence, Reaching, Verdicts
from milepost.broker.publication import Delivery
from milepost.broker.publish_path import Audience, PublishPath
from milepost.broker.retained_store import RetainedStore, WantsRetained
from milepost.broker.roaming_support import RoamingSupport
from milepost.broker.routing import Asking, RouteCache
from milepost.broker.session import NOWHERE, Asked, Link, Session, Sessions, SessionTimers, Will, end_receiving, receive
from milepost.matching.matcher import Limits as MatchingLimits
from milepost.matching.matcher import Matcher
from milepost.model.endpoints import EndpointId
from milepost.model.instants import FOREVER, SECOND_NS, Instant
from milepost.model.reasons import Malformed, Reason, Refused
from milepost.model.reports import Report
from milepost.model.subscriptions import Subscription
from milepost.vetting import Batch, Reputations
from milepost.vetting.access import ClientIdentity
from milepost.vetting.rates import RateLimits

if TYPE_CHECKING:
    from milepost.trust.signing import Signer

EDGE_NAME: Final = EndpointId("edge")


class Opened(NamedTuple):
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
    waiting_bytes: int
    alerts_raised: int


class Broker(PublishPath, RoamingSupport):
    """The broker of one edge."""

    def __init__(self, limits: Limits, name: EndpointId = EDGE_NAME) -> None:
        self.limits = limits
        self.counts = Counts()
        self.sessions = Sessions(limits.sessions_max)
        self.retained = RetainedStore(limits.retained_max, limits.retained_bytes_max)
        self.trouble: str | None = None
        """Why storage is unavailable; None while it works."""
        self.matcher = Matcher(MatchingLimits(limits.subscriptions_max, limits.sessions_max, limits.subscriptions_max))
        self.route_cache = RouteCache(self.matcher, self.sessions)
        self.deliveries = Deliveries(limits, self.counts, Changes())
        self.watch = Presence(limits, self.matcher, self.counts)
        self.deliveries.reaching = Reaching(self.watch)
        self.alerts = Alerts()
        self.federation: FederationPort | None = None
        """None: this edge is not federated."""
        self.audience = Audience(self.route_cache, self.sessions, self.watch, self.deliveries, self._is_settled)
        self.name = name
        self._last_id = 0
        self._reputations = Reputations()
        self._session_timers = SessionTimers(self.sessions)
        self.asking = Asking(self.matcher, self.route_cache)
        self._admission = Admission(limits.topic_levels_max, self.watch.share_of)

    def take_changes(self) -> Changes:
        """Return the changes of this tick, to be stored, and start an empty set."""
        changes, self.deliveries.changes = self.deliveries.changes, Changes()
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
    def rules(self) -> Rules:
        """The rules in force."""
        return self._admission.rules

    def use(self, rules: Rules) -> None:
        """Replace the rules; clients stay connected, and subscriptions that are no longer allowed end."""
        self._admission.use(rules)
        for session in self.sessions:
            if session.link is not NOWHERE:
                session.routes = self._admission.new_routes()
                self._revoke_denied(session)

    def _revoke_denied(self, session: Session) -> None:
        for name, asked in list(session.subscriptions.items()):
            refused = self._admission.refuse_query(session, asked.subscription.query)
            if refused is not None:
                self.unsubscribe(session, name)
                self.deliveries.actions.append(Revoke(session, name, asked.subscription.id, refused))

    def arrive(self, name: EndpointId, who: ClientIdentity, will: Will | None, now: Instant, *, is_fresh: bool) -> bool | Refused:
        """Return whether a client may `connect` now; False: its session is on its way from another edge (see `Welcome`)."""
        refused = self._refuse_will(who, will, now)
        if refused is not None:
            return refused
        return self.federation is None or self.federation.arrive(name, now, is_fresh=is_fresh)

    def _refuse_will(self, who: ClientIdentity, will: Will | None, now: Instant) -> Refused | None:
        """Check a will while its client can still be refused; it is checked again when it is published."""
        if will is None:
            return None
        publication = will.publication
        try:
            route = self._admission.route(who, self._admission.new_routes(), publication.topic)
        except Malformed as fault:
            return fault.refused
        if route.is_request and route.refused is None:
            return Refused(Reason.TOPIC_RESERVED, f"a will on {publication.topic}")
        if route.within_m and publication.place is not None:  # the publisher's position at that time is not known
            return Refused(Reason.PLACE_NOT_SEEN, f"a will on {publication.topic} that names a place")
        nobody = Session(publication.source, -1)
        return self._admission.refuse(nobody, publication, route, self._plausibility(), now)

    def connect(
        self,
        name: EndpointId,
        *,
        link: Link,
        who: ClientIdentity,
        rates: RateLimits,
        is_fresh: bool,
        expiry_ns: int,
        window: int,
        encoding: int,
        will: Will | None,
        now: Instant,
    ) -> Opened | Refused:
        """Open a session for an endpoint, or resume the one it has; an older connection of the same name is closed."""
        expiry_ns = min(expiry_ns, self.limits.session_expiry_s_max * SECOND_NS)
        if expiry_ns and self.trouble is not None:
            return Refused(Reason.STORAGE_UNAVAILABLE, self.trouble)
        former = self.sessions.maybe(name)
        if former is not None and former.who.role is not None and former.link is not NOWHERE and who.role is None:
            return Refused(Reason.NOT_ALLOWED, f"{name} is connected with a certificate")
        if former is not None and former.link is not NOWHERE:
            self._take_over(former, is_fresh=is_fresh, now=now)
        if former is not None and (is_fresh or not former.is_kept or former.expires_at <= now):
            self._end(former, now)
            former = None
        if former is None:
            try:
                session = self.sessions.add(name)
            except Malformed as fault:
                return fault.refused
            self.counts.sessions_opened += 1
        else:
            session = former
            self.counts.sessions_resumed += 1
        session.who, session.rates, session.routes = who, rates, self._admission.new_routes()
        if len(self._reputations):
            self.watch.trust_less({session.number: self._reputations.share_of(name)})
        self._attach(session, link, expiry_ns=expiry_ns, window=window, encoding=encoding, will=will, now=now)
        self._revoke_denied(session)
        if self.federation is not None:
            self.federation.opened(session, now, is_fresh=is_fresh)
        return Opened(session, former is not None)

    def _take_over(self, session: Session, *, is_fresh: bool, now: Instant) -> None:
        self.deliveries.actions.append(Expel(session.link, Refused(Reason.SESSION_TAKEN_OVER)))
        session.link = NOWHERE
        self.deliveries.leave(session)
        will, session.will = session.will, None
        # A will with a delay is not sent if the session goes on. [MQTT-3.1.3-9]
        if will is not None and (is_fresh or not session.is_kept or not will.delay_ns):
            self._publish_will(session, will, now)

    def _attach(
        self, session: Session, link: Link, *, expiry_ns: int, window: int, encoding: int, will: Will | None, now: Instant
    ) -> None:
        if session.is_kept and not expiry_ns:
            self.deliveries.unkeep(session)
            self._unkeep(session)
        is_as_before = session.encoding in (0, encoding)
        if session.subscriptions and session.encoding != encoding:  # cached routes include disconnected sessions
            self.route_cache.change()
        session.link, session.encoding = link, encoding
        session.window = min(window, self.limits.in_flight_max)
        session.expiry_ns, session.expires_at, session.is_kept = expiry_ns, FOREVER, expiry_ns > 0
        session.will, session.will_at = will, FOREVER
        # Messages of this tick may be queued in the former encoding: let them wait, to be encoded again.
        session.is_clear = is_as_before and (session.waiting is None or not session.waiting.has_plain)
        if session.is_kept:
            self.changes.sessions[session.number] = session_to_bytes(session, self.place_of(session))
        self.deliveries.resend(session, now)

    def disconnect(self, session: Session, now: Instant, *, is_willed: bool, expiry_ns: int | None = None) -> None:
        """Detach a session from its connection; it lives on until it expires. `is_willed`: its will is published."""
        session.link = NOWHERE
        self.deliveries.leave(session)
        if expiry_ns is not None:
            session.expiry_ns = min(expiry_ns, self.limits.session_expiry_s_max * SECOND_NS)
        if not is_willed:
            session.will = None
        if not session.is_kept or not session.expiry_ns:
            self._end(session, now)
            return
        session.expires_at = Instant(now + session.expiry_ns)
        self.take_leave(session, now)
        self.changes.sessions[session.number] = session_to_bytes(session, self.place_of(session))

    def take_leave(self, session: Session, now: Instant) -> None:
        """Start the timers of a durable session without a connection: expiry, and the delay of its will."""
        if session.expires_at == FOREVER:
            session.expires_at = Instant(now + session.expiry_ns)
        if session.will is not None:
            if session.will_at == FOREVER:
                session.will_at = Instant(now + session.will.delay_ns)
            self._publish_will_if_due(session, now)
        self._session_timers.remind(session)

    def _end(self, session: Session, now: Instant) -> None:
        will, session.will = session.will, None
        self.deliveries.end(session)
        self.remove(session)
        if will is not None:  # the session's end comes before the delay's. [MQTT-3.1.2-8]
            self._publish_will(session, will, now)

    def remove(self, session: Session) -> None:
        """Remove a session whose deliveries are dealt with."""
        if session.is_kept:
            self._unkeep(session)
        for name in list(session.subscriptions):
            self._drop_subscription(session, name)
        self.watch.forget(session)
        self.deliveries.standing.leave(session, self.changes)
        self.sessions.remove(session)
        if self.federation is not None:
            self.federation.ended(session)

    def _unkeep(self, session: Session) -> None:
        """Delete a session's stored state, subscriptions and open QoS 2 receipts."""
        self.changes.sessions[session.number] = None
        self.changes.subscriptions |= {(session.number, name): None for name in session.subscriptions}
        self.changes.received |= {(session.number, number): None for number in session.received or ()}
        self.deliveries.standing.unkeep(session, self.changes)

    def subscribe(
        self,
        session: Session,
        name: str,
        subscription: Subscription,
        now: Instant,
        *,
        is_not_own: bool = False,
        is_retain_shown: bool = False,
        wants_retained: WantsRetained = WantsRetained.ALWAYS,
    ) -> Refused | None:
        """Add a subscription under *name*, in place of the one there; refuse it over rate or without access."""
        refused = self._refuse_subscription(session, subscription, now)
        if refused is not None:
            return refused
        if session.is_kept and self.trouble is not None:
            return Refused(Reason.STORAGE_UNAVAILABLE, self.trouble)
        is_new = name not in session.subscriptions
        if is_new and len(session.subscriptions) >= self.limits.subscriptions_each_max:
            return Refused(Reason.SUBSCRIPTIONS_FULL, f"one endpoint may have {self.limits.subscriptions_each_max}")
        if subscription.time_window.is_over(now):
            return Refused(Reason.TIME_WINDOW_OVER, f"it ended {(now - subscription.time_window.end) // SECOND_NS} s ago")
        try:
            row = self.matcher.add(session.number, subscription)
        except Malformed as fault:
            return fault.refused
        if not is_new:
            self._drop_subscription(session, name)
        asked = Asked(subscription, row, is_not_own=is_not_own, is_retain_shown=is_retain_shown)
        self.asking.enter(session, name, asked)
        if session.is_kept:
            self.changes.subscriptions[session.number, name] = asked_to_bytes(asked)
        if self.federation is not None:
            self.federation.subscribed(session, name)
        if wants_retained is WantsRetained.ALWAYS or (wants_retained is WantsRetained.IF_NEW and is_new):
            self._hand_out_retained(session, subscription, now)
        return None

    def _refuse_subscription(self, session: Session, subscription: Subscription, now: Instant) -> Refused | None:
        if subscription.owner != session.name:
            return Refused(Reason.SOURCE_FORGED, f"a subscription of {subscription.owner}")
        return self._admission.refuse_subscription(session, subscription.query, now)

    def _hand_out_retained(self, session: Session, subscription: Subscription, now: Instant) -> None:
        if subscription.share is not None or not len(self.retained):  # [MQTT-3.8.4-4] and its note on shared ones
            return
        labels = (subscription.id,) if subscription.id else ()
        for publication in self.retained.wanted_by(subscription, self.place_of(session), now):
            delivery = Delivery(publication, min(publication.qos, subscription.qos), labels, is_from_store=True)
            self.deliveries.hand_one(delivery, session)

    def unsubscribe(self, session: Session, name: str) -> bool:
        """End a subscription; return whether there was one."""
        if name not in session.subscriptions:
            return False
        self._drop_subscription(session, name)
        if session.is_kept:
            self.changes.subscriptions[session.number, name] = None
        return True

    def _drop_subscription(self, session: Session, name: str) -> None:
        self.asking.drop(session, name)
        if self.federation is not None:
            self.federation.unsubscribed(session, name)

    def _is_settled(self, session: Session, now: Instant) -> bool:
        return self.federation is None or self.federation.is_settled(session, now)

    def acknowledge(self, session: Session, number: int) -> None:
        """Settle a QoS 1 delivery (PUBACK), or a QoS 2 delivery that the receiver refused."""
        self.deliveries.acknowledge(session, number)

    def release(self, session: Session, number: int) -> bool:
        """Note that a receiver has a QoS 2 message (PUBREC); return whether the packet identifier is in use."""
        return self.deliveries.release(session, number)

    def complete(self, session: Session, number: int) -> None:
        """End a QoS 2 delivery (PUBCOMP)."""
        self.deliveries.complete(session, number)

    def begin_receipt(self, session: Session, packet_id: int) -> None:
        """Note the packet identifier of an accepted QoS 2 message, so that the message is not accepted again."""
        receive(session, packet_id, self.changes)

    def end_receipt(self, session: Session, packet_id: int) -> bool:
        """End a QoS 2 exchange of a publisher (PUBREL); return whether the packet identifier was in use."""
        return end_receiving(session, packet_id, self.changes)

    def drain(self, session: Session, now: Instant, size_max: int) -> int:
        """Send queued messages to a session that can take more, up to *size_max* bytes; return the bytes, 0 if none went."""
        return self.deliveries.resume(session, now, size_max)

    def fail(self, session: Session, number: int, delivery: Delivery, reason: Reason) -> None:
        """Count a message that cannot be delivered as dropped, and free its packet identifier."""
        self.deliveries.lose(session, number, delivery, reason)

    def subscriptions(self) -> Iterator[Subscription]:
        """Iterate over the subscriptions of all sessions."""
        return (asked.subscription for session in self.sessions for asked in session.subscriptions.values())

    def session_of(self, number: int) -> Session:
        """Return the session that has *number*."""
        return self.sessions[number]

    def configure(self, ground: Ground, alert_rules: tuple[AlertRule, ...]) -> None:
        """Replace coverage, plausibility limits and the rules by which emergencies raise alerts."""
        self.watch.ground = ground
        self.alerts.rules = alert_rules

    def sign_with(self, signer: "Signer") -> None:
        """Sign the alerts that this edge raises."""
        self.alerts.signer = signer

    def statistics(self) -> Statistics:
        """Return the gauges of this broker."""
        return Statistics(
            len(self.sessions),
            sum(session.link is not NOWHERE for session in self.sessions),
            len(self.matcher),
            len(self.retained),
            self.retained.size,
            self.deliveries.waiting_bytes,
            self.alerts.raised,
        )

    def report_batch(self, batch: Batch, now: Instant) -> Verdicts:
        """Process reports of many endpoints; return, for each, 0 or the reason code of its refusal."""
        return self.watch.take(batch, now)

    def report(self, session: Session, report: Report, now: Instant) -> Refused | None:
        """Process one report; refuse it if it is not plausible."""
        refused = self.watch.take_one(session, report, now)
        if refused is None and self.federation is not None:
            self.federation.take_report(report)
        return refused

    def believe(self, reputations: Reputations, names: Iterable[EndpointId] | None = None) -> None:
        """Use other reputations from now on, for present and future sessions; `names`: only those of these endpoints changed."""
        self._reputations = reputations
        some = self.sessions if names is None else filter(None, map(self.sessions.maybe, names))
        self.watch.trust_less({session.number: reputations.share_of(session.name) for session in some})

    def tick(self, now: Instant) -> None:
        """Publish due wills, end expired sessions and subscriptions, and drop expired messages."""
        for session in self._session_timers.overdue(now):
            self._publish_will_if_due(session, now)
            if session.expires_at <= now:
                self._end(session, now)
            elif session.expires_at != FOREVER:
                self._session_timers.remind(session)
        self.audience.tick(now)
        for topic in self.retained.fade(now):
            self.changes.retained[topic] = None
        for session, name in self.asking.expire(now):
            if session.is_kept:
                self.changes.subscriptions[session.number, name] = None
            if self.federation is not None:
                self.federation.unsubscribed(session, name)

    def _publish_will_if_due(self, session: Session, now: Instant) -> None:
        if session.will is not None and session.will_at <= now:
            will, session.will, session.will_at = session.will, None, FOREVER
            self._publish_will(session, will, now)
            self.changes.sessions[session.number] = session_to_bytes(session, self.place_of(session))

    def _publish_will(self, session: Session, will: Will, now: Instant) -> None:
        """Publish a will: plausibility, access and payload are checked as of now; its rate was spent at CONNECT."""
        publication = will.publication
        publication.origin, publication.seen_at = session.number, now
        if will.valid_ns is not None:
            publication.valid_until = Instant(now + will.valid_ns)
        try:
            route = self._admission.route(session.who, session.routes or self._admission.new_routes(), publication.topic)
            self._complete(publication, route, session, now)
            refused = self._refuse(session, publication, route, now, is_plain=publication.is_plain, packet_id=0)
        except Malformed as fault:
            refused = fault.refused
        if refused is None:
            self.accept(publication, None, now)
        else:
            self.refuse(refused)
