"""Routes: the decisions of matching for a topic, cached until something they depend on changes.

    topic ──▶ Route ──▶ Fan: groups of receivers that get a message alike    ──▶ one encoding, many recipients
                   └──▶ Turns: shared subscriptions, each of which delivers to one of its members

Invariants:
- a route equals what matching would return now; `RouteCache.epoch` grows with every change that could make it wrong;
- only what all messages of a topic have in common is cached. Messages with tags, with a place while there are subscriptions to
  areas, or on a topic with subscriptions for a time window get a route of their own each time;
- equal fans are one object, so that messages of different topics to the same receivers are sent together.
"""

from collections.abc import Set as AbstractSet
from typing import Final

from milepost.broker.session import NOWHERE, Asked, Session, Sessions
from milepost.matching.columns import Rows
from milepost.matching.matcher import Matcher
from milepost.model.instants import Instant
from milepost.model.messages import Message

PLANS_MAX: Final = 100_000
"""Maximum topics cached at a time."""

_HIGHEST_QOS: Final = 2

GroupKey = tuple[int, int, tuple[int, ...], bool]


class Group:
    """Receivers that get a message alike: one encoding, one QoS, the same subscription ids."""

    __slots__ = ("encoding", "form", "is_retain_shown", "labels", "qos", "sessions")

    def __init__(self, key: GroupKey, sessions: list[Session]) -> None:
        self.encoding, self.qos, self.labels, self.is_retain_shown = key
        self.sessions = sessions
        self.form: bytes | None = None
        """For the listener of this encoding: bytes it prepared for the group."""


class Fan:
    """All groups of a message's receivers."""

    __slots__ = ("groups", "size")

    def __init__(self, groups: tuple[Group, ...]) -> None:
        self.groups = groups
        self.size = sum(len(group.sessions) for group in groups)
        """The number of receivers."""

    def without(self, names: AbstractSet[str]) -> "Fan":
        """Return the fan without some receivers."""
        if not names:
            return self
        groups = ((_key_of(group), [one for one in group.sessions if one.name not in names]) for group in self.groups)
        return Fan(tuple(Group(key, sessions) for key, sessions in groups if sessions))


NO_FAN: Final = Fan(())


class Turn:
    """The members of a shared subscription that match a message; served round-robin, connected ones first."""

    __slots__ = ("_next", "members")

    def __init__(self, members: list[tuple[Session, GroupKey]], start: int) -> None:
        self.members = members
        self._next = start

    def take(self) -> Group:
        """Return the next member, as a group of one."""
        count = len(self.members)
        self._next += 1
        order = [self.members[(self._next + step) % count] for step in range(count)]
        chosen = next((member for member in order if member[0].is_clear), None)
        chosen = chosen or next((member for member in order if member[0].link is not NOWHERE), order[0])
        return Group(chosen[1], [chosen[0]])


class Route:
    """The receivers of a message on some topic."""

    __slots__ = ("epoch", "fan", "not_own", "turns")

    def __init__(self, epoch: int, fan: Fan, turns: list[Turn], not_own: frozenset[int]) -> None:
        self.epoch = epoch
        self.fan = fan
        """Receivers with subscriptions that are not shared."""
        self.turns = turns
        self.not_own = not_own
        """Sessions whose matching subscriptions are all No Local."""

    def fan_for(self, origin: int) -> Fan:
        """Return the receivers of a message from *origin*, with a member chosen for each shared subscription."""
        if not self.turns and origin not in self.not_own:
            return self.fan
        groups = self.fan.groups
        if origin in self.not_own:  # shared subscriptions include own messages: No Local is not allowed there. [MQTT-3.8.3-4]
            groups = tuple(_without(group, origin) for group in groups)
        return Fan((*groups, *(turn.take() for turn in self.turns)))


def group_by_encoding(sessions: list[Session]) -> Fan:
    """Return a fan of addressed sessions: they need no subscription, and get the message with the QoS it was published with."""
    groups: dict[int, list[Session]] = {}
    for session in sessions:
        groups.setdefault(session.encoding, []).append(session)
    return Fan(tuple(Group((encoding, _HIGHEST_QOS, (), False), those) for encoding, those in groups.items()))


def _key_of(group: Group) -> GroupKey:
    return group.encoding, group.qos, group.labels, group.is_retain_shown


def _without(group: Group, origin: int) -> Group:
    return Group(_key_of(group), [session for session in group.sessions if session.number != origin])


