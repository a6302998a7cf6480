"""Storage in an SQLite database: one transaction for each turn.

What must hold:
- `write` keeps all of a turn or nothing: whatever goes wrong before COMMIT has returned is rolled back, here and on disk;
- what this object remembers (`Places`) is what the file has: it follows only after COMMIT;
- a fault that passes is over with the next write that works; nobody has to restart anything. After a fault:

| connection | the next write works | the disk is full | it fails otherwise |
|---|---|---|---|
| trusted | trusted | trusted | doubted |
| doubted | trusted | doubted | closed |
| closed, for less than `REOPEN_S` | - | - | closed, without trying |
| closed, for longer: opened again | trusted | doubted | closed |

- a file that is opened again must be the one that was left: another one, or an older copy, is refused;
- a turn whose sync failed is whole in the log, and only the connection knows that it does not count: until a write works, it is
  not closed. A process that dies in between finds that turn kept.
"""

import sqlite3
from collections.abc import Callable
from contextlib import suppress
from math import inf
from pathlib import Path
from time import monotonic

from milepost.edge.keeping import Changes, Kept, StorageUnavailable
from milepost.model.survives import Survives
from milepost.storage.database import NAME, connect, make_database
from milepost.storage.faults import StorageDamaged, code_of, is_sync_fault, unavailable, unreadable
from milepost.storage.lock import Lock
from milepost.storage.places import Places
from milepost.storage.rows import read_kept, read_places, write_rows

REOPEN_S = 1.0
"""A file that failed twice is opened again at most this often."""
OUR_FAULTS = (sqlite3.InterfaceError, sqlite3.ProgrammingError)
"""A value that SQLite has no type for, a closed connection: no fault of the disk, so it is not taken for one."""


class SqliteStorage:
    """What is kept in the directory `folder`, which is this object's alone until `close`."""

    def __init__(self, folder: Path, survives: Survives, *, clock_s: Callable[[], float] = monotonic) -> None:
        self._folder = folder
        self._file = folder / NAME
        self._survives = survives
        self._clock_s = clock_s
        self._connection: sqlite3.Connection | None = None
        self._is_doubted = False
        self._is_undecided = False
        self._closed_why = ""
        self._reopen_at_s = 0.0
        self._lock = Lock(_made(folder))
        try:
            make_database(folder)
            self._connection = connect(folder, survives)
            self._places = self._read_places(self._connection)
            self._inode = self._file.stat().st_ino
        except BaseException:
            self.close()
            raise

    def load(self) -> Kept:
        """All that was written and not undone, after a look at the whole file; damage is `StorageDamaged`."""
        connection = self._connected()
        try:
            faults = connection.execute("PRAGMA quick_check(1)").fetchall()
            if faults != [("ok",)]:
                raise StorageDamaged(self._file, f"it is damaged ({faults[0][0].splitlines()[-1]})")
            return read_kept(connection)
        except sqlite3.Error as error:
            raise unreadable(error, self._file) from error

    def write(self, changes: Changes) -> None:
        """Keep the changes of one turn; raises `StorageUnavailable` and keeps none of them if that is not possible."""
        connection = self._connected()
        dropped = {session for session, details in changes.sessions.items() if details is None} if changes.sessions else set()
        plan = self._places.planned(changes, dropped)
        cursor = connection.cursor()
        try:
            cursor.execute("BEGIN IMMEDIATE")
            write_rows(cursor, changes, dropped, plan)
            cursor.execute("COMMIT")
        except BaseException as error:
            _roll_back(connection)
            if isinstance(error, sqlite3.Error) and not isinstance(error, OUR_FAULTS):
                self._note(error, connection)
                raise unavailable(error, self._file) from error
            raise
        self._places.settle(changes, dropped, plan)
        self._is_doubted = self._is_undecided = False

    def close(self) -> None:
        """Finish, and let others have the directory; nothing written is lost."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._closed_why = "it was closed"
        self._reopen_at_s = inf
        self._lock.release()

    def _connected(self) -> sqlite3.Connection:
        """The connection, to a file that is still in its place: SQLite would go on writing to one that was removed."""
        try:
            is_there = self._file.stat().st_ino == self._inode
        except OSError:
            is_there = False
        if not is_there:
            raise StorageUnavailable(f"{self._file} was removed or replaced: put it back, or restart to go on without it")
        return self._connection or self._reopened()

    def _reopened(self) -> sqlite3.Connection:
        now_s = self._clock_s()
        if now_s < self._reopen_at_s:
            raise StorageUnavailable(self._closed_why)
        self._reopen_at_s = now_s + REOPEN_S
        connection = connect(self._folder, self._survives)
        try:
            if not self._read_places(connection).is_same_as(self._places):
                raise StorageUnavailable(f"{self._file} has not what was last written to it: restart to go on with what it has")
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        self._is_doubted = True
        return connection

    def _read_places(self, connection: sqlite3.Connection) -> Places:
        try:
            return read_places(connection)
        except sqlite3.Error as error:
            raise unreadable(error, self._file) from error

    def _note(self, error: sqlite3.Error, connection: sqlite3.Connection) -> None:
        """The table on top, after a fault."""
        self._is_undecided |= is_sync_fault(error)
        if code_of(error) == sqlite3.SQLITE_FULL:
            with suppress(sqlite3.Error):  # taken over, the log is written again from its start: that needs no space
                connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        elif self._is_doubted and not self._is_undecided:
            with suppress(sqlite3.Error):
                connection.close()
            self._connection = None
            self._closed_why = str(unavailable(error, self._file))
            self._reopen_at_s = self._clock_s() + REOPEN_S
        else:
            self._is_doubted = True


def _made(folder: Path) -> Path:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StorageUnavailable(f"cannot make {folder}: {error.strerror}") from error
    return folder


def _roll_back(connection: sqlite3.Connection) -> None:
    """After some faults SQLite has done it already; one that fails here too ends with the connection."""
    with suppress(sqlite3.Error):
        if connection.in_transaction:
            connection.execute("ROLLBACK")
