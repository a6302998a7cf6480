"""Readers and members of a log in memory."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from milepost.backbone.embedded.reader import gap_of
from milepost.backbone.embedded.rows import Topic
from milepost.backbone.log import BATCH_RECORDS_MAX, Lost, Take
from milepost.backbone.memory.steps import Step, StepKind
from milepost.backbone.memory.topics import MemoryGroup, MemoryTopic


class MemoryReader:
    """Topics and where in them it stands."""

    def __init__(self, take: Take, lost: Lost) -> None:
        self._take = take
        self._lost = lost
        self._topics: dict[str, MemoryTopic] = {}
        self._positions: dict[str, int] = {}

    def add(self, topic: MemoryTopic, position: int) -> None:
        """Read one more."""
        self._topics[topic.name] = topic
        self._positions[topic.name] = position

    def drop(self, name: str) -> None:
        """Read one less."""
        del self._topics[name], self._positions[name]

    def close(self) -> None:
        """Read no further."""
        self._topics.clear()
        self._positions.clear()

    def ready(self, log: int) -> Iterator[Step]:
        """A batch of each topic that has something."""
        for name, topic in self._topics.items():
            if self._positions[name] != topic.next:
                yield Step(StepKind.TAKE, log, name, partial(self._hand_over, name))

    def _hand_over(self, name: str) -> None:
        if (topic := self._topics.get(name)) is None or self._positions[name] == topic.next:
            return
        position = self._positions[name]
        records = topic.since(position, BATCH_RECORDS_MAX)
        self._positions[name] = records[-1].offset + 1 if records else topic.next
        if (gap := gap_of(name, position, Topic(0, topic.first, topic.next))) is not None:
            self._lost(gap)
        if records:
            self._take(records)


class MemoryMember:
    """One member of a group."""

    def __init__(
        self,
        name: str,
        group: MemoryGroup,
        wishes: Mapping[str, MemoryTopic],
        reader: MemoryReader,
        changed: Callable[[frozenset[str]], None] | None,
    ) -> None:
        self._name = name
        self._group = group
        self._wishes = wishes
        self._reader = reader
        self._changed = changed
        self._number = group.join(frozenset(wishes))
        self._claims: dict[str, int] = {}
        self._commits: deque[tuple[str, int, int]] = deque()
        self._is_alive = True

    def commit(self, topic: str, offset: int) -> None:
        """All records before `offset` are dealt with; ignored if the topic went to another member."""
        if topic in self._claims:
            self._commits.append((topic, self._claims[topic], offset))

    def close(self) -> None:
        """Leave; what was committed counts."""
        while self._commits:
            self._write_commit(self._commits[0])
        self.die()
        self._group.leave(self._number)

    def die(self) -> None:
        """Its log was killed: what it last committed is gone, what it had is free only when the others have noticed."""
        self._is_alive = False
        self._commits.clear()
        self._reader.close()

    def ready(self, log: int) -> Iterator[Step]:
        """All that may happen next to this member."""
        if self._number not in self._group.members:
            return
        if not self._is_alive:
            yield Step(StepKind.EXPIRE, log, self._name, partial(self._group.leave, self._number))
            return
        if self._commits:
            yield Step(StepKind.COMMIT, log, self._name, partial(self._write_commit, self._commits[0]))
        if self._is_unsettled():
            yield Step(StepKind.SETTLE, log, self._name, self._settle)
        yield from self._reader.ready(log)

    def _is_unsettled(self) -> bool:
        due = self._group.due(self._number)
        return bool(self._claims.keys() - due or due - self._group.claims.keys())

    def _settle(self) -> None:
        if not self._is_alive or not self._is_unsettled():
            return
        due, before = self._group.due(self._number), frozenset(self._claims)
        for topic in sorted(before - due):
            self._reader.drop(topic)
            del self._claims[topic], self._group.claims[topic]
        free = sorted(due - self._group.claims.keys())
        for topic in free:
            self._claims[topic] = self._group.claim(topic, self._number)
        if self._changed is not None and self._claims.keys() != before:
            self._changed(frozenset(self._claims))
        for topic in free:
            self._reader.add(self._wishes[topic], self._group.committed.get(topic, self._wishes[topic].first))

    def _write_commit(self, commit: tuple[str, int, int]) -> None:
        if not self._commits or self._commits[0] is not commit:
            return
        topic, generation, offset = self._commits.popleft()
        if self._group.claims.get(topic) == (self._number, generation):
            self._group.committed[topic] = offset
