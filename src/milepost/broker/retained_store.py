"""Retained messages: the last message of each topic that was published with RETAIN.

Topics form a tree by level, so that a filter finds its topics without a scan of all others.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from heapq import heappop, heappush
from typing import Final

from milepost.broker.publication import Publication
from milepost.model.addresses import includes
from milepost.model.areas import Area, Around
from milepost.model.instants import FOREVER, Instant
from milepost.model.places import Place
from milepost.model.queries import OnTopic, holds
from milepost.model.reasons import Reason, Refused
from milepost.model.subscriptions import Subscription

_STALE_EXPIRIES_MAX: Final = 64
"""Maximum surplus entries of the expiry heap, beyond twice the retained messages, before it is rebuilt."""


class RetainHandling(Enum):
    """Which subscriptions receive retained messages at their start (MQTT's Retain Handling)."""

    ALWAYS = 0
    IF_NEW = 1
    NEVER = 2


@dataclass(slots=True)
class _Level:
    below: dict[str, "_Level"] = field(default_factory=dict)
    publication: Publication | None = None


class RetainedStore:
    """Retained messages by topic, limited in number and bytes."""

    def __init__(self, messages_max: int, bytes_max: int) -> None:
        self._root = _Level()
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._count = 0
        self._expiries: list[tuple[Instant, str]] = []
        self.size = 0
        """Bytes of all messages."""

    def __len__(self) -> int:
        return self._count

    def refusal_for(self, publication: Publication) -> Refused | None:
        """Return why there is no room for a message, or None if there is."""
        former = self.find(publication.topic)
        if former is None and self._count >= self._messages_max:
            return Refused(Reason.RETAINED_FULL, f"{self._messages_max} messages are retained")
        if self.size - (former.size if former else 0) + publication.size > self._bytes_max:
            return Refused(Reason.RETAINED_FULL, f"retained messages take {self.size} bytes")
        return None

    def put(self, publication: Publication) -> None:
        """Retain a message, in place of the former one of its topic."""
        level = self._root
        for name in publication.topic.split("/"):
            level = level.below.setdefault(name, _Level())
        if level.publication is None:
            self._count += 1
        else:
            self.size -= level.publication.size
        level.publication = publication
        self.size += publication.size
        if publication.valid_until != FOREVER:
            heappush(self._expiries, (publication.valid_until, publication.topic))
        if len(self._expiries) > 2 * self._count + _STALE_EXPIRIES_MAX:  # most were replaced
            self._expiries = sorted((one.valid_until, one.topic) for one in self.all() if one.valid_until != FOREVER)

    def expire(self, now: Instant) -> list[str]:
        """Drop expired messages; return their topics."""
        expired = []
        while self._expiries and self._expiries[0][0] < now:
            topic = heappop(self._expiries)[1]
            publication = self.find(topic)
            if publication is not None and publication.valid_until < now:
                self.drop(topic)
                expired.append(topic)
        return expired

    def drop(self, topic: str) -> bool:
        """Delete the retained message of a topic; return whether there was one."""
        path = [self._root]
        names = topic.split("/")
        for name in names:
            below = path[-1].below.get(name)
            if below is None:
                return False
            path.append(below)
        if path[-1].publication is None:
            return False
        self.size -= path[-1].publication.size
        self._count -= 1
        path[-1].publication = None
        for above, name, level in zip(reversed(path[:-1]), reversed(names), reversed(path[1:]), strict=True):
            if level.below or level.publication is not None:
                break
            del above.below[name]
        return True

    def find(self, topic: str) -> Publication | None:
        """Return the retained message of a topic, if there is one."""
        level: _Level | None = self._root
        for name in topic.split("/"):
            level = level.below.get(name) if level else None
        return level.publication if level else None

    def find_on_filter(self, topic_filter: str) -> Iterator[Publication]:
        """Iterate over the messages of all topics that match a filter."""
        yield from _matching(self._root, topic_filter.split("/"), 0)

    def all(self) -> Iterator[Publication]:
        """Iterate over all messages."""
        return _all(self._root)

    def matching(self, subscription: Subscription, owner_at: Place | None, now: Instant) -> list[Publication]:
        """Return the valid messages that match a new subscription."""
        query = subscription.query
        if isinstance(query, OnTopic):
            found: Iterable[Publication] = self.find_on_filter(query.filter)
        else:
            found = (publication for publication in _all(self._root) if holds(query, publication.topic, publication.tags))
        area = subscription.area
        if isinstance(area, Around):
            if owner_at is None:
                return []
            area = area.at(owner_at)
        time_window = subscription.time_window
        valid = [
            publication for publication in found if publication.valid_until >= now and time_window.holds(publication.seen_at)
        ]
        valid = [one for one in valid if includes(one.address, subscription.owner, owner_at, was_notified=False)]
        return valid if area is None else [publication for publication in valid if _is_inside(area, publication.place)]


def _is_inside(area: Area, place: Place | None) -> bool:
    return place is not None and bool(area.contains(place.vector.reshape(1, 3))[0])


def _matching(level: _Level, names: list[str], depth: int) -> Iterator[Publication]:
    if depth == len(names):
        if level.publication is not None:
            yield level.publication
        return
    name = names[depth]
    if name == "#":  # matches the parent level, too
        yield from _all(level, skips_system=depth == 0)
    elif name == "+":
        for key, below in list(level.below.items()):
            if depth or not key.startswith("$"):  # [MQTT-4.7.2-1]
                yield from _matching(below, names, depth + 1)
    elif (below_named := level.below.get(name)) is not None:
        yield from _matching(below_named, names, depth + 1)


def _all(level: _Level, *, skips_system: bool = False) -> Iterator[Publication]:
    if level.publication is not None:
        yield level.publication
    for key, below in list(level.below.items()):
        if not (skips_system and key.startswith("$")):
            yield from _all(below)
