"""Routes: the decisions of matching for a topic, cached until something they depend on changes.

    topic ──▶ MatchRoute ──▶ ReceiverGroups: groups of receivers that get a message alike ──▶ one encoding, many recipients
                        └──▶ SharedMembers: shared subscriptions, each of which delivers to one of its members

Invariants:
- a route equals what matching would return now, without sessions that may not read the topic; `RouteCache.epoch` grows with
  every change that could make it wrong;
- only what all messages of a topic have in common is cached. Messages with tags, with a place while there are subscriptions to
  areas, or on a topic with subscriptions for a time window get a route of their own each time;
- equal receiver groups are one object, so that messages of different topics to the same receivers are sent together.
"""

from collections.abc import Set as AbstractSet
from typing import Final

import numpy as np

from milepost.broker.read_rights import ReadRights
from milepost.broker.session import NO_CONNECTION, Session, Sessions, SessionSubscription
from milepost.matching.columns import Rows
from milepost.matching.matcher import Matcher
from milepost.model.instants import Instant
from milepost.model.messages import Message

ROUTES_MAX: Final = 100_000
"""Maximum topics cached at a time."""

_HIGHEST_QOS: Final = 2

ReceiverGroupKey = tuple[int, int, tuple[int, ...], bool]


class ReceiverGroup:
    """Receivers that get a message alike: one encoding, one QoS, the same subscription ids."""

    __slots__ = ("encoding", "form", "qos", "retain_as_published", "sessions", "subscription_ids")

    def __init__(self, key: ReceiverGroupKey, sessions: list[Session]) -> None:
        self.encoding, self.qos, self.subscription_ids, self.retain_as_published = key
        self.sessions = sessions
        self.form: bytes | None = None
        """For the listener of this encoding: bytes it prepared for the group."""


class ReceiverGroups:
    """All groups of a message's receivers."""

    __slots__ = ("groups", "size")

    def __init__(self, groups: tuple[ReceiverGroup, ...]) -> None:
        self.groups = groups
        self.size = sum(len(group.sessions) for group in groups)
        """The number of receivers."""

    def without(self, names: AbstractSet[str]) -> "ReceiverGroups":
        """Return the groups without some receivers."""
        if not names:
            return self
        groups = ((_key_of(group), [one for one in group.sessions if one.name not in names]) for group in self.groups)
        return ReceiverGroups(tuple(ReceiverGroup(key, sessions) for key, sessions in groups if sessions))


NO_RECEIVERS: Final = ReceiverGroups(())


class SharedMembers:
    """The members of a shared subscription that match a message; served round-robin, connected ones first."""

    __slots__ = ("_next", "members")

    def __init__(self, members: list[tuple[Session, ReceiverGroupKey]], start: int) -> None:
        self.members = members
        self._next = start

    def take_next(self) -> ReceiverGroup:
        """Return the next member, as a group of one."""
        count = len(self.members)
        self._next += 1
        order = [self.members[(self._next + step) % count] for step in range(count)]
        chosen = next((member for member in order if member[0].is_ready), None)
        chosen = chosen or next((member for member in order if member[0].connection is not NO_CONNECTION), order[0])
        return ReceiverGroup(chosen[1], [chosen[0]])


class MatchRoute:
    """The receivers of a message on some topic."""

    __slots__ = ("epoch", "no_local_sessions", "receivers", "shared")

    def __init__(
        self, epoch: int, receivers: ReceiverGroups, shared: list[SharedMembers], no_local_sessions: frozenset[int]
    ) -> None:
        self.epoch = epoch
        self.receivers = receivers
        """Receivers with subscriptions that are not shared."""
        self.shared = shared
        self.no_local_sessions = no_local_sessions
        """Sessions whose matching subscriptions are all No Local."""

    def receivers_for(self, origin: int) -> ReceiverGroups:
        """Return the receivers of a message from *origin*, with a member chosen for each shared subscription."""
        if not self.shared and origin not in self.no_local_sessions:
            return self.receivers
        groups = self.receivers.groups
        if (
            origin in self.no_local_sessions
        ):  # shared subscriptions include own messages: No Local is not allowed there. [MQTT-3.8.3-4]
            groups = tuple(_without(group, origin) for group in groups)
        return ReceiverGroups((*groups, *(members.take_next() for members in self.shared)))


