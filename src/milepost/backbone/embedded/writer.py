"""The writer: one thread that commits all that waits as one transaction, and then tells everybody.

What must hold:
- what was handed in first is written first, and its `done` is called first;
- `done(None)` only after COMMIT has returned; a transaction that fails is rolled back and tried again as a whole;
- what waits is bounded, in records and in bytes. A fault that does not pass within `PATIENCE_S` ends the wait for all that waits
  then, with a `LogUnavailable` that says why; what comes later is tried anew;
- a transaction whose sync failed counts for nobody as long as one connection to the file is open, and the one that is tried
  again takes its place. The writer therefore opens the next connection before it closes one that failed. If all processes die
  in between, those records are found appended though nobody was told so.
"""

import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from random import uniform
from time import monotonic, sleep
from typing import Final

from milepost.backbone.callbacks import tell
from milepost.backbone.embedded.cleaning import Cleaner
from milepost.backbone.embedded.database import PAGE_BYTES, Database
from milepost.backbone.embedded.faults import is_busy, is_full, unavailable
from milepost.backbone.embedded.rows import append_rows
from milepost.backbone.embedded.turns import Turns
from milepost.backbone.log import Done, Entry, LogUnavailable

WAITING_RECORDS_MAX: Final = 200_000
WAITING_BYTES_MAX: Final = 64 * 1024 * 1024
"""More than this does not wait; one append that is larger is taken when nothing else waits."""
GROUP_RECORDS_MAX: Final = 4_000
GROUP_BYTES_MAX: Final = 4 * 1024 * 1024
"""One transaction takes no more, so that other processes get their turn."""
CACHE_KIB: Final = 16 * 1024
"""A whole transaction fits in."""
PATIENCE_S: Final = 5.0
BUSY_WAIT_S: Final = (0.0001, 0.001)
"""How long to wait for another process's transaction: at first and at most."""
FAULT_WAIT_S: Final = (0.01, 0.5)
"""How long to wait after a fault of the disk: at first and at most."""
WAL_PAGES: Final = 4_096
"""The write-ahead log is taken over into the file when it is longer: seldom, because that waits for the disk."""
WAL_PAGES_MAX: Final = 4 * WAL_PAGES
"""Longer than this, and readers and writers are waited for so that it can begin anew."""
RESTART_WAIT_MS: Final = 500
RECORD_BYTES: Final = 30
PAGES_OF_A_GROUP: Final = 4
"""What a record and a transaction cost besides keys and values, roughly."""

Work = Callable[[sqlite3.Connection], None]
"""Something else to do inside a transaction; it may be done several times, until one is committed."""


@dataclass(frozen=True, slots=True)
class _Item:
    entries: Sequence[Entry]
    size: int
    work: Work | None
    is_news: bool
    done: Done | None


