"""Access: the rights of clients to subscribe to topics, and to send messages.

Invariants:
- the first rule that matches the client, the verb and the topic decides; after the users' rules come the built-in ones. They
  reserve topics that begin with $ for the system, close alert topics to clients, and are the defaults of each verb;
- a rule opens alert topics to publishers only if it names their first level: `allow publish #` does not;
- every message needs the right to publish on its topic, and an addressed one also the right of its verb: geocast, direct,
  broadcast or cancel. The limits of both deciding rules hold (`send_limits`);
- a subscription is allowed if one of its topics is: messages on the denied ones are left out when they are delivered
  (`may_read`). One that can match nothing allowed is refused, and the refusal names the rule;
- `%c` and `%u` in a rule stand for the client's id and user name. If the name is missing, contains / + or #, or would make the
  first level begin with $, the rule does not match that client;
- a rule may apply to the clients of one role, the one in their certificate. A denial by such a rule has the reason
  `CERTIFICATE_ROLE`, any other `NOT_ALLOWED`. There is no placeholder for roles;
- a right that needs a proven identity says so (`SendRight.needs_proof`), so that rights do not depend on the client unless a rule
  names clients.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Final

from milepost.model.addresses import Address, ToArea, ToContent, ToEndpoint, ToEveryone, ToNotified
from milepost.model.priorities import Priority
from milepost.model.queries import OnTopic, Query, normal_form
from milepost.model.reasons import Malformed, Reason, Refused, shown
from milepost.model.topics import (
    SHARE_PREFIX,
    Levels,
    are_covering,
    check_filter,
    covers,
    levels_of,
    maybe_overlap,
    maybe_shared,
    text_of,
)

RULES_MAX: Final = 10_000
WITHIN_M_MAX: Final = 20_100_000.0
"""The greatest distance between places on Earth."""

GEOCAST_M: Final = 5_000.0
"""Default of `geocast_m`: how far from a client the areas may reach that it may address without a rule."""

GEOCAST_VALID_S: Final = 3_600.0
"""Maximum validity of a geocast without a rule."""

VALID_S_MAX: Final = 1e9
"""Upper bound of `valid_s`: 31 years."""

_PLACEHOLDER: Final = re.compile("(%[cu])")
_UNSAFE: Final = re.compile("[/+#]")
_EVERYTHING: Final = levels_of("#")


class IdentityProof(IntEnum):
    """How an identity was proven; a higher proof is stronger."""

    NONE = 0
    """It was not: the client is anonymous."""
    USER = 1
    """A password or a TLS certificate proves the user; the client chose its client id itself."""
    CERTIFICATE = 2
    """A certificate for this client id proves both."""


@dataclass(frozen=True, slots=True)
class ClientIdentity:
    """The identity of a client, as far as it is proven: an unverified user name is not part of it."""

    client_id: str
    user: str | None = None
    """The authenticated user; None or empty: none."""
    role: str | None = None
    """The role in its certificate; None or empty: it has no certificate."""

    @property
    def proof(self) -> IdentityProof:
        """How the identity was proven."""
        if self.role:
            return IdentityProof.CERTIFICATE
        return IdentityProof.USER if self.user else IdentityProof.NONE

    @property
    def owner(self) -> str:
        """The owner of sessions that this identity opens: equal owners may resume each other's sessions; empty: anonymous."""
        if self.role:
            return "certificate"
        return f"user {self.user}" if self.user else ""


class AccessAction(Enum):
    """The operations that a rule applies to."""

    PUBLISH = "publish"
    SUBSCRIBE = "subscribe"
    BOTH = "both"
    """Publish and subscribe."""
    GEOCAST = "geocast"
    """Address an area."""
    DIRECT = "direct"
    """Address one endpoint."""
    BROADCAST = "broadcast"
    """Address all connected endpoints."""
    CANCEL = "cancel"
    """Address the endpoints notified of an earlier message, which ends it."""
    SEND = "send"
    """Publish and the four verbs of addressed messages."""

    @property
    def verbs(self) -> "tuple[AccessAction, ...]":
        """The single operations it stands for."""
        if self is AccessAction.BOTH:
            return (AccessAction.PUBLISH, AccessAction.SUBSCRIBE)
        return SEND_VERBS if self is AccessAction.SEND else (self,)


