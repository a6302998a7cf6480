"""Appending to the embedded log from Spark: a batch of a query once, however often it is tried.

    rows ─▶ driver: one transaction { is the batch noted? · append its records · note its number } ─▶ bell

What must hold: records of a batch and its number are in the file together, or neither is. Whoever is killed before the commit has
written nothing and the batch comes again; whoever is killed after it finds the number noted and appends nothing.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from time import time_ns
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from milepost.backbone.embedded.bell import Bell
from milepost.backbone.embedded.cleaning import Cleaner
from milepost.backbone.embedded.database import open_database
from milepost.backbone.embedded.rows import append_rows
from milepost.backbone.log import Entry
from milepost.backbone.names import check_entries
from milepost.model.survives import Survives

if TYPE_CHECKING:
    import pyarrow

GROUP: Final = "pipelines"
"""Under which the log notes batches, where groups note offsets: by query in place of topic."""
PATIENCE_MS: Final = 10_000
"""So long other processes may keep the file to themselves."""


class Batch(NamedTuple):
    """A batch of a query; the query's name is the same after a restart, and no other query's."""

    query: str
    number: int


@dataclass(frozen=True)
class Rows(WriterCommitMessage):
    """What a task has for the log."""

    entries: tuple[Entry, ...]


class LogWriter(DataSourceArrowWriter):
    """Appends rows, all at once."""

    def __init__(self, folder: Path, survives: Survives) -> None:
        self._folder = folder
        self._survives = survives

    def write(self, iterator: "Iterator[pyarrow.RecordBatch]") -> Rows:
        """In a task: only gather them."""
        return Rows(tuple(entries_of(iterator)))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """When all tasks are done."""
        assert all(isinstance(message, Rows) for message in messages), "nothing is committed before all tasks are done"
        entries = [entry for message in messages if isinstance(message, Rows) for entry in message.entries]
        with closing(Appender(self._folder, self._survives)) as appender:
            appender.append(entries, None)


class Appender:
    """Appends to the log in a folder, one batch after the other."""

    def __init__(self, folder: Path, survives: Survives) -> None:
        self._database = open_database(folder, survives)
        self._connection = self._database.connect()
        self._connection.execute(f"PRAGMA busy_timeout = {PATIENCE_MS}")
        self._cleaner = Cleaner(time_ns)
        self._bell = Bell(folder)

    def append(self, entries: Sequence[Entry], batch: Batch | None) -> bool:
        """Append records unless this batch of this query, or a later one, was appended before; gives whether it did."""
        check_entries(entries)
        self._database.check()
        connection, grown = self._connection, dict[int, int]()
        connection.execute("BEGIN IMMEDIATE")
        try:
            is_news = batch is None or _note(connection, batch)
            if is_news and entries:
                grown = append_rows(connection, [entries], time_ns())
            connection.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            raise
        if grown:
            self._bell.ring()
        self._cleaner.grew(grown)
        with suppress(sqlite3.Error):  # whoever appends cleans; what was not cleaned now is after the next batch
            self._cleaner.step(connection)
        return is_news

    def close(self) -> None:
        """No more."""
        self._connection.close()
        self._bell.close()


def _note(connection: sqlite3.Connection, batch: Batch) -> bool:
    """Note a batch; gives whether it was not noted before."""
    changed = connection.execute(
        "INSERT INTO committed VALUES (?, ?, ?) ON CONFLICT (group_name, topic) DO UPDATE SET next = excluded.next "
        "WHERE excluded.next > next",
        (GROUP, batch.query, batch.number + 1),
    )
    return changed.rowcount > 0


def entries_of(batches: "Iterable[pyarrow.RecordBatch]") -> Iterator[Entry]:
    """Rows of topic, key and value as records."""
    for batch in batches:
        for row in batch.to_pylist():
            value = row["value"]
            yield Entry(row["topic"], row["key"] or "", None if value is None else value.encode())