class RouteCache:
    """Makes routes with the matcher, and caches those that last."""

    def __init__(self, matcher: Matcher, sessions: Sessions) -> None:
        self._matcher = matcher
        self._sessions = sessions
        self._asked: dict[int, Asked] = {}
        self._plans: dict[str, Route] = {}
        self._fans: dict[tuple[tuple[GroupKey, tuple[int, ...]], ...], Fan] = {}
        self._turns: dict[int, int] = {}
        self.epoch = 0
        """Grows whenever a route may have become wrong."""

    def put(self, asked: Asked) -> None:
        """Add a subscription."""
        self._asked[asked.row] = asked
        self.change()

    def take_away(self, row: int) -> None:
        """Remove a subscription."""
        del self._asked[row]
        self.change()

    def change(self) -> None:
        """Drop all cached routes: something they were made from has changed."""
        self.epoch += 1
        self._plans.clear()
        self._fans.clear()  # also fans of routes that are not cached: their session numbers may be reused

    def plan(self, message: Message, now: Instant) -> Route:
        """Return the route of a message."""
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

    def maybe_lasting(self, message: Message, now: Instant) -> Route | None:
        """Return the route of all plain messages on a topic, if one can be cached."""
        return self.plan(message, now) if self._matcher.is_lasting(message) else None

    def _make(self, message: Message, now: Instant) -> Route:
        matcher = self._matcher
        rows = matcher.rows_wanting(message, now)
        shares = matcher.shares_of(rows)
        own = rows[shares == 0]
        fan, not_own = self._fan_of(own.tolist(), matcher.owners_of(own).tolist())
        if own.size == rows.size:
            return Route(self.epoch, fan, [], not_own)
        return Route(self.epoch, fan, self._turns_of(rows[shares > 0], shares[shares > 0]), not_own)

    def _fan_of(self, rows: list[int], owners: list[int]) -> tuple[Fan, frozenset[int]]:
        """Group receivers, each once with the highest QoS and all ids of its subscriptions that matched."""
        by_owner: dict[int, list[Asked]] = {}
        for row, owner in zip(rows, owners, strict=True):
            by_owner.setdefault(owner, []).append(self._asked[row])
        groups: dict[GroupKey, list[int]] = {}
        for owner in sorted(by_owner):
            groups.setdefault(self._key_of(self._sessions[owner], by_owner[owner]), []).append(owner)
        # An endpoint gets its own messages if any of its matching subscriptions is without No Local.
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
        return session.encoding, qos, labels, any(one.is_retain_shown for one in asked)


def _by_number(member: tuple[Session, GroupKey]) -> int:
    return member[0].number


# Subscriptions of all sessions, in matching and in routes, each under its row.
#
# Invariant: a subscription is in matching and in routes, or in neither: a suspended one has no row, and federation serves it.

ASIDE: Final = -1
"""The row of a suspended subscription."""


class Asking:
    """The subscriptions of all sessions."""

    def __init__(self, matcher: Matcher, route_cache: RouteCache) -> None:
        self._matcher = matcher
        self._route_cache = route_cache
        self._in_row: dict[int, tuple[Session, str]] = {}

    def enter(self, session: Session, name: str, asked: Asked) -> None:
        """Add a subscription under the row it has in matching."""
        session.subscriptions[name] = asked
        self._in_row[asked.row] = (session, name)
        self._route_cache.put(asked)

    def take_up(self, session: Session, name: str, asked: Asked) -> None:
        """Put a stored or suspended subscription into matching."""
        asked.row = self._matcher.add(session.number, asked.subscription)
        self.enter(session, name, asked)

    def set_aside(self, session: Session, name: str) -> None:
        """Suspend a subscription: take it out of matching."""
        asked = session.subscriptions[name]
        if asked.row != ASIDE:
            self._matcher.remove(asked.row)
            self._forget(asked.row)
            asked.row = ASIDE

    def drop(self, session: Session, name: str) -> None:
        """End a subscription."""
        self.set_aside(session, name)
        del session.subscriptions[name]

    def expire(self, now: Instant) -> list[tuple[Session, str]]:
        """Remove subscriptions whose time window is over; return their sessions and names."""
        ended = []
        for row in self._matcher.expire(now):
            session, name = self._in_row[row]
            del session.subscriptions[name]
            self._forget(row)
            ended.append((session, name))
        return ended

    def _forget(self, row: int) -> None:
        del self._in_row[row]
        self._route_cache.take_away(row)
