"""The definition of matching, without any index: every subscription and every endpoint is tested, one after the other."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache

from milepost.model import Area, Around, Instant, Message, Place, Subscription, ToContent
from milepost.model.places import Vectors, vectors
from milepost.model.queries import NormalForm, holds, normal_form

Group = tuple[str, NormalForm]
"""The name of a share and the normal form of its members' query."""


@lru_cache(maxsize=4096)
def point_at(place: Place) -> Vectors:
    return place.vector.reshape(1, 3)


def is_inside(area: Area, place: Place) -> bool:
    return bool(area.contains(point_at(place))[0])


def maybe_group(subscription: Subscription) -> Group | None:
    return None if subscription.share is None else (subscription.share, normal_form(subscription.query))


@dataclass
class Oracle:
    """Subscriptions by row, places by endpoint."""

    rows: dict[int, tuple[int, Subscription]] = field(default_factory=dict)
    places: dict[int, Place] = field(default_factory=dict)

    def forget(self, endpoints: Iterable[int]) -> None:
        for endpoint in endpoints:
            self.places.pop(endpoint, None)

    def find_inside(self, area: Area) -> set[int]:
        if not self.places:
            return set()
        everywhere = self.places.values()
        inside = area.contains(vectors([place.latitude for place in everywhere], [place.longitude for place in everywhere]))
        return {endpoint for endpoint, is_in in zip(self.places, inside.tolist(), strict=True) if is_in}

    def matching_rows(self, message: Message, now: Instant) -> set[int]:
        """Return every matching row, shared ones included."""
        if message.is_expired(now):
            return set()
        return {row for row, (owner, subscription) in self.rows.items() if self._matches(owner, subscription, message, now)}

    def check_taken(self, taken: set[int], matching: set[int]) -> int:
        """Check that all unshared matching rows are taken, and one of each share; return how many shares had a choice."""
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

    def _matches(self, owner: int, subscription: Subscription, message: Message, now: Instant) -> bool:
        if not subscription.time_window.holds(message.seen_at) or subscription.time_window.is_over(now):
            return False
        if not holds(subscription.query, message.topic, message.tags):
            return False
        if subscription.area is not None and not self._is_near(owner, subscription.area, message.place):
            return False
        within = message.address.within if isinstance(message.address, ToContent) else None
        return within is None or (owner in self.places and is_inside(within, self.places[owner]))

    def _is_near(self, owner: int, area: Area | Around, place: Place | None) -> bool:
        if place is None:
            return False
        if isinstance(area, Around):
            return owner in self.places and is_inside(area.at(self.places[owner]), place)
        return is_inside(area, place)
