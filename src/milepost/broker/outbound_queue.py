"""Outbound queue of one session: by class, then by deadline, and in order within a topic.

Invariants:
- a more urgent class leaves first (M29), and within a class the earlier deadline; for a message to an area on roads that is the
  instant at which the endpoint reaches the place it is about;
- two other messages of one class, topic and kind leave in the order in which they came [MQTT-4.6.0-6]: a deadline is moved back
  to that of the message before it, never forward;
- messages with a packet id also wait for room in the receiver's window; messages without one do not wait behind them for that;
- the oldest of the lowest class, by its deadline, is dropped first.
"""

from heapq import heapify, heappop, heappush
from typing import Final

from milepost.broker.publication import Delivery, Publication
from milepost.model.addresses import ToArea
from milepost.model.areas import depends_on_heading
from milepost.model.priorities import Priority

_IDLE_TOPICS_MAX: Final = 64
"""Maximum idle topics, beyond twice the queued messages, whose last deadline is remembered."""

QueuedDelivery = tuple[int, Delivery]
"""A packet id (0: not acknowledged) and a delivery."""

Entry = tuple[int, int, int, int, Delivery]
"""Class, deadline, sequence, packet id, delivery: in sending order."""

_PLAIN, _NUMBERED = 0, 1


class OutboundQueue:
    """One heap per class, separately for messages with and without a packet id."""

    __slots__ = ("_count", "_heaps", "_latest", "_packet_ids", "_roads", "_sequence", "size", "sorted_at")

    def __init__(self) -> None:
        self._heaps: tuple[list[list[Entry]], list[list[Entry]]] = ([[] for _ in Priority], [[] for _ in Priority])
        self._latest: dict[tuple[bool, int, str], int] = {}
        self._packet_ids: set[int] = set()
        self._sequence = 0
        self._count = 0
        self._roads = 0
        self.size = 0
        """Bytes of all queued messages."""
        self.sorted_at = -1
        """The endpoint's report count when messages to areas on roads were last sorted; -1: more have been queued since."""

    def __len__(self) -> int:
        return self._count

    def __contains__(self, packet_id: int) -> bool:
        return packet_id in self._packet_ids

    @property
    def has_plain(self) -> bool:
        """Whether a message without a packet id is queued."""
        return self._count > len(self._packet_ids)

    @property
    def has_numbered(self) -> bool:
        """Whether a message with a packet id is queued."""
        return bool(self._packet_ids)

    @property
    def has_roads(self) -> bool:
        """Whether a message to an area on roads is queued."""
        return self._roads > 0

    def put(self, packet_id: int, delivery: Delivery, at: int | None = None) -> None:
        """Queue a delivery; `at`: when the endpoint reaches the place it is about, if that is known."""
        publication = delivery.publication
        latest = self._latest
        if len(latest) > 2 * self._count + _IDLE_TOPICS_MAX:
            self._forget_deadlines()
            latest = self._latest
        priority, deadline = publication.priority, at or publication.deadline
        if at is None:
            key = (packet_id > 0, priority, publication.topic)
            if (before := latest.get(key, 0)) > deadline:
                deadline = before
            latest[key] = deadline
        self._sequence += 1
        if is_on_roads(publication):
            self._roads += 1
            self.sorted_at = -1
        heappush(self._heaps[packet_id > 0][priority], (priority, deadline, self._sequence, packet_id, delivery))
        if packet_id:
            self._packet_ids.add(packet_id)
        self._count += 1
        self.size += publication.size

    def take(self, *, has_window: bool) -> QueuedDelivery | None:
        """Remove and return the next delivery, if any; one with a packet id only if the receiver's window has room."""
        plain = next((heap for heap in self._heaps[_PLAIN] if heap), None) if self.has_plain else None
        numbered = next((heap for heap in self._heaps[_NUMBERED] if heap), None) if has_window and self._packet_ids else None
        if plain is None or (numbered is not None and numbered[0] < plain[0]):
            return None if numbered is None else self._take_from(numbered)
        return self._take_from(plain)

    def evict(self) -> QueuedDelivery:
        """Remove and return the oldest delivery of the lowest class."""
        plain = next((heap for heap in reversed(self._heaps[_PLAIN]) if heap), None)
        numbered = next((heap for heap in reversed(self._heaps[_NUMBERED]) if heap), None)
        if plain is None or (numbered is not None and (-numbered[0][0], numbered[0][2]) < (-plain[0][0], plain[0][2])):
            assert numbered is not None, "the queue is not empty"
            return self._take_from(numbered)
        return self._take_from(plain)

    def take_roads(self, most: int) -> list[QueuedDelivery]:
        """Remove and return the deliveries to areas on roads, at most *most*, in sending order."""
        heaps = [heap for kind in self._heaps for heap in kind]
        found = sorted(entry for heap in heaps for entry in heap if is_on_roads(entry[4].publication))[:most]
        sequences = {entry[2] for entry in found}
        for heap in heaps:
            if any(entry[2] in sequences for entry in heap):
                heap[:] = [entry for entry in heap if entry[2] not in sequences]
                heapify(heap)
        for _, _, _, packet_id, delivery in found:
            self._account_removed(packet_id, delivery)
        return [entry[3:] for entry in found]

    def all(self) -> list[QueuedDelivery]:
        """Return all deliveries in sending order."""
        return [entry[3:] for entry in sorted(entry for kind in self._heaps for heap in kind for entry in heap)]

    def _take_from(self, heap: list[Entry]) -> QueuedDelivery:
        _, _, _, packet_id, delivery = heappop(heap)
        self._account_removed(packet_id, delivery)
        return packet_id, delivery

    def _account_removed(self, packet_id: int, delivery: Delivery) -> None:
        self._packet_ids.discard(packet_id)
        self._count -= 1
        self._roads -= is_on_roads(delivery.publication)
        self.size -= delivery.publication.size

    def _forget_deadlines(self) -> None:
        """Forget the deadlines of topics without queued messages: there is no order left to preserve."""
        self._latest = {}
        for kind in self._heaps:
            for heap in kind:
                for priority, deadline, _, packet_id, delivery in heap:
                    key = (packet_id > 0, priority, delivery.publication.topic)
                    self._latest[key] = max(deadline, self._latest.get(key, 0))


def is_on_roads(publication: Publication) -> bool:
    """Return whether a message is to an area on roads: the arrival of an endpoint can then be estimated."""
    return isinstance(publication.address, ToArea) and depends_on_heading(publication.address.area)
