"""The path of a publication through the broker, top to bottom.

    publish: rate ─▶ plausibility ─▶ access ─▶ payload ─▶ signature
    accept:  match ─▶ forward ─▶ retain ─▶ raise an alert ─▶ queue
    fast path: a cached `TopicRoute` instead of the four checks and of matching; a property test holds the two equal

Invariants:
- a publication is refused as a whole, with one reason that is counted, or accepted as a whole;
- every accepted publication has an id, never 0, that its source uses once;
- a signed publication is passed on exactly as its signer made it: nothing is filled in;
- an alert that an emergency raises is queued before the emergency itself (M22, M29).

The audience of a message, and of an active one when endpoints enter its area:

    address of a message ─▶ receivers_for: matching, positions, notified sessions or the session table (M5)
    accepted reports     ─▶ deliver_active_alerts: sessions that have entered ─▶ delivery

- an address does not grant the right to read: sessions that may not read the topic of a message are left out;
- an endpoint from another edge receives active messages only once it is known which of them it already has, or that this
  will not become known;
- a session that `deliver_active_alerts` delivers to is recorded as notified in the same call, so that nothing is delivered twice.
"""

from collections.abc import Callable
from typing import Final

from milepost.broker.active_alerts import ActiveAlerts
from milepost.broker.admission import AdmissionControl, Plausibility, TopicRoute
from milepost.broker.alert_rules import AlertRule, EmergencyAlerts
from milepost.broker.broker_counters import BrokerCounters
from milepost.broker.delivery import Deliveries
from milepost.broker.effects import FastPathBatch, StateChanges
from milepost.broker.federation_port import FederationPort
from milepost.broker.presence import Presence
from milepost.broker.publication import EDGE_ITSELF, Delivery, Publication
from milepost.broker.read_rights import ReadRights
from milepost.broker.retained_store import RetainedStore
from milepost.broker.routing import NO_RECEIVERS, MatchRoute, ReceiverGroups, RouteCache, group_by_encoding
from milepost.broker.session import NO_CONNECTION, Session, Sessions, begin_receiving
from milepost.broker.state_codec import publication_to_bytes
from milepost.matching.matcher import Matcher
from milepost.model.addresses import ToArea, ToContent, ToEndpoint, ToEveryone, ToNotified
from milepost.model.areas import Motion, touches
from milepost.model.endpoints import EndpointId, SystemSource
from milepost.model.instants import Instant
from milepost.model.messages import UNPUBLISH, Message, MessageId, maybe_unpublished
from milepost.model.places import Place, vectors
from milepost.model.priorities import Priority
from milepost.model.reasons import Malformed, Reason, Refused
from milepost.trust.alert_origin import owned_by
from milepost.vetting import ReportColumns

IsSettled = Callable[[Session, Instant], bool]
"""Whether the messages an endpoint received at its previous edge are known, or never will be."""


