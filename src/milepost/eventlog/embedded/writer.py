"""Writer: one thread that commits all pending work as one transaction (group commit) and then notifies callers and readers.

Invariants:
- work is written in the order of submission, and `done` is called in that order;
- `done(None)` is called only after COMMIT has returned; a failed transaction is rolled back and retried as a whole;
- the queue is bounded, in records and in bytes. A fault that lasts longer than `WRITE_TIMEOUT_S` fails everything queued at that
  time, with a `LogUnavailable` that names the cause; later work is tried anew;
- a transaction whose sync failed stays invisible as long as one connection to the file is open, and its retry replaces it. The
  writer therefore opens the next connection before it closes a failed one. If all processes die in between, those records are
  in the log although their append was never confirmed.
"""

import fcntl
import os
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from random import random
from time import monotonic, sleep
from typing import Final

from milepost.eventlog.embedded.database import PAGE_BYTES, Database
from milepost.eventlog.embedded.errors import is_busy, is_full, unavailable
from milepost.eventlog.embedded.retention import Cleaner
from milepost.eventlog.embedded.rows import append_rows
from milepost.eventlog.log import WAITING_BYTES_MAX, WAITING_RECORDS_MAX, Done, Entry, LogUnavailable, call_safely
from milepost.model.retry import RetryPolicy

FAIRNESS_LOCK_NAME: Final = "fairness.lock"
YIELD_S: Final = 0.003
FAIRNESS_POLL_S: Final = 0.0001


