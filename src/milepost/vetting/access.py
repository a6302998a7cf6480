"""Access: which clients may publish and subscribe to which topics.

Invariants:
- the first rule that matches the client, the verb and the topic decides; after the users' rules come the built-in ones, which
  reserve topics that begin with $ for the system; the default is allow;
- a subscription is allowed if none of its topics is denied: one that overlaps a denied filter is refused as a whole, and the
  refusal names the rule, rather than served in part without notice;
- `%c` and `%u` in a rule stand for the client's id and user name. If the name is missing, contains / + or #, or would make the
  first level begin with $, the rule does not match that client;
- a rule may apply to the clients of one role, the one in their certificate. A denial by such a rule has the reason
  `CERTIFICATE_ROLE`, any other `NOT_ALLOWED`. There is no placeholder for roles;
- a rule that allows publishing may limit the distance between a place that a message names and its publisher (`messages`). The
  same rule decides both.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

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
WITHIN_M_MOST: Final = 20_100_000.0
"""The greatest distance between places on Earth."""

_BLANK: Final = re.compile("(%[cu])")
_UNFIT: Final = re.compile("[/+#]")
_EVERYTHING: Final = levels_of("#")


@dataclass(frozen=True, slots=True)
class ClientIdentity:
    """An authenticated client; without a user name, or with an empty one, it is anonymous."""

    client: str
    user: str | None = None
    role: str | None = None
    """The role in its certificate; None or empty: it has no certificate."""


class Verbs(Enum):
    """The operations that a rule applies to."""

    PUBLISH = "publish"
    SUBSCRIBE = "subscribe"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of the access list: allows or denies the topics of a filter to all clients, or to a user, a client or a role."""

    allow: bool
    verbs: Verbs
    topics: str
    """A topic filter; %c and %u in it stand for the client's id and user name."""
    user: str | None = None
    """The user it applies to; None: all clients, empty: clients without a user name."""
    client: str | None = None
    role: str | None = None
    """The role it applies to; None: all clients, empty: clients without a certificate."""
    within_m: float = 0.0
    """Maximum distance from the publisher to a place that a message names; 0: any."""

    def __post_init__(self) -> None:
        check_filter(self.topics)
        if self.topics.startswith(SHARE_PREFIX):
            raise Malformed(Reason.FIELD_RANGE, f"{shown(self.topics)}: name the filter inside, shared or not it is the same")
        if not 0 <= self.within_m <= WITHIN_M_MOST:
            raise ValueError(f"within_m is {self.within_m}, not in 0..{WITHIN_M_MOST:,.0f}")
        if self.within_m and not (self.allow and self.verbs is Verbs.PUBLISH):
            raise ValueError(f"within_m is for rules that allow to publish, not for: {self}")

    def __str__(self) -> str:
        near = f" within {self.within_m:g} m" if self.within_m else ""
        return f"{'allow' if self.allow else 'deny'} {self.verbs.value} {self.topics}{near}"


BUILT_IN: Final = (
    Rule(False, Verbs.BOTH, "$reserved/#"),
    Rule(True, Verbs.SUBSCRIBE, "$milepost/reply"),
    Rule(False, Verbs.SUBSCRIBE, "$milepost/#"),
    Rule(True, Verbs.PUBLISH, "$milepost/#"),
)
"""The rules after the users' rules. No other topic that begins with $ may be published to; `$SYS/#` may be read."""


