"""The log on one machine: an SQLite database in a folder, which any number of processes share; nothing to install or start.

append ─▶ Writer (one thread): all that waits, one transaction ─▶ tells own readers, rings the bell
                                                                       │
take ◀─ Reader (one thread each) ◀─ Watch (one thread): what has grown ◀─┘ also from other processes
"""

import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import time_ns

from milepost.backbone.embedded.database import open_database
from milepost.backbone.embedded.faults import unavailable
from milepost.backbone.embedded.member import GroupMember, Heart
from milepost.backbone.embedded.reader import Reader, gap_of
from milepost.backbone.embedded.rows import find_topic, make_topic, oldest, position_of, read_batch
from milepost.backbone.embedded.watch import Watch
from milepost.backbone.embedded.writer import Writer
from milepost.backbone.log import BATCH_RECORDS_MAX, Done, Entry, LogUnavailable, Lost, Record, Start, Take, TopicSettings
from milepost.backbone.names import check_entries, check_group_name, check_topic_name
from milepost.model.survives import Survives


class EmbeddedLog:
    """The log in the directory `folder`, which is made if need be; keeps the promises of `Log`."""

    def __init__(self, folder: Path, survives: Survives, *, clock_ns: Callable[[], int] = time_ns) -> None:
        self._database = open_database(folder, survives)
        self._lock = threading.Lock()
        self._readers: list[Reader] = []
        self._is_closed = False
        with self._told():
            self._connection = self._database.connect()
            self._watch = Watch(self._database)
        self._writer = Writer(self._database, clock_ns, self._watch.committed)
        self._heart = Heart(self._writer, self._watch, self._database)

    @property
    def trouble(self) -> str | None:
        """Why it cannot be written or read at the moment."""
        readers = [reader.trouble for reader in self._readers if reader.is_open] + self._heart.troubles
        return next((trouble for trouble in (self._writer.trouble, self._watch.trouble, *readers) if trouble), None)

    def append(self, entries: Sequence[Entry], done: Done | None = None) -> None:
        """Append records, in order; returns at once."""
        taken = tuple(entries)  # the caller may use its list again
        self._writer.append(taken, check_entries(taken), done)

    def make(self, topic: str, settings: TopicSettings | None = None) -> None:
        """Make a topic, or give one that is there other settings."""
        check_topic_name(topic)
        self._writer.call(lambda connection: make_topic(connection, topic, settings))

    def follow(self, starts: Mapping[str, Start], take: Take, lost: Lost) -> Reader:
        """Read topics from here on, until closed."""
        self._make_missing(list(starts))
        with self._reading() as connection:
            positions = {}
            for name, start in starts.items():
                topic = find_topic(connection, name)
                assert topic is not None
                positions[name] = (topic.id, position_of(connection, topic, start))
            reader = Reader(self._database, self._watch, take, lost)
            self._readers = [*(one for one in self._readers if one.is_open), reader]
        reader.start(positions)
        return reader

    def read(self, topic: str, first: int, limit: int) -> list[Record]:
        """Some records from an offset on, without waiting for more."""
        check_topic_name(topic)
        records: list[Record] = []
        while len(records) < limit:
            with self._reading() as connection:
                batch = read_batch(connection, topic, first, min(limit - len(records), BATCH_RECORDS_MAX))
            if batch is None:
                break
            if (gap := gap_of(topic, first, batch.topic)) is not None:
                raise gap
            if not batch.records:
                break
            records += batch.records
            first = records[-1].offset + 1
        return records

    def ends(self, topic: str) -> tuple[int, int]:
        """The offset of the oldest record, and of the one that will be appended next."""
        check_topic_name(topic)
        with self._reading() as connection:
            found = find_topic(connection, topic)
            return (0, 0) if found is None else (oldest(connection, found), found.next)

    def topics(self) -> list[str]:
        """The topics there are, sorted."""
        with self._reading() as connection:
            return [name for (name,) in connection.execute("SELECT name FROM topics ORDER BY name")]

    def join(
        self,
        group: str,
        topics: Sequence[str],
        take: Take,
        lost: Lost,
        *,
        changed: Callable[[frozenset[str]], None] | None = None,
    ) -> GroupMember:
        """Read topics as one of a group."""
        check_group_name(group)
        self._make_missing(topics)
        with self._told():
            return self._heart.join(group, frozenset(topics), take, lost, changed)

    def committed(self, group: str) -> dict[str, int]:
        """What a group has committed, by topic."""
        check_group_name(group)
        with self._reading() as connection:
            return dict(connection.execute("SELECT topic, next FROM committed WHERE group_name = ?", (group,)))

    def close(self) -> None:
        """Finish what was appended, stop all readers."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        self._heart.close()
        for reader in self._readers:
            reader.close()
        self._writer.close()
        self._watch.close()
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
        with self._told(), self._lock:
            if self._is_closed:
                raise LogUnavailable("the log was closed")
            yield self._connection

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise unavailable(error, self._database.file) from error
        except OSError as error:
            raise LogUnavailable(f"{self._database.file}: {error.strerror}") from error