def group_by_encoding(sessions: list[Session]) -> ReceiverGroups:
    """Return the groups of addressed sessions: they need no subscription, and get the message with its published QoS."""
    groups: dict[int, list[Session]] = {}
    for session in sessions:
        groups.setdefault(session.encoding, []).append(session)
    return ReceiverGroups(
        tuple(ReceiverGroup((encoding, _HIGHEST_QOS, (), False), group_sessions) for encoding, group_sessions in groups.items())
    )


def _key_of(group: ReceiverGroup) -> ReceiverGroupKey:
    return group.encoding, group.qos, group.subscription_ids, group.retain_as_published


def _without(group: ReceiverGroup, origin: int) -> ReceiverGroup:
    return ReceiverGroup(_key_of(group), [session for session in group.sessions if session.number != origin])


class RouteCache:
    """Makes routes with the matcher, and caches those that last."""

    def __init__(self, matcher: Matcher, sessions: Sessions, rights: ReadRights) -> None:
        self._matcher = matcher
        self._sessions = sessions
        self._rights = rights
        self._by_row: dict[int, SessionSubscription] = {}
        self._routes: dict[str, MatchRoute] = {}
        self._known_receivers: dict[tuple[tuple[ReceiverGroupKey, tuple[int, ...]], ...], ReceiverGroups] = {}
        self._rotations: dict[int, int] = {}
        self.epoch = 0
        """Grows whenever a route may have become wrong."""

    def put(self, held: SessionSubscription) -> None:
        """Add a subscription."""
        self._by_row[held.row] = held
        self.change()

    def remove(self, row: int) -> None:
        """Remove a subscription."""
        del self._by_row[row]
        self.change()

    def change(self) -> None:
        """Drop all cached routes: something they were made from has changed."""
        self.epoch += 1
        self._routes.clear()
        self._known_receivers.clear()  # also receivers of routes that are not cached: their session numbers may be reused

    def route_for(self, message: Message, now: Instant) -> MatchRoute:
        """Return the route of a message."""
        route = self._routes.get(message.topic)
        is_cacheable = self._matcher.is_cacheable(message) and not message.is_expired(now)
        if route is not None and is_cacheable:
            return route
        route = self._make(message, now)
        if is_cacheable:
            if len(self._routes) >= ROUTES_MAX:
                self._routes.clear()
                self._known_receivers.clear()
            self._routes[message.topic] = route
        return route

    def find_cacheable(self, message: Message, now: Instant) -> MatchRoute | None:
        """Return the route of all plain messages on a topic, if one can be cached."""
        return self.route_for(message, now) if self._matcher.is_cacheable(message) else None

    def _make(self, message: Message, now: Instant) -> MatchRoute:
        matcher = self._matcher
        rows = self._readable(matcher.find_rows(message, now), message.topic)
        shares = matcher.shares_of(rows)
        own = rows[shares == 0]
        receivers, no_local_sessions = self._receivers_of(own.tolist(), matcher.owners_of(own).tolist())
        if own.size == rows.size:
            return MatchRoute(self.epoch, receivers, [], no_local_sessions)
        return MatchRoute(self.epoch, receivers, self._shared_of(rows[shares > 0], shares[shares > 0]), no_local_sessions)

    def _readable(self, rows: Rows, topic: str) -> Rows:
        """Return the rows whose owners may read a topic."""
        if not self._rights.are_restricted or not rows.size:
            return rows
        reading = self._rights.find_reading(topic, [self._sessions[owner] for owner in self._matcher.owners_of(rows).tolist()])
        return rows if reading is None else rows[np.array(reading, np.bool_)]

    def _receivers_of(self, rows: list[int], owners: list[int]) -> tuple[ReceiverGroups, frozenset[int]]:
        """Group receivers, each once with the highest QoS and all ids of its subscriptions that matched."""
        by_owner: dict[int, list[SessionSubscription]] = {}
        for row, owner in zip(rows, owners, strict=True):
            by_owner.setdefault(owner, []).append(self._by_row[row])
        groups: dict[ReceiverGroupKey, list[int]] = {}
        for owner in sorted(by_owner):
            groups.setdefault(self._key_of(self._sessions[owner], by_owner[owner]), []).append(owner)
        # An endpoint gets its own messages if any of its matching subscriptions is without No Local.
        no_local_sessions = frozenset(owner for owner, held in by_owner.items() if all(one.no_local for one in held))
        shape = tuple((key, tuple(numbers)) for key, numbers in groups.items())
        receivers = self._known_receivers.get(shape)
        if receivers is None:
            receivers = ReceiverGroups(
                tuple(ReceiverGroup(key, [self._sessions[number] for number in numbers]) for key, numbers in shape)
            )
            if len(self._known_receivers) < ROUTES_MAX:
                self._known_receivers[shape] = receivers
        return receivers, no_local_sessions

    def _shared_of(self, rows: Rows, shares: Rows) -> list[SharedMembers]:
        members: dict[int, list[tuple[Session, ReceiverGroupKey]]] = {}
        owners = self._matcher.owners_of(rows).tolist()
        for row, share, owner in zip(rows.tolist(), shares.tolist(), owners, strict=True):
            session = self._sessions[owner]
            members.setdefault(share, []).append((session, self._key_of(session, [self._by_row[row]])))
        shared = []
        for share, matched in members.items():
            self._rotations[share] = self._rotations.get(share, 0) + 1
            shared.append(SharedMembers(sorted(matched, key=_by_number), self._rotations[share]))
        return shared

    def _key_of(self, session: Session, held: list[SessionSubscription]) -> ReceiverGroupKey:
        subscription_ids = tuple(sorted(one.subscription.id for one in held if one.subscription.id))
        qos = max(one.subscription.qos for one in held)
        return session.encoding, qos, subscription_ids, any(one.retain_as_published for one in held)