SEND_VERBS: Final = (
    AccessAction.PUBLISH,
    AccessAction.GEOCAST,
    AccessAction.DIRECT,
    AccessAction.BROADCAST,
    AccessAction.CANCEL,
)
"""The verbs of messages."""

_VERB_OF: Final[dict[type[Address], AccessAction]] = {
    ToContent: AccessAction.PUBLISH,
    ToArea: AccessAction.GEOCAST,
    ToEndpoint: AccessAction.DIRECT,
    ToEveryone: AccessAction.BROADCAST,
    ToNotified: AccessAction.CANCEL,
}


def needed_verbs(verb: AccessAction) -> tuple[AccessAction, ...]:
    """Return the verbs whose rights a message needs: to publish on its topic and, if it is addressed, its own."""
    return (verb,) if verb is AccessAction.PUBLISH else (AccessAction.PUBLISH, verb)


def verb_of(address: Address) -> AccessAction:
    """Return what a message with this address does."""
    return _VERB_OF[type(address)]


@dataclass(frozen=True, slots=True)
class AccessRule:
    """One line of the access list: allows or denies the topics of a filter to all clients, or to a user, a client or a role."""

    allow: bool
    action: AccessAction
    topics: str
    """A topic filter; %c and %u in it stand for the client's id and user name."""
    user: str | None = None
    """The user it applies to; None: all clients, empty: clients without a user name."""
    client: str | None = None
    role: str | None = None
    """The role it applies to; None: all clients, empty: clients without a certificate."""
    within_m: float = 0.0
    """Maximum distance from the sender to the place of a message and to the farthest point of its area; 0: any."""
    radius_m: float = 0.0
    """Maximum radius of the circle around the area of a message; 0: any."""
    priority: Priority = Priority.SAFETY
    """Most urgent class of messages; a rule for publishing also allows the class of the topic itself."""
    valid_s: float = 0.0
    """Maximum validity of a message from now on, in seconds; 0: any, also for ever."""

    def __post_init__(self) -> None:
        check_filter(self.topics)
        if self.topics.startswith(SHARE_PREFIX):
            raise Malformed(
                Reason.FIELD_RANGE,
                f"{shown(self.topics)}: give the filter without $share/GROUP/; the rule applies to shared subscriptions too",
            )
        for name, most in (("within_m", WITHIN_M_MAX), ("radius_m", WITHIN_M_MAX), ("valid_s", VALID_S_MAX)):
            if not 0 <= getattr(self, name) <= most:
                raise ValueError(f"{name} is {getattr(self, name)}, not in 0..{most:,.0f}")
        may_limit = self.allow and AccessAction.SUBSCRIBE not in self.action.verbs
        if self._limits and not may_limit:
            raise ValueError(f"{self._limits[0].split()[0]} applies only to rules that allow sending, not to: {self}")

    @property
    def _limits(self) -> list[str]:
        """The limits that differ from the defaults, as texts that begin with the key."""
        return [
            *([f"within_m {self.within_m:g}"] if self.within_m else []),
            *([f"radius_m {self.radius_m:g}"] if self.radius_m else []),
            *([f"priority {self.priority.name.lower()}"] if self.priority is not Priority.SAFETY else []),
            *([f"valid_s {self.valid_s:g}"] if self.valid_s else []),
        ]

    def __str__(self) -> str:
        clients = (("user", self.user), ("client", self.client), ("role", self.role))
        named = [f"{key} {shown(name) if name else 'none'}" for key, name in clients if name is not None]
        return " ".join(["allow" if self.allow else "deny", self.action.value, self.topics, *named, *self._limits])


_NO_RULE: Final = AccessRule(False, AccessAction.SEND, "#")
"""Stands for the rule on topics that no rule is about: they begin with $."""

BUILT_IN: Final = (
    AccessRule(False, AccessAction.BOTH, "$reserved/#"),
    AccessRule(True, AccessAction.SUBSCRIBE, "$milepost/reply"),
    AccessRule(True, AccessAction.SUBSCRIBE, "$milepost/revocations"),
    AccessRule(False, AccessAction.SUBSCRIBE, "$milepost/#"),
    AccessRule(True, AccessAction.PUBLISH, "$milepost/#"),
)
"""The rules after the users' rules. No other topic that begins with $ may be published to; `$SYS/#` may be read."""


