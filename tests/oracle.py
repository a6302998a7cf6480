"""The definition of matching, without any index: every subscription and every endpoint is asked, one after the other."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache

from milepost.model import Area, Around, Instant, Message, Place, Subscription, ToContent
from milepost.model.places import Vectors, vectors
from milepost.model.queries import NormalForm, holds, normal_form

Group = tuple[str, NormalForm]
"""The name of a share and what its members ask, in whatever order they wrote it."""


@lru_cache(maxsize=4096)
def point_at(place: Place) -> Vectors:
    return place.vector.reshape(1, 3)


def is_inside(area: Area, place: Place) -> bool:
    return bool(area.contains(point_at(place))[0])


def maybe_group(asked: Subscription) -> Group | None:
    return None if asked.share is None else (asked.share, normal_form(asked.query))


@dataclass
class Oracle:
    """Subscriptions by row, places by endpoint."""

    rows: dict[int, tuple[int, Subscription]] = field(default_factory=dict)
    places: dict[int, Place] = field(default_factory=dict)

    def forget(self, endpoints: Iterable[int]) -> None:
        for endpoint in endpoints:
            self.places.pop(endpoint, None)

    def who_is_in(self, area: Area) -> set[int]:
        if not self.places:
            return set()
        everywhere = self.places.values()
        inside = area.contains(vectors([place.latitude for place in everywhere], [place.longitude for place in everywhere]))
        return {endpoint for endpoint, is_in in zip(self.places, inside.tolist(), strict=True) if is_in}

    def matching_rows(self, message: Message, now: Instant) -> set[int]:
        """Every row that matches, of shared ones too."""
        if message.is_expired(now):
            return set()
        return {row for row, (owner, asked) in self.rows.items() if self._matches(owner, asked, message, now)}

    def check_taken(self, taken: set[int], matching: set[int]) -> int:
        """All that match by themselves are taken, and of each share one; gives how many shares had a choice."""
        groups: dict[Group, set[int]] = {}
        alone = set()
        for row in matching:
            group = maybe_group(self.rows[row][1])
            if group is None:
                alone.add(row)
            else:
                groups.setdefault(group, set()).add(row)
        assert alone <= taken
        for members in groups.values():
            assert len(members & taken) == 1
        assert taken <= matching
        return sum(len(members) > 1 for members in groups.values())

    def _matches(self, owner: int, asked: Subscription, message: Message, now: Instant) -> bool:
        if not asked.time_window.holds(message.seen_at) or asked.time_window.is_over(now):
            return False
        if not holds(asked.query, message.topic, message.tags):
            return False
        if asked.area is not None and not self._is_near(owner, asked.area, message.place):
            return False
        within = message.address.within if isinstance(message.address, ToContent) else None
        return within is None or (owner in self.places and is_inside(within, self.places[owner]))

    def _is_near(self, owner: int, area: Area | Around, place: Place | None) -> bool:
        if place is None:
            return False
        if isinstance(area, Around):
            return owner in self.places and is_inside(area.at(self.places[owner]), place)
        return is_inside(area, place)
