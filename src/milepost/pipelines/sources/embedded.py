"""The embedded log as a data source and a sink of Spark.

    topics ─▶ positions ─▶ ranges of offsets, one task each ─▶ LOG_ROW ─▶ transform ─▶ OUT_ROW ─▶
    driver: one transaction { is the batch recorded? · append its records · record its number } ─▶ commit signal

*Invariants:*
- a position is the offset of the next record of each topic; the records between two positions are the same whenever they are
  read, except for those that retention or compaction has removed since;
- a batch is bounded: topics share the limit in proportion to their records, so that all reach the end of a backlog together. If
  one were ahead, its times would advance the watermark of a query, and the rows of the others would be late;
- the records of a batch and its number are committed together, or neither is. A driver killed before the commit has written
  nothing and the batch is repeated; one killed after it finds the number recorded and appends nothing;
- with the key of a site, only records with a valid code of it become rows, and every appended record gets one.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from time import time_ns
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructType

from milepost.eventlog.authenticated import RecordAuthenticator
from milepost.eventlog.embedded.database import open_database
from milepost.eventlog.embedded.retention import Cleaner
from milepost.eventlog.embedded.rows import append_rows, find_topic, oldest, read_batch
from milepost.eventlog.embedded.watcher import CommitSignal
from milepost.eventlog.log import Entry, Record, check_entries
from milepost.model.durability import Durability
from milepost.pipelines.records import LOG_ROW
from milepost.pipelines.sources import records_per_task
from milepost.trust.pem import SITE_KEY, bytes_from_text

if TYPE_CHECKING:
    import pyarrow

FORMAT: Final = "milepost_log"

KEY_FILE: Final = "key_file"
"""Option: the file with the key of the site. Not the key: Spark shows the options of a query."""

GROUP: Final = "pipelines"
"""Consumer group under which batch numbers are committed, with the query in place of the topic."""
LOCK_TIMEOUT_MS: Final = 10_000
"""Maximum wait for a lock held by another process."""
PARTITION_OFFSETS: Final = 20_000
"""Maximum offsets per task; a batch with a limit may have smaller tasks (`records_per_task`)."""
PLANNED_RECORDS_MAX: Final = 5_000
"""Maximum records of a batch that is read where it is planned."""
PLANNED_BYTES_MAX: Final = 4_000_000
"""Maximum size of such a batch: Spark keeps it in memory."""

Position = Mapping[str, int]
"""The offset of the next record, by topic; a missing topic is read from its beginning."""


@dataclass(frozen=True, slots=True)
class EmbeddedSource:
    """The embedded log in a folder."""

    folder: Path
    durability: Durability
    key_file: str = ""
    """The file with the key of the site; empty: records are not authenticated."""

    @property
    def prefix(self) -> str:
        """Empty: topics have no prefix."""
        return ""

    @property
    def is_real_time(self) -> bool:
        """False: data sources in Python work in micro-batches."""
        return False

    def stream(self, session: SparkSession, topics: Sequence[str], *, records_max: int | None) -> DataFrame:
        """Return the records of topics, with schema LOG_ROW, as a stream."""
        session.dataSource.register(EmbeddedLogSource)
        reader = session.readStream.format(FORMAT).options(**self._options(topics))
        if records_max is not None:
            per_task = min(PARTITION_OFFSETS, records_per_task(session, records_max))
            reader = reader.option("records_max", records_max).option("records_per_task", per_task)
        return reader.load()

    def table(self, session: SparkSession, topics: Sequence[str]) -> DataFrame:
        """Return all current records of topics, with schema LOG_ROW."""
        session.dataSource.register(EmbeddedLogSource)
        return session.read.format(FORMAT).options(**self._options(topics)).load()

    def sink(self, rows: DataFrame, query: str) -> DataStreamWriter:
        """Return the sink of a stream of OUT_ROW; each batch is appended exactly once."""

        appender = BatchAppender(self.folder, self.durability, self.key_file)

        # Not by the data source: Spark does not support update mode there, and starts several processes for each batch.
        def append(batch: DataFrame, number: int) -> None:
            appender.append(list(entries_of(batch.toArrow().to_batches())), QueryBatch(query, number))

        return rows.writeStream.foreachBatch(append)

    def append(self, rows: DataFrame) -> None:
        """Append a static DataFrame of OUT_ROW atomically."""
        rows.sparkSession.dataSource.register(EmbeddedLogSource)
        writer = rows.write.format(FORMAT).options(**self._options(()), durability=self.durability.value)
        writer.mode("append").save()

    def _options(self, topics: Sequence[str]) -> dict[str, str]:
        return {"folder": str(self.folder), "topics": ",".join(topics), KEY_FILE: self.key_file}


class EmbeddedLogSource(DataSource):
    """Options: `folder` of the log, and the `key_file` of the site; to read, comma-separated `topics` and optionally
    `records_max` and `records_per_task`; to write, `durability`.
    """

    @classmethod
    def name(cls) -> str:
        """Return the format name."""
        return FORMAT

    def schema(self) -> str:
        """Return the schema of reads."""
        return LOG_ROW

    def reader(self, schema: StructType) -> "LogReader":
        """Return the reader of a table."""
        del schema
        return LogReader(Path(self.options["folder"]), self._topics(), self._key_file())

    def streamReader(self, schema: StructType) -> "LogStreamReader":  # noqa: N802  # Spark's name
        """Return the reader of a stream."""
        del schema
        limit = self.options.get("records_max")
        records_max = None if limit is None else int(limit)
        per_task = int(self.options.get("records_per_task", PARTITION_OFFSETS))
        return LogStreamReader(Path(self.options["folder"]), self._topics(), records_max, per_task, self._key_file())

    def writer(self, schema: StructType, overwrite: bool) -> "LogWriter":
        """Return the writer of a static DataFrame."""
        self._check(schema, overwrite)
        return LogWriter(Path(self.options["folder"]), Durability(self.options["durability"]), self._key_file())

    def _topics(self) -> tuple[str, ...]:
        return tuple(self.options["topics"].split(","))

    def _key_file(self) -> str:
        return self.options.get(KEY_FILE, "")

    @staticmethod
    def _check(schema: StructType, overwrite: bool) -> None:
        if schema.fieldNames() != ["topic", "key", "value"] or overwrite:
            raise ValueError("the log accepts rows of topic, key and value, in append mode only")


@dataclass(frozen=True)
class OffsetRange(InputPartition):
    """Records of a topic from offset `first` to before `end`."""

    topic: str
    first: int
    end: int


class LogReader(DataSourceReader):
    """Batch reader of all current records."""

    def __init__(self, folder: Path, topics: Sequence[str], key_file: str) -> None:
        self._folder = folder
        self._topics = topics
        self._key_file = key_file

    def partitions(self) -> Sequence[OffsetRange]:
        """Return ranges of at most PARTITION_OFFSETS."""
        with closing(_connect(self._folder)) as connection:
            ends = _ends(connection, self._topics)
        return ranges({topic: first for topic, (first, _) in ends.items()}, {topic: end for topic, (_, end) in ends.items()})

    def read(self, partition: InputPartition) -> "Iterator[pyarrow.RecordBatch]":
        """Yield the records of a range, with schema LOG_ROW."""
        assert isinstance(partition, OffsetRange)
        return read_range(self._folder, partition, self._key_file)


class LogStreamReader(_SimpleStreamReaderWrapper):
    """Streaming reader, in batches of at most *records_max* records, and tasks of at most *per_task*.

    A small batch is read here, in the process that plans it, and sent to Spark with its plan; ranges of a large one are read by
    tasks. The base class, which Spark has for its simple readers, is the only one that may send records with the plan.
    """

    def __init__(self, folder: Path, topics: Sequence[str], records_max: int | None, per_task: int, key_file: str) -> None:
        self.simple_reader = None  # type: ignore[assignment]  # the records are those of this class
        self._folder = folder
        self._topics = topics
        self._records_max = records_max
        self._per_task = per_task
        self._key_file = key_file
        self._connection: sqlite3.Connection | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802  # Spark's name, like those below
        """Return the oldest offset of each topic."""
        return {topic: first for topic, (first, _) in _ends(self._connect(), self._topics).items()}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit in the options."""
        return ReadAllAvailable() if self._records_max is None else ReadMaxRows(self._records_max)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        """Return the end of the next batch."""
        ends = _ends(self._connect(), self._topics)
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return next_position(start, ends, rows)

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[OffsetRange]:
        """Return the ranges of the tasks."""
        return ranges(start, end, self._per_task)

    def getCache(self, start: dict[str, int], end: dict[str, int]) -> "Iterator[pyarrow.RecordBatch] | None":  # noqa: N802
        """Return the records of a small batch; `None`: tasks read them."""
        found = self.partitions(start, end)
        if len(found) != 1 or found[0].end - found[0].first > PLANNED_RECORDS_MAX:
            return None
        batches, size = [], 0
        for batch in read_records(self._connect(), found[0], _find_authenticator(self._key_file)):
            batches.append(batch)
            size += batch.nbytes
            if size > PLANNED_BYTES_MAX:
                return None
        return iter(batches)

    def commit(self, end: dict[str, int]) -> None:
        """Do nothing: the log keeps its records."""

    def read(self, partition: InputPartition) -> "Iterator[pyarrow.RecordBatch]":
        """Yield the records of a range, with schema LOG_ROW; runs in another process than the other methods."""
        assert isinstance(partition, OffsetRange)
        return read_range(self._folder, partition, self._key_file)

    def stop(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def _connect(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = _connect(self._folder)
        return self._connection


def next_position(start: Position, ends: Mapping[str, tuple[int, int]], records_max: int | None) -> dict[str, int]:
    """Return the end of the next batch from a position, given the oldest and the next offset of each topic."""
    # Skip removed records, and never go back, not even where a topic has become shorter.
    reached = {topic: max(start.get(topic, first), first) for topic, (first, _) in ends.items()}
    waiting = {topic: max(0, end - reached[topic]) for topic, (_, end) in ends.items()}
    left, total = records_max, sum(waiting.values())
    for topic, count in sorted(waiting.items(), key=lambda one: one[1]):
        taken = count if left is None or left >= total else -(-left * count // total)
        left = None if left is None else left - taken
        total -= count
        reached[topic] += taken
    return reached


def ranges(start: Position, end: Position, per_task: int = PARTITION_OFFSETS) -> list[OffsetRange]:
    """Return the offsets between two positions, in ranges of at most *per_task*."""
    found = []
    for topic, last in sorted(end.items()):
        first = start.get(topic, 0)
        found += [OffsetRange(topic, at, min(at + per_task, last)) for at in range(first, last, per_task)]
    return found


def read_range(folder: Path, offsets: OffsetRange, key_file: str) -> "Iterator[pyarrow.RecordBatch]":
    """Yield the records in a range, with schema LOG_ROW."""
    with closing(_connect(folder)) as connection:
        yield from read_records(connection, offsets, _find_authenticator(key_file))


def read_records(
    connection: sqlite3.Connection, offsets: OffsetRange, authenticator: RecordAuthenticator | None
) -> "Iterator[pyarrow.RecordBatch]":
    """Yield the authentic records in a range, with schema LOG_ROW."""
    first = offsets.first
    while first < offsets.end:
        batch = read_batch(connection, offsets.topic, first)
        records = [] if batch is None else [one for one in batch.records if one.offset < offsets.end]
        if not records:
            return
        authentic = records if authenticator is None else list(authenticator.opened(records))
        if authentic:
            yield _record_batch_of(authentic)
        first = records[-1].offset + 1


def _record_batch_of(records: Sequence[Record]) -> "pyarrow.RecordBatch":
    import pyarrow as pa  # noqa: PLC0415  # imported late: processes that only compute offsets start faster

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
    """Return the oldest and the next offset of each topic; both are 0 for a missing topic."""
    found = {}
    for name in topics:
        topic = find_topic(connection, name)
        found[name] = (0, 0) if topic is None else (oldest(connection, topic), topic.next)
    return found


def _find_authenticator(key_file: str) -> RecordAuthenticator | None:
    """Return the authenticator of a site with a key."""
    return RecordAuthenticator(bytes_from_text(Path(key_file).read_text(encoding="ascii"), SITE_KEY)) if key_file else None


def _connect(folder: Path) -> sqlite3.Connection:
    return open_database(folder, Durability.PROCESS_CRASH).connect()


class QueryBatch(NamedTuple):
    """A batch of a query; the query's name is unique, and the same after a restart."""

    query: str
    number: int


@dataclass(frozen=True)
class TaskEntries(WriterCommitMessage):
    """The records of one task, for the commit."""

    entries: tuple[Entry, ...]


class LogWriter(DataSourceArrowWriter):
    """Writer that appends the rows of all tasks atomically."""

    def __init__(self, folder: Path, durability: Durability, key_file: str) -> None:
        self._folder = folder
        self._durability = durability
        self._key_file = key_file

    def write(self, iterator: "Iterator[pyarrow.RecordBatch]") -> TaskEntries:
        """Collect the rows of a task."""
        return TaskEntries(tuple(entries_of(iterator)))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Append the rows of all tasks."""
        assert all(isinstance(message, TaskEntries) for message in messages), "a commit needs the entries of all tasks"
        entries = [entry for message in messages if isinstance(message, TaskEntries) for entry in message.entries]
        with closing(BatchAppender(self._folder, self._durability, self._key_file)) as appender:
            appender.append(entries, None)


class BatchAppender:
    """Appends batches to the log in a folder."""

    def __init__(self, folder: Path, durability: Durability, key_file: str = "") -> None:
        self._authenticator = _find_authenticator(key_file)
        self._database = open_database(folder, durability)
        self._connection = self._database.connect()
        self._connection.execute(f"PRAGMA busy_timeout = {LOCK_TIMEOUT_MS}")
        self._cleaner = Cleaner(time_ns)
        self._signal = CommitSignal(folder)

    def append(self, entries: Sequence[Entry], batch: QueryBatch | None) -> bool:
        """Append records unless this batch of the query, or a later one, was appended before; return whether it did."""
        if self._authenticator is not None:
            entries = list(self._authenticator.sealed(entries))
        check_entries(entries)
        self._database.check()
        connection, grown = self._connection, dict[int, int]()
        connection.execute("BEGIN IMMEDIATE")
        try:
            is_new = batch is None or _record_batch(connection, batch)
            if is_new and entries:
                grown = append_rows(connection, [entries], time_ns())
            connection.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            raise
        if grown:
            self._signal.notify_others()
        self._cleaner.mark_due(grown)
        with suppress(sqlite3.Error):  # the appending process also enforces retention; the next batch retries
            self._cleaner.step(connection)
        return is_new

    def close(self) -> None:
        """Close the connection and the signal."""
        self._connection.close()
        self._signal.close()


def _record_batch(connection: sqlite3.Connection, batch: QueryBatch) -> bool:
    """Record a batch; return whether it is new."""
    changed = connection.execute(
        "INSERT INTO committed VALUES (?, ?, ?) ON CONFLICT (group_name, topic) DO UPDATE SET next = excluded.next "
        "WHERE excluded.next > next",
        (GROUP, batch.query, batch.number + 1),
    )
    return changed.rowcount > 0


def entries_of(batches: "Iterable[pyarrow.RecordBatch]") -> Iterator[Entry]:
    """Yield rows of topic, key and value as log entries."""
    for batch in batches:
        for row in batch.to_pylist():
            value = row["value"]
            yield Entry(row["topic"], row["key"] or "", None if value is None else value.encode())