def _by_number(member: tuple[Session, ReceiverGroupKey]) -> int:
    return member[0].number


# Subscriptions of all sessions, in matching and in routes, each under its row.
#
# Invariant: a subscription is in matching and in routes, or in neither: a suspended one has no row, and federation serves it.

SUSPENDED: Final = -1
"""The row of a suspended subscription."""


class SubscriptionTable:
    """The subscriptions of all sessions."""

    def __init__(self, matcher: Matcher, route_cache: RouteCache) -> None:
        self._matcher = matcher
        self._route_cache = route_cache
        self._owner_by_row: dict[int, tuple[Session, str]] = {}

    def enter(self, session: Session, name: str, held: SessionSubscription) -> None:
        """Add a subscription whose matcher row is already assigned."""
        session.subscriptions[name] = held
        self._owner_by_row[held.row] = (session, name)
        self._route_cache.put(held)

    def insert(self, session: Session, name: str, held: SessionSubscription) -> None:
        """Put a stored or suspended subscription into matching."""
        held.row = self._matcher.add(session.number, held.subscription)
        self.enter(session, name, held)

    def suspend(self, session: Session, name: str) -> None:
        """Suspend a subscription: take it out of matching."""
        held = session.subscriptions[name]
        if held.row != SUSPENDED:
            self._matcher.remove(held.row)
            self._forget(held.row)
            held.row = SUSPENDED

    def drop(self, session: Session, name: str) -> None:
        """End a subscription."""
        self.suspend(session, name)
        del session.subscriptions[name]

    def expire(self, now: Instant) -> list[tuple[Session, str]]:
        """Remove subscriptions whose time window is over; return their sessions and names."""
        ended = []
        for row in self._matcher.expire(now):
            session, name = self._owner_by_row[row]
            del session.subscriptions[name]
            self._forget(row)
            ended.append((session, name))
        return ended

    def _forget(self, row: int) -> None:
        del self._owner_by_row[row]
        self._route_cache.remove(row)
