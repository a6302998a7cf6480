"""The log on one machine: an SQLite database in a folder, shared by any number of processes; nothing to install or start.

append ─▶ EmbeddedWriter (one thread): all pending appends, one transaction ─▶ notifies own readers and other processes
                                                                               │
on_records ◀─ EmbeddedReader (one thread each) ◀─ TopicWatcher (one thread) ◀──┘ grown topics, also of other processes
"""

import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import time_ns

from milepost.eventlog.embedded.database import open_database
from milepost.eventlog.embedded.errors import unavailable
from milepost.eventlog.embedded.group import EmbeddedGroupMember, LeaseRenewal
from milepost.eventlog.embedded.reader import EmbeddedReader
from milepost.eventlog.embedded.rows import find_topic, make_topic, oldest, position_of, read_batch
from milepost.eventlog.embedded.watcher import TopicWatcher
from milepost.eventlog.embedded.writer import EmbeddedWriter
from milepost.eventlog.log import (
    BATCH_RECORDS_MAX,
    Done,
    Entry,
    LogUnavailable,
    OnGap,
    OnRecords,
    Record,
    Start,
    TopicSettings,
    check_entries,
    check_group_name,
    check_topic_name,
    maybe_gap,
)
from milepost.model.durability import Durability


class EmbeddedLog:
    """Implementation of `Log` in the directory `folder`, which is created if missing."""

    def __init__(self, folder: Path, durability: Durability, *, clock_ns: Callable[[], int] = time_ns) -> None:
        self._database = open_database(folder, durability)
        self._lock = threading.Lock()
        self._readers: list[EmbeddedReader] = []
        self._is_closed = False
        with self._translated_errors():
            self._connection = self._database.connect()
            self._watcher = TopicWatcher(self._database)
        self._writer = EmbeddedWriter(self._database, clock_ns, self._watcher.committed)
        self._leases = LeaseRenewal(self._writer, self._watcher, self._database)

    @property
    def fault(self) -> str | None:
        """Reason why the log cannot be written or read at the moment, or None."""
        readers = [reader.fault for reader in self._readers if reader.is_open] + self._leases.faults
        return next((fault for fault in (self._writer.fault, self._watcher.fault, *readers) if fault), None)

    def append(self, entries: Sequence[Entry], done: Done | None = None) -> None:
        """Append records, in order, without blocking."""
        copied = tuple(entries)  # the caller may reuse its list
        self._writer.append(copied, check_entries(copied), done)

    def make(self, topic: str, settings: TopicSettings | None = None) -> None:
        """Create a topic or change its settings."""
        check_topic_name(topic)
        self._writer.call(lambda connection: make_topic(connection, topic, settings))

    def follow(self, starts: Mapping[str, Start], on_records: OnRecords, on_gap: OnGap) -> EmbeddedReader:
        """Read topics from their start positions, until closed."""
        self._make_missing(list(starts))
        with self._reading() as connection:
            positions = {}
            for name, start in starts.items():
                topic = find_topic(connection, name)
                assert topic is not None
                positions[name] = (topic.id, position_of(connection, topic, start))
            reader = EmbeddedReader(self._database, self._watcher, on_records, on_gap)
            self._readers = [*(one for one in self._readers if one.is_open), reader]
        reader.start(positions)
        return reader

    def read(self, topic: str, first: int, limit: int) -> list[Record]:
        """Return at most `limit` records from offset *first* on, without waiting for more."""
        check_topic_name(topic)
        records: list[Record] = []
        while len(records) < limit:
            with self._reading() as connection:
                batch = read_batch(connection, topic, first, min(limit - len(records), BATCH_RECORDS_MAX))
            if batch is None:
                break
            if (gap := maybe_gap(topic, first, batch.topic.first, batch.topic.next)) is not None:
                raise gap
            if not batch.records:
                break
            records += batch.records
            first = records[-1].offset + 1
        return records

    def ends(self, topic: str) -> tuple[int, int]:
        """Return the offsets of the oldest record and of the next append."""
        check_topic_name(topic)
        with self._reading() as connection:
            found = find_topic(connection, topic)
            return (0, 0) if found is None else (oldest(connection, found), found.next)

    def topics(self) -> list[str]:
        """Return the existing topics, sorted."""
        with self._reading() as connection:
            return [name for (name,) in connection.execute("SELECT name FROM topics ORDER BY name")]

    def join(
        self,
        group: str,
        topics: Sequence[str],
        on_records: OnRecords,
        on_gap: OnGap,
        *,
        changed: Callable[[frozenset[str]], None] | None = None,
    ) -> EmbeddedGroupMember:
        """Read topics as a member of a group."""
        check_group_name(group)
        self._make_missing(topics)
        with self._translated_errors():
            return self._leases.join(group, frozenset(topics), on_records, on_gap, changed)

    def committed(self, group: str) -> dict[str, int]:
        """Return the committed offsets of a group, by topic."""
        check_group_name(group)
        with self._reading() as connection:
            return dict(connection.execute("SELECT topic, next FROM committed WHERE group_name = ?", (group,)))

    def close(self) -> None:
        """Finish pending appends and stop all readers."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        self._leases.close()
        for reader in self._readers:
            reader.close()
        self._writer.close()
        self._watcher.close()
        with self._lock:
            self._connection.close()

    def _make_missing(self, topics: Sequence[str]) -> None:
        for name in topics:
            check_topic_name(name)
        with self._reading() as connection:
            missing = [name for name in topics if find_topic(connection, name) is None]
        for name in missing:
            self._writer.call(partial(make_topic, name=name, settings=None))

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._translated_errors(), self._lock:
            if self._is_closed:
                raise LogUnavailable("the log was closed")
            yield self._connection

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise unavailable(error, self._database.file) from error
        except OSError as error:
            raise LogUnavailable(f"{self._database.file}: {error.strerror}") from error
