"""Places: the order in which deliveries were queued, and where in it each one stands.

Rows of `queued` are stored by place, not by session: what is queued in one turn then lies together on a page or two, whatever
number of sessions it is for, and goes from there again. The way from session and delivery to the place is kept in memory.

What must hold:
- `planned` changes nothing but the next place; `settle` is called with the same changes when they are committed, and only then;
- a delivery that is changed keeps its place; one of a session that went gets a new one.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from milepost.edge.keeping import Changes

QueuedRow = tuple[int, int, int, int, int, int, bytearray]
"""Place, session, delivery, message, qos, is_released, details."""

_NONE: dict[int, int] = {}


@dataclass(slots=True)
class PlacePlan:
    """What a turn changes in the table."""

    gone: list[int] = field(default_factory=list)
    rows: list[QueuedRow] = field(default_factory=list)


class Places:
    """By session and delivery, from rows of (place, session, delivery)."""

    def __init__(self, rows: Iterable[tuple[int, int, int]] = ()) -> None:
        self._of: dict[int, dict[int, int]] = {}
        self._next = 1
        for place, session, delivery in rows:
            self._of.setdefault(session, {})[delivery] = place
            self._next = max(self._next, place + 1)

    def is_same_as(self, other: "Places") -> bool:
        """Whether both have the same deliveries at the same places."""
        return self._of == other._of

    def planned(self, changes: Changes, dropped: set[int]) -> PlacePlan:
        """The rows to remove and to put; `dropped` are the sessions that go before anything else happens."""
        plan = PlacePlan([place for session in dropped for place in self._of.get(session, _NONE).values()])
        for (session, delivery), queued in changes.queued.items():
            place = None if session in dropped else self._of.get(session, _NONE).get(delivery)
            if queued is not None:
                if place is None:
                    place = self._next
                    self._next += 1
                message, qos, is_released, details = queued
                plan.rows.append((place, session, delivery, message, qos, 1 if is_released else 0, bytearray(details)))
            elif place is not None:
                plan.gone.append(place)
        return plan

    def settle(self, changes: Changes, dropped: set[int], plan: PlacePlan) -> None:
        """The changes are committed."""
        for session in dropped:
            self._of.pop(session, None)
        if plan.gone:
            self._leave([key for key, queued in changes.queued.items() if queued is None])
        for row in plan.rows:
            place, session, delivery = row[:3]
            places = self._of.get(session)
            if places is None:
                self._of[session] = {delivery: place}
            else:
                places[delivery] = place

    def _leave(self, keys: list[tuple[int, int]]) -> None:
        for session, delivery in keys:
            places = self._of.get(session, _NONE)
            if places.pop(delivery, None) is not None and not places:
                del self._of[session]
