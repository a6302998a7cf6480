"""Topics and groups in memory: what the file of the embedded log has."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

from milepost.backbone.embedded.cleaning import REMOVALS_STAY_S
from milepost.backbone.embedded.groups import divide
from milepost.backbone.log import Edge, Entry, Record, Since, Start, TopicSettings
from milepost.backbone.names import key_bytes
from milepost.model.instants import SECOND_NS, Instant

_EPOCH = Instant(0)


@dataclass(slots=True)
class MemoryTopic:
    """Records by offset, which may have gaps; `first` is the lowest that retention has left."""

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
        """At the end, at a time that is never before that of the record before it."""
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
        """The offset to begin with."""
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
        """Records from a position on."""
        at = bisect_left(self.records, position, key=lambda record: record.offset)
        return self.records[at : at + limit]

    def wants_cleaning(self, now: Instant) -> bool:
        """Whether something may go; asked often, so it does not look at each record."""
        if not self.records:
            return False
        if self.settings.is_compacted:
            return len(self.records) > len(self.last) or any(self._is_over(at, now) for at in list(self.removals.values())[:1])
        return self._is_too_old(self.records[0], now) or 0 < self.settings.retention_bytes < self.size

    def clean(self, now: Instant) -> None:
        """Remove what may go."""
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


@dataclass(slots=True)
class MemoryGroup:
    """Members by number, with the topics they wish for; who has which, under which claim; what was committed."""

    members: dict[int, frozenset[str]] = field(default_factory=dict)
    claims: dict[str, tuple[int, int]] = field(default_factory=dict)
    committed: dict[str, int] = field(default_factory=dict)
    generation: int = 0
    joined: int = 0

    def join(self, wishes: frozenset[str]) -> int:
        """One more member; its number."""
        self.joined += 1
        self.members[self.joined] = wishes
        return self.joined

    def due(self, member: int) -> set[str]:
        """What a member should have."""
        return {topic for topic, number in divide(self.members).items() if number == member}

    def claim(self, topic: str, member: int) -> int:
        """Give a topic that nobody has; the number of the claim."""
        assert topic not in self.claims
        self.generation += 1
        self.claims[topic] = (member, self.generation)
        return self.generation

    def leave(self, member: int) -> None:
        """A member is gone, with all it had."""
        self.members.pop(member, None)
        self.claims = {topic: claim for topic, claim in self.claims.items() if claim[0] != member}


def _size(record: Record) -> int:
    return key_bytes(record.key) + (len(record.value) if record.value else 0)