class Access:
    """The access list."""

    def __init__(self, rules: Sequence[Rule] = ()) -> None:
        if len(rules) > RULES_MAX:
            raise Malformed(Reason.FIELD_RANGE, f"{len(rules)} access rules, {RULES_MAX} are allowed")
        own = [_Line(rule, f"rule {number}", _reason_of(rule)) for number, rule in enumerate(rules, 1)]
        lines = [*own, *(_Line(rule, "a built-in rule", Reason.TOPIC_RESERVED) for rule in BUILT_IN)]
        self._publish = tuple(line for line in lines if line.rule.verbs is not Verbs.SUBSCRIBE)
        self._subscribe = tuple(line for line in lines if line.rule.verbs is not Verbs.PUBLISH)
        self._is_personal = any(line.is_personal for line in lines)

    @property
    def is_personal(self) -> bool:
        """Whether verdicts depend on the client; if not, a verdict for one client holds for all."""
        return self._is_personal

    def may_publish(self, who: ClientIdentity, topic: str) -> Refused | None:
        """Check a publication to a topic."""
        line = self._maybe_line(who, topic)
        if line is None:
            return Refused(Reason.TOPIC_RESERVED, f"the topic {shown(topic)}") if topic.startswith("$") else None
        return None if line.rule.allow else Refused(line.reason, f"{line} closes the topic {shown(topic)}")

    def within_m(self, who: ClientIdentity, topic: str) -> float:
        """Return the maximum distance to a place that a message on the topic names; 0: any."""
        line = self._maybe_line(who, topic)
        return 0.0 if line is None else line.rule.within_m

    def _maybe_line(self, who: ClientIdentity, topic: str) -> "_Line | None":
        """Return the rule that decides on a publication, if one matches."""
        wanted = levels_of(topic)
        for line in self._publish:
            levels = line.maybe_levels(who, wanted)
            if levels is not None and covers(levels, wanted):
                return line
        return None

    def may_subscribe(self, who: ClientIdentity, topic_filter: str) -> Refused | None:
        """Check an MQTT subscription; a shared one is checked by its filter."""
        try:
            shared = maybe_shared(topic_filter)
        except Malformed as fault:
            return fault.refused
        return self._may_receive(who, levels_of(shared.filter if shared else topic_filter), [])

    def may_ask(self, who: ClientIdentity, query: Query) -> Refused | None:
        """Check a query: the topics of each of its alternatives, less those it excludes itself.

        An alternative without a topic asks for all topics that do not begin with $.
        """
        try:
            clauses = normal_form(query)
        except Malformed as fault:
            return fault.refused
        for clause in clauses:
            wanted = _maybe_common(atom.filter for atom in clause.wanted if isinstance(atom, OnTopic))
            excluded = [levels_of(atom.filter) for atom in clause.unwanted if isinstance(atom, OnTopic)]
            verdict = None if wanted is None else self._may_receive(who, wanted, excluded)
            if verdict is not None:
                return verdict
        return None

    def _may_receive(self, who: ClientIdentity, wanted: Levels, settled: list[Levels]) -> Refused | None:
        """Check a filter; `settled` are topics that need no further check: excluded, or allowed by an earlier rule."""
        for line in self._subscribe:
            levels = line.maybe_levels(who, wanted)
            if levels is None:
                continue
            if line.rule.allow:
                if covers(levels, wanted):
                    return None
                settled.append(levels)
                continue
            closed = maybe_overlap(levels, wanted)
            if closed is not None and not are_covering(settled, closed):
                return Refused(line.reason, f"{line} closes {shown(text_of(closed))} of the filter {shown(text_of(wanted))}")
        return None


class _Line:
    """A rule prepared for matching."""

    __slots__ = ("_first", "_levels", "_parts", "name", "reason", "rule")

    def __init__(self, rule: Rule, name: str, reason: Reason) -> None:
        self.rule = rule
        self.name = name
        self.reason = reason
        self._levels = levels_of(rule.topics)
        self._parts = _BLANK.split(rule.topics)  # every second one is a placeholder
        self._first = "+" if _BLANK.search(self._levels[0]) else self._levels[0]

    def __str__(self) -> str:
        return f"{self.name} ({self.rule})"

    @property
    def is_personal(self) -> bool:
        """Whether it depends on the client."""
        rule = self.rule
        return len(self._parts) > 1 or not (rule.user is None and rule.client is None and rule.role is None)

    def maybe_levels(self, who: ClientIdentity, wanted: Levels) -> Levels | None:
        """Return the rule's filter for this client; None if the rule does not apply to it, or cannot overlap *wanted*."""
        if self._first != wanted[0] and self._first != "+" and wanted[0] != "+":
            return None
        rule = self.rule
        if rule.user is not None and rule.user != (who.user or ""):
            return None
        if rule.client is not None and rule.client != who.client:
            return None
        if rule.role is not None and rule.role != (who.role or ""):
            return None
        return self._levels if len(self._parts) == 1 else self._maybe_filled(who)

    def _maybe_filled(self, who: ClientIdentity) -> Levels | None:
        filled = self._parts.copy()  # all in one pass, so that a client named %u gains nothing by it
        for at in range(1, len(filled), 2):
            name = who.client if filled[at] == "%c" else who.user
            if not name or _UNFIT.search(name) or (name[0] == "$" and at == 1 and not filled[0]):
                return None
            filled[at] = name
        return levels_of("".join(filled))


def _reason_of(rule: Rule) -> Reason:
    return Reason.NOT_ALLOWED if rule.role is None else Reason.CERTIFICATE_ROLE


def _maybe_common(filters: Iterator[str]) -> Levels | None:
    """Return the overlap of all filters; None if it is empty."""
    common: Levels | None = None
    for levels in map(levels_of, filters):
        common = levels if common is None else maybe_overlap(common, levels)
        if common is None:
            return None
    return _EVERYTHING if common is None else common
