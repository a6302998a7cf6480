"""Lanes: what waits for one session, by class, then by deadline, and in order within a topic.

What must hold:
- a more urgent class leaves first (M29); within a class the earlier deadline does;
- two messages of one class and topic leave in the order in which they came [MQTT-4.6.0-6]: a deadline is moved back to that
  of the message before it, never forward;
- the oldest of the lowest class is the first to be given up.
"""

from heapq import heappop, heappush
from typing import Final

from milepost.edge.parcels import Delivery
from milepost.model.priorities import Priority

_FORGOTTEN_MAX: Final = 64
"""So many topics, more than twice those that wait, may be remembered though nothing of them waits."""

Waiting = tuple[int, Delivery]
"""A delivery number (0 for what is not acknowledged) and what is to be delivered."""


class Lanes:
    """A queue for each class."""

    __slots__ = ("_heaps", "_latest", "_numbers", "_turn", "size")

    def __init__(self) -> None:
        self._heaps: tuple[list[tuple[int, int, int, Delivery]], ...] = tuple([] for _ in Priority)
        self._latest: dict[tuple[int, str], int] = {}
        self._numbers: set[int] = set()
        self._turn = 0
        self.size = 0
        """Bytes of all that waits."""

    def __len__(self) -> int:
        return sum(map(len, self._heaps))

    def __contains__(self, number: int) -> bool:
        return number in self._numbers

    def put(self, number: int, delivery: Delivery) -> None:
        """Let a delivery wait."""
        parcel = delivery.parcel
        if len(self._latest) > 2 * len(self) + _FORGOTTEN_MAX:
            self._forget_deadlines()
        key = (parcel.priority, parcel.topic)
        deadline = max(parcel.deadline, self._latest.get(key, 0))
        self._latest[key] = deadline
        self._turn += 1
        heappush(self._heaps[parcel.priority], (deadline, self._turn, number, delivery))
        if number:
            self._numbers.add(number)
        self.size += parcel.size

    def first(self) -> Waiting | None:
        """What goes next."""
        for heap in self._heaps:
            if heap:
                return heap[0][2:]
        return None

    def take(self) -> Waiting:
        """What goes next, taken out."""
        return self._take_from(next(heap for heap in self._heaps if heap))

    def give_up(self) -> Waiting:
        """The oldest of the lowest class, taken out."""
        return self._take_from(next(heap for heap in reversed(self._heaps) if heap))

    def lowest(self) -> int:
        """The lowest class of which something waits; above all classes if nothing does."""
        return max((priority for priority in Priority if self._heaps[priority]), default=-1)

    def all(self) -> list[Waiting]:
        """Everything, in the order in which it would go."""
        return [entry[2:] for heap in self._heaps for entry in sorted(heap)]

    def _take_from(self, heap: list[tuple[int, int, int, Delivery]]) -> Waiting:
        _, _, number, delivery = heappop(heap)
        self._numbers.discard(number)
        self.size -= delivery.parcel.size
        return number, delivery

    def _forget_deadlines(self) -> None:
        """Of topics of which nothing waits no order is left to keep."""
        self._latest = {}
        for priority, heap in enumerate(self._heaps):
            for deadline, _, _, delivery in heap:
                key = (priority, delivery.parcel.topic)
                self._latest[key] = max(deadline, self._latest.get(key, 0))
