"""The definition of matching, without any index: every subscription and every endpoint is asked, one after the other."""

from dataclasses import dataclass, field

from milepost.model import Area, Around, Instant, Message, Place, Subscription, ToContent
from milepost.model.queries import holds


def is_inside(area: Area, place: Place) -> bool:
    return bool(area.contains(place.vector.reshape(1, 3))[0])


@dataclass
class Oracle:
    """Subscriptions by row, places by endpoint."""

    rows: dict[int, tuple[int, Subscription]] = field(default_factory=dict)
    places: dict[int, Place] = field(default_factory=dict)

    def who_is_in(self, area: Area) -> set[int]:
        return {endpoint for endpoint, place in self.places.items() if is_inside(area, place)}

    def matching_rows(self, message: Message, now: Instant) -> set[int]:
        """Every row that matches, of shared ones too."""
        if message.is_expired(now):
            return set()
        return {row for row, (owner, asked) in self.rows.items() if self._matches(owner, asked, message, now)}

    def _matches(self, owner: int, asked: Subscription, message: Message, now: Instant) -> bool:
        if not holds(asked.query, message.topic, message.tags):
            return False
        if not asked.frame.holds(message.seen_at) or asked.frame.is_over(now):
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