class WriterFairness:
    """Fairness between processes: a busy writer yields to a waiting one, which SQLite alone would starve.

    A process that finds the database locked takes a shared lock on the file `fairness.lock`. A process that has just committed
    checks for such a lock and, if there is one, pauses before its next transaction. The lock of a dead process is released by the
    kernel; a stopped process costs the others no more than the pause.
    """

    def __init__(self, folder: Path) -> None:
        self._file = os.open(folder / FAIRNESS_LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._is_waiting = False

    def signal_waiting(self) -> None:
        """Signal that this writer waits."""
        if not self._is_waiting:
            with suppress(BlockingIOError):  # another process is checking right now; the next attempt signals again
                fcntl.flock(self._file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                self._is_waiting = True

    def clear_waiting(self) -> None:
        """Withdraw the signal: this writer holds the database."""
        if self._is_waiting:
            fcntl.flock(self._file, fcntl.LOCK_UN)
            self._is_waiting = False

    def yield_to_others(self) -> None:
        """Pause for at most `YIELD_S` while another writer waits."""
        until = monotonic() + YIELD_S
        while self._are_others_waiting() and monotonic() < until:
            sleep(FAIRNESS_POLL_S)

    def close(self) -> None:
        """Close the lock file."""
        os.close(self._file)

    def _are_others_waiting(self) -> bool:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        fcntl.flock(self._file, fcntl.LOCK_UN)
        return False


GROUP_RECORDS_MAX: Final = 4_000
GROUP_BYTES_MAX: Final = 4 * 1024 * 1024
"""Limits of one transaction, so that other processes can write, too."""
CACHE_KIB: Final = 16 * 1024
"""Page cache of the writer; holds a whole transaction."""
WRITE_TIMEOUT_S: Final = 5.0
BUSY_RETRY: Final = RetryPolicy(first_s=0.0001, limit_s=0.001, spread=0.5)
"""Back-off while another process holds the write lock."""
FAULT_RETRY: Final = RetryPolicy(first_s=0.01, limit_s=0.5, spread=0.5)
"""Back-off after a fault of the disk."""
WAL_PAGES: Final = 4_096
"""Length of the write-ahead log that triggers a checkpoint; large, because a checkpoint waits for the disk."""
WAL_PAGES_MAX: Final = 4 * WAL_PAGES
"""Length beyond which the checkpoint waits for readers and writers, so that the write-ahead log can restart."""
RESTART_WAIT_MS: Final = 500
RECORD_BYTES: Final = 30
PAGES_OF_A_GROUP: Final = 4
"""Approximate overhead of a transaction; `RECORD_BYTES` is that of a record, besides key and value."""

Work = Callable[[sqlite3.Connection], None]
"""Other work to run inside a transaction; it may run several times, until one commits."""


@dataclass(frozen=True, slots=True)
class _Item:
    entries: Sequence[Entry]
    size: int
    work: Work | None
    notifies_others: bool
    done: Done | None


class EmbeddedWriter:
    """The write queue and thread of one log object; `committed` receives the grown topics with their next offsets."""

    def __init__(self, database: Database, clock_ns: Callable[[], int], committed: Callable[[dict[int, int]], None]) -> None:
        self._database = database
        self._clock_ns = clock_ns
        self._committed = committed
        self._connection = self._connect()
        self._cleaner = Cleaner(clock_ns)
        self._fairness = WriterFairness(database.file.parent)
        self._waiting: deque[_Item] = deque()
        self._records = 0
        self._bytes = 0
        self._pages = 0
        self._is_closing = False
        self._condition = threading.Condition()
        self.fault: str | None = None
        self._thread = threading.Thread(target=self._run, name="log-writer", daemon=True)
        self._thread.start()

    def append(self, entries: Sequence[Entry], size: int, done: Done | None) -> None:
        """Queue records for writing; raises `LogUnavailable` if the queue is full."""
        with self._condition:
            records, total = self._records + len(entries), self._bytes + size
            if self._waiting and (records > WAITING_RECORDS_MAX or total > WAITING_BYTES_MAX):
                why = self.fault or "records are appended faster than the disk can write"
                raise LogUnavailable(f"{self._records} records wait to be written already ({why}): try again later")
            self._put(_Item(entries, size, None, False, done))

    def post(self, work: Work, done: Done | None = None, *, notifies_others: bool = False) -> None:
        """Queue other work; with `notifies_others` other processes are notified after its commit."""
        with self._condition:
            self._put(_Item((), 0, work, notifies_others, done))

    def call(self, work: Work, *, notifies_others: bool = False) -> None:
        """Run other work and wait for its commit."""
        outcome: list[Exception | None] = []
        is_done = threading.Event()

        def done(fault: Exception | None) -> None:
            outcome.append(fault)
            is_done.set()

        assert threading.current_thread() is not self._thread, "a call from inside `done` would wait for itself"
        self.post(work, done, notifies_others=notifies_others)
        is_done.wait()
        if outcome[0] is not None:
            raise outcome[0]

    def close(self) -> None:
        """Write the queued work and stop."""
        with self._condition:
            self._is_closing = True
            self._condition.notify()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _put(self, item: _Item) -> None:
        if self._is_closing:
            raise LogUnavailable("the log was closed")
        self._waiting.append(item)
        self._records += len(item.entries)
        self._bytes += item.size
        self._condition.notify()

    def _connect(self) -> sqlite3.Connection:
        try:
            connection = self._database.connect()
            connection.execute("PRAGMA busy_timeout = 0")  # SQLite's own back-off sleeps up to 100 ms
            connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        except sqlite3.Error as error:
            raise unavailable(error, self._database.file) from error
        return connection

    def _run(self) -> None:
        group: list[_Item] = []
        try:
            while self._wait_for_work():
                if group := self._next_group():
                    self._write(group)
                    group = []
                self._maintain()
                self._fairness.yield_to_others()
        finally:  # a bug here must not leave callers waiting
            self._is_closing = True
            _report_all([*group, *self._take_waiting()], LogUnavailable("the log was closed"))
            self._fairness.close()
            with suppress(sqlite3.Error):
                self._connection.close()

    def _wait_for_work(self) -> bool:
        with self._condition:
            if not (self._waiting or self._is_closing):
                self._condition.wait(self._cleaner.find_wait_s())
            return bool(self._waiting) or not self._is_closing

    def _next_group(self) -> list[_Item]:
        group: list[_Item] = []
        records = size = 0
        with self._condition:
            if not self._waiting:
                return []
            while self._waiting and records < GROUP_RECORDS_MAX and size < GROUP_BYTES_MAX:
                item = self._waiting.popleft()
                group.append(item)
                records += len(item.entries)
                size += item.size
            self._records -= records
            self._bytes -= size
            self._pages += PAGES_OF_A_GROUP + (size + RECORD_BYTES * records) // PAGE_BYTES
        return group

    def _write(self, group: list[_Item]) -> None:
        """Write a group, with retries until `WRITE_TIMEOUT_S` have passed, and report the outcome to its callers."""
        give_up_at = monotonic() + WRITE_TIMEOUT_S
        for attempt in count():
            try:
                grown = self._commit(group)
            except sqlite3.Error as error:
                fault, policy = unavailable(error, self._database.file), BUSY_RETRY if is_busy(error) else FAULT_RETRY
                self._recover(error)
            except LogUnavailable as unavailable_error:
                fault, policy = unavailable_error, FAULT_RETRY
            else:
                self.fault = None
                if grown or any(item.notifies_others for item in group):
                    self._cleaner.mark_due(grown)
                    self._committed(grown)
                _report_all(group, None)
                return
            if monotonic() > give_up_at:
                self.fault = str(fault)
                self._fairness.clear_waiting()
                _report_all([*group, *self._take_waiting()], fault)
                return
            if policy is FAULT_RETRY:
                self.fault = str(fault)
            sleep(policy.wait_s(attempt, random()))

    def _commit(self, group: list[_Item]) -> dict[int, int]:
        self._database.check()
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        self._fairness.clear_waiting()
        try:
            for item in group:
                if item.work is not None:
                    item.work(connection)
            appends = [item.entries for item in group if item.entries]
            grown = append_rows(connection, appends, self._clock_ns()) if appends else {}
            connection.execute("COMMIT")
        except BaseException:
            _roll_back(connection)
            raise
        return grown

    def _recover(self, error: sqlite3.Error) -> None:
        """React to a fault: signal that it waits, free space on a full disk, or replace a possibly broken connection."""
        if is_busy(error):
            self._fairness.signal_waiting()
        elif is_full(error):
            with suppress(sqlite3.Error):  # after a checkpoint the write-ahead log is reused from its start: no new space needed
                self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        else:
            with suppress(sqlite3.Error, LogUnavailable):
                broken, self._connection = self._connection, self._connect()
                broken.close()

    def _take_waiting(self) -> list[_Item]:
        with self._condition:
            waiting = list(self._waiting)
            self._waiting.clear()
            self._records = self._bytes = 0
        return waiting

    def _maintain(self) -> None:
        """Clean and checkpoint, after all notifications; a fault is ignored here, the next write meets it too."""
        with suppress(sqlite3.Error):
            self._pages += self._cleaner.step(self._connection)
            if self._pages >= WAL_PAGES:
                self._pages = 0
                self._checkpoint()

    def _checkpoint(self) -> None:
        _, pages, _ = self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        if pages > WAL_PAGES_MAX:
            self._connection.execute(f"PRAGMA busy_timeout = {RESTART_WAIT_MS}")
            try:
                self._connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
            finally:
                self._connection.execute("PRAGMA busy_timeout = 0")


def _report_all(items: list[_Item], fault: LogUnavailable | None) -> None:
    for item in items:
        if item.done is not None:
            call_safely(item.done, fault)


def _roll_back(connection: sqlite3.Connection) -> None:
    """Roll back unless SQLite has already; if that fails too, closing the connection does it."""
    with suppress(sqlite3.Error):
        if connection.in_transaction:
            connection.execute("ROLLBACK")
