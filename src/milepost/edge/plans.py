"""Plans: what matching decided for a topic, kept until something it depends on changes.

    topic ──▶ Plan ──▶ Fan: groups of takers that get a message alike        ──▶ one encoding, many recipients
                  └──▶ Turns: shares, each of which has one of its members served

What must hold:
- a plan gives what matching would give at this moment; `Planner.epoch` grows with every change that could make it wrong;
- only what all messages of a topic have in common is kept. Messages with tags, with a place while somebody asks for areas, or
  on a topic somebody asks for during a frame get a plan of their own each time;
- equal fans are one object, so that messages of different topics to the same takers are handed out together.
"""

from collections.abc import Set as AbstractSet
from typing import Final

from milepost.edge.sessions import NOWHERE, Asked, Session, Sessions
from milepost.matching.matcher import Matcher
from milepost.matching.rows import Rows
from milepost.model.instants import Instant
from milepost.model.messages import Message

PLANS_MAX: Final = 100_000
"""So many topics are remembered at a time."""

_HIGHEST_QOS: Final = 2

GroupKey = tuple[int, int, tuple[int, ...], bool]


class Group:
    """Takers that get a message alike: one dialect, one quality, the same labels."""

    __slots__ = ("dialect", "form", "is_retain_shown", "labels", "qos", "sessions")

    def __init__(self, key: GroupKey, sessions: list[Session]) -> None:
        self.dialect, self.qos, self.labels, self.is_retain_shown = key
        self.sessions = sessions
        self.form: bytes | None = None
        """For the door that serves this dialect: what it worked out for the group."""


class Fan:
    """All groups of a message's takers."""

    __slots__ = ("groups", "size")

    def __init__(self, groups: tuple[Group, ...]) -> None:
        self.groups = groups
        self.size = sum(len(group.sessions) for group in groups)
        """How many takers there are."""

    def without(self, names: AbstractSet[str]) -> "Fan":
        """The same but for some takers."""
        if not names:
            return self
        groups = ((_key_of(group), [one for one in group.sessions if one.name not in names]) for group in self.groups)
        return Fan(tuple(Group(key, sessions) for key, sessions in groups if sessions))


NO_FAN: Final = Fan(())


class Turn:
    """The members of one share that want a message; they are served in turn, those connected first."""

    __slots__ = ("_next", "members")

    def __init__(self, members: list[tuple[Session, GroupKey]], start: int) -> None:
        self.members = members
        self._next = start

    def take(self) -> Group:
        """The member whose turn it is, as a group of one."""
        count = len(self.members)
        self._next += 1
        order = [self.members[(self._next + step) % count] for step in range(count)]
        chosen = next((member for member in order if member[0].is_clear), None)
        chosen = chosen or next((member for member in order if member[0].link is not NOWHERE), order[0])
        return Group(chosen[1], [chosen[0]])


class Plan:
    """Who gets a message of some topic."""

    __slots__ = ("epoch", "fan", "not_own", "turns")

    def __init__(self, epoch: int, fan: Fan, turns: list[Turn], not_own: frozenset[int]) -> None:
        self.epoch = epoch
        self.fan = fan
        """Everybody who asked for himself."""
        self.turns = turns
        self.not_own = not_own
        """Sessions that may not want messages of their own."""

    def fan_for(self, origin: int) -> Fan:
        """The takers of a message of some origin, members of shares chosen."""
        if not self.turns and origin not in self.not_own:
            return self.fan
        groups = self.fan.groups
        if origin in self.not_own:  # a member of a share gets its own messages too: no_local has no meaning there. [MQTT-3.8.3-4]
            groups = tuple(_without(group, origin) for group in groups)
        return Fan((*groups, *(turn.take() for turn in self.turns)))


def group_by_dialect(sessions: list[Session]) -> Fan:
    """Takers that did not subscribe: they are addressed, and get the message with the quality it came with."""
    groups: dict[int, list[Session]] = {}
    for session in sessions:
        groups.setdefault(session.dialect, []).append(session)
    return Fan(tuple(Group((dialect, _HIGHEST_QOS, (), False), those) for dialect, those in groups.items()))


def _key_of(group: Group) -> GroupKey:
    return group.dialect, group.qos, group.labels, group.is_retain_shown


def _without(group: Group, origin: int) -> Group:
    return Group(_key_of(group), [session for session in group.sessions if session.number != origin])


