"""Storage in an SQLite database: one transaction for each tick.

Invariants:
- `write` stores all of a tick or nothing: after any failure before COMMIT has returned, the changes are rolled back, here and on
  disk;
- the state of this object (`DeliverySequence`) equals that of the file: it is updated only after COMMIT;
- a passing fault is over with the next write that works; no restart is needed. After a fault:

| connection | the next write works | the disk is full | it fails otherwise |
|---|---|---|---|
| trusted | trusted | trusted | doubted |
| doubted | trusted | doubted | closed |
| closed, for less than `REOPEN_S` | - | - | closed, without trying |
| closed, for longer: opened again | trusted | doubted | closed |

- a file that is opened again must be the one that was closed: another one, or an older copy, is refused;
- a tick whose sync failed is complete in the log, and only the connection knows that it was not committed: the connection is not
  closed until a write works. A process that dies in between finds that tick stored.
"""

import sqlite3
from collections.abc import Callable
from contextlib import suppress
from math import inf
from pathlib import Path
from time import monotonic

from milepost.broker.effects import StateChanges, StorageUnavailable, StoredState
from milepost.model.durability import Durability
from milepost.storage.database import DATABASE_NAME, Lock, connect, make_database
from milepost.storage.errors import StorageDamaged, code_of, is_sync_fault, unavailable, unreadable
from milepost.storage.rows import DeliverySequence, read_sequence, read_state, write_rows

REOPEN_S = 1.0
"""A file that failed twice is opened again at most this often."""
PROGRAMMING_ERRORS = (sqlite3.InterfaceError, sqlite3.ProgrammingError)
"""A value without an SQLite type, or a closed connection: a programming error, not a fault of the disk."""


class SqliteStorage:
    """Storage in the directory `folder`, which is locked by this object until `close`."""

    def __init__(self, folder: Path, durability: Durability, *, clock_s: Callable[[], float] = monotonic) -> None:
        self._folder = folder
        self._file = folder / DATABASE_NAME
        self._durability = durability
        self._clock_s = clock_s
        self._connection: sqlite3.Connection | None = None
        self._is_doubted = False
        self._is_undecided = False
        self._closed_reason = ""
        self._reopen_at_s = 0.0
        self._lock = Lock(_create(folder))
        try:
            make_database(folder)
            self._connection = connect(folder, durability)
            self._sequence = self._read_sequence(self._connection)
            self._inode = self._file.stat().st_ino
        except BaseException:
            self.close()
            raise

    def load(self) -> StoredState:
        """Check the whole file and return the stored state; raise `StorageDamaged` if it is damaged."""
        connection = self._connected()
        try:
            faults = connection.execute("PRAGMA quick_check(1)").fetchall()
            if faults != [("ok",)]:
                raise StorageDamaged(self._file, f"it is damaged ({faults[0][0].splitlines()[-1]})")
            return read_state(connection)
        except sqlite3.Error as error:
            raise unreadable(error, self._file) from error

    def write(self, changes: StateChanges) -> None:
        """Store the changes of one tick; raise `StorageUnavailable` and store none of them if that is not possible."""
        connection = self._connected()
        dropped = {session for session, details in changes.sessions.items() if details is None} if changes.sessions else set()
        plan = self._sequence.plan(changes, dropped)
        cursor = connection.cursor()
        try:
            cursor.execute("BEGIN IMMEDIATE")
            write_rows(cursor, changes, dropped, plan)
            cursor.execute("COMMIT")
        except BaseException as error:
            _roll_back(connection)
            if isinstance(error, sqlite3.Error) and not isinstance(error, PROGRAMMING_ERRORS):
                self._note(error, connection)
                raise unavailable(error, self._file) from error
            raise
        self._sequence.commit(changes, dropped, plan)
        self._is_doubted = self._is_undecided = False

    def close(self) -> None:
        """Close the database and release the directory; nothing written is lost."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._closed_reason = "the storage was closed"
        self._reopen_at_s = inf
        self._lock.release()

    def _connected(self) -> sqlite3.Connection:
        """Return the connection, if the file is still in its place: SQLite would go on writing to one that was removed."""
        try:
            is_there = self._file.stat().st_ino == self._inode
        except OSError:
            is_there = False
        if not is_there:
            raise StorageUnavailable(f"{self._file} was removed or replaced: restore it, or restart to continue without it")
        return self._connection or self._reopened()

    def _reopened(self) -> sqlite3.Connection:
        now_s = self._clock_s()
        if now_s < self._reopen_at_s:
            raise StorageUnavailable(self._closed_reason)
        self._reopen_at_s = now_s + REOPEN_S
        connection = connect(self._folder, self._durability)
        try:
            if not self._read_sequence(connection).is_same_as(self._sequence):
                raise StorageUnavailable(
                    f"{self._file} lacks the last changes that were written to it: restart to continue with its content"
                )
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        self._is_doubted = True
        return connection

    def _read_sequence(self, connection: sqlite3.Connection) -> DeliverySequence:
        try:
            return read_sequence(connection)
        except sqlite3.Error as error:
            raise unreadable(error, self._file) from error

    def _note(self, error: sqlite3.Error, connection: sqlite3.Connection) -> None:
        """Apply the table in the module docstring after a fault."""
        self._is_undecided |= is_sync_fault(error)
        if code_of(error) == sqlite3.SQLITE_FULL:
            with suppress(sqlite3.Error):  # after a checkpoint the log is written again from its start, which needs no space
                connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        elif self._is_doubted and not self._is_undecided:
            with suppress(sqlite3.Error):
                connection.close()
            self._connection = None
            self._closed_reason = str(unavailable(error, self._file))
            self._reopen_at_s = self._clock_s() + REOPEN_S
        else:
            self._is_doubted = True


def _create(folder: Path) -> Path:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StorageUnavailable(f"cannot create {folder}: {error.strerror}") from error
    return folder


def _roll_back(connection: sqlite3.Connection) -> None:
    """Roll back, unless SQLite has done so already; if that fails too, the connection will be closed."""
    with suppress(sqlite3.Error):
        if connection.in_transaction:
            connection.execute("ROLLBACK")
