"""Retained: the last message of each topic whose sender wanted it kept for those who subscribe later.

Topics are kept as a tree by level, so that a filter finds its topics without looking at all others.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from heapq import heappop, heappush
from typing import Final

from milepost.edge.parcels import Parcel
from milepost.model.addresses import ToArea, ToContent, ToEndpoint, ToEveryone, ToTold
from milepost.model.areas import Area, Around
from milepost.model.instants import FOREVER, Instant
from milepost.model.places import Place
from milepost.model.queries import OnTopic, holds
from milepost.model.reasons import Reason, Refused
from milepost.model.subscriptions import Subscription

_FORGOTTEN_MAX: Final = 64
"""So many entries, more than is needed, may stand in the order of times."""


class WantsRetained(Enum):
    """Which subscriptions are given retained messages when they begin."""

    ALWAYS = 0
    IF_NEW = 1
    NEVER = 2


@dataclass(slots=True)
class _Level:
    below: dict[str, "_Level"] = field(default_factory=dict)
    parcel: Parcel | None = None


class Retained:
    """At most so many messages of at most so many bytes."""

    def __init__(self, messages_max: int, bytes_max: int) -> None:
        self._root = _Level()
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._count = 0
        self._fading: list[tuple[Instant, str]] = []
        self.size = 0
        """Bytes of all messages."""

    def __len__(self) -> int:
        return self._count

    def why_not(self, parcel: Parcel) -> Refused | None:
        """Why there is no room for a message, if there is none."""
        former = self.maybe(parcel.topic)
        if former is None and self._count >= self._messages_max:
            return Refused(Reason.RETAINED_FULL, f"{self._messages_max} messages are retained")
        if self.size - (former.size if former else 0) + parcel.size > self._bytes_max:
            return Refused(Reason.RETAINED_FULL, f"retained messages take {self.size} bytes")
        return None

    def put(self, parcel: Parcel) -> None:
        """Retain a message in place of the one its topic had."""
        level = self._root
        for name in parcel.topic.split("/"):
            level = level.below.setdefault(name, _Level())
        if level.parcel is None:
            self._count += 1
        else:
            self.size -= level.parcel.size
        level.parcel = parcel
        self.size += parcel.size
        if parcel.valid_until != FOREVER:
            heappush(self._fading, (parcel.valid_until, parcel.topic))
        if len(self._fading) > 2 * self._count + _FORGOTTEN_MAX:  # most were replaced
            self._fading = sorted((one.valid_until, one.topic) for one in self.on_all() if one.valid_until != FOREVER)

    def fade(self, now: Instant) -> list[str]:
        """Drop messages that are no longer valid; gives their topics."""
        faded = []
        while self._fading and self._fading[0][0] < now:
            topic = heappop(self._fading)[1]
            parcel = self.maybe(topic)
            if parcel is not None and parcel.valid_until < now:
                self.drop(topic)
                faded.append(topic)
        return faded

    def drop(self, topic: str) -> bool:
        """Retain nothing for a topic; tells whether anything was."""
        path = [self._root]
        names = topic.split("/")
        for name in names:
            below = path[-1].below.get(name)
            if below is None:
                return False
            path.append(below)
        if path[-1].parcel is None:
            return False
        self.size -= path[-1].parcel.size
        self._count -= 1
        path[-1].parcel = None
        for above, name, level in zip(reversed(path[:-1]), reversed(names), reversed(path[1:]), strict=True):
            if level.below or level.parcel is not None:
                break
            del above.below[name]
        return True

    def maybe(self, topic: str) -> Parcel | None:
        """The message retained for a topic."""
        level: _Level | None = self._root
        for name in topic.split("/"):
            level = level.below.get(name) if level else None
        return level.parcel if level else None

    def on(self, topic_filter: str) -> Iterator[Parcel]:
        """The messages of all topics that pass a filter."""
        yield from _matching(self._root, topic_filter.split("/"), 0)

    def on_all(self) -> Iterator[Parcel]:
        """All messages."""
        return _all(self._root)

    def wanted_by(self, subscription: Subscription, owner_at: Place | None, now: Instant) -> list[Parcel]:
        """The messages that a new subscription asks for, as far as they are still valid."""
        query = subscription.query
        if isinstance(query, OnTopic):
            found: Iterable[Parcel] = self.on(query.filter)
        else:
            found = (parcel for parcel in _all(self._root) if holds(query, parcel.topic, parcel.tags))
        area = subscription.area
        if isinstance(area, Around):
            if owner_at is None:
                return []
            area = area.at(owner_at)
        frame = subscription.frame
        valid = [parcel for parcel in found if parcel.valid_until >= now and frame.holds(parcel.seen_at)]
        valid = [parcel for parcel in valid if _is_for(parcel, subscription, owner_at)]
        return valid if area is None else [parcel for parcel in valid if _is_inside(area, parcel.place)]


def _is_for(parcel: Parcel, subscription: Subscription, owner_at: Place | None) -> bool:
    """Whether the owner of a subscription is among those that a message is addressed to."""
    match parcel.address:
        case ToContent(None) | ToEveryone():
            return True
        case ToEndpoint(endpoint):
            return endpoint == subscription.owner
        case ToContent(within):
            return within is None or _is_inside(within, owner_at)
        case ToArea(area):
            return _is_inside(area, owner_at)
        case ToTold():
            return False


def _is_inside(area: Area, place: Place | None) -> bool:
    return place is not None and bool(area.contains(place.vector.reshape(1, 3))[0])


def _matching(level: _Level, names: list[str], depth: int) -> Iterator[Parcel]:
    if depth == len(names):
        if level.parcel is not None:
            yield level.parcel
        return
    name = names[depth]
    if name == "#":  # also the parent level itself
        yield from _all(level, skips_system=depth == 0)
    elif name == "+":
        for key, below in list(level.below.items()):
            if depth or not key.startswith("$"):  # [MQTT-4.7.2-1]
                yield from _matching(below, names, depth + 1)
    elif (below_named := level.below.get(name)) is not None:
        yield from _matching(below_named, names, depth + 1)


def _all(level: _Level, *, skips_system: bool = False) -> Iterator[Parcel]:
    if level.parcel is not None:
        yield level.parcel
    for key, below in list(level.below.items()):
        if not (skips_system and key.startswith("$")):
            yield from _all(below)
