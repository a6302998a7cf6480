"""Reading the embedded log from Spark: records of topics between offsets, the same each time they are asked for.

What must hold:
- a position is the offset of the next record of each topic; what lies between two positions is the same records whenever it is
  read, except for those that retention or compaction has removed since;
- a batch is bounded: topics share what one may have, and those with little leave their rest to the others.
"""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows

from milepost.backbone.embedded.database import open_database
from milepost.backbone.embedded.rows import find_topic, oldest, read_batch
from milepost.backbone.log import Record
from milepost.model.survives import Survives

if TYPE_CHECKING:
    import pyarrow

PARTITION_OFFSETS: Final = 20_000
"""So many offsets are one task's work."""

Position = Mapping[str, int]
"""The offset of the next record, by topic; a topic that is not named is read from its beginning."""


@dataclass(frozen=True)
class Range(InputPartition):
    """Records of a topic, from one offset to before another."""

    topic: str
    first: int
    end: int


class LogReader(DataSourceReader):
    """All that is there when it is asked."""

    def __init__(self, folder: Path, topics: Sequence[str]) -> None:
        self._folder = folder
        self._topics = topics

    def partitions(self) -> Sequence[Range]:
        """Parts of equal size."""
        with closing(_connected(self._folder)) as connection:
            ends = _ends(connection, self._topics)
        return ranges({topic: first for topic, (first, _) in ends.items()}, {topic: end for topic, (_, end) in ends.items()})

    def read(self, partition: InputPartition) -> "Iterator[pyarrow.RecordBatch]":
        """LOG_ROW of a part."""
        assert isinstance(partition, Range)
        return read_range(self._folder, partition)


class LogStreamReader(DataSourceStreamReader):
    """What comes, in batches of at most so many records."""

    def __init__(self, folder: Path, topics: Sequence[str], records_max: int | None) -> None:
        self._folder = folder
        self._topics = topics
        self._records_max = records_max
        self._connection: sqlite3.Connection | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802  # Spark's name, as are those below
        """From the beginning."""
        return {topic: first for topic, (first, _) in _ends(self._connected(), self._topics).items()}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """What the options say."""
        return ReadAllAvailable() if self._records_max is None else ReadMaxRows(self._records_max)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        """How far the next batch goes."""
        ends = _ends(self._connected(), self._topics)
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return next_position(start, ends, rows)

    def reportLatestOffset(self) -> dict[str, int]:  # noqa: N802
        """The end, for figures."""
        return {topic: end for topic, (_, end) in _ends(self._connected(), self._topics).items()}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[Range]:
        """Parts of equal size."""
        return ranges(start, end)

    def read(self, partition: InputPartition) -> "Iterator[pyarrow.RecordBatch]":
        """LOG_ROW of a part; in another process than the rest."""
        assert isinstance(partition, Range)
        return read_range(self._folder, partition)

    def stop(self) -> None:
        """Read no further."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = _connected(self._folder)
        return self._connection


def next_position(start: Position, ends: Mapping[str, tuple[int, int]], records_max: int | None) -> dict[str, int]:
    """How far to read from a position, given the oldest and the next offset of each topic."""
    # Over what is gone, and never back, not even where a topic has become shorter than it was.
    reached = {topic: max(start.get(topic, first), first) for topic, (first, _) in ends.items()}
    waiting = {topic: max(0, end - reached[topic]) for topic, (_, end) in ends.items()}
    left, topics_left = records_max, len(waiting)
    for topic, count in sorted(waiting.items(), key=lambda one: one[1]):
        taken = count if left is None else min(count, -(-left // topics_left))
        left = None if left is None else left - taken
        topics_left -= 1
        reached[topic] += taken
    return reached


def ranges(start: Position, end: Position) -> list[Range]:
    """What lies between two positions, in parts."""
    found = []
    for topic, last in sorted(end.items()):
        first = start.get(topic, 0)
        found += [Range(topic, at, min(at + PARTITION_OFFSETS, last)) for at in range(first, last, PARTITION_OFFSETS)]
    return found


def read_range(folder: Path, wanted: Range) -> "Iterator[pyarrow.RecordBatch]":
    """LOG_ROW of some records."""
    with closing(_connected(folder)) as connection:
        first = wanted.first
        while first < wanted.end:
            batch = read_batch(connection, wanted.topic, first)
            records = [] if batch is None else [one for one in batch.records if one.offset < wanted.end]
            if not records:
                return
            yield _rows(records)
            first = records[-1].offset + 1


def _rows(records: Sequence[Record]) -> "pyarrow.RecordBatch":
    import pyarrow as pa  # noqa: PLC0415  # not before a process reads: those that only count offsets start sooner

    texts = [None if record.value is None else record.value.decode("utf-8", "replace") for record in records]
    return pa.RecordBatch.from_arrays(
        [
            pa.array([record.topic for record in records], pa.string()),
            pa.array([record.key for record in records], pa.string()),
            pa.array(texts, pa.string()),
            pa.array([record.offset for record in records], pa.int64()),
            pa.array([record.appended_at // 1_000 for record in records], pa.timestamp("us", tz="UTC")),
        ],
        names=["topic", "key", "value", "offset", "appended_at"],
    )


def _ends(connection: sqlite3.Connection, topics: Sequence[str]) -> dict[str, tuple[int, int]]:
    """The oldest and the next offset of each topic; of one that is not there, nothing before 0."""
    found = {}
    for name in topics:
        topic = find_topic(connection, name)
        found[name] = (0, 0) if topic is None else (oldest(connection, topic), topic.next)
    return found


def _connected(folder: Path) -> sqlite3.Connection:
    return open_database(folder, Survives.PROCESS_CRASH).connect()
