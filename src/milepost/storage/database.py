"""The database file of an edge: locked by one process, created atomically, marked with its format.

Invariants:
- a file under its final name always has our tables: it is created under another name and renamed. An empty file is damage;
- a write-ahead log without its database is damage, too: SQLite would replay it into a new one;
- the settings of SQLite are stated here and nowhere else, each with its reason.
"""

import fcntl
import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from milepost.broker.effects import StorageUnavailable
from milepost.model.durability import Durability
from milepost.storage.errors import StorageDamaged, StorageInUse, StorageTooNew, unavailable, unreadable

LOCK_NAME = "lock"
PID_BYTES_MAX = 20


class Lock:
    """The lock of a directory, from construction to `release`; the kernel releases the lock of a dead process.

    The file holds the process id, for the message to a second process.
    """

    def __init__(self, folder: Path) -> None:
        try:
            descriptor = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StorageUnavailable(f"cannot lock {folder}: {error.strerror}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(descriptor, PID_BYTES_MAX, 0).decode(errors="replace").strip()
            os.close(descriptor)
            if isinstance(error, BlockingIOError):
                raise StorageInUse(folder, holder) from None
            raise StorageUnavailable(f"cannot lock {folder}: {error.strerror}") from error
        self._descriptor: int | None = descriptor
        with suppress(OSError):  # on a full disk the lock holds without the process id
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Release the directory. The file stays: removing it could remove the lock of the next process."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


DATABASE_NAME = "state.db"
UNFINISHED_NAME = "state.db.new"
APPLICATION = 0x4D696C65  # "Mile"
FORMAT = 4
"""Version of the file, raised with every change of a table or of the bytes in it; older and newer files are refused."""
PAGE_BYTES = 4096
LOG_PAGES = 4096
CACHE_KIB = 64 * 1024
BUSY_S = 1.0
STATEMENTS_MAX = 64

# A row of more than a twentieth of a page is better off in a table with a rowid (https://sqlite.org/withoutrowid.html).
# `sequence` orders deliveries as they were queued; see `rows.DeliverySequence`. There are no foreign keys: rows may be written in
# any order, and a session that ends is removed from each table explicitly.
SCHEMA = (
    "CREATE TABLE sessions (number INTEGER PRIMARY KEY, details BLOB NOT NULL)",
    """CREATE TABLE subscriptions (session INTEGER NOT NULL, name TEXT NOT NULL, details BLOB NOT NULL,
       PRIMARY KEY (session, name)) WITHOUT ROWID""",
    "CREATE TABLE retained (topic TEXT PRIMARY KEY NOT NULL, body BLOB NOT NULL)",
    "CREATE TABLE messages (number INTEGER PRIMARY KEY, body BLOB NOT NULL)",
    """CREATE TABLE queued (sequence INTEGER PRIMARY KEY, session INTEGER NOT NULL, delivery INTEGER NOT NULL,
       message INTEGER NOT NULL, qos INTEGER NOT NULL, is_released INTEGER NOT NULL, details BLOB NOT NULL)""",
    """CREATE TABLE received (session INTEGER NOT NULL, number INTEGER NOT NULL,
       PRIMARY KEY (session, number)) WITHOUT ROWID""",
    "CREATE TABLE outbox (number INTEGER PRIMARY KEY, body BLOB NOT NULL)",
    "CREATE TABLE cursors (name TEXT PRIMARY KEY NOT NULL, number INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE residencies (endpoint TEXT PRIMARY KEY NOT NULL, details BLOB NOT NULL)",
    "CREATE TABLE active_alerts (incident TEXT PRIMARY KEY NOT NULL, body BLOB NOT NULL)",
    """CREATE TABLE notified (session INTEGER NOT NULL, incident TEXT NOT NULL, details BLOB NOT NULL,
       PRIMARY KEY (session, incident)) WITHOUT ROWID""",
    f"PRAGMA application_id = {APPLICATION}",
    f"PRAGMA user_version = {FORMAT}",
)

SYNCHRONOUS = {
    # Waits for the disk only at a checkpoint of the log, so that a power loss never damages the whole file.
    Durability.PROCESS_CRASH: "NORMAL",
    Durability.POWER_LOSS: "FULL",
}
SETTINGS = (
    "locking_mode = EXCLUSIVE",  # before WAL: the log's index is then in process memory, without locks at each write
    "journal_mode = WAL",
    f"cache_size = -{CACHE_KIB}",
    "temp_store = MEMORY",
    f"wal_autocheckpoint = {LOG_PAGES}",  # each checkpoint waits for the disk three times, so they are rare
    f"journal_size_limit = {LOG_PAGES * PAGE_BYTES}",  # a log that one large write made longer is truncated again
    "secure_delete = OFF",  # Debian's default overwrites deleted data, at the price of another write
)


def make_database(folder: Path) -> None:
    """Create the directory and the database in it, unless they exist."""
    file = folder / DATABASE_NAME
    if file.exists():
        return
    if (folder / f"{DATABASE_NAME}-wal").exists():
        raise StorageDamaged(file, f"it is missing, although {DATABASE_NAME}-wal exists")
    try:
        for leftover in folder.glob(f"{UNFINISHED_NAME}*"):
            leftover.unlink()
        _make(folder / UNFINISHED_NAME)
        (folder / UNFINISHED_NAME).rename(file)
        for changed in (folder, folder.parent):
            _sync(changed)
    except sqlite3.Error as error:
        raise unavailable(error, file) from error
    except OSError as error:
        raise StorageUnavailable(f"cannot create {file}: {error.strerror}") from error


def connect(folder: Path, durability: Durability) -> sqlite3.Connection:
    """Return the open database, checked to be ours and configured."""
    file = folder / DATABASE_NAME
    where = f"{file.absolute().as_uri()}?mode=rw"  # never creates a file
    try:
        # Used by one thread at a time, but not always the same one: the writer may wait for the disk in another thread.
        connection = sqlite3.connect(
            where, uri=True, isolation_level=None, timeout=BUSY_S, cached_statements=STATEMENTS_MAX, check_same_thread=False
        )
    except sqlite3.Error as error:
        raise unreadable(error, file) from error
    try:
        _check_format(connection, file)
        for setting in (*SETTINGS, f"synchronous = {SYNCHRONOUS[durability]}"):
            connection.execute(f"PRAGMA {setting}").fetchall()
        if connection.execute("PRAGMA journal_mode").fetchone() != ("wal",):
            raise StorageUnavailable(f"{file}: its file system does not support SQLite's write-ahead log; use another directory")
    except BaseException as error:
        connection.close()
        if isinstance(error, sqlite3.Error):
            raise unreadable(error, file) from error
        raise
    return connection


def _make(file: Path) -> None:
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        connection.execute("BEGIN IMMEDIATE")
        for statement in SCHEMA:
            connection.execute(statement)
        connection.execute("COMMIT")


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _check_format(connection: sqlite3.Connection, file: Path) -> None:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION or version < 1:
        raise StorageDamaged(file, "it is not a database of Milepost")
    if version > FORMAT:
        raise StorageTooNew(file, version, FORMAT)
    if version < FORMAT:
        raise StorageDamaged(file, f"it has format {version} of an earlier release; this release reads format {FORMAT}")