def default_rules(geocast_m: float) -> tuple[AccessRule, ...]:
    """Return the rules of verbs without another rule, on topics that do not begin with $."""
    return (
        AccessRule(True, AccessAction.PUBLISH, "#"),
        AccessRule(True, AccessAction.GEOCAST, "#", within_m=geocast_m, priority=Priority.TRAFFIC, valid_s=GEOCAST_VALID_S),
        AccessRule(True, AccessAction.DIRECT, "#"),
        AccessRule(False, AccessAction.BROADCAST, "#"),
        AccessRule(True, AccessAction.CANCEL, "#"),
    )


@dataclass(frozen=True, slots=True)
class SystemTopics:
    """Topic filters whose defaults follow from the alerts of the settings."""

    closed: tuple[str, ...] = ()
    """Topics of alerts: closed to clients without a rule."""
    proven: tuple[str, ...] = ()
    """Topics that raise alerts or have the class emergency: only for proven identities without a rule."""


@dataclass(frozen=True, slots=True)
class SendRight:
    """The right of one verb on a topic: the rule that decides, and its limits."""

    verb: AccessAction
    decided_by: str
    """The deciding rule, by number and text, or the default."""
    rule: AccessRule
    """The deciding rule, with the limits."""
    refused: Refused | None = None
    needs_proof: bool = False
    """Whether only clients with a proven identity have it."""

    def refuse_identity(self, identity: ClientIdentity) -> Refused | None:
        """Return why a client does not have this right, apart from limits."""
        if self.refused is None and self.needs_proof and identity.proof is IdentityProof.NONE:
            return Refused(Reason.IDENTITY_NOT_PROVEN, f"{self.decided_by} needs a proven identity")
        return self.refused


