"""Topics and records as SQL statements; every function works inside its caller's transaction or is a single read.

Two measured optimizations of appending: several rows per statement, and values passed as bytearray, because Python's
sqlite3 looks up an adapter for every bytes object but not for a bytearray.
"""

import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from itertools import chain
from typing import Final, NamedTuple

from milepost.eventlog.log import BATCH_RECORDS_MAX, Entry, Record, Since, Start, TopicEnd, TopicSettings, key_bytes
from milepost.model.instants import Instant

OFFSET_BITS: Final = 40
OFFSETS_MAX: Final = 1 << OFFSET_BITS
ROWS_PER_INSERT: Final = 16
"""Rows per INSERT statement."""
BATCH_BYTES_MAX: Final = 4 * 1024 * 1024
"""Size at which a batch is handed over, even with few records."""

_PUT, _PUT_MANY = (f"INSERT INTO records VALUES {', '.join(['(?, ?, ?, ?)'] * count)}" for count in (1, ROWS_PER_INSERT))
_NEW_TOPIC = "INSERT OR IGNORE INTO topics VALUES (NULL, ?, 0, 0, 0, 0, 0, ?, ?, ?, 0, 0, 0)"
_READ = "SELECT number, key, value, appended_at FROM records WHERE number >= ? AND number < ? ORDER BY number LIMIT ?"
_RANGE = "SELECT number FROM records WHERE number >= ? AND number < ?"
_Row = tuple[int, int, str, bytearray | None]


class TopicBounds(NamedTuple):
    """Bounds of a topic: the lowest offset that retention has not removed, and the offset of the next append."""

    id: int
    first: int
    next: int


class TopicBatch(NamedTuple):
    """Records of one topic, and its bounds when they were read."""

    topic: TopicBounds
    records: list[Record]


def number_of(topic_id: int, offset: int) -> int:
    """Return the primary key of a record, which sorts by topic and then by offset."""
    return topic_id << OFFSET_BITS | offset


def make_topic(connection: sqlite3.Connection, name: str, settings: TopicSettings | None) -> None:
    """Create a topic or change its settings; with None an existing topic stays as it is."""
    effective = settings or TopicSettings()
    values = (effective.retention_s, effective.retention_bytes, int(effective.is_compacted))
    made = connection.execute(_NEW_TOPIC, (name, *values)).rowcount
    if settings is not None and not made:
        connection.execute(
            "UPDATE topics SET retention_s = ?, retention_bytes = ?, is_compacted = ? WHERE name = ?", (*values, name)
        )


def find_topic(connection: sqlite3.Connection, name: str) -> TopicBounds | None:
    """Return the bounds of a topic, or `None` if it does not exist."""
    row = connection.execute("SELECT id, first, next FROM topics WHERE name = ?", (name,)).fetchone()
    return None if row is None else TopicBounds(*row)


def append_rows(connection: sqlite3.Connection, appends: Iterable[Sequence[Entry]], now: int) -> dict[int, int]:
    """Insert records, in order; return the ids of the grown topics with their next offsets."""
    by_topic: dict[str, list[tuple[str, bytes | None]]] = {}
    for entries in appends:
        for topic, key, value in entries:
            if (of_topic := by_topic.get(topic)) is None:
                of_topic = by_topic[topic] = []
            of_topic.append((key, value))
    (changed,) = connection.execute("SELECT coalesce(max(changed), 0) + 1 FROM topics").fetchone()
    return dict(_append_to(connection, topic, pairs, now, changed) for topic, pairs in by_topic.items())


def read_batch(connection: sqlite3.Connection, name: str, position: int, limit: int = BATCH_RECORDS_MAX) -> TopicBatch | None:
    """Return one batch of records from *position* on, or `None` if the topic does not exist."""
    connection.execute("BEGIN")  # both reads see one snapshot
    try:
        topic = find_topic(connection, name)
        if topic is None:
            return None
        begin, end = number_of(topic.id, max(position, topic.first)), number_of(topic.id, topic.next)
        with closing(connection.execute(_READ, (begin, end, limit))) as rows:  # an open cursor would pin the snapshot
            return TopicBatch(topic, _records(rows, name, number_of(topic.id, 0)))
    finally:
        connection.execute("COMMIT")


def oldest(connection: sqlite3.Connection, topic: TopicBounds) -> int:
    """Return the offset of the oldest stored record, or of the next append if the topic is empty."""
    found = connection.execute(f"{_RANGE} ORDER BY number LIMIT 1", (number_of(topic.id, 0), number_of(topic.id, topic.next)))
    row = found.fetchone()
    return topic.next if row is None else row[0] - number_of(topic.id, 0)


def position_of(connection: sqlite3.Connection, topic: TopicBounds, start: Start) -> int:
    """Return the offset that a start position denotes."""
    match start:
        case TopicEnd.BEGINNING:
            return topic.first
        case TopicEnd.END:
            return topic.next
        case Since(time):
            return _first_since(connection, topic, time)
        case offset:
            return offset


def _append_to(
    connection: sqlite3.Connection, name: str, pairs: list[tuple[str, bytes | None]], now: int, changed: int
) -> tuple[int, int]:
    query = "SELECT id, next, appended_at FROM topics WHERE name = ?"
    row = connection.execute(query, (name,)).fetchone()
    if row is None:
        make_topic(connection, name, None)
        row = connection.execute(query, (name,)).fetchone()
    topic_id, offset, appended_at = row
    assert offset + len(pairs) < OFFSETS_MAX
    at = max(now, appended_at)
    start = number_of(topic_id, offset)
    rows: list[_Row] = [
        (number, at, key, None if value is None else bytearray(value)) for number, (key, value) in enumerate(pairs, start)
    ]
    _put_all(connection, rows)
    size = sum([key_bytes(key) + (len(value) if value else 0) for key, value in pairs])
    connection.execute(
        "UPDATE topics SET next = ?, appended_at = ?, bytes = bytes + ?, changed = ? WHERE id = ?",
        (offset + len(pairs), at, size, changed, topic_id),
    )
    return topic_id, offset + len(pairs)


def _put_all(connection: sqlite3.Connection, rows: list[_Row]) -> None:
    whole = len(rows) - len(rows) % ROWS_PER_INSERT
    if whole:
        packs = [list(chain.from_iterable(rows[at : at + ROWS_PER_INSERT])) for at in range(0, whole, ROWS_PER_INSERT)]
        connection.executemany(_PUT_MANY, packs)
    if whole < len(rows):
        connection.executemany(_PUT, rows[whole:])


def _records(rows: Iterable[tuple[int, str, bytes | None, int]], name: str, base: int) -> list[Record]:
    records: list[Record] = []
    size = 0
    for number, key, value, at in rows:
        records.append(Record(name, number - base, key, value, Instant(at)))
        size += len(value) if value else 0
        if size >= BATCH_BYTES_MAX:
            break
    return records


def _first_since(connection: sqlite3.Connection, topic: TopicBounds, time: Instant) -> int:
    """Binary search: times never decrease within a topic."""
    low, high = topic.first, topic.next
    while low < high:
        middle = (low + high) // 2
        row = connection.execute(
            "SELECT number, appended_at FROM records WHERE number >= ? AND number < ? ORDER BY number LIMIT 1",
            (number_of(topic.id, middle), number_of(topic.id, high)),
        ).fetchone()
        if row is None or row[1] >= time:
            high = middle
        else:
            low = row[0] - number_of(topic.id, 0) + 1
    return low
