"""The log in memory, for simulations and property tests, which decide the order of its steps.

    MemoryStore   topics, consumer groups and the pending steps; several MemoryLog share one
    MemoryLog     one process' view: appends, readers, members; it may die on its own
    Step          one thing that happens next: a write, a batch to a reader, a commit, an expiry

Invariants:
- nothing happens but by a step, and steps that are ready may run in any order;
- the interface and the conformance tests are those of the embedded log and of Kafka.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Final

from milepost.eventlog.log import (
    BATCH_RECORDS_MAX,
    TOMBSTONE_S,
    WAITING_BYTES_MAX,
    WAITING_RECORDS_MAX,
    Done,
    Entry,
    LogUnavailable,
    OnGap,
    OnRecords,
    Record,
    Since,
    Start,
    TopicEnd,
    TopicSettings,
    assign_topics,
    check_entries,
    check_group_name,
    check_topic_name,
    is_removal,
    key_bytes,
    maybe_gap,
)
from milepost.model.instants import SECOND_NS, Instant


class StepKind(Enum):
    """Kinds of steps: their effect, and when they are ready.

    | step | ready when | effect |
    |---|---|---|
    | WRITE | no earlier append of this log waits for the same topic | the records of one append for one topic can be read |
    | CONFIRM | all of the append is written, all before it were reported | `done` |
    | TAKE | a reader's topic has records for it | `on_gap` if there is a gap, then one batch to `on_records` |
    | COMMIT | a member has committed, its earlier commits are done | the group resumes there, if the member still has the topic |
    | REBALANCE | a member has a topic due to another, or is due a free one | releases and claims; `changed` |
    | EXPIRE | a member died with its log | its topics are free |
    | CLEAN | retention or compaction has something to remove | removes it |
    """

    WRITE = "write"
    CONFIRM = "confirm"
    READ = "read"
    COMMIT = "commit"
    REBALANCE = "rebalance"
    EXPIRE = "expire"
    CLEAN = "clean"


@dataclass(frozen=True, slots=True)
class Step:
    """A possible next step: its log (0: none), and its topic or group."""

    kind: StepKind
    log: int
    name: str
    run: Callable[[], None] = field(compare=False)


_EPOCH = Instant(0)


@dataclass(slots=True)
class MemoryTopic:
    """Records by offset, with possible gaps; `first` is the lowest offset that retention has not removed."""

    name: str
    settings: TopicSettings = field(default_factory=TopicSettings)
    records: list[Record] = field(default_factory=list)
    first: int = 0
    next: int = 0
    size: int = 0
    last: dict[str, int] = field(default_factory=dict)
    removals: dict[int, Instant] = field(default_factory=dict)
    retained_removals: int = 0
    """Number of authenticated removals that stay although a later record has their key."""
    appended_at: Instant = _EPOCH

    def append(self, entries: Sequence[Entry], now: Instant) -> None:
        """Append records, with a time never before that of the previous record."""
        self.appended_at = max(now, self.appended_at)
        for _, key, value in entries:
            record = Record(self.name, self.next, key, value, self.appended_at)
            self.records.append(record)
            self.size += _size(record)
            self.last[key] = self.next
            if is_removal(value):
                self.removals[self.next] = self.appended_at
            self.next += 1

    def position_of(self, start: Start) -> int:
        """Return the offset that a start position denotes."""
        match start:
            case TopicEnd.BEGINNING:
                return self.first
            case TopicEnd.END:
                return self.next
            case Since(time):
                at = bisect_left(self.records, time, key=lambda record: record.appended_at)
                return self.records[at].offset if at < len(self.records) else self.next
            case offset:
                return offset

    def since(self, position: int, limit: int) -> list[Record]:
        """Return at most *limit* records from *position* on."""
        at = bisect_left(self.records, position, key=lambda record: record.offset)
        return self.records[at : at + limit]

    def needs_cleaning(self, now: Instant) -> bool:
        """Whether records may be removed; called often, so it does not scan them."""
        if not self.records:
            return False
        if self.settings.is_compacted:
            is_superseded = len(self.records) > len(self.last) + self.retained_removals
            return is_superseded or any(self._is_over(at, now) for at in list(self.removals.values())[:1])
        return self._is_too_old(self.records[0], now) or 0 < self.settings.retention_bytes < self.size

    def clean(self, now: Instant) -> None:
        """Apply retention or compaction."""
        remaining = self._compacted(now) if self.settings.is_compacted else self._retained(now)
        self.records = remaining
        self.size = sum(_size(record) for record in remaining)
        self.last = {record.key: record.offset for record in remaining}
        self.retained_removals = len(remaining) - len(self.last)
        self.removals = {record.offset: record.appended_at for record in remaining if is_removal(record.value)}

    def _compacted(self, now: Instant) -> list[Record]:
        def is_removable(record: Record) -> bool:
            if is_removal(record.value) and self._is_over(record.appended_at, now):
                return True
            is_last = self.last[record.key] == record.offset
            return not is_last and (record.value is None or not is_removal(record.value))

        return [record for record in self.records if not is_removable(record)]

    def _retained(self, now: Instant) -> list[Record]:
        size, removed = self.size, 0
        for record in self.records:
            if not self._is_too_old(record, now) and not 0 < self.settings.retention_bytes < size:
                break
            size -= _size(record)
            removed += 1
        remaining = self.records[removed:]
        self.first = remaining[0].offset if remaining else self.next
        return remaining

    def _is_too_old(self, record: Record, now: Instant) -> bool:
        return 0 < self.settings.retention_s < (now - record.appended_at) / SECOND_NS

    def _is_over(self, removed_at: Instant, now: Instant) -> bool:
        return now - removed_at > TOMBSTONE_S * SECOND_NS


def _size(record: Record) -> int:
    return key_bytes(record.key) + (len(record.value) if record.value else 0)


class MemoryReader:
    """A reader with its topics and positions."""

    def __init__(self, on_records: OnRecords, on_gap: OnGap) -> None:
        self._on_records = on_records
        self._on_gap = on_gap
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
        """Yield one READ step for each topic with unread records."""
        for name, topic in self._topics.items():
            if self._positions[name] != topic.next:
                yield Step(StepKind.READ, log, name, partial(self._hand_over, name))

    def _hand_over(self, name: str) -> None:
        if (topic := self._topics.get(name)) is None or self._positions[name] == topic.next:
            return
        position = self._positions[name]
        records = topic.since(position, BATCH_RECORDS_MAX)
        self._positions[name] = records[-1].offset + 1 if records else topic.next
        if (gap := maybe_gap(name, position, topic.first, topic.next)) is not None:
            self._on_gap(gap)
        if records:
            self._on_records(records)


@dataclass(slots=True)
class MemoryGroup:
    """Requested topics by member number, claims (member, generation) and committed offsets by topic."""

    members: dict[int, frozenset[str]] = field(default_factory=dict)
    claims: dict[str, tuple[int, int]] = field(default_factory=dict)
    committed: dict[str, int] = field(default_factory=dict)
    generation: int = 0
    joined: int = 0

    def join(self, topics: frozenset[str]) -> int:
        """Add a member; return its number."""
        self.joined += 1
        self.members[self.joined] = topics
        return self.joined

    def due(self, member: int) -> set[str]:
        """Return the topics due to a member."""
        return {topic for topic, number in assign_topics(self.members).items() if number == member}

    def claim(self, topic: str, member: int) -> int:
        """Claim an unclaimed topic; return the generation of the claim."""
        assert topic not in self.claims
        self.generation += 1
        self.claims[topic] = (member, self.generation)
        return self.generation

    def leave(self, member: int) -> None:
        """Remove a member and its claims."""
        self.members.pop(member, None)
        self.claims = {topic: claim for topic, claim in self.claims.items() if claim[0] != member}


class MemoryMember:
    """One member of a group."""

    def __init__(
        self,
        name: str,
        group: MemoryGroup,
        topics: Mapping[str, MemoryTopic],
        reader: MemoryReader,
        changed: Callable[[frozenset[str]], None] | None,
    ) -> None:
        self._name = name
        self._group = group
        self._requested = topics
        self._reader = reader
        self._changed = changed
        self._number = group.join(frozenset(topics))
        self._claims: dict[str, int] = {}
        self._commits: deque[tuple[str, int, int]] = deque()
        self._is_alive = True

    def commit(self, topic: str, offset: int) -> None:
        """Commit `offset`: all records before it are processed; ignored if the topic went to another member."""
        if topic in self._claims:
            self._commits.append((topic, self._claims[topic], offset))

    def close(self) -> None:
        """Write pending commits and leave the group."""
        while self._commits:
            self._write_commit(self._commits[0])
        self.die()
        self._group.leave(self._number)

    def die(self) -> None:
        """Die with the log: pending commits are lost, and claims stay until an EXPIRE step."""
        self._is_alive = False
        self._commits.clear()
        self._reader.close()

    def ready(self, log: int) -> Iterator[Step]:
        """Yield the steps this member may take next."""
        if self._number not in self._group.members:
            return
        if not self._is_alive:
            yield Step(StepKind.EXPIRE, log, self._name, partial(self._group.leave, self._number))
            return
        if self._commits:
            yield Step(StepKind.COMMIT, log, self._name, partial(self._write_commit, self._commits[0]))
        if self._needs_rebalance():
            yield Step(StepKind.REBALANCE, log, self._name, self._rebalance)
        yield from self._reader.ready(log)

    def _needs_rebalance(self) -> bool:
        due = self._group.due(self._number)
        return bool(self._claims.keys() - due or due - self._group.claims.keys())

    def _rebalance(self) -> None:
        if not self._is_alive or not self._needs_rebalance():
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
            self._reader.add(self._requested[topic], self._group.committed.get(topic, self._requested[topic].first))

    def _write_commit(self, commit: tuple[str, int, int]) -> None:
        if not self._commits or self._commits[0] is not commit:
            return
        topic, generation, offset = self._commits.popleft()
        if self._group.claims.get(topic) == (self._number, generation):
            self._group.committed[topic] = offset


@dataclass(slots=True)
class _MemoryAppend:
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
        self._waiting: deque[_MemoryAppend] = deque()
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
        self._waiting.append(_MemoryAppend(parts, len(entries), size, done))

    def make(self, topic: str, settings: TopicSettings | None = None) -> None:
        """Create a topic or change its settings."""
        check_topic_name(topic)
        self._check_open()
        found = self._topic(topic)
        found.settings = settings or found.settings

    def follow(self, starts: Mapping[str, Start], on_records: OnRecords, on_gap: OnGap) -> MemoryReader:
        """Read topics from their start positions, until closed."""
        self._check_open()
        for name in starts:
            check_topic_name(name)
        reader = MemoryReader(on_records, on_gap)
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
        on_records: OnRecords,
        on_gap: OnGap,
        *,
        changed: Callable[[frozenset[str]], None] | None = None,
    ) -> MemoryMember:
        """Read topics as a member of a group."""
        check_group_name(group)
        self._check_open()
        for name in topics:
            check_topic_name(name)
        requested = {name: self._topic(name) for name in topics}
        member = MemoryMember(
            group, self._groups.setdefault(group, MemoryGroup()), requested, MemoryReader(on_records, on_gap), changed
        )
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
            self._confirm(self._waiting[0])
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
            yield Step(StepKind.CONFIRM, self.number, "", partial(self._confirm, self._waiting[0]))

    def _write(self, append: _MemoryAppend, topic: str) -> None:
        entries = append.parts.pop(topic, [])
        if entries and self._is_open:
            self._topic(topic).append(entries, self._clock())

    def _confirm(self, append: _MemoryAppend) -> None:
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
        raise AssertionError("steps keep producing further steps")

    def _cleaning(self) -> Iterator[Step]:
        for name, topic in self._topics.items():
            if topic.needs_cleaning(self._clock()):
                yield Step(StepKind.CLEAN, 0, name, partial(self._clean, topic))

    def _clean(self, topic: MemoryTopic) -> None:
        topic.clean(self._clock())
