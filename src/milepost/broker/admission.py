"""Admission: the checks of everything that clients publish, in one order for every listener.

    rate ─▶ plausibility ─▶ access ─▶ payload ─▶ signature ─▶ (Broker.publish) match ─▶ forward ─▶ retained ─▶ queue

MQTT and UDP publications, wills and `$milepost/` requests are checked here. Records from the site's log are not: they were
admitted at the edge that appended them, and are only checked for authenticity, bounds and validity.

Invariants:
- the first check that fails decides the refusal; a refusal changes nothing but counters and the rate that was spent;
- the verdict on a topic is cached in a `TopicRoute` until the rules change, its audience until `RouteCache.epoch` changes;
- sessions share topic routes unless an access rule names a client, a user or a role: whatever else depends on the session or the
  message (`TopicRoute.is_conditional`) is decided for each message.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from milepost.broker.publication import Publication
from milepost.broker.routing import MatchRoute, ReceiverGroups
from milepost.broker.session import Session
from milepost.model.addresses import ToArea, ToNotified
from milepost.model.areas import Area
from milepost.model.incidents import EVENT_KINDS, EventKind
from milepost.model.instants import FOREVER, Instant
from milepost.model.messages import UNPUBLISH, maybe_unpublished
from milepost.model.priorities import Priority
from milepost.model.queries import OnTopic, Query
from milepost.model.reasons import Malformed, Reason, Refused
from milepost.model.topics import check_topic, filter_matches
from milepost.vetting import MessageLimits, SendCase, SenderPosition, vet_limits, vet_message
from milepost.vetting.access import AccessAction, AccessList, ClientIdentity, SendRight, needed_verbs, verb_of
from milepost.vetting.ownership import ClientIdPolicy, OtherUserPolicy
from milepost.vetting.payloads import PayloadCheck, PayloadChecks
from milepost.vetting.rates import RateMeter
from milepost.vetting.send_limits import UNKNOWN_POSITION
from milepost.wire.requests import REQUEST_PREFIX

if TYPE_CHECKING:
    from milepost.trust.signing import Verifier  # imports OpenSSL, which an edge without certificates does without

ROUTES_MAX: Final = 100_000
"""Maximum topics cached for sessions that share their routes."""

OWN_ROUTES_MAX: Final = 1_000
"""Maximum topics cached for a session with routes of its own."""

UNKNOWN_EPOCH: Final = -1
"""The epoch of a route whose audience is not known."""


@dataclass(frozen=True, slots=True)
class AdmissionRules:
    """Access, payload and priority rules; replaced as a whole when the configuration is read again."""

    access: AccessList = field(default_factory=AccessList)
    payloads: PayloadChecks = field(default_factory=PayloadChecks)
    priorities: tuple[tuple[str, Priority], ...] = ()
    """Topic filters and the priority of messages on them; the first match counts."""
    needs_password: bool = False
    allows_anonymous: bool = False
    """Whether clients without a user name are admitted although users have passwords."""
    users: frozenset[str] | None = None
    """All users that can log in; None: that is not known, since certificates prove users, too."""
    client_ids: ClientIdPolicy = ClientIdPolicy.ANY
    other_user: OtherUserPolicy = OtherUserPolicy.REFUSE
    """The answer to a client with the client id of another user's session."""
    kinds: tuple[EventKind, ...] = EVENT_KINDS
    """Event kinds: their priority and validity are the defaults of messages on their topics (M29)."""

    def find_kind(self, topic: str) -> EventKind | None:
        """Return the event kind whose reports are published on *topic*."""
        return next((kind for kind in self.kinds if kind.topic == topic), None)

    def default_priority(self, topic: str) -> Priority:
        """Return the priority of messages on *topic* that state none: of the first matching rule, else of the event kind."""
        ruled = next((priority for pattern, priority in self.priorities if filter_matches(pattern, topic)), None)
        if ruled is not None:
            return ruled
        kind = self.find_kind(topic)
        return Priority.CONVENIENCE if kind is None else kind.priority


class TopicRoute:
    """The decisions of admission and matching for one topic."""

    __slots__ = (
        "audience",
        "check",
        "epoch",
        "is_conditional",
        "is_request",
        "priority",
        "receivers",
        "refused",
        "rights",
        "topic",
        "validity_ns",
    )

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.refused: Refused | None = None
        """Why sessions that share this route may not publish on the topic."""
        self.rights: dict[AccessAction, SendRight] = {}
        """The rights of verbs on the topic: to publish, and of others once they were needed."""
        self.is_conditional = False
        """Whether a plain message may be refused by its sender, validity or place."""
        self.check: PayloadCheck | None = None
        self.priority = Priority.CONVENIENCE
        """Priority of messages that state none."""
        self.validity_ns = 0
        """Validity of messages that state none; 0: for ever."""
        self.is_request = False
        """Whether messages on it are requests to the edge itself."""
        self.epoch = UNKNOWN_EPOCH
        self.audience: MatchRoute | None = None
        """Receivers of every plain message on the topic; None if they depend on the message."""
        self.receivers: ReceiverGroups | None = None
        """Receivers of a plain message at QoS 0 that needs nothing but delivery; None: it takes the long path."""


