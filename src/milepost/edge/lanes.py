"""Lanes: what waits for one session, by class, then by deadline, and in order within a topic.

What must hold:
- a more urgent class leaves first (M29); within a class the earlier deadline does: of a message to an area on roads, the instant
  at which the endpoint reaches what it is about;
- two other messages of one class, topic and kind leave in the order in which they came [MQTT-4.6.0-6]: a deadline is moved back
  to that of the message before it, never forward;
- what has a number waits also for the receiver to acknowledge others; what has none does not wait behind it for that;
- the oldest of the lowest class, by its deadline, is the first to be given up.
"""

from heapq import heapify, heappop, heappush
from typing import Final

from milepost.edge.parcels import Delivery, Parcel
from milepost.model.addresses import ToArea
from milepost.model.areas import asks_which_way
from milepost.model.priorities import Priority

_FORGOTTEN_MAX: Final = 64
"""So many topics, more than twice those that wait, may be remembered though nothing of them waits."""

Waiting = tuple[int, Delivery]
"""A delivery number (0 for what is not acknowledged) and what is to be delivered."""

Entry = tuple[int, int, int, int, Delivery]
"""Class, deadline, turn, number, delivery: in the order in which they go."""

_PLAIN, _NUMBERED = 0, 1


class Lanes:
    """A queue for each class, of what has a number and of what has none."""

    __slots__ = ("_count", "_heaps", "_latest", "_numbers", "_roads", "_turn", "sifted_at", "size")

    def __init__(self) -> None:
        self._heaps: tuple[list[list[Entry]], list[list[Entry]]] = ([[] for _ in Priority], [[] for _ in Priority])
        self._latest: dict[tuple[bool, int, str], int] = {}
        self._numbers: set[int] = set()
        self._turn = 0
        self._count = 0
        self._roads = 0
        self.size = 0
        """Bytes of all that waits."""
        self.sifted_at = -1
        """How many reports the endpoint had made when what is to areas on roads was put in order; -1: more has come since."""

    def __len__(self) -> int:
        return self._count

    def __contains__(self, number: int) -> bool:
        return number in self._numbers

    @property
    def has_plain(self) -> bool:
        """Whether something without a number waits."""
        return self._count > len(self._numbers)

    @property
    def has_numbered(self) -> bool:
        """Whether something with a number waits."""
        return bool(self._numbers)

    @property
    def has_roads(self) -> bool:
        """Whether something to an area on roads waits."""
        return self._roads > 0

    def put(self, number: int, delivery: Delivery, at: int | None = None) -> None:
        """Let a delivery wait; `at`: when the endpoint reaches what it is about, if that is known."""
        parcel = delivery.parcel
        latest = self._latest
        if len(latest) > 2 * self._count + _FORGOTTEN_MAX:
            self._forget_deadlines()
            latest = self._latest
        priority, deadline = parcel.priority, at or parcel.deadline
        if at is None:
            key = (number > 0, priority, parcel.topic)
            if (before := latest.get(key, 0)) > deadline:
                deadline = before
            latest[key] = deadline
        self._turn += 1
        if is_on_roads(parcel):
            self._roads += 1
            self.sifted_at = -1
        heappush(self._heaps[number > 0][priority], (priority, deadline, self._turn, number, delivery))
        if number:
            self._numbers.add(number)
        self._count += 1
        self.size += parcel.size

    def take(self, *, has_window: bool) -> Waiting | None:
        """What goes next, taken out; nothing with a number unless the receiver has room for it."""
        plain = next((heap for heap in self._heaps[_PLAIN] if heap), None) if self.has_plain else None
        numbered = next((heap for heap in self._heaps[_NUMBERED] if heap), None) if has_window and self._numbers else None
        if plain is None or (numbered is not None and numbered[0] < plain[0]):
            return None if numbered is None else self._take_from(numbered)
        return self._take_from(plain)

    def give_up(self) -> Waiting:
        """The oldest of the lowest class, taken out."""
        plain = next((heap for heap in reversed(self._heaps[_PLAIN]) if heap), None)
        numbered = next((heap for heap in reversed(self._heaps[_NUMBERED]) if heap), None)
        if plain is None or (numbered is not None and (-numbered[0][0], numbered[0][2]) < (-plain[0][0], plain[0][2])):
            assert numbered is not None, "something waits"
            return self._take_from(numbered)
        return self._take_from(plain)

    def take_roads(self, most: int) -> list[Waiting]:
        """What is to areas on roads, taken out, in the order in which it would go; no more than so many."""
        heaps = [heap for kind in self._heaps for heap in kind]
        found = sorted(entry for heap in heaps for entry in heap if is_on_roads(entry[4].parcel))[:most]
        turns = {entry[2] for entry in found}
        for heap in heaps:
            if any(entry[2] in turns for entry in heap):
                heap[:] = [entry for entry in heap if entry[2] not in turns]
                heapify(heap)
        for _, _, _, number, delivery in found:
            self._taken(number, delivery)
        return [entry[3:] for entry in found]

    def all(self) -> list[Waiting]:
        """Everything, in the order in which it would go."""
        return [entry[3:] for entry in sorted(entry for kind in self._heaps for heap in kind for entry in heap)]

    def _take_from(self, heap: list[Entry]) -> Waiting:
        _, _, _, number, delivery = heappop(heap)
        self._taken(number, delivery)
        return number, delivery

    def _taken(self, number: int, delivery: Delivery) -> None:
        self._numbers.discard(number)
        self._count -= 1
        self._roads -= is_on_roads(delivery.parcel)
        self.size -= delivery.parcel.size

    def _forget_deadlines(self) -> None:
        """Of topics of which nothing waits no order is left to keep."""
        self._latest = {}
        for kind in self._heaps:
            for heap in kind:
                for priority, deadline, _, number, delivery in heap:
                    key = (number > 0, priority, delivery.parcel.topic)
                    self._latest[key] = max(deadline, self._latest.get(key, 0))


def is_on_roads(parcel: Parcel) -> bool:
    """Whether a message is to an area on roads: when an endpoint reaches what it is about can be told."""
    return isinstance(parcel.address, ToArea) and asks_which_way(parcel.address.area)
