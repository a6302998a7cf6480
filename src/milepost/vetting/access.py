"""Access: who may publish and subscribe to what.

Rules of this file:
- the first rule that is about the client, the verb and the topic decides; after the users' rules come the built-in ones, which
  keep topics that begin with $ for the system; whatever no rule is about is allowed;
- a subscription is allowed if nothing it asks for is denied: one that reaches into a denied filter is refused as a whole, and
  told which rule is in the way, rather than served in part without a word;
- `%c` and `%u` in a rule stand for the client's id and user name. A name with / + or # in it, a name that would make the
  first level begin with $, and no name at all fit nothing: such a rule is not about that client;
- a rule may be for the clients of one role, the one in their certificate. What such a rule denies is refused for the role
  (`CERTIFICATE_ROLE`), what any other denies is not allowed (`NOT_ALLOWED`). There is no blank for roles;
- a rule that allows to publish may say how near: a place that a message names must then be so near to where its publisher is
  (`messages`). It is the same rule that decides both.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from milepost.model.queries import OnTopic, Query, normal_form
from milepost.model.reasons import Malformed, Reason, Refused, shown
from milepost.model.topics import SHARE_PREFIX, check_filter, maybe_shared
from milepost.vetting.filters import Levels, are_covering, covers, levels_of, maybe_overlap, text_of

RULES_MAX: Final = 10_000
WITHIN_M_MOST: Final = 20_100_000.0
"""As far as places on Earth are apart."""

_BLANK: Final = re.compile("(%[cu])")
_UNFIT: Final = re.compile("[/+#]")
_EVERYTHING: Final = levels_of("#")


@dataclass(frozen=True, slots=True)
class Who:
    """A client as it made itself known; without a user name, or with an empty one, it is anonymous."""

    client: str
    user: str | None = None
    role: str | None = None
    """What its certificate says it is; nothing or an empty text = it has no certificate."""


class Verbs(Enum):
    """What a rule is about."""

    PUBLISH = "publish"
    SUBSCRIBE = "subscribe"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of the access list: allows or denies the topics of a filter to everybody, to a user, a client or a role."""

    allow: bool
    verbs: Verbs
    topics: str
    """A topic filter; %c and %u in it stand for the client's id and user name."""
    user: str | None = None
    """To whom it applies; nothing = to everybody, an empty text = to clients without a user name."""
    client: str | None = None
    role: str | None = None
    """Nothing = to everybody, an empty text = to clients without a certificate."""
    within_m: float = 0.0
    """A place that a message names must be so near to where its publisher is; 0 = anywhere."""

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
"""What holds where no user's rule decides. No other topic that begins with $ may be published to; `$SYS/#` may be read."""


class Access:
    """The access list, asked about clients."""

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
        """Whether verdicts depend on who asks; if not, what was decided for one client holds for all."""
        return self._is_personal

    def may_publish(self, who: Who, topic: str) -> Refused | None:
        """The verdict on a message to a topic."""
        line = self._maybe_line(who, topic)
        if line is None:
            return Refused(Reason.TOPIC_RESERVED, f"the topic {shown(topic)}") if topic.startswith("$") else None
        return None if line.rule.allow else Refused(line.reason, f"{line} closes the topic {shown(topic)}")

    def within_m(self, who: Who, topic: str) -> float:
        """How near a place must be that a message to a topic names; 0: anywhere."""
        line = self._maybe_line(who, topic)
        return 0.0 if line is None else line.rule.within_m

    def _maybe_line(self, who: Who, topic: str) -> "_Line | None":
        """The rule that decides who publishes to a topic."""
        wanted = levels_of(topic)
        for line in self._publish:
            levels = line.maybe_levels(who, wanted)
            if levels is not None and covers(levels, wanted):
                return line
        return None

    def may_subscribe(self, who: Who, topic_filter: str) -> Refused | None:
        """The verdict on an MQTT subscription; a shared one is judged by the filter inside."""
        try:
            shared = maybe_shared(topic_filter)
        except Malformed as fault:
            return fault.refused
        return self._may_receive(who, levels_of(shared.filter if shared else topic_filter), [])

    def may_ask(self, who: Who, query: Query) -> Refused | None:
        """The verdict on a formula: on the topics each of its alternatives asks for, less those it excludes itself.

        An alternative that names no topic is taken to ask for all that do not begin with $.
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

    def _may_receive(self, who: Who, wanted: Levels, settled: list[Levels]) -> Refused | None:
        """`settled` are topics on which nothing further can be said: excluded, or allowed by an earlier rule."""
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
    """A rule made ready for asking."""

    __slots__ = ("_first", "_levels", "_parts", "name", "reason", "rule")

    def __init__(self, rule: Rule, name: str, reason: Reason) -> None:
        self.rule = rule
        self.name = name
        self.reason = reason
        self._levels = levels_of(rule.topics)
        self._parts = _BLANK.split(rule.topics)  # every second one is a blank
        self._first = "+" if _BLANK.search(self._levels[0]) else self._levels[0]

    def __str__(self) -> str:
        return f"{self.name} ({self.rule})"

    @property
    def is_personal(self) -> bool:
        """Whether it depends on who asks."""
        rule = self.rule
        return len(self._parts) > 1 or not (rule.user is None and rule.client is None and rule.role is None)

    def maybe_levels(self, who: Who, wanted: Levels) -> Levels | None:
        """The rule's filter for this client; nothing if the rule is not about it, or has nothing to do with what is wanted."""
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

    def _maybe_filled(self, who: Who) -> Levels | None:
        filled = self._parts.copy()  # filled all at once: a client that is called %u gains nothing by it
        for at in range(1, len(filled), 2):
            name = who.client if filled[at] == "%c" else who.user
            if not name or _UNFIT.search(name) or (name[0] == "$" and at == 1 and not filled[0]):
                return None
            filled[at] = name
        return levels_of("".join(filled))


def _reason_of(rule: Rule) -> Reason:
    return Reason.NOT_ALLOWED if rule.role is None else Reason.CERTIFICATE_ROLE


def _maybe_common(filters: Iterator[str]) -> Levels | None:
    """What all filters have in common; nothing if that is no topic at all."""
    common: Levels | None = None
    for levels in map(levels_of, filters):
        common = levels if common is None else maybe_overlap(common, levels)
        if common is None:
            return None
    return _EVERYTHING if common is None else common