class AudienceResolver:
    """The audiences of messages."""

    def __init__(
        self,
        route_cache: RouteCache,
        sessions: Sessions,
        rights: ReadRights,
        presence: Presence,
        deliveries: Deliveries,
        is_settled: IsSettled,
    ) -> None:
        self._route_cache = route_cache
        self._rights = rights
        self._sessions = sessions
        self._presence = presence
        self._deliveries = deliveries
        self._is_settled = is_settled
        self._unsettled: set[str] = set()
        """Endpoints to be checked again in the next tick, even without a new report."""
        presence.on_moved = self.deliver_active_alerts

    @property
    def _active_alerts(self) -> ActiveAlerts:
        return self._deliveries.active_alerts

    def receivers_for(self, publication: Publication, now: Instant) -> ReceiverGroups:
        """Return the receivers of a message."""
        if publication.valid_until < now:
            return NO_RECEIVERS
        match publication.address:
            case ToContent():
                return self._route_cache.route_for(publication.message, now).receivers_for(publication.origin)
            case ToArea(area):
                return self._group(publication, [self._sessions[number] for number in self._presence.find_inside(area).tolist()])
            case ToNotified():
                notified = self._active_alerts.notified_sessions(publication)
                return self._group(publication, [self._sessions[number] for number in notified])
            case ToEndpoint(name):
                session = self._sessions.find(name)
                if session is not None and not self._rights.may_receive(session, publication):
                    self._deliveries.count_denied(session, publication)
                return self._group(publication, [session] if session is not None else [])
            case ToEveryone():
                connected = [session for session in self._sessions if session.connection is not NO_CONNECTION]
                return self._group(publication, connected)

    def _group(self, publication: Publication, addressed: list[Session]) -> ReceiverGroups:
        """Return the addressed sessions that may receive a message."""
        return group_by_encoding(self._allowed(publication, addressed))

    def _allowed(self, publication: Publication, sessions: list[Session]) -> list[Session]:
        if not self._rights.are_restricted:
            return sessions
        return [session for session in sessions if self._rights.may_receive(session, publication)]

    def deliver_active_alerts(self, batch: ReportColumns, now: Instant) -> None:
        """Deliver active messages to endpoints whose reports place them in the area."""
        if not len(self._active_alerts):
            return
        motion = Motion(batch.headings, batch.speeds)
        for publication, numbers in self._active_alerts.entering(
            batch.numbers, vectors(batch.latitudes, batch.longitudes), motion
        ):
            self._deliver_settled(publication, [self._sessions[number] for number in numbers], now)

    def recheck(self, session: Session) -> None:
        """Check an endpoint in the next tick: its position became known other than by its own report."""
        if len(self._active_alerts):
            self._unsettled.add(session.name)

    def tick(self, now: Instant) -> None:
        """Expire active messages, and check again the endpoints that were not settled."""
        self._active_alerts.expire(now, self._deliveries.changes)
        names, self._unsettled = self._unsettled, set()
        for name in names:
            session = self._sessions.find(name)
            if session is not None and len(self._active_alerts) and self._presence.last_reports.is_known(session.number):
                numbers, where, motion = self._presence.position_and_motion(session)
                for publication, _ in self._active_alerts.entering(numbers, where, motion):
                    self._deliver_settled(publication, [session], now)

    def _deliver_settled(self, publication: Publication, sessions: list[Session], now: Instant) -> None:
        if publication.valid_until < now:
            return
        sessions = self._allowed(publication, sessions)
        settled = [session for session in sessions if self._is_settled(session, now)]
        self._unsettled |= {session.name for session in sessions} - {session.name for session in settled}
        if settled:
            self._deliveries.deliver(publication, group_by_encoding(settled))


_ANY_SOURCE: Final = EndpointId("anybody")