class Writer:
    """All writing of one log object; `committed` hears what is news: topics that have grown, with the offset that comes next."""

    def __init__(self, database: Database, clock_ns: Callable[[], int], committed: Callable[[dict[int, int]], None]) -> None:
        self._database = database
        self._clock_ns = clock_ns
        self._committed = committed
        self._connection = self._connect()
        self._cleaner = Cleaner(clock_ns)
        self._turns = Turns(database.file.parent)
        self._waiting: deque[_Item] = deque()
        self._records = 0
        self._bytes = 0
        self._pages = 0
        self._is_closing = False
        self._condition = threading.Condition()
        self.trouble: str | None = None
        self._thread = threading.Thread(target=self._run, name="log-writer", daemon=True)
        self._thread.start()

    def append(self, entries: Sequence[Entry], size: int, done: Done | None) -> None:
        """Let records wait to be written; refuses if too much waits already."""
        with self._condition:
            records, total = self._records + len(entries), self._bytes + size
            if self._waiting and (records > WAITING_RECORDS_MAX or total > WAITING_BYTES_MAX):
                why = self.trouble or "the disk is slower than what is appended"
                raise LogUnavailable(f"{self._records} records wait to be written already ({why}): try again later")
            self._put(_Item(entries, size, None, False, done))

    def post(self, work: Work, done: Done | None = None, *, is_news: bool = False) -> None:
        """Let other work wait for its turn; if it is news, other processes are told when it is done."""
        with self._condition:
            self._put(_Item((), 0, work, is_news, done))

    def call(self, work: Work, *, is_news: bool = False) -> None:
        """Do other work and wait until it is committed."""
        outcome: list[Exception | None] = []
        is_done = threading.Event()

        def done(fault: Exception | None) -> None:
            outcome.append(fault)
            is_done.set()

        assert threading.current_thread() is not self._thread, "the log is asked to wait for itself, inside `done`"
        self.post(work, done, is_news=is_news)
        is_done.wait()
        if outcome[0] is not None:
            raise outcome[0]

    def close(self) -> None:
        """Finish what waits."""
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
            connection.execute("PRAGMA busy_timeout = 0")  # SQLite's own waits are up to 100 ms
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
                self._keep_house()
                self._turns.let_others()
        finally:  # a fault of ours must not leave anybody waiting
            self._is_closing = True
            _tell_all([*group, *self._take_waiting()], LogUnavailable("the log was closed"))
            self._turns.close()
            with suppress(sqlite3.Error):
                self._connection.close()

    def _wait_for_work(self) -> bool:
        with self._condition:
            if not (self._waiting or self._is_closing):
                self._condition.wait(self._cleaner.rest_s())
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
        """Write a group, trying again for a while, and tell everybody what became of it."""
        give_up_at = monotonic() + PATIENCE_S
        for attempt in count():
            try:
                grown = self._commit(group)
            except sqlite3.Error as error:
                fault, wait_s = unavailable(error, self._database.file), BUSY_WAIT_S if is_busy(error) else FAULT_WAIT_S
                self._mend(error)
            except LogUnavailable as gone:
                fault, wait_s = gone, FAULT_WAIT_S
            else:
                self.trouble = None
                if grown or any(item.is_news for item in group):
                    self._cleaner.grew(grown)
                    self._committed(grown)
                _tell_all(group, None)
                return
            if monotonic() > give_up_at:
                self.trouble = str(fault)
                self._turns.have()
                _tell_all([*group, *self._take_waiting()], fault)
                return
            if wait_s is FAULT_WAIT_S:
                self.trouble = str(fault)
            _wait(attempt, wait_s)

    def _commit(self, group: list[_Item]) -> dict[int, int]:
        self._database.check()
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        self._turns.have()
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

    def _mend(self, error: sqlite3.Error) -> None:
        """After a fault: a turn to wait for, room on a full disk, or a new connection in place of one that may be broken."""
        if is_busy(error):
            self._turns.ask()
        elif is_full(error):
            with suppress(sqlite3.Error):  # taken over, the write-ahead log is written again from its start: that needs no space
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

    def _keep_house(self) -> None:
        """What can wait, when everybody has been told; a fault here shows again where it matters."""
        with suppress(sqlite3.Error):
            self._pages += self._cleaner.step(self._connection)
            if self._pages >= WAL_PAGES:
                self._pages = 0
                self._take_over()

    def _take_over(self) -> None:
        _, pages, _ = self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        if pages > WAL_PAGES_MAX:
            self._connection.execute(f"PRAGMA busy_timeout = {RESTART_WAIT_MS}")
            try:
                self._connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
            finally:
                self._connection.execute("PRAGMA busy_timeout = 0")


def _tell_all(items: list[_Item], fault: LogUnavailable | None) -> None:
    for item in items:
        if item.done is not None:
            tell(item.done, fault)


def _wait(attempt: int, bounds_s: tuple[float, float]) -> None:
    first_s, most_s = bounds_s
    sleep(min(most_s, first_s * 2 ** min(attempt, 10)) * uniform(0.5, 1.0))


def _roll_back(connection: sqlite3.Connection) -> None:
    """After some faults SQLite has done it already; one that fails here too ends with the connection."""
    with suppress(sqlite3.Error):
        if connection.in_transaction:
            connection.execute("ROLLBACK")
