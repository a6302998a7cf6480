"""The log between processes: append, follow, consumer groups; one interface and one conformance suite for all implementations.

    append ─▶ topic: 0 1 2 3 4 5 6 …  ─▶ follow (independent readers, from an offset or a time)
                                      └▶ join   (a consumer group: one member at a time per topic, from the committed offset)

Invariants:
- a topic is totally ordered (M8): offsets increase from record to record; a reader receives the records in that order, each
  exactly once, and misses none that could be read. Gaps between offsets have no meaning;
- records appended by one `Log` object to a topic are stored in the order of the calls, without duplicates, despite retries;
- `done` of an append is called once its records have the durability the log was opened with, never before; in the order of calls;
- a compacted topic retains at least the last record of each key; a value of None is a tombstone, removed itself after a while,
  and so is an authenticated removal;
- no loss is silent: failed appends are reported to `done`, unreadable records to `on_gap`;
- callbacks run on the log's own threads, one at a time for each `append` object, `Following` and `Member`. A callback that
  blocks delays its own reader and no other.
"""

import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Final, NamedTuple, Protocol, TypeVar

from milepost.model.instants import Instant

# Callbacks of the log's users: an exception goes to `threading.excepthook` and does not affect other callbacks.

T = TypeVar("T")


def call_safely(callback: Callable[[T], None], argument: T) -> None:
    """Call *callback* and contain its exceptions: the log's thread serves other callers too."""
    try:
        callback(argument)
    except Exception:  # noqa: BLE001  # a fault in one caller must not stop the others
        threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))


TOPIC_CHARACTERS_MAX: Final = 200
"""Maximum length of a name; its characters are A-Z a-z 0-9 . _ - so that every log supports it."""

RECORD_BYTES_MAX: Final = 900_000
"""Maximum bytes of key and value together; larger data is sent in parts."""

BATCH_RECORDS_MAX: Final = 1_000
"""Maximum records per batch handed to a reader."""

WAITING_RECORDS_MAX: Final = 200_000
"""Maximum records appended and not yet written, per open log."""

WAITING_BYTES_MAX: Final = 64 * 1024 * 1024
"""Maximum bytes appended and not yet written, per open log; one larger append is accepted when nothing else waits."""


TOMBSTONE_S: Final = 3_600
"""Minimum lifetime of a tombstone in a compacted topic, so that readers notice the removal."""

REMOVAL_START: Final = b"\n-"
CODE_BYTES: Final = len(REMOVAL_START) + 64
"""An authenticated removal (`authenticated`) is a value of CODE_BYTES that begins with REMOVAL_START. Like the tombstone that
follows it, compaction keeps it for `TOMBSTONE_S` at least."""


class Entry(NamedTuple):
    """A record to append; a value of None removes the key from a compacted topic."""

    topic: str
    key: str
    value: bytes | None


class Record(NamedTuple):
    """A record as read from a topic."""

    topic: str
    offset: int
    key: str
    value: bytes | None
    appended_at: Instant


class TopicEnd(Enum):
    """Start position at one of the ends of a topic."""

    BEGINNING = "beginning"
    """The oldest record still stored."""
    END = "end"
    """Records appended from now on: none is missed after `follow` has returned."""


@dataclass(frozen=True, slots=True)
class Since:
    """Start position: the first record appended at *time* or later."""

    time: Instant


Start = int | Since | TopicEnd
"""Start position: the offset of the first record to read, a time, or one of the ends."""


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """Retention and compaction of a topic."""

    retention_s: int = 7 * 86_400
    """Age beyond which records may be removed; 0: no limit."""
    retention_bytes: int = 0
    """Size beyond which the oldest records may be removed; 0: no limit."""
    is_compacted: bool = False
    """Remove a record only when a later one has the same key; age and size do not matter."""


class LogUnavailable(Exception):
    """The log is temporarily unreachable or not writable; the text gives the reason and the remedy."""


class LogRefused(Exception):
    """The log rejects the request permanently: too large, an invalid name, not authorized."""


class LogLost(Exception):
    """Requested records are gone: the reader was away for longer than the retention. The text names the gap."""


Done = Callable[[Exception | None], None]
"""Called with None when all records of an append are durable, else with the fault (`LogUnavailable`, `LogRefused`): none is."""

OnRecords = Callable[[Sequence[Record]], None]
"""Receives records of one topic, in order; the next batch follows after it has returned."""

OnGap = Callable[[LogLost], None]
"""Receives a gap, before the records that follow it."""


class Following(Protocol):
    """An independent reader, outside any group."""

    def close(self) -> None:
        """Stop reading; no record is handed over after this returns."""


class Member(Protocol):
    """One member of a consumer group."""

    def commit(self, topic: str, offset: int) -> None:
        """Commit `offset`: all records before it are processed, and the topic's next owner starts there."""

    def close(self) -> None:
        """Leave the group; the other members take over without waiting for a timeout."""