class Planner:
    """Makes plans by asking the matcher, and remembers those that last."""

    def __init__(self, matcher: Matcher, sessions: Sessions) -> None:
        self._matcher = matcher
        self._sessions = sessions
        self._asked: dict[int, Asked] = {}
        self._plans: dict[str, Plan] = {}
        self._fans: dict[tuple[tuple[GroupKey, tuple[int, ...]], ...], Fan] = {}
        self._turns: dict[int, int] = {}
        self.epoch = 0
        """Grows whenever a plan may have become wrong."""

    def put(self, asked: Asked) -> None:
        """A subscription is in use from now on."""
        self._asked[asked.row] = asked
        self.change()

    def take_away(self, row: int) -> None:
        """A subscription is no longer in use."""
        del self._asked[row]
        self.change()

    def change(self) -> None:
        """What plans were made from has changed."""
        self.epoch += 1
        self._plans.clear()
        self._fans.clear()  # also fans of plans that did not last: a number in them may soon be another session's

    def plan(self, message: Message, now: Instant) -> Plan:
        """Who gets this message."""
        plan = self._plans.get(message.topic)
        is_lasting = self._matcher.is_lasting(message) and not message.is_expired(now)
        if plan is not None and is_lasting:
            return plan
        plan = self._make(message, now)
        if is_lasting:
            if len(self._plans) >= PLANS_MAX:
                self._plans.clear()
                self._fans.clear()
            self._plans[message.topic] = plan
        return plan

    def maybe_lasting(self, message: Message, now: Instant) -> Plan | None:
        """The plan for all plain messages of a topic, if there is one that lasts."""
        return self.plan(message, now) if self._matcher.is_lasting(message) else None

    def _make(self, message: Message, now: Instant) -> Plan:
        matcher = self._matcher
        rows = matcher.rows_wanting(message, now)
        shares = matcher.shares_of(rows)
        own = rows[shares == 0]
        fan, not_own = self._fan_of(own.tolist(), matcher.owners_of(own).tolist())
        if own.size == rows.size:
            return Plan(self.epoch, fan, [], not_own)
        return Plan(self.epoch, fan, self._turns_of(rows[shares > 0], shares[shares > 0]), not_own)

    def _fan_of(self, rows: list[int], owners: list[int]) -> tuple[Fan, frozenset[int]]:
        """Each taker once, with the best quality and all labels of its subscriptions that matched."""
        by_owner: dict[int, list[Asked]] = {}
        for row, owner in zip(rows, owners, strict=True):
            by_owner.setdefault(owner, []).append(self._asked[row])
        groups: dict[GroupKey, list[int]] = {}
        for owner in sorted(by_owner):
            groups.setdefault(self._key_of(self._sessions[owner], by_owner[owner]), []).append(owner)
        # No endpoint is left out though one of its subscriptions wants no messages of its own and another does.
        not_own = frozenset(owner for owner, asked in by_owner.items() if all(one.is_not_own for one in asked))
        shape = tuple((key, tuple(numbers)) for key, numbers in groups.items())
        fan = self._fans.get(shape)
        if fan is None:
            fan = Fan(tuple(Group(key, [self._sessions[number] for number in numbers]) for key, numbers in shape))
            if len(self._fans) < PLANS_MAX:
                self._fans[shape] = fan
        return fan, not_own

    def _turns_of(self, rows: Rows, shares: Rows) -> list[Turn]:
        members: dict[int, list[tuple[Session, GroupKey]]] = {}
        owners = self._matcher.owners_of(rows).tolist()
        for row, share, owner in zip(rows.tolist(), shares.tolist(), owners, strict=True):
            session = self._sessions[owner]
            members.setdefault(share, []).append((session, self._key_of(session, [self._asked[row]])))
        turns = []
        for share, those in members.items():
            self._turns[share] = self._turns.get(share, 0) + 1
            turns.append(Turn(sorted(those, key=_by_number), self._turns[share]))
        return turns

    def _key_of(self, session: Session, asked: list[Asked]) -> GroupKey:
        labels = tuple(sorted(one.subscription.id for one in asked if one.subscription.id))
        qos = max(one.subscription.qos for one in asked)
        return session.dialect, qos, labels, any(one.is_retain_shown for one in asked)


def _by_number(member: tuple[Session, GroupKey]) -> int:
    return member[0].number