class AccessList:
    """The access list."""

    def __init__(
        self,
        rules: Sequence[AccessRule] = (),
        system_topics: SystemTopics = SystemTopics(),  # noqa: B008  # immutable
        geocast_m: float = GEOCAST_M,
    ) -> None:
        if len(rules) > RULES_MAX:
            raise Malformed(Reason.FIELD_RANGE, f"{len(rules)} access rules, at most {RULES_MAX} are allowed")
        configured = [_CompiledRule(rule, f"rule {number}", _reason_of(rule)) for number, rule in enumerate(rules, 1)]
        compiled = [*configured, *_built_in(system_topics, geocast_m)]
        self._by_verb = {
            verb: tuple(rule for rule in compiled if verb in rule.definition.action.verbs)
            for verb in (*SEND_VERBS, AccessAction.SUBSCRIBE)
        }
        self._subscribe = self._by_verb[AccessAction.SUBSCRIBE]
        self._closed_levels = tuple(map(levels_of, system_topics.closed))
        self._system_levels = (*self._closed_levels, *map(levels_of, system_topics.proven))
        self._is_personal = any(rule.is_personal for rule in compiled)
        self._restricts_reading = any(
            not rule.allow and rule.action in (AccessAction.SUBSCRIBE, AccessAction.BOTH) for rule in rules
        )

    @property
    def is_personal(self) -> bool:
        """Whether verdicts depend on the client; if not, a verdict for one client holds for all."""
        return self._is_personal

    @property
    def restricts_reading(self) -> bool:
        """Whether a configured rule denies anyone to read a topic; if not, deliveries need no check."""
        return self._restricts_reading

    def right(self, identity: ClientIdentity, verb: AccessAction, topic: str) -> SendRight:
        """Return the right of a verb of `SEND_VERBS` on a topic; it holds for all clients unless the rules are personal."""
        rule = self._maybe_deciding_rule(identity, verb, topic)
        if rule is None:
            return SendRight(verb, "no rule", _NO_RULE, Refused(Reason.TOPIC_RESERVED, f"the topic {shown(topic)}"))
        refused = None if rule.definition.allow else Refused(rule.reason, f"{rule} denies {verb.value} on {shown(topic)}")
        return SendRight(verb, str(rule), rule.definition, refused, rule.needs_proof)

    def may_publish(self, identity: ClientIdentity, topic: str) -> Refused | None:
        """Check a publication to a topic, apart from limits."""
        return self.right(identity, AccessAction.PUBLISH, topic).refuse_identity(identity)

    def _maybe_deciding_rule(self, identity: ClientIdentity, verb: AccessAction, topic: str) -> "_CompiledRule | None":
        """Return the first rule that matches a client, a verb and a topic."""
        requested = levels_of(topic)
        is_closed = verb is AccessAction.PUBLISH and any(covers(levels, requested) for levels in self._closed_levels)
        for rule in self._by_verb[verb]:
            if is_closed and rule.allows_any_first_level:
                continue  # a rule opens alert topics only by name
            levels = rule.maybe_levels(identity, requested)
            if levels is not None and covers(levels, requested):
                return rule
        return None

    def may_subscribe(self, identity: ClientIdentity, topic_filter: str) -> Refused | None:
        """Check an MQTT subscription; a shared one is checked by its filter."""
        try:
            shared = maybe_shared(topic_filter)
        except Malformed as fault:
            return fault.refused
        return self._may_receive(identity, levels_of(shared.filter if shared else topic_filter), [])

    def may_query(self, identity: ClientIdentity, query: Query) -> Refused | None:
        """Check a query: one of its alternatives must have a topic that may be read, other than those it excludes itself.

        An alternative without a topic requests all topics that do not begin with $.
        """
        try:
            clauses = normal_form(query)
        except Malformed as fault:
            return fault.refused
        refused = None
        for clause in clauses:
            requested = _maybe_common(atom.filter for atom in clause.required if isinstance(atom, OnTopic))
            excluded = [levels_of(atom.filter) for atom in clause.excluded if isinstance(atom, OnTopic)]
            if requested is None or are_covering(excluded, requested):
                continue  # the clause matches nothing
            verdict = self._may_receive(identity, requested, excluded)
            if verdict is None:
                return None
            refused = refused or verdict
        return refused

    def _may_receive(self, identity: ClientIdentity, requested: Levels, excluded: list[Levels]) -> Refused | None:
        """Check whether any topic of a filter may be read, other than those excluded, which must not be all of them."""
        denied, last = excluded, None
        for rule in self._subscribe:
            levels = rule.maybe_levels(identity, requested)
            overlap = None if levels is None else maybe_overlap(levels, requested)
            if overlap is None:
                continue
            if rule.definition.allow and not are_covering(denied, overlap):
                return None
            if not rule.definition.allow:
                denied.append(overlap)
                last = rule
                if covers(overlap, requested):
                    break
        if last is None or not are_covering(denied, requested):
            return None
        detail = f"{last} denies the filter {shown(text_of(requested))}: it can match no topic that is allowed"
        return Refused(last.reason, detail)

    def may_read(self, identity: ClientIdentity, topic: str) -> Refused | None:
        """Check the delivery of a message on a topic."""
        rule = self.readers_of(topic).maybe_deciding_rule(identity)
        if rule is None or rule.definition.allow:
            return None
        return Refused(rule.reason, f"{rule} denies the topic {shown(topic)}")

    def may_be_answered(self, identity: ClientIdentity, topic: str) -> Refused | None:
        """Check the topic on which a client asks for an answer: one that it may read; for alerts, also publish on."""
        refused = self.may_read(identity, topic)
        if refused is None and any(covers(levels, levels_of(topic)) for levels in self._system_levels):
            return self.may_publish(identity, topic)
        return refused

    def readers_of(self, topic: str) -> "TopicReaders":
        """Return the clients that may read a topic."""
        requested, found = levels_of(topic), list[_CompiledRule]()
        for rule in self._subscribe:
            if rule.may_match(requested):
                found.append(rule)
                if not rule.is_personal:
                    break
        return TopicReaders(requested, tuple(found))


class TopicReaders:
    """The clients that may read one topic: by the rules that can match it, in order."""

    __slots__ = ("_requested", "_rules", "verdict")

    def __init__(self, requested: Levels, rules: tuple["_CompiledRule", ...]) -> None:
        self._requested = requested
        self._rules = rules
        verdicts = {rule.definition.allow for rule in rules}
        if not rules or rules[-1].is_personal:
            verdicts.add(True)  # the default
        self.verdict: bool | None = verdicts.pop() if len(verdicts) == 1 else None
        """Whether all clients may read the topic, or none; None: that depends on the client."""

    def include(self, identity: ClientIdentity) -> bool:
        """Return whether a client may read the topic."""
        if self.verdict is not None:
            return self.verdict
        rule = self.maybe_deciding_rule(identity)
        return rule is None or rule.definition.allow

    def maybe_deciding_rule(self, identity: ClientIdentity) -> "_CompiledRule | None":
        """Return the rule that decides for a client, if one matches."""
        for rule in self._rules:
            levels = rule.maybe_levels(identity, self._requested)
            if levels is not None and covers(levels, self._requested):
                return rule
        return None


