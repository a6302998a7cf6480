"""Retention and compaction: a short step after each commit, by the process that appended to the topic.

Compaction is one pass over a topic: collect the keys of the records appended since the last pass, with their last numbers; then
delete every record with a later one of the same key, and every tombstone (a value of None) or authenticated removal that is old
enough.

Invariants:
- retention raises the topic's `first`, compaction does not: only retention is a loss to a reader;
- a record is compacted away only if a later one with its key is in the file, so two processes may compact at the same time;
- the last record of a key is deleted only if it is a tombstone older than `TOMBSTONE_S` and all earlier ones are gone;
- an authenticated removal stays for `TOMBSTONE_S`, although its tombstone comes right after it: only the former removes a key at
  readers.
"""

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from time import monotonic, sleep
from typing import Final, NamedTuple

from milepost.eventlog.embedded.database import PAGE_BYTES
from milepost.eventlog.embedded.rows import number_of
from milepost.eventlog.log import CODE_BYTES, REMOVAL_START, TOMBSTONE_S
from milepost.model.instants import SECOND_NS

EVERY_S: Final = 0.2
"""Minimum interval between two cleaning passes."""
STEP_S: Final = 0.01
"""Approximate maximum duration of a step after a commit; pending writes come first."""
SLICE_RECORDS: Final = 2_000
"""Maximum records read or deleted per transaction."""
COMPACT_BYTES: Final = 1_000_000
"""Minimum new bytes that trigger compaction, if they are at least as many as the compacted ones."""
COMPACT_SMALL_BYTES: Final = 4_000_000
COMPACT_SMALL_S: Final = 60
"""Compaction interval of topics smaller than `COMPACT_SMALL_BYTES`, even with few new records."""
KEYS_MAX: Final = 200_000
"""Maximum keys collected in one pass; the records after them are left to the next."""
BUSY_TRIES: Final = 20
BUSY_WAIT_S: Final = 0.002

_SIZE = "length(CAST(key AS BLOB)) + coalesce(length(value), 0)"
_IS_AUTHENTICATED_REMOVAL = f"length(value) = {CODE_BYTES} AND substr(value, 1, {len(REMOVAL_START)}) = X'{REMOVAL_START.hex()}'"
_SLICE = "FROM records WHERE number >= ? AND number < ? ORDER BY number LIMIT ?"
# One aggregated row instead of thousands: Python releases the GIL for each row it fetches. `before` is the size of earlier rows.
_OLDEST = f"""SELECT max(number), sum(size) FROM (
    SELECT number, appended_at, size, sum(size) OVER (ORDER BY number) - size AS before
    FROM (SELECT number, appended_at, {_SIZE} AS size {_SLICE})) WHERE appended_at < ? OR before < ?"""
_COMPACTED = f"""SELECT number, key,
    appended_at < ? AND (value IS NULL OR ({_IS_AUTHENTICATED_REMOVAL})) AS is_over,
    appended_at >= ? AND {_IS_AUTHENTICATED_REMOVAL} AS must_stay, {_SIZE} {_SLICE}"""


class TopicState(NamedTuple):
    """A topic's row in the database."""

    id: int
    first: int
    next: int
    bytes: int
    retention_s: int
    retention_bytes: int
    is_compacted: int
    compacted_to: int
    compacted_bytes: int
    compacted_at: int


class Cleaner:
    """Incremental cleaning of the topics that this process appended to, one after the other."""

    def __init__(self, clock_ns: Callable[[], int]) -> None:
        self._clock_ns = clock_ns
        self._due: dict[int, None] = {}
        self._run: Iterator[int] | None = None
        self._run_topics: list[int] = []
        self._next_run_s = 0.0

    def mark_due(self, topic_ids: Iterable[int]) -> None:
        """Mark topics as due for cleaning."""
        self._due.update(dict.fromkeys(topic_ids))

    def find_wait_s(self) -> float | None:
        """Return the time until the next step, or `None` if no topic is due."""
        if self._run is not None:
            return 0.0
        return max(0.0, self._next_run_s - monotonic()) if self._due else None

    def step(self, connection: sqlite3.Connection) -> int:
        """Clean for at most about `STEP_S`; return the approximate number of changed pages."""
        if self._run is None:
            if not self._due or monotonic() < self._next_run_s:
                return 0
            self._run_topics, self._due = list(self._due), {}
            self._run = self._clean(connection, self._run_topics)
        stop_at, pages = monotonic() + STEP_S, 0
        try:
            for changed in self._run:
                pages += changed
                if monotonic() > stop_at:
                    return pages
        except sqlite3.Error:
            self.mark_due(self._run_topics)
            self._schedule_next_run()
            raise
        self._schedule_next_run()
        return pages

    def _schedule_next_run(self) -> None:
        self._run = None
        self._next_run_s = monotonic() + EVERY_S

    def _clean(self, connection: sqlite3.Connection, topic_ids: list[int]) -> Iterator[int]:
        for topic_id in topic_ids:
            topic = _state_of(connection, topic_id)
            if not topic.is_compacted:
                yield from _retain(connection, topic_id, self._clock_ns())
            elif needs_compaction(topic, self._clock_ns()):
                yield from _compact(connection, topic, self._clock_ns())


