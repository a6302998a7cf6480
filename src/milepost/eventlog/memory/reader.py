"""A reader of a log in memory: its topics, and its position in each."""

from collections.abc import Iterator
from functools import partial

from milepost.eventlog.log import BATCH_RECORDS_MAX, Lost, Take, maybe_gap
from milepost.eventlog.memory.topics import MemoryTopic, Step, StepKind


class MemoryReader:
    """A reader with its topics and positions."""

    def __init__(self, take: Take, lost: Lost) -> None:
        self._take = take
        self._lost = lost
        self._topics: dict[str, MemoryTopic] = {}
        self._positions: dict[str, int] = {}

    def add(self, topic: MemoryTopic, position: int) -> None:
        """Add a topic."""
        self._topics[topic.name] = topic
        self._positions[topic.name] = position

    def drop(self, name: str) -> None:
        """Remove a topic."""
        del self._topics[name], self._positions[name]

    def close(self) -> None:
        """Stop reading."""
        self._topics.clear()
        self._positions.clear()

    def ready(self, log: int) -> Iterator[Step]:
        """Yield one TAKE step for each topic with unread records."""
        for name, topic in self._topics.items():
            if self._positions[name] != topic.next:
                yield Step(StepKind.TAKE, log, name, partial(self._hand_over, name))

    def _hand_over(self, name: str) -> None:
        if (topic := self._topics.get(name)) is None or self._positions[name] == topic.next:
            return
        position = self._positions[name]
        records = topic.since(position, BATCH_RECORDS_MAX)
        self._positions[name] = records[-1].offset + 1 if records else topic.next
        if (gap := maybe_gap(name, position, topic.first, topic.next)) is not None:
            self._lost(gap)
        if records:
            self._take(records)
