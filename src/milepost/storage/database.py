"""The database file: made whole or not at all, known by its marks, and set up for one writer that writes often.

What must hold:
- a file under its final name always has our tables: it is made beside it and renamed. So an empty file is damage, never a start;
- a log without its database is damage too: SQLite would play it into a new one;
- the settings below are said here and nowhere else, each with its reason.
"""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from milepost.edge.keeping import StorageUnavailable
from milepost.model.survives import Survives
from milepost.storage.faults import StorageDamaged, StorageTooNew, unavailable, unreadable

NAME = "kept.db"
UNFINISHED = "kept.db.new"
APPLICATION = 0x4D696C65  # "Mile"
FORMAT = 3
PAGE_BYTES = 4096
LOG_PAGES = 4096
CACHE_KIB = 64 * 1024
BUSY_S = 1.0
STATEMENTS_MAX = 64

# A row of more than a twentieth of a page is better off in a table with a rowid (https://sqlite.org/withoutrowid.html).
# The place of a delivery is its turn in the order of all; see `places.py`. Nothing refers to anything: an edge may name what it
# keeps in any order, and a session that goes is taken out of each table by hand.
SCHEMA = (
    "CREATE TABLE sessions (number INTEGER PRIMARY KEY, details BLOB NOT NULL)",
    """CREATE TABLE subscriptions (session INTEGER NOT NULL, name TEXT NOT NULL, details BLOB NOT NULL,
       PRIMARY KEY (session, name)) WITHOUT ROWID""",
    "CREATE TABLE retained (topic TEXT PRIMARY KEY NOT NULL, body BLOB NOT NULL)",
    "CREATE TABLE messages (number INTEGER PRIMARY KEY, body BLOB NOT NULL)",
    """CREATE TABLE queued (place INTEGER PRIMARY KEY, session INTEGER NOT NULL, delivery INTEGER NOT NULL,
       message INTEGER NOT NULL, qos INTEGER NOT NULL, is_released INTEGER NOT NULL, details BLOB NOT NULL)""",
    """CREATE TABLE received (session INTEGER NOT NULL, number INTEGER NOT NULL,
       PRIMARY KEY (session, number)) WITHOUT ROWID""",
    "CREATE TABLE outbox (number INTEGER PRIMARY KEY, body BLOB NOT NULL)",
    "CREATE TABLE marks (name TEXT PRIMARY KEY NOT NULL, number INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE stays (endpoint TEXT PRIMARY KEY NOT NULL, details BLOB NOT NULL)",
    "CREATE TABLE standing (incident TEXT PRIMARY KEY NOT NULL, body BLOB NOT NULL)",
    """CREATE TABLE told (session INTEGER NOT NULL, incident TEXT NOT NULL, details BLOB NOT NULL,
       PRIMARY KEY (session, incident)) WITHOUT ROWID""",
    f"PRAGMA application_id = {APPLICATION}",
    f"PRAGMA user_version = {FORMAT}",
)

SYNCHRONOUS = {
    # Waits for the disk only where the log is taken over into the file, so that a power loss never damages the whole.
    Survives.PROCESS_CRASH: "NORMAL",
    Survives.POWER_LOSS: "FULL",
}
SETTINGS = (
    "locking_mode = EXCLUSIVE",  # before WAL: the index of the log is then in our memory, without locks at each write
    "journal_mode = WAL",
    f"cache_size = -{CACHE_KIB}",
    "temp_store = MEMORY",
    f"wal_autocheckpoint = {LOG_PAGES}",  # each takeover waits for the disk three times: seldom, then
    f"journal_size_limit = {LOG_PAGES * PAGE_BYTES}",  # a log that one large write made longer is cut again
    "secure_delete = OFF",  # Debian's default overwrites what is deleted, at the price of another write
)


def make_database(folder: Path) -> None:
    """Make the directory and the database in it, where they are not there yet."""
    file = folder / NAME
    if file.exists():
        return
    if (folder / f"{NAME}-wal").exists():
        raise StorageDamaged(file, f"it is missing, and {NAME}-wal is there")
    try:
        for leftover in folder.glob(f"{UNFINISHED}*"):
            leftover.unlink()
        _make(folder / UNFINISHED)
        (folder / UNFINISHED).rename(file)
        for changed in (folder, folder.parent):
            _sync(changed)
    except sqlite3.Error as error:
        raise unavailable(error, file) from error
    except OSError as error:
        raise StorageUnavailable(f"cannot make {file}: {error.strerror}") from error


def connect(folder: Path, survives: Survives) -> sqlite3.Connection:
    """The open database, known to be ours and set up."""
    file = folder / NAME
    where = f"{file.absolute().as_uri()}?mode=rw"  # never makes a file
    try:
        # Used by one thread at a time, but not always the same: who writes may wait for the disk elsewhere.
        connection = sqlite3.connect(
            where, uri=True, isolation_level=None, timeout=BUSY_S, cached_statements=STATEMENTS_MAX, check_same_thread=False
        )
    except sqlite3.Error as error:
        raise unreadable(error, file) from error
    try:
        _check_marks(connection, file)
        for setting in (*SETTINGS, f"synchronous = {SYNCHRONOUS[survives]}"):
            connection.execute(f"PRAGMA {setting}").fetchall()
        if connection.execute("PRAGMA journal_mode").fetchone() != ("wal",):
            raise StorageUnavailable(f"{file}: its file system does not let SQLite write ahead; give another directory")
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


def _check_marks(connection: sqlite3.Connection, file: Path) -> None:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION or version < 1:
        raise StorageDamaged(file, "it is not what Milepost wrote")
    if version > FORMAT:
        raise StorageTooNew(file, version, FORMAT)
    if version < FORMAT:
        raise StorageDamaged(file, f"it has format {version} of an early release, and this one reads {FORMAT}")
