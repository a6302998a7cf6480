"""TopicWatcher: one thread per log object that detects grown topics, of this or another process, and wakes their readers.

Invariants:
- every reader of a grown topic is notified after the commit is readable, never before; duplicate notifications are harmless;
- correctness does not depend on the signal: the change counter in the file shows all changes since the last poll.
"""

import ctypes
import os
import select
import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import sleep
from typing import Final, Protocol

from milepost.eventlog.embedded.database import Database
from milepost.eventlog.embedded.errors import unavailable
from milepost.eventlog.log import LogUnavailable

NAME: Final = "commit-signal"
POLL_S: Final = 0.05
_IN_MODIFY: Final = 0x2
_EVENTS_BYTES: Final = 4096


class CommitSignal:
    """A file that is written to after each commit, so that readers in other processes wake at once (inotify).

    It is a separate file: a write to SQLite's write-ahead log is visible before its commit, and a reader that woke then would
    find nothing. Where a notification is lost, because a writer was killed or the kernel has no watches left, readers poll
    every `POLL_S`.
    """

    def __init__(self, folder: Path) -> None:
        self._file = os.open(folder / NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._inotify = _inotify_watch(folder / NAME)
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll = select.poll()
        for descriptor in (self._inotify, self._wake):
            if descriptor is not None:
                self._poll.register(descriptor, select.POLLIN)

    def notify_others(self) -> None:
        """Wake the waiting threads of all processes."""
        with suppress(OSError):  # the disk is full or gone; the others poll anyway
            os.pwrite(self._file, b"\0", 0)

    def wait(self) -> None:
        """Wait for a commit signal, a call of `wake` or the polling interval, whichever is first."""
        for descriptor, _ in self._poll.poll(POLL_S * 1000):
            with suppress(BlockingIOError):
                os.read(descriptor, _EVENTS_BYTES)

    def wake(self) -> None:
        """Wake the thread that waits on this object."""
        os.eventfd_write(self._wake, 1)

    def close(self) -> None:
        """Close the file descriptors."""
        for descriptor in (self._file, self._inotify, self._wake):
            if descriptor is not None:
                os.close(descriptor)


def _inotify_watch(file: Path) -> int | None:
    """Return a descriptor that becomes readable on writes to the file, or `None` if the kernel has no inotify watch left."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if descriptor < 0:
        return None
    if libc.inotify_add_watch(descriptor, os.fsencode(file), _IN_MODIFY) < 0:
        os.close(descriptor)
        return None
    return descriptor


PAUSE_S: Final = 0.0003
"""Pause after each poll, so that one poll covers several commits under load."""
RETRY_S: Final = 1.0


class WaitingReader(Protocol):
    """A reader that sleeps until one of its topics has grown."""

    def notify_grown(self, topic_ids: set[int]) -> None:
        """Wake the reader: some of its topics may have grown."""


class TopicWatcher:
    """Readers by topic and members by group, with the thread that wakes them."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._signal = CommitSignal(database.file.parent)
        self._connection = database.connect()
        self._readers: dict[int, set[WaitingReader]] = {}
        self._groups: dict[str, list[Callable[[], None]]] = {}
        self._generations: dict[str, int] = {}
        self._ends: dict[int, int] = {}
        self._lock = threading.Lock()
        self._seen: int = self._connection.execute("SELECT coalesce(max(changed), 0) FROM topics").fetchone()[0]
        self._closing = threading.Event()
        self.fault: str | None = None
        self._thread = threading.Thread(target=self._run, name="log-watch", daemon=True)
        self._thread.start()

    def add(self, reader: WaitingReader, topic_id: int) -> None:
        """Notify this reader of this topic from now on."""
        with self._lock:
            self._readers.setdefault(topic_id, set()).add(reader)

    def remove(self, reader: WaitingReader, topic_id: int) -> None:
        """Stop notifying this reader of this topic."""
        with self._lock:
            readers = self._readers.get(topic_id, set())
            readers.discard(reader)
            if not readers:
                self._readers.pop(topic_id, None)
                self._ends.pop(topic_id, None)

    def add_group(self, group: str, changed: Callable[[], None]) -> None:
        """Call *changed* whenever the group's generation changes."""
        with self._lock:
            self._groups.setdefault(group, []).append(changed)

    def remove_group(self, group: str, changed: Callable[[], None]) -> None:
        """Remove a callback of `add_group`."""
        with self._lock:
            self._groups[group].remove(changed)
            if not self._groups[group]:
                del self._groups[group]

    def committed(self, grown: dict[int, int]) -> None:
        """Announce a commit of this process: directly to its own readers, through the signal file to other processes."""
        self._notify(grown)
        self._signal.notify_others()

    def close(self) -> None:
        """Stop the thread."""
        self._closing.set()
        self._signal.wake()
        if threading.current_thread() is not self._thread:
            self._thread.join()
            self._signal.close()

    def _run(self) -> None:
        while not self._closing.is_set():
            self._signal.wait()
            try:
                self._database.check()
                self._poll_topics()
                self.fault = None
            except sqlite3.Error as error:
                self._pause_after_fault(str(unavailable(error, self._database.file)))
            except LogUnavailable as error:
                self._pause_after_fault(str(error))
        with suppress(sqlite3.Error):
            self._connection.close()

    def _poll_topics(self) -> None:
        rows = self._connection.execute("SELECT id, next, changed FROM topics WHERE changed > ?", (self._seen,)).fetchall()
        if rows:
            self._seen = max(changed for _, _, changed in rows)
            self._notify({topic_id: end for topic_id, end, _ in rows})
        if self._groups:
            self._notify_groups(dict(self._connection.execute("SELECT name, generation FROM groups").fetchall()))
        if rows:
            sleep(PAUSE_S)

    def _notify(self, grown: dict[int, int]) -> None:
        """Notify each reader once, and only of topics whose end has advanced."""
        woken: dict[WaitingReader, set[int]] = {}
        with self._lock:
            for topic_id, end in grown.items():
                readers = self._readers.get(topic_id)
                if readers and end > self._ends.get(topic_id, 0):
                    self._ends[topic_id] = end
                    for reader in readers:
                        woken.setdefault(reader, set()).add(topic_id)
        for reader, topic_ids in woken.items():
            reader.notify_grown(topic_ids)

    def _notify_groups(self, generations: dict[str, int]) -> None:
        with self._lock:
            changed = [name for name, number in generations.items() if number != self._generations.get(name)]
            callbacks = [call for name in changed for call in self._groups.get(name, ())]
        self._generations = generations
        for call in callbacks:
            call()

    def _pause_after_fault(self, fault: str) -> None:
        self.fault = fault
        self._closing.wait(RETRY_S)
