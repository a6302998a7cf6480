"""The watch: one thread for each log object that learns what has grown, here or in another process, and wakes its readers.

What must hold:
- a topic that has grown is told to every reader of it after its commit can be read, never before; told twice does no harm;
- nothing depends on the bell: whatever changed since the last look is found by the count of changes in the file.
"""

import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from time import sleep
from typing import Final, Protocol

from milepost.backbone.embedded.bell import Bell
from milepost.backbone.embedded.database import Database
from milepost.backbone.embedded.faults import unavailable
from milepost.backbone.log import LogUnavailable

PAUSE_S: Final = 0.0003
"""So long it looks away after each look: with many commits a second, one look finds several."""
RETRY_S: Final = 1.0


class Sleeper(Protocol):
    """A reader that sleeps until one of its topics has grown."""

    def grew(self, topic_ids: set[int]) -> None:
        """Some of its topics may have grown."""


class Watch:
    """Readers, by the topics they read."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._bell = Bell(database.file.parent)
        self._connection = database.connect()
        self._readers: dict[int, set[Sleeper]] = {}
        self._groups: dict[str, list[Callable[[], None]]] = {}
        self._generations: dict[str, int] = {}
        self._ends: dict[int, int] = {}
        self._lock = threading.Lock()
        self._seen: int = self._connection.execute("SELECT coalesce(max(changed), 0) FROM topics").fetchone()[0]
        self._closing = threading.Event()
        self.trouble: str | None = None
        self._thread = threading.Thread(target=self._run, name="log-watch", daemon=True)
        self._thread.start()

    def add(self, reader: Sleeper, topic_id: int) -> None:
        """Tell this reader of this topic from now on."""
        with self._lock:
            self._readers.setdefault(topic_id, set()).add(reader)

    def remove(self, reader: Sleeper, topic_id: int) -> None:
        """Tell it no more."""
        with self._lock:
            readers = self._readers.get(topic_id, set())
            readers.discard(reader)
            if not readers:
                self._readers.pop(topic_id, None)
                self._ends.pop(topic_id, None)

    def add_group(self, group: str, changed: Callable[[], None]) -> None:
        """Tell whenever a group has changed."""
        with self._lock:
            self._groups.setdefault(group, []).append(changed)

    def remove_group(self, group: str, changed: Callable[[], None]) -> None:
        """Tell it no more."""
        with self._lock:
            self._groups[group].remove(changed)
            if not self._groups[group]:
                del self._groups[group]

    def committed(self, grown: dict[int, int]) -> None:
        """This process has written: its own readers are told without a detour, the others by the bell."""
        self._tell(grown)
        self._bell.ring()

    def close(self) -> None:
        """Look no further."""
        self._closing.set()
        self._bell.nudge()
        if threading.current_thread() is not self._thread:
            self._thread.join()
            self._bell.close()

    def _run(self) -> None:
        while not self._closing.is_set():
            self._bell.wait()
            try:
                self._database.check()
                self._look()
                self.trouble = None
            except sqlite3.Error as error:
                self._rest(str(unavailable(error, self._database.file)))
            except LogUnavailable as gone:
                self._rest(str(gone))
        with suppress(sqlite3.Error):
            self._connection.close()

    def _look(self) -> None:
        rows = self._connection.execute("SELECT id, next, changed FROM topics WHERE changed > ?", (self._seen,)).fetchall()
        if rows:
            self._seen = max(changed for _, _, changed in rows)
            self._tell({topic_id: end for topic_id, end, _ in rows})
        if self._groups:
            self._tell_groups(dict(self._connection.execute("SELECT name, generation FROM groups").fetchall()))
        if rows:
            sleep(PAUSE_S)

    def _tell(self, grown: dict[int, int]) -> None:
        """Each reader once, and only of what is news."""
        woken: dict[Sleeper, set[int]] = {}
        with self._lock:
            for topic_id, end in grown.items():
                readers = self._readers.get(topic_id)
                if readers and end > self._ends.get(topic_id, 0):
                    self._ends[topic_id] = end
                    for reader in readers:
                        woken.setdefault(reader, set()).add(topic_id)
        for reader, topic_ids in woken.items():
            reader.grew(topic_ids)

    def _tell_groups(self, generations: dict[str, int]) -> None:
        with self._lock:
            changed = [name for name, number in generations.items() if number != self._generations.get(name)]
            told = [call for name in changed for call in self._groups.get(name, ())]
        self._generations = generations
        for call in told:
            call()

    def _rest(self, trouble: str) -> None:
        self.trouble = trouble
        self._closing.wait(RETRY_S)