class PublishPath:
    """Base class of `Broker`."""

    source: SystemSource
    counts: BrokerCounters
    retained: RetainedStore
    storage_error: str | None
    matcher: Matcher
    route_cache: RouteCache
    rights: ReadRights
    deliveries: Deliveries
    presence: Presence
    alerts: EmergencyAlerts
    federation: FederationPort | None
    audience: AudienceResolver
    _admission: AdmissionControl
    _last_id: int

    @property
    def changes(self) -> StateChanges:
        """The state to be stored at the end of this tick."""
        return self.deliveries.changes

    def place_of(self, session: Session) -> Place | None:
        """Return the last reported place of an endpoint."""
        return self.presence.last_reports.find_place(session.number)

    def publish(
        self, sender: Session, publication: Publication, now: Instant, *, is_plain: bool = False, packet_id: int = 0
    ) -> int | Refused:
        """Admit a client's message and deliver it; return the number of its receivers at this edge.

        `is_plain`: it has a topic and a payload only, and nothing that could be implausible. `packet_id`: the QoS 2 packet id
        under which it is not accepted again.
        """
        refused = self._admission.refuse_rate(sender, now)
        if refused is not None:
            return self.refuse(refused)
        try:
            route = self.route(sender, publication.topic, now)
            self._fill_in(publication, route, sender, now)
            refused = self._refuse(sender, publication, route, now, is_plain=is_plain, packet_id=packet_id)
        except Malformed as fault:
            return self.refuse(fault.refused)
        if refused is not None:
            return self.refuse(refused)
        is_cached = is_plain and (publication.place is None or not self.matcher.has_areas)
        outcome = self.accept(publication, route.audience if is_cached else None, now)
        if packet_id and not isinstance(outcome, Refused):
            begin_receiving(sender, packet_id, self.changes)  # [MQTT-4.3.3-8]
        return outcome

    def _refuse(
        self, sender: Session, publication: Publication, route: TopicRoute, now: Instant, *, is_plain: bool, packet_id: int
    ) -> Refused | None:
        plausibility = None if is_plain and not route.is_conditional else self._plausibility()
        refused = self._admission.refuse(sender, publication, route, plausibility, now)
        if refused is None and route.is_request:
            return Refused(Reason.TOPIC_RESERVED, f"a message on {publication.topic}")
        if refused is None and publication.response_topic:
            refused = self._admission.refuse_response_topic(sender.identity, publication.response_topic)
        if refused is None and publication.signed is not None:  # last: the most expensive check
            refused = self._admission.refuse_signature(publication, now)
        if (
            refused is None and packet_id and sender.is_durable and self.storage_error is not None
        ):  # the packet id must be stored, too
            return Refused(Reason.STORAGE_UNAVAILABLE, self.storage_error)
        return refused

    def _fill_in(self, publication: Publication, route: TopicRoute, sender: Session, now: Instant) -> None:
        """Fill in id, place, priority and validity where the publisher stated none and signed nothing."""
        if publication.signed is not None:
            return
        publication.id = publication.id or self.next_id(now)
        if isinstance(publication.address, ToArea | ToNotified) or publication.topic == UNPUBLISH:
            publication.signer = owned_by(sender.identity.owner)
        if publication.place is None:
            publication.place = self.place_of(sender)
        self._admission.apply_defaults(publication, route)

    def _plausibility(self) -> Plausibility:
        """Return the limits that publications are checked against (M15, M27)."""
        plausibility_rules = self.presence.plausibility_rules
        coverage = (
            plausibility_rules.coverage if self.federation is None else None
        )  # other edges may cover what this one does not
        return Plausibility(plausibility_rules.message_limits, coverage, self.presence.position_of)

    def accept(self, publication: Publication, audience: MatchRoute | None, now: Instant) -> int | Refused:
        """Deliver a message that was admitted, or that the edge itself publishes: match, forward, retain, queue.

        `audience`: its receivers, where the topic alone determines them. Return how many there are at this edge.
        """
        if audience is None:
            self._address(publication, now)
            receivers = self.audience.receivers_for(publication, now)
        else:
            receivers = audience.receivers_for(publication.origin)
        refused = self._refusal_for(publication, receivers)
        if refused is None and self.federation is not None and publication.origin != EDGE_ITSELF:
            refused = self.federation.forward(publication, now)
        if refused is not None:
            return self.refuse(refused)
        if publication.is_retained:
            self.retain(publication)
        self.counts.accepted += publication.origin != EDGE_ITSELF
        if self.alerts.rules and (rule := self.alerts.find_rule(publication.topic)) is not None:
            self._raise(rule, publication, now)
        self.deliveries.deliver(publication, receivers)
        return receivers.size

    def _address(self, publication: Publication, now: Instant) -> None:
        """Assign an id to a message of the edge itself; address an unpublish to the endpoints notified of the message."""
        publication.id = publication.id or self.next_id(now)
        if publication.signed is not None:
            return
        if publication.topic == UNPUBLISH and (name := maybe_unpublished(publication.fields)) is not None:
            publication.address = ToNotified((name,))

    def _refusal_for(self, publication: Publication, receivers: ReceiverGroups) -> Refused | None:
        if self.storage_error is not None:
            needs_storage = publication.qos > 0 and any(
                session.is_durable for group in receivers.groups for session in group.sessions
            )
            if (publication.is_retained and publication.origin != EDGE_ITSELF) or needs_storage:
                return Refused(Reason.STORAGE_UNAVAILABLE, self.storage_error)
        if publication.is_retained and publication.body:
            return self.retained.refusal_for(publication)
        return None

    def retain(self, publication: Publication) -> None:
        """Retain a message for later subscribers; an empty one deletes the retained message."""
        is_durable = publication.origin != EDGE_ITSELF  # the edge publishes its own messages again after a restart
        if publication.body:
            self.retained.put(publication)
            if is_durable:
                self.changes.retained[publication.topic] = publication_to_bytes(publication)
        elif self.retained.drop(publication.topic) and is_durable:  # [MQTT-3.3.1-6]
            self.changes.retained[publication.topic] = None

    def _raise(self, rule: AlertRule, publication: Publication, now: Instant) -> None:
        """Raise the alert of an emergency to everyone near it, before the emergency itself is sent (M22, M29)."""
        if publication.place is None:
            self.counts.dropped[Reason.FIELD_MISSING] += 1
            return
        heading = self.presence.last_reports.find_heading(publication.origin) if publication.origin >= 0 else None
        coverage = self._plausibility().coverage
        if coverage is not None and not touches(rule.area_for(publication.place, heading), coverage):
            self.counts.dropped[Reason.AREA_NOT_COVERED] += 1
            return
        alert = self.alerts.make(rule, publication, heading, self.source, self.next_id(now), now)
        refused = self.federation.forward(alert, now) if self.federation is not None else None
        if refused is not None:  # endpoints of this edge get it all the same
            self.refuse(refused)
        self.deliveries.deliver(alert, self.audience.receivers_for(alert, now))

    def next_id(self, now: Instant) -> int:
        """Return an id for a message without one: never used before by this edge, as long as its clock is not set back."""
        self._last_id = max(self._last_id + 1, now)
        return self._last_id

    def refuse(self, refused: Refused, count: int = 1) -> Refused:
        """Count a refusal, and return it."""
        self.counts.refused[refused.reason] += count
        return refused

    def count_fault(self) -> None:
        """Count an internal error that cost a connection."""
        self.counts.faults += 1

    def route(self, session: Session, topic: str, now: Instant) -> TopicRoute:
        """Return the route of *topic* for a session; raise `Malformed` if it is not a valid topic."""
        assert session.routes is not None, "the session is connected"
        route = self._admission.route(session.identity, session.routes, topic)
        if route.epoch != self.route_cache.epoch:
            self._refresh(route, now)
        return route

    def _refresh(self, route: TopicRoute, now: Instant) -> None:
        route.epoch = self.route_cache.epoch
        audience = None if route.refused or route.is_request else self.find_cacheable_route(route.topic, now)
        is_same_for_all = audience is not None and not audience.shared and not audience.no_local_sessions
        needs_nothing_else = (
            is_same_for_all and not route.is_conditional and not route.validity_ns and self.is_local_only(route.topic)
        )
        route.audience = audience
        route.receivers = audience.receivers if audience is not None and needs_nothing_else else None

    def find_fast_routes(self, session: Session) -> dict[bytes, TopicRoute] | None:
        """Return the session's routes by topic; None if its messages must be checked one by one."""
        if (
            session.routes is None
            or session.is_over_rate
            or (self.matcher.has_areas and self.presence.last_reports.is_known(session.number))
        ):
            return None
        return session.routes.by_topic

    @property
    def route_epoch(self) -> int:
        """The epoch of current routes."""
        return self.route_cache.epoch

    def find_cacheable_route(self, topic: str, now: Instant) -> MatchRoute | None:
        """Return the receivers of plain messages on a topic until `route_cache.epoch` changes; None if they depend on more."""
        return self.route_cache.find_cacheable(Message(MessageId(1), _ANY_SOURCE, topic, now), now)

    def is_local_only(self, topic: str) -> bool:
        """Return whether plain messages on a topic concern only receivers at this edge: no alert, no forwarding."""
        return not (self.federation is not None and self.federation.has_interest(topic)) and self.alerts.find_rule(topic) is None

    def charge(self, session: Session, messages: int, octets: int, now: Instant) -> None:
        """Charge a session whose listener charges in batches."""
        self._admission.charge(session, messages, octets, now)

    def admit_request(self, session: Session, route: TopicRoute, body: bytes, now: Instant) -> Refused | None:
        """Check a request to the edge itself, published below `$milepost/`, as every publication is checked."""
        request = Publication(route.topic, body, now, source=session.name, origin=session.number)
        refused = self._admission.refuse_rate(session, now)
        return refused or self._admission.refuse(session, request, route, None, now)

    def start_fast_batch(self, receivers: ReceiverGroups, encoding: int, priority: Priority) -> FastPathBatch:
        """Begin a batch of plain QoS 0 messages to the same receivers, which are passed on as the bytes received."""
        batch = FastPathBatch(receivers, encoding, priority)
        self.deliveries.actions.append(batch)
        return batch

    def find_last_fast_batch(self, encoding: int) -> FastPathBatch | None:
        """Return the batch that messages in *encoding* may still be added to: no action came after it."""
        last = self.deliveries.actions[-1] if self.deliveries.actions else None
        return last if isinstance(last, FastPathBatch) and last.encoding == encoding else None

    def count_fast_batch(self, accepted: int, delivered: int) -> None:
        """Count the messages of a batch that was sent."""
        self.counts.accepted += accepted
        self.counts.delivered += delivered

    def requeue(self, publication: Publication, receivers: ReceiverGroups, now: Instant) -> None:
        """Deliver a message of a batch to receivers that cannot be sent the received bytes unchanged."""
        publication.id = publication.id or self.next_id(now)
        self.deliveries.deliver(publication, receivers)

    def reply(self, session: Session, topic: str, body: bytes, now: Instant) -> None:
        """Answer a request of a session on *topic*, if it subscribes to exactly that topic."""
        held = session.subscriptions.get(topic)
        if held is not None:
            subscription_ids = (held.subscription.id,) if held.subscription.id else ()
            publication = Publication(topic, body, now, source=self.source)
            publication.id = self.next_id(now)
            if self.rights.may_receive(session, publication):
                self.deliveries.deliver_to(Delivery(publication, 0, subscription_ids), session)

    def may_receive(self, session: Session, publication: Publication) -> bool:
        """Return whether a session may receive a message, by the rules in force."""
        return self.rights.may_receive(session, publication)

    def is_open(self, topic: str) -> bool:
        """Return whether every client may read a topic: only then may a message on it be multicast."""
        return self.rights.are_open(topic)
