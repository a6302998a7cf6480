"""The corridor: what an edge does with each thing that arrives, stage by stage; the doors call it and do what it says.

    open ─▶ session          publish ─▶ retained? ─▶ who (plans) ─▶ delivery       tick ─▶ wills, ends of sessions and frames
    subscribe ─▶ matching ─▶ retained messages ─▶ delivery                          report ─▶ matching (places)

What must hold:
- now is an argument; the same calls give the same actions and changes;
- a call either changes nothing and gives a refusal, or does all of it;
- actions may be carried out only after the changes of the same turn were kept: then what was acknowledged is safe;
- while nothing can be kept (`trouble`), whatever would have to be kept is refused, and everything else goes on.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from milepost.edge.absences import Absences
from milepost.edge.actions import Action, Expel
from milepost.edge.addressing import Addressing
from milepost.edge.alerts import AlertRule, Alerts
from milepost.edge.asking import Asking
from milepost.edge.counts import Counts
from milepost.edge.delivery import Deliveries
from milepost.edge.elsewhere import Elsewhere
from milepost.edge.journal import asked_to_bytes, parcel_to_bytes, session_to_bytes
from milepost.edge.keeping import Changes
from milepost.edge.limits import Limits
from milepost.edge.parcels import EDGE_ITSELF, Delivery, Parcel
from milepost.edge.plans import Fan, Plan, Planner
from milepost.edge.reaching import Reaching
from milepost.edge.retained import Retained, WantsRetained
from milepost.edge.sessions import NOWHERE, Asked, Link, Session, Sessions, Will
from milepost.edge.watching import Watch
from milepost.matching.matcher import Limits as MatchingLimits
from milepost.matching.matcher import Matcher
from milepost.model.addresses import ToArea, ToTold
from milepost.model.endpoints import EndpointId
from milepost.model.instants import FOREVER, SECOND_NS, Instant
from milepost.model.messages import UNPUBLISH, Message, MessageId, maybe_unpublished
from milepost.model.places import Place
from milepost.model.reasons import Malformed, Reason, Refused
from milepost.model.reports import Report
from milepost.model.subscriptions import Subscription
from milepost.vetting import Reputations, Stand, vet_message

EDGE_NAME: Final = EndpointId("edge")


class Opened(NamedTuple):
    """A session that is open now."""

    session: Session
    is_resumed: bool


class Corridor:
    """One edge."""

    def __init__(self, limits: Limits, name: EndpointId = EDGE_NAME) -> None:
        self.limits = limits
        self.counts = Counts()
        self.sessions = Sessions(limits.sessions_max)
        self.retained = Retained(limits.retained_max, limits.retained_bytes_max)
        self.trouble: str | None = None
        """Why nothing can be kept at the moment."""
        self.matcher = Matcher(MatchingLimits(limits.subscriptions_max, limits.sessions_max, limits.subscriptions_max))
        self.planner = Planner(self.matcher, self.sessions)
        self.deliveries = Deliveries(limits, self.counts, Changes())
        self.watch = Watch(limits, self.matcher, self.counts)
        self.deliveries.reaching = Reaching(self.watch)
        self.alerts = Alerts()
        self.elsewhere: Elsewhere | None = None
        """Nothing: this edge is alone."""
        self.addressing = Addressing(self.planner, self.sessions, self.watch, self.deliveries, self._is_settled)
        self.name = name
        self._last_id = 0
        self._reputations = Reputations()
        self._absences = Absences(self.sessions)
        self.asking = Asking(self.matcher, self.planner)

    @property
    def changes(self) -> Changes:
        """What this turn wants kept."""
        return self.deliveries.changes

    def take_changes(self) -> Changes:
        """What this turn wants kept, for whoever keeps it."""
        changes, self.deliveries.changes = self.deliveries.changes, Changes()
        return changes

    def take_actions(self) -> list[Action]:
        """What this turn wants done, for whoever does it."""
        actions, self.deliveries.actions = self.deliveries.actions, []
        return actions

    def open(
        self,
        name: EndpointId,
        *,
        link: Link,
        is_fresh: bool,
        expiry_ns: int,
        window: int,
        dialect: int,
        will: Will | None,
        now: Instant,
        is_proven: bool = False,
    ) -> Opened | Refused:
        """Open a session for an endpoint, or take up the one it has; an older link of the same name is closed."""
        expiry_ns = min(expiry_ns, self.limits.session_expiry_s_max * SECOND_NS)
        if expiry_ns and self.trouble is not None:
            return Refused(Reason.STORAGE_UNAVAILABLE, self.trouble)
        former = self.sessions.maybe(name)
        if former is not None and former.is_proven and former.link is not NOWHERE and not is_proven:
            return Refused(Reason.NOT_ALLOWED, f"{name} is here with a certificate")
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
        session.is_proven = is_proven
        if len(self._reputations):
            self.watch.trust_less({session.number: self._reputations.share_of(name)})
        self._attach(session, link, expiry_ns=expiry_ns, window=window, dialect=dialect, will=will, now=now)
        if self.elsewhere is not None:
            self.elsewhere.opened(session, now, is_fresh=is_fresh)
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
        self, session: Session, link: Link, *, expiry_ns: int, window: int, dialect: int, will: Will | None, now: Instant
    ) -> None:
        if session.is_kept and not expiry_ns:
            self.deliveries.unkeep(session)
            self._unkeep(session)
        is_as_before = session.dialect in (0, dialect)
        if session.subscriptions and session.dialect != dialect:  # plans are made for those away too, also since a restart
            self.planner.change()
        session.link, session.dialect = link, dialect
        session.window = min(window, self.limits.in_flight_max)
        session.expiry_ns, session.expires_at, session.is_kept = expiry_ns, FOREVER, expiry_ns > 0
        session.will, session.will_at = will, FOREVER
        # In this turn messages may be on their way to it in the former dialect: they are to wait, and be put into the new one.
        session.is_clear = is_as_before and (session.waiting is None or not session.waiting.has_plain)
        if session.is_kept:
            self.changes.sessions[session.number] = session_to_bytes(session, self.place_of(session))
        self.deliveries.resend(session, now)

    def close(self, session: Session, now: Instant, *, is_willed: bool, expiry_ns: int | None = None) -> None:
        """The endpoint is gone; its session lives on as long as it was asked to."""
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
        """Nobody is connected to a kept session: it has a time to live, and perhaps a will."""
        if session.expires_at == FOREVER:
            session.expires_at = Instant(now + session.expiry_ns)
        if session.will is not None:
            if session.will_at == FOREVER:
                session.will_at = Instant(now + session.will.delay_ns)
            self._publish_will_if_due(session, now)
        self._absences.remind(session)

    def _end(self, session: Session, now: Instant) -> None:
        will, session.will = session.will, None
        self.deliveries.end(session)
        self.remove(session)
        if will is not None:  # the session's end comes before the delay's. [MQTT-3.1.2-8]
            self._publish_will(session, will, now)

    def remove(self, session: Session) -> None:
        """Nothing is known of a session any more; what was on its way to it is seen to already."""
        if session.is_kept:
            self._unkeep(session)
        for name in list(session.subscriptions):
            self._drop_subscription(session, name)
        self.watch.forget(session)
        self.deliveries.standing.leave(session, self.changes)
        self.sessions.remove(session)
        if self.elsewhere is not None:
            self.elsewhere.ended(session)

    def _unkeep(self, session: Session) -> None:
        """Neither the session nor what it asked for and received is to be remembered."""
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
        """Let a session take part in what a subscription asks for, in place of the one it had under the same name."""
        if session.is_kept and self.trouble is not None:
            return Refused(Reason.STORAGE_UNAVAILABLE, self.trouble)
        is_new = name not in session.subscriptions
        if is_new and len(session.subscriptions) >= self.limits.subscriptions_each_max:
            return Refused(Reason.SUBSCRIPTIONS_FULL, f"one endpoint may have {self.limits.subscriptions_each_max}")
        if subscription.frame.is_over(now):
            return Refused(Reason.FRAME_OVER, f"it ended {(now - subscription.frame.end) // SECOND_NS} s ago")
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
        if self.elsewhere is not None:
            self.elsewhere.subscribed(session, name)
        if wants_retained is WantsRetained.ALWAYS or (wants_retained is WantsRetained.IF_NEW and is_new):
            self._hand_out_retained(session, subscription, now)
        return None

    def _hand_out_retained(self, session: Session, subscription: Subscription, now: Instant) -> None:
        if subscription.share is not None or not len(self.retained):  # [MQTT-3.8.4-4] and its note on shared ones
            return
        labels = (subscription.id,) if subscription.id else ()
        for parcel in self.retained.wanted_by(subscription, self.place_of(session), now):
            delivery = Delivery(parcel, min(parcel.qos, subscription.qos), labels, is_from_store=True)
            self.deliveries.hand_one(delivery, session)

    def unsubscribe(self, session: Session, name: str) -> bool:
        """End a subscription; tells whether there was one."""
        if name not in session.subscriptions:
            return False
        self._drop_subscription(session, name)
        if session.is_kept:
            self.changes.subscriptions[session.number, name] = None
        return True

    def _drop_subscription(self, session: Session, name: str) -> None:
        self.asking.drop(session, name)
        if self.elsewhere is not None:
            self.elsewhere.unsubscribed(session, name)

    def vet(self, parcel: Parcel, sender: Session, within_m: float, now: Instant) -> Refused | None:
        """Whether an endpoint may say what is in a message beside topic and payload (M15, M27); `within_m`: of how far away."""
        ground = self.watch.ground
        coverage = ground.coverage if self.elsewhere is None else None  # other edges may cover what this one does not
        stand = Stand(within_m, *self.watch.last_of(sender)) if within_m else None
        return vet_message(parcel.message, sender.name, ground.said, now, size=parcel.size, coverage=coverage, stand=stand)

    def publish(self, parcel: Parcel, now: Instant, plan: Plan | None = None) -> int | Refused:
        """Let a message in and give it to whom it is for (`plan`: as was found out before); tells how many that are."""
        if plan is None:
            self._complete(parcel, now)
        fan = plan.fan_for(parcel.origin) if plan is not None else self.addressing.fan_for(parcel, now)
        refused = self._why_not(parcel, fan)
        if refused is None and self.elsewhere is not None and parcel.origin != EDGE_ITSELF:
            refused = self.elsewhere.take(parcel, now)
        if refused is not None:
            self.counts.refused[refused.reason] += 1
            return refused
        if parcel.is_retained:
            self.retain(parcel)
        self.counts.accepted += parcel.origin != EDGE_ITSELF
        if self.alerts.rules and (rule := self.alerts.maybe_rule(parcel.topic)) is not None:
            self._raise(rule, parcel, now)
        self.deliveries.hand_out(parcel, fan)
        return fan.size

    def _complete(self, parcel: Parcel, now: Instant) -> None:
        """What is said to an area has an id wherever it is told of; what is taken back goes to all who were told it."""
        if isinstance(parcel.address, ToArea):
            parcel.id = parcel.id or self.next_id(now)
        elif parcel.topic == UNPUBLISH and (name := maybe_unpublished(parcel.fields)) is not None:
            parcel.address = ToTold((name,))

    def _is_settled(self, session: Session, now: Instant) -> bool:
        return self.elsewhere is None or self.elsewhere.is_settled(session, now)

    def _raise(self, rule: AlertRule, parcel: Parcel, now: Instant) -> None:
        """An emergency: everyone near it hears of it, before anything else is sent (M22, M29)."""
        if parcel.place is None:
            self.counts.dropped[Reason.FIELD_MISSING] += 1
            return
        heading = self.watch.tracks.maybe_heading(parcel.origin) if parcel.origin >= 0 else None
        alert = self.alerts.make(rule, parcel, heading, self.name, self.next_id(now), now)
        if self.elsewhere is not None:
            self.elsewhere.take(alert, now)
        self.deliveries.hand_out(alert, self.addressing.fan_for(alert, now))

    def next_id(self, now: Instant) -> int:
        """An id for a message that has none: never given before by this edge, as long as its clock is not set back."""
        self._last_id = max(self._last_id + 1, now)
        return self._last_id

    def _why_not(self, parcel: Parcel, fan: Fan) -> Refused | None:
        if self.trouble is not None:
            is_to_be_kept = parcel.qos > 0 and any(session.is_kept for group in fan.groups for session in group.sessions)
            if (parcel.is_retained and parcel.origin != EDGE_ITSELF) or is_to_be_kept:
                return Refused(Reason.STORAGE_UNAVAILABLE, self.trouble)
        if parcel.is_retained and parcel.body:
            return self.retained.why_not(parcel)
        return None

    def retain(self, parcel: Parcel) -> None:
        """Keep a message for those who subscribe later; an empty one takes back what was kept."""
        is_kept = parcel.origin != EDGE_ITSELF  # what the edge says of itself it will say again
        if parcel.body:
            self.retained.put(parcel)
            if is_kept:
                self.changes.retained[parcel.topic] = parcel_to_bytes(parcel)
        elif self.retained.drop(parcel.topic) and is_kept:  # [MQTT-3.3.1-6]
            self.changes.retained[parcel.topic] = None

    def plan_for(self, topic: str, now: Instant) -> Plan | None:
        """Who gets every plain message of a topic until `planner.epoch` changes; nothing if that depends on the message."""
        return self.planner.maybe_lasting(Message(MessageId(0), _ANYBODY, topic, now), now)

    def is_short(self, topic: str) -> bool:
        """Whether plain messages on a topic concern nobody but their takers here: no alert, nobody elsewhere."""
        return not (self.elsewhere is not None and self.elsewhere.is_wanted(topic)) and self.alerts.maybe_rule(topic) is None

    def report(self, session: Session, report: Report, now: Instant) -> Refused | None:
        """Take note of where an endpoint is, if that may be true."""
        refused = self.watch.take_one(session, report, now)
        if refused is None and self.elsewhere is not None:
            self.elsewhere.take_report(report)
        return refused

    def believe(self, reputations: Reputations, names: Iterable[EndpointId] | None = None) -> None:
        """Go by other reputations from now on, for those who are here and those who come; `names`: only theirs are others."""
        self._reputations = reputations
        some = self.sessions if names is None else filter(None, map(self.sessions.maybe, names))
        self.watch.trust_less({session.number: reputations.share_of(session.name) for session in some})

    def place_of(self, session: Session) -> Place | None:
        """Where an endpoint is, if it is known."""
        return self.watch.tracks.maybe_place(session.number)

    def tick(self, now: Instant) -> None:
        """Do what is due: wills, the ends of sessions, the ends of frames."""
        for session in self._absences.overdue(now):
            self._publish_will_if_due(session, now)
            if session.expires_at <= now:
                self._end(session, now)
            elif session.expires_at != FOREVER:
                self._absences.remind(session)
        self.addressing.tick(now)
        for topic in self.retained.fade(now):
            self.changes.retained[topic] = None
        for session, name in self.asking.expire(now):
            if session.is_kept:
                self.changes.subscriptions[session.number, name] = None
            if self.elsewhere is not None:
                self.elsewhere.unsubscribed(session, name)

    def _publish_will_if_due(self, session: Session, now: Instant) -> None:
        if session.will is not None and session.will_at <= now:
            will, session.will, session.will_at = session.will, None, FOREVER
            self._publish_will(session, will, now)
            self.changes.sessions[session.number] = session_to_bytes(session, self.place_of(session))

    def _publish_will(self, session: Session, will: Will, now: Instant) -> None:
        will.parcel.origin, will.parcel.seen_at = session.number, now
        if will.valid_ns is not None:
            will.parcel.valid_until = Instant(now + will.valid_ns)
        self.publish(will.parcel, now)


_ANYBODY = EndpointId("anybody")
