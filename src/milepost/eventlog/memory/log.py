"""The store in memory and its log objects: pending appends, readers, members."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from milepost.eventlog.log import (
    WAITING_BYTES_MAX,
    WAITING_RECORDS_MAX,
    Done,
    Entry,
    LogUnavailable,
    Lost,
    Record,
    Start,
    Take,
    TopicSettings,
    check_entries,
    check_group_name,
    check_topic_name,
    maybe_gap,
)
from milepost.eventlog.memory.group import MemoryGroup, MemoryMember
from milepost.eventlog.memory.reader import MemoryReader
from milepost.eventlog.memory.topics import MemoryTopic, Step, StepKind
from milepost.model.instants import Instant


@dataclass(slots=True)
class _Append:
    parts: dict[str, list[Entry]]
    records: int
    size: int
    done: Done | None


class MemoryLog:
    """Implementation of `Log` whose every effect is a step. `number` identifies the log within its store."""

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
        """Queue records for writing."""
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
        """Create a topic or change its settings."""
        check_topic_name(topic)
        self._check_open()
        found = self._topic(topic)
        found.settings = settings or found.settings

    def follow(self, starts: Mapping[str, Start], take: Take, lost: Lost) -> MemoryReader:
        """Read topics from their start positions, until closed."""
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
        """Return at most `limit` records from offset *first* on."""
        check_topic_name(topic)
        self._check_open()
        if (found := self._topics.get(topic)) is None:
            return []
        if (gap := maybe_gap(topic, first, found.first, found.next)) is not None:
            raise gap
        return found.since(first, limit)

    def ends(self, topic: str) -> tuple[int, int]:
        """Return the offsets of the oldest record and of the next append."""
        check_topic_name(topic)
        self._check_open()
        if (found := self._topics.get(topic)) is None:
            return 0, 0
        return found.records[0].offset if found.records else found.next, found.next

    def topics(self) -> list[str]:
        """Return the existing topics, sorted."""
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
        """Read topics as a member of a group."""
        check_group_name(group)
        self._check_open()
        for name in topics:
            check_topic_name(name)
        wishes = {name: self._topic(name) for name in topics}
        member = MemoryMember(group, self._groups.setdefault(group, MemoryGroup()), wishes, MemoryReader(take, lost), changed)
        self._members.append(member)
        return member

    def committed(self, group: str) -> dict[str, int]:
        """Return the committed offsets of a group, by topic."""
        check_group_name(group)
        self._check_open()
        return dict(self._groups[group].committed) if group in self._groups else {}

    def close(self) -> None:
        """Finish pending appends and stop all readers, immediately."""
        while self._waiting:
            for part in list(self._waiting[0].parts):
                self._write(self._waiting[0], part)
            self._tell(self._waiting[0])
        for member in self._members:
            member.close()
        self._stop()

    def kill(self, *, written: int = 0) -> None:
        """Simulate a killed process: *written* of the pending writes still take effect, without any callback."""
        for _ in range(written):
            step = next((step for step in self._writing() if step.kind is StepKind.WRITE), None)
            if step is not None:
                step.run()
        for member in self._members:
            member.die()
        self._stop()

    def ready(self) -> Iterator[Step]:
        """Yield the steps this log may take next."""
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


STEPS_MAX: Final = 1_000_000
"""Maximum rounds of `run_all`."""


class MemoryStore:
    """Topics, groups and logs of one site, as processes share a folder or a cluster; `clock` returns the time.

    Every effect of an append, a reader or a member is a pending `Step`. `ready` lists the steps that the contract of `Log` allows
    next; the owner runs any of them and repeats, and so can explore every possible order. `run_all` runs them until none is left.
    There are no threads, and time is the owner's. Running a step that is no longer ready has no effect.
    """

    def __init__(self, clock: Callable[[], Instant]) -> None:
        self._clock = clock
        self._topics: dict[str, MemoryTopic] = {}
        self._groups: dict[str, MemoryGroup] = {}
        self._logs: list[MemoryLog] = []

    def open(self) -> MemoryLog:
        """Return a new log object, as another process would open it."""
        log = MemoryLog(self._topics, self._groups, self._clock, len(self._logs) + 1)
        self._logs.append(log)
        return log

    def ready(self) -> list[Step]:
        """Return the steps that may run next."""
        return [*(step for log in self._logs for step in log.ready()), *self._cleaning()]

    def run_all(self) -> None:
        """Run steps until none is left; cleaning comes last, so that readers receive all records."""
        for _ in range(STEPS_MAX):
            steps = self.ready()
            if not steps:
                return
            for step in [one for one in steps if one.kind is not StepKind.CLEAN] or steps:
                step.run()
        raise AssertionError("what is run sets off more and more")

    def _cleaning(self) -> Iterator[Step]:
        for name, topic in self._topics.items():
            if topic.wants_cleaning(self._clock()):
                yield Step(StepKind.CLEAN, 0, name, partial(self._clean, topic))

    def _clean(self, topic: MemoryTopic) -> None:
        topic.clean(self._clock())