class Log(Protocol):
    """An open log; thread-safe."""

    def append(self, entries: Sequence[Entry], done: Done | None = None) -> None:
        """Append records, in order, without blocking. Raises `LogUnavailable` and accepts nothing when the queue is full."""

    def make(self, topic: str, settings: TopicSettings | None = None) -> None:
        """Create a topic or change its settings; None: create it with the defaults, or leave an existing one as it is."""

    def follow(self, starts: Mapping[str, Start], on_records: OnRecords, on_gap: OnGap) -> Following:
        """Read topics from their start positions, stored and new records, until closed; missing topics are created."""

    def read(self, topic: str, first: int, limit: int) -> list[Record]:
        """Return at most `limit` records from offset *first* on, without waiting; raises `LogLost` if *first* is gone."""

    def ends(self, topic: str) -> tuple[int, int]:
        """Return the offsets of the oldest record and of the next append; equal if the topic is empty or missing."""

    def topics(self) -> list[str]:
        """Return the existing topics, sorted, without the log's internal ones."""

    def join(
        self,
        group: str,
        topics: Sequence[str],
        on_records: OnRecords,
        on_gap: OnGap,
        *,
        changed: Callable[[frozenset[str]], None] | None = None,
    ) -> Member:
        """Read topics as a member of a group; `changed` receives this member's topics before their first records."""

    def committed(self, group: str) -> dict[str, int]:
        """Return the committed offsets of a group, by topic."""

    def close(self) -> None:
        """Finish pending appends and stop all readers."""


def read_to_end(log: Log, topic: str, first: int = 0) -> Iterator[list[Record]]:
    """Yield the records that a topic holds now, from offset *first* on, in batches; nothing if the topic is missing.

    The end is determined once, so that reading a busy topic terminates. Records that retention or compaction removes
    meanwhile are skipped. An unavailable log raises `LogUnavailable` within its own time limit.
    """
    oldest, end = log.ends(topic)
    position = max(first, oldest)
    while position < end:
        try:
            records = log.read(topic, position, BATCH_RECORDS_MAX)
        except LogLost:
            position = max(log.ends(topic)[0], position + 1)
            continue
        found = [record for record in records if record.offset < end]
        if not found:
            return
        yield found
        position = found[-1].offset + 1


# Names and sizes are checked before anything else, against the limits of all logs, so that every log accepts the same input.

NAMES_REMEMBERED: Final = 4_096
"""Maximum valid names cached."""

_NAME = re.compile(rf"[A-Za-z0-9._-]{{1,{TOPIC_CHARACTERS_MAX}}}")
_RESERVED = (".", "..")  # reserved by file systems: Kafka and others store a topic in a folder of its name


@lru_cache(maxsize=NAMES_REMEMBERED)
def check_topic_name(name: str) -> None:
    """Raise `LogRefused` for a topic name that not every log supports."""
    _check("topic", name)


def check_group_name(name: str) -> None:
    """Raise `LogRefused` for a group name that not every log supports."""
    _check("group", name)


def check_entries(entries: Sequence[Entry]) -> int:
    """Return the bytes of all keys and values; raises `LogRefused` for an invalid name or an oversized record."""
    total = 0
    for topic, key, value in entries:
        check_topic_name(topic)
        size = key_bytes(key) + (0 if value is None else len(value))
        if size > RECORD_BYTES_MAX:
            raise LogRefused(f"a record of {size} bytes for {topic}: at most {RECORD_BYTES_MAX} fit; send it in parts")
        total += size
    return total


def key_bytes(key: str) -> int:
    """Return the length of a key in UTF-8; raises `LogRefused` if it cannot be encoded."""
    if key.isascii():
        return len(key)
    try:
        return len(key.encode())
    except UnicodeEncodeError:
        raise LogRefused(f"the key {key!r} cannot be encoded as UTF-8") from None


def assign_topics(members: Mapping[int, frozenset[str]]) -> dict[str, int]:
    """Assign each topic to a member: evenly, and deterministically, so that all members compute the same."""
    load = dict.fromkeys(sorted(members), 0)
    division: dict[str, int] = {}
    for topic in sorted({topic for topics in members.values() for topic in topics}):
        member = min((member for member in load if topic in members[member]), key=lambda one: (load[one], one))
        division[topic] = member
        load[member] += 1
    return division


def is_removal(value: bytes | None) -> bool:
    """Return whether a stored value removes its key: a tombstone, or an authenticated removal."""
    return value is None or (len(value) == CODE_BYTES and value.startswith(REMOVAL_START))


def maybe_gap(topic: str, position: int, first: int, end: int) -> LogLost | None:
    """Return the records missing at *position* in a topic that has those from *first* up to *end*, or `None`."""
    if position < first:
        return LogLost(f"{topic}: records {position} to {first - 1} are gone, removed by its retention")
    if position > end:
        return LogLost(f"{topic}: offset {position} is beyond its end, {end}: the records that were there are gone")
    return None


def _check(kind: str, name: str) -> None:
    if not _NAME.fullmatch(name) or name in _RESERVED:
        shown = name if len(name) <= TOPIC_CHARACTERS_MAX else f"{name[:TOPIC_CHARACTERS_MAX]}…"
        raise LogRefused(f"{shown!r} is not a valid {kind} name: use 1 to {TOPIC_CHARACTERS_MAX} characters of A-Z a-z 0-9 . _ -")