def _state_of(connection: sqlite3.Connection, topic_id: int) -> TopicState:
    columns = ", ".join(TopicState._fields)
    return TopicState(*connection.execute(f"SELECT {columns} FROM topics WHERE id = ?", (topic_id,)).fetchone())


def _retain(connection: sqlite3.Connection, topic_id: int, now: int) -> Iterator[int]:
    """Delete the oldest records while they exceed the age or size limit."""
    while True:
        topic = _state_of(connection, topic_id)
        begin, end = number_of(topic_id, topic.first), number_of(topic_id, topic.next)
        oldest = connection.execute(f"SELECT appended_at {_SLICE}", (begin, end, 1)).fetchone()
        too_old = now - topic.retention_s * SECOND_NS if topic.retention_s else 0
        is_large = 0 < topic.retention_bytes < topic.bytes
        if oldest is None or not (is_large or oldest[0] < too_old):
            return
        with _transaction(connection):
            pages = _remove_oldest(connection, _state_of(connection, topic_id), too_old)
        yield pages


def _remove_oldest(connection: sqlite3.Connection, topic: TopicState, too_old: int) -> int:
    begin, end = number_of(topic.id, topic.first), number_of(topic.id, topic.next)
    excess = topic.bytes - topic.retention_bytes if topic.retention_bytes else 0
    last, size = connection.execute(_OLDEST, (begin, end, SLICE_RECORDS, too_old, excess)).fetchone()
    if last is None:  # another process has deleted them already
        return 0
    connection.execute("DELETE FROM records WHERE number BETWEEN ? AND ?", (begin, last))
    first = last + 1 - number_of(topic.id, 0)
    connection.execute("UPDATE topics SET first = ?, bytes = bytes - ? WHERE id = ?", (first, size, topic.id))
    return 1 + int(size) // PAGE_BYTES


def needs_compaction(topic: TopicState, now: int) -> bool:
    """Whether enough bytes are new or enough time has passed."""
    new = topic.bytes - topic.compacted_bytes
    age_s = (now - topic.compacted_at) / SECOND_NS
    is_new = topic.compacted_to < topic.next
    return (
        (new >= COMPACT_BYTES and new >= topic.compacted_bytes)
        or (is_new and topic.bytes < COMPACT_SMALL_BYTES and age_s >= COMPACT_SMALL_S)
        or age_s >= TOMBSTONE_S
    )


def _compact(connection: sqlite3.Connection, topic: TopicState, now: int) -> Iterator[int]:
    last: dict[str, int] = {}
    end = number_of(topic.id, topic.compacted_to)
    while len(last) < KEYS_MAX:
        rows = connection.execute(
            f"SELECT key, number {_SLICE}", (end, number_of(topic.id, topic.next), SLICE_RECORDS)
        ).fetchall()
        if not rows:
            break
        last.update(rows)
        end = rows[-1][1] + 1
        yield 0
    kept_bytes = 0
    position = number_of(topic.id, topic.first)
    too_old = now - TOMBSTONE_S * SECOND_NS
    while rows := connection.execute(_COMPACTED, (too_old, too_old, position, end, SLICE_RECORDS)).fetchall():
        deleted = [
            (number, size)
            for number, key, is_over, must_stay, size in rows
            if is_over or (last.get(key, number) > number and not must_stay)
        ]
        kept_bytes += sum(row[-1] for row in rows) - sum(size for _, size in deleted)
        if deleted:
            with _transaction(connection):
                _remove(connection, topic.id, deleted)
        position = rows[-1][0] + 1
        yield len(deleted)
    with _transaction(connection):
        connection.execute(
            "UPDATE topics SET compacted_to = ?, compacted_bytes = ?, compacted_at = ? WHERE id = ?",
            (end - number_of(topic.id, 0), kept_bytes, now, topic.id),
        )


def _remove(connection: sqlite3.Connection, topic_id: int, deleted: list[tuple[int, int]]) -> None:
    """Delete records; subtract only those actually deleted, because another process may have been faster."""
    removed = 0
    for number, size in deleted:
        removed += size * connection.execute("DELETE FROM records WHERE number = ?", (number,)).rowcount
    connection.execute("UPDATE topics SET bytes = bytes - ? WHERE id = ?", (removed, topic_id))


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    _begin(connection)
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def _begin(connection: sqlite3.Connection) -> None:
    """Begin a transaction, with a few retries: other processes' transactions are short, and cleaning can wait."""
    for _ in range(BUSY_TRIES):
        try:
            connection.execute("BEGIN IMMEDIATE")
            return
        except sqlite3.OperationalError:
            sleep(BUSY_WAIT_S)
    connection.execute("BEGIN IMMEDIATE")