def find_verb(publication: Publication) -> AccessAction:
    """Return what a message does; an unpublish cancels, whatever its address."""
    if publication.topic == UNPUBLISH and maybe_unpublished(publication.fields) is not None:
        return AccessAction.CANCEL
    return verb_of(publication.address)


class TopicRoutes:
    """The routes of sessions that share them, by topic in UTF-8."""

    __slots__ = ("_limit", "by_topic")

    def __init__(self, limit: int = ROUTES_MAX) -> None:
        self._limit = limit
        self.by_topic: dict[bytes, TopicRoute] = {}

    def put(self, key: bytes, route: TopicRoute) -> None:
        """Cache a route; a full cache starts again empty."""
        if len(self.by_topic) >= self._limit:
            self.by_topic.clear()
        self.by_topic[key] = route


class Plausibility(NamedTuple):
    """The limits and positions that publications are checked against (M15, M27)."""

    limits: MessageLimits
    coverage: Area | None
    """Areas outside it cannot be addressed; None: other edges may cover them."""
    position_of: Callable[[Session], SenderPosition]
    """The last position of a sender."""


class AdmissionControl:
    """The admission checks of one edge."""

    def __init__(self, topic_levels_max: int, share_of: Callable[[int], float]) -> None:
        self._topic_levels_max = topic_levels_max
        self._share_of = share_of
        self.verifier: Verifier | None = None
        """Verifies signatures of clients; None: this edge has no certificate authority, and refuses signed messages."""
        self.use_rules(AdmissionRules())

    def use_rules(self, rules: AdmissionRules) -> None:
        """Replace the rules; every cached verdict is void."""
        self.rules = rules
        self._shared = TopicRoutes()

    def new_routes(self) -> TopicRoutes:
        """Return the route cache of a session: its own if a rule may tell clients apart, else the shared one."""
        return TopicRoutes(OWN_ROUTES_MAX) if self.rules.access.is_personal else self._shared

    def route(self, identity: ClientIdentity, routes: TopicRoutes, topic: str) -> TopicRoute:
        """Return the route of *topic*; raise `Malformed` if it is not a valid topic."""
        key = topic.encode()
        route = routes.by_topic.get(key)
        if route is None:
            route = self._new_route(identity, topic)
            routes.put(key, route)
        return route

    def _new_route(self, identity: ClientIdentity, topic: str) -> TopicRoute:
        check_topic(topic)
        if (refused := self.refuse_depth(topic)) is not None:
            raise Malformed(refused.reason, refused.detail)
        rules, route = self.rules, TopicRoute(topic)
        right = self._right(identity, route, AccessAction.PUBLISH)
        route.refused = right.refused
        route.is_conditional = right.needs_proof or bool(right.rule.within_m or right.rule.valid_s)
        route.check = rules.payloads.check_for(topic)
        route.priority = rules.default_priority(topic)
        kind = rules.find_kind(topic)
        route.validity_ns = 0 if kind is None else kind.valid_ns
        route.is_request = topic.startswith(REQUEST_PREFIX)
        return route

    def _right(self, identity: ClientIdentity, route: TopicRoute, verb: AccessAction) -> SendRight:
        right = route.rights.get(verb)
        if right is None:
            right = route.rights[verb] = self.rules.access.right(identity, verb, route.topic)
        return right

    def refuse_depth(self, topic: str) -> Refused | None:
        """Refuse a topic or filter with more levels than allowed."""
        levels = topic.count("/") + 1
        if levels > self._topic_levels_max:
            return Refused(Reason.TOPIC_TOO_DEEP, f"{levels} levels, {self._topic_levels_max} are allowed")
        return None

    def refuse_rate(self, sender: Session, now: Instant) -> Refused | None:
        """Refuse a session that is over its rate; the first check of all."""
        if self._is_within_rate(sender, now):
            return None
        return Refused(Reason.RATE_TOO_HIGH, "more messages per second than allowed")

    def refuse(
        self, sender: Session, publication: Publication, route: TopicRoute, plausibility: Plausibility | None, now: Instant
    ) -> Refused | None:
        """Check plausibility, access and payload; `plausibility` is None for a plain message on an unconditional route."""
        if plausibility is not None:
            refused = self._refuse_implausible(sender, publication, plausibility, now)
            refused = refused or self._refuse_unauthorized(sender, publication, route, plausibility, now)
            if refused is not None:
                return refused
        elif route.refused is not None:
            return route.refused
        is_removal = publication.is_retained and not publication.body
        if route.check is not None and not is_removal:
            return route.check(publication.body)
        return None

    def _refuse_implausible(
        self, sender: Session, publication: Publication, plausibility: Plausibility, now: Instant
    ) -> Refused | None:
        if publication.topic == UNPUBLISH and publication.fields and maybe_unpublished(publication.fields) is None:
            return Refused(Reason.FIELD_RANGE, "an unpublish without a message id")
        return vet_message(
            publication.message,
            sender.name,
            plausibility.limits,
            now,
            size=publication.size,
            coverage=plausibility.coverage,
        )

    def refuse_response_topic(self, identity: ClientIdentity, topic: str) -> Refused | None:
        """Refuse a message whose answer would go to a topic that its publisher may not read, or to one of alerts."""
        refused = self.rules.access.may_be_answered(identity, topic)
        return None if refused is None else Refused(refused.reason, f"the response topic: {refused.detail}")

    def refuse_user(self, identity: ClientIdentity) -> Refused | None:
        """Refuse what a user left behind who can no longer log in."""
        if not identity.user or self.rules.users is None or identity.user in self.rules.users:
            return None
        return Refused(Reason.BAD_CREDENTIALS, f"the user {identity.user} was removed")

    def _refuse_unauthorized(
        self, sender: Session, publication: Publication, route: TopicRoute, plausibility: Plausibility, now: Instant
    ) -> Refused | None:
        """Check the right to publish on the topic and that of the verb: identity first, then the limits of both."""
        verb = find_verb(publication)
        rights = [self._right(sender.identity, route, one) for one in needed_verbs(verb)]
        for right in rights:
            refused = right.refuse_identity(sender.identity)
            if refused is not None:
                return refused
        needs_position = any(right.rule.within_m for right in rights)
        case = SendCase(
            publication.priority,
            route.priority,
            publication.valid_until,
            publication.seen_at,
            now,
            publication.place,
            publication.address.area if isinstance(publication.address, ToArea) and verb is AccessAction.GEOCAST else None,
            plausibility.position_of(sender) if needs_position else UNKNOWN_POSITION,
            plausibility.limits,
        )
        return vet_limits(rights, case)

    def refuse_signature(self, publication: Publication, now: Instant) -> Refused | None:
        """Check the signature of a client's message, whose source is the client itself."""
        if self.verifier is None:
            return Refused(Reason.SIGNATURE_INVALID, "this edge has no certificate authority ([trust] ca) to verify signatures")
        if publication.topic == UNPUBLISH and not isinstance(publication.address, ToNotified):
            return Refused(Reason.FIELD_MISSING, "a signed unpublish must be addressed to the endpoints notified of the message")
        verdict = self.verifier.check(publication.message, now)
        return verdict if isinstance(verdict, Refused) else None

    def apply_defaults(self, publication: Publication, route: TopicRoute) -> None:
        """Give a publication that states no priority or no validity those of its topic or event kind (M29)."""
        if not publication.states_priority:
            publication.priority = route.priority
        if route.validity_ns and publication.valid_until == FOREVER:
            publication.valid_until = Instant(publication.seen_at + route.validity_ns)

    def _is_within_rate(self, sender: Session, now: Instant) -> bool:
        if sender.rates.is_deferred:
            return not sender.is_over_rate
        return self._meter(sender).take(1.0 / self._share_of(sender.number), now)

    def charge(self, sender: Session, messages: int, octets: int, now: Instant) -> None:
        """Charge a session for messages it has sent; while it owes tokens, its messages are refused."""
        share = self._share_of(sender.number)
        sender.is_over_rate = not self._meter(sender).charge(messages / share, octets / share, now)

    def refuse_subscription(self, session: Session, query: Query, now: Instant) -> Refused | None:
        """Check a subscription: rate, then access."""
        if not self._meter(session).take_subscription(1.0 / self._share_of(session.number), now):
            return Refused(Reason.RATE_TOO_HIGH, "more subscriptions per second than allowed")
        return self.refuse_query(session, query)

    def refuse_query(self, session: Session, query: Query) -> Refused | None:
        """Check whether a session may read the topics of a query."""
        access = self.rules.access
        if isinstance(query, OnTopic):  # the usual case, without a normal form; a property test holds the two equal
            return access.may_subscribe(session.identity, query.filter)
        return access.may_query(session.identity, query)

    def _meter(self, session: Session) -> RateMeter:
        if session.meter is None:
            session.meter = RateMeter(session.rates)
        return session.meter
