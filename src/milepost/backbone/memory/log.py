"""One log object over a store in memory: what it has appended and not yet written, its readers, its members."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from milepost.backbone.embedded.reader import gap_of
from milepost.backbone.embedded.rows import Topic
from milepost.backbone.embedded.writer import WAITING_BYTES_MAX, WAITING_RECORDS_MAX
from milepost.backbone.log import Done, Entry, LogUnavailable, Lost, Record, Start, Take, TopicSettings
from milepost.backbone.memory.readers import MemoryMember, MemoryReader
from milepost.backbone.memory.steps import Step, StepKind
from milepost.backbone.memory.topics import MemoryGroup, MemoryTopic
from milepost.backbone.names import check_entries, check_group_name, check_topic_name
from milepost.model.instants import Instant


@dataclass(slots=True)
class _Append:
    parts: dict[str, list[Entry]]
    records: int
    size: int
    done: Done | None


class MemoryLog:
    """Keeps the promises of `Log`; nothing happens but by its steps. `number` tells the logs of a store apart."""

    def __init__(
        self, topics: dict[str, MemoryTopic], groups: dict[str, MemoryGroup], clock: Callable[[], Instant], number: int
    ) -> None:
        self.number = number
        self._topics = topics
        self._groups = groups
        self._clock = clock
        self._waiting: deque[_Append] = deque()
        self._records = 0
        self._bytes = 0
        self._readers: list[MemoryReader] = []
        self._members: list[MemoryMember] = []
        self._is_open = True

    def append(self, entries: Sequence[Entry], done: Done | None = None) -> None:
        """Let records wait to be written."""
        size = check_entries(entries)
        self._check_open()
        records, total = self._records + len(entries), self._bytes + size
        if self._waiting and (records > WAITING_RECORDS_MAX or total > WAITING_BYTES_MAX):
            raise LogUnavailable(f"{self._records} records wait to be written already: try again later")
        parts: dict[str, list[Entry]] = {}
        for entry in entries:
            parts.setdefault(entry.topic, []).append(entry)
        self._records, self._bytes = records, total
        self._waiting.append(_Append(parts, len(entries), size, done))

    def make(self, topic: str, settings: TopicSettings | None = None) -> None:
        """Make a topic, or give one that is there other settings."""
        check_topic_name(topic)
        self._check_open()
        found = self._topic(topic)
        found.settings = settings or found.settings

    def follow(self, starts: Mapping[str, Start], take: Take, lost: Lost) -> MemoryReader:
        """Read topics from here on, until closed."""
        self._check_open()
        for name in starts:
            check_topic_name(name)
        reader = MemoryReader(take, lost)
        for name, start in starts.items():
            topic = self._topic(name)
            reader.add(topic, topic.position_of(start))
        self._readers.append(reader)
        return reader

    def read(self, topic: str, first: int, limit: int) -> list[Record]:
        """Some records from an offset on."""
        check_topic_name(topic)
        self._check_open()
        if (found := self._topics.get(topic)) is None:
            return []
        if (gap := gap_of(topic, first, Topic(0, found.first, found.next))) is not None:
            raise gap
        return found.since(first, limit)

    def ends(self, topic: str) -> tuple[int, int]:
        """The offset of the oldest record, and of the one that will be appended next."""
        check_topic_name(topic)
        self._check_open()
        if (found := self._topics.get(topic)) is None:
            return 0, 0
        return found.records[0].offset if found.records else found.next, found.next

    def topics(self) -> list[str]:
        """The topics there are, sorted."""
        self._check_open()
        return sorted(self._topics)

    def join(
        self,
        group: str,
        topics: Sequence[str],
        take: Take,
        lost: Lost,
        *,
        changed: Callable[[frozenset[str]], None] | None = None,
    ) -> MemoryMember:
        """Read topics as one of a group."""
        check_group_name(group)
        self._check_open()
        for name in topics:
            check_topic_name(name)
        wishes = {name: self._topic(name) for name in topics}
        member = MemoryMember(group, self._groups.setdefault(group, MemoryGroup()), wishes, MemoryReader(take, lost), changed)
        self._members.append(member)
        return member

    def committed(self, group: str) -> dict[str, int]:
        """What a group has committed, by topic."""
        check_group_name(group)
        self._check_open()
        return dict(self._groups[group].committed) if group in self._groups else {}

    def close(self) -> None:
        """Finish what was appended, stop all readers; at once."""
        while self._waiting:
            for part in list(self._waiting[0].parts):
                self._write(self._waiting[0], part)
            self._tell(self._waiting[0])
        for member in self._members:
            member.close()
        self._stop()

    def kill(self, *, written: int = 0) -> None:
        """As if the process were killed; so many of the writes that wait still come through, and nobody is told."""
        for _ in range(written):
            step = next((step for step in self._writing() if step.kind is StepKind.WRITE), None)
            if step is not None:
                step.run()
        for member in self._members:
            member.die()
        self._stop()

    def ready(self) -> Iterator[Step]:
        """All that may happen next in this log."""
        yield from self._writing()
        for reader in self._readers:
            yield from reader.ready(self.number)
        for member in self._members:
            yield from member.ready(self.number)

    def _writing(self) -> Iterator[Step]:
        before: set[str] = set()
        for append in self._waiting:
            for topic in [topic for topic in append.parts if topic not in before]:
                yield Step(StepKind.WRITE, self.number, topic, partial(self._write, append, topic))
            before |= append.parts.keys()
        if self._waiting and not self._waiting[0].parts:
            yield Step(StepKind.TELL, self.number, "", partial(self._tell, self._waiting[0]))

    def _write(self, append: _Append, topic: str) -> None:
        entries = append.parts.pop(topic, [])
        if entries and self._is_open:
            self._topic(topic).append(entries, self._clock())

    def _tell(self, append: _Append) -> None:
        if self._waiting and self._waiting[0] is append:
            self._waiting.popleft()
            self._records -= append.records
            self._bytes -= append.size
            if append.done is not None:
                append.done(None)

    def _topic(self, name: str) -> MemoryTopic:
        return self._topics.setdefault(name, MemoryTopic(name))

    def _stop(self) -> None:
        self._is_open = False
        self._waiting.clear()
        for reader in self._readers:
            reader.close()

    def _check_open(self) -> None:
        if not self._is_open:
            raise LogUnavailable("the log was closed")
