"""Topics in memory, and the steps that a log in memory takes one by one."""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from milepost.eventlog.log import REMOVALS_STAY_S, Edge, Entry, Record, Since, Start, TopicSettings, key_bytes
from milepost.model.instants import SECOND_NS, Instant


class StepKind(Enum):
    """What a step does, and when it is ready.

    | step | ready when | effect |
    |---|---|---|
    | WRITE | no earlier append of this log waits for the same topic | the records of one append for one topic can be read |
    | TELL | all of the append is written, all before it were reported | `done` |
    | TAKE | a reader's topic has records for it | `lost` if there is a gap, then one batch to `take` |
    | COMMIT | a member has committed, its earlier commits are done | the group resumes there, if the member still has the topic |
    | SETTLE | a member has a topic due to another, or is due a free one | releases and claims; `changed` |
    | EXPIRE | a member died with its log | its topics are free |
    | CLEAN | retention or compaction has something to remove | removes it |
    """

    WRITE = "write"
    TELL = "tell"
    TAKE = "take"
    COMMIT = "commit"
    SETTLE = "settle"
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
    appended_at: Instant = _EPOCH

    def append(self, entries: Sequence[Entry], now: Instant) -> None:
        """Append records, with a time never before that of the previous record."""
        self.appended_at = max(now, self.appended_at)
        for _, key, value in entries:
            record = Record(self.name, self.next, key, value, self.appended_at)
            self.records.append(record)
            self.size += _size(record)
            self.last[key] = self.next
            if value is None:
                self.removals[self.next] = self.appended_at
            self.next += 1

    def position_of(self, start: Start) -> int:
        """Return the offset that a start position denotes."""
        match start:
            case Edge.BEGINNING:
                return self.first
            case Edge.END:
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

    def wants_cleaning(self, now: Instant) -> bool:
        """Whether records may be removed; called often, so it does not scan them."""
        if not self.records:
            return False
        if self.settings.is_compacted:
            return len(self.records) > len(self.last) or any(self._is_over(at, now) for at in list(self.removals.values())[:1])
        return self._is_too_old(self.records[0], now) or 0 < self.settings.retention_bytes < self.size

    def clean(self, now: Instant) -> None:
        """Apply retention or compaction."""
        kept = self._compacted(now) if self.settings.is_compacted else self._retained(now)
        self.records = kept
        self.size = sum(_size(record) for record in kept)
        self.last = {record.key: record.offset for record in kept}
        self.removals = {record.offset: record.appended_at for record in kept if record.value is None}

    def _compacted(self, now: Instant) -> list[Record]:
        def goes(record: Record) -> bool:
            return self.last[record.key] != record.offset or (record.value is None and self._is_over(record.appended_at, now))

        return [record for record in self.records if not goes(record)]

    def _retained(self, now: Instant) -> list[Record]:
        size, gone = self.size, 0
        for record in self.records:
            if not self._is_too_old(record, now) and not 0 < self.settings.retention_bytes < size:
                break
            size -= _size(record)
            gone += 1
        kept = self.records[gone:]
        self.first = kept[0].offset if kept else self.next
        return kept

    def _is_too_old(self, record: Record, now: Instant) -> bool:
        return 0 < self.settings.retention_s < (now - record.appended_at) / SECOND_NS

    def _is_over(self, removed_at: Instant, now: Instant) -> bool:
        return now - removed_at > REMOVALS_STAY_S * SECOND_NS


def _size(record: Record) -> int:
    return key_bytes(record.key) + (len(record.value) if record.value else 0)