class _CompiledRule:
    """A rule prepared for matching."""

    __slots__ = (
        "_first",
        "_levels",
        "_parts",
        "_pattern",
        "allows_any_first_level",
        "definition",
        "is_personal",
        "name",
        "needs_proof",
        "reason",
    )

    def __init__(self, rule: AccessRule, name: str, reason: Reason, *, needs_proof: bool = False) -> None:
        self.definition = rule
        self.name = name
        self.reason = reason
        self.needs_proof = needs_proof
        self._levels = levels_of(rule.topics)
        self._parts = _PLACEHOLDER.split(rule.topics)  # every second one is a placeholder
        self._first = "+" if _PLACEHOLDER.search(self._levels[0]) else self._levels[0]
        self.allows_any_first_level = rule.allow and self._first in ("+", "#")
        """Whether it allows topics that it does not name by their first level."""
        self._pattern = tuple("+" if _PLACEHOLDER.search(level) else level for level in self._levels)
        self.is_personal = len(self._parts) > 1 or not (rule.user is None and rule.client is None and rule.role is None)
        """Whether it depends on the client."""

    def __str__(self) -> str:
        return f"{self.name} ({self.definition})"

    def may_match(self, topic: Levels) -> bool:
        """Return whether the rule applies to a topic for some clients; True if it may."""
        is_system = topic[0].startswith("$") and self._pattern[0] == "+" != self._levels[0]  # such as $%c
        return is_system or covers(self._pattern, topic)

    def maybe_levels(self, identity: ClientIdentity, requested: Levels) -> Levels | None:
        """Return the rule's filter for this client; None if the rule does not apply to it, or cannot overlap *requested*."""
        if self._first != requested[0] and self._first != "+" and requested[0] != "+":
            return None
        rule = self.definition
        if rule.user is not None and rule.user != (identity.user or ""):
            return None
        if rule.client is not None and rule.client != identity.client_id:
            return None
        if rule.role is not None and rule.role != (identity.role or ""):
            return None
        return self._levels if len(self._parts) == 1 else self._maybe_filled(identity)

    def _maybe_filled(self, identity: ClientIdentity) -> Levels | None:
        levels = self._parts.copy()  # all in one pass, so that a client named %u gains nothing by it
        for at in range(1, len(levels), 2):
            name = identity.client_id if levels[at] == "%c" else identity.user
            if not name or _UNSAFE.search(name) or (name[0] == "$" and at == 1 and not levels[0]):
                return None
            levels[at] = name
        return levels_of("".join(levels))


def _built_in(system_topics: SystemTopics, geocast_m: float) -> Iterator[_CompiledRule]:
    """Yield the rules after the users' rules; where a topic is both closed and for proven identities, it is closed."""
    for rule in BUILT_IN:
        yield _CompiledRule(rule, "a built-in rule", Reason.TOPIC_RESERVED)
    for topics in system_topics.closed:
        closed = AccessRule(False, AccessAction.PUBLISH, topics)
        yield _CompiledRule(closed, "the default for alert topics", Reason.NOT_ALLOWED)
    for topics in system_topics.proven:
        proven = AccessRule(True, AccessAction.PUBLISH, topics)
        yield _CompiledRule(proven, "the default for reports of emergencies", Reason.NOT_ALLOWED, needs_proof=True)
    for rule in default_rules(geocast_m):
        is_geocast = rule.action is AccessAction.GEOCAST
        yield _CompiledRule(rule, f"the default for {rule.action.value}", Reason.NOT_ALLOWED, needs_proof=is_geocast)


def _reason_of(rule: AccessRule) -> Reason:
    return Reason.NOT_ALLOWED if rule.role is None else Reason.CERTIFICATE_ROLE


def _maybe_common(filters: Iterator[str]) -> Levels | None:
    """Return the overlap of all filters; None if it is empty."""
    common: Levels | None = None
    for levels in map(levels_of, filters):
        common = levels if common is None else maybe_overlap(common, levels)
        if common is None:
            return None
    return _EVERYTHING if common is None else common
