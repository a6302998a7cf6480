"""The database file of the embedded log: created atomically, marked with its format, shared by the processes of one machine.

Invariants:
- a file under its final name always has our tables: one process creates it under another name and renames it, others wait;
- a write-ahead log without its database is damage: SQLite would replay it into a new one;
- the settings of SQLite are stated here and nowhere else, each with its reason.
"""

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from milepost.eventlog.embedded.errors import damaged, replaced, too_new, unavailable
from milepost.eventlog.log import LogUnavailable
from milepost.model.durability import Durability

NAME: Final = "log.db"
UNFINISHED: Final = "log.db.new"
LOCK: Final = "lock"
APPLICATION: Final = 0x4D694C67  # "MiLg"
FORMAT: Final = 3
"""Version of the file format; files of any other version are refused."""
PAGE_BYTES: Final = 4096
CACHE_KIB: Final = 2 * 1024
BUSY_S: Final = 1.0
STATEMENTS_MAX: Final = 64

# A record's number combines topic id and offset (`rows.number_of`), so that a topic is stored contiguously and read in order.
# `first` is the lowest offset that retention has not removed; `changed` counts writes, so that a reader finds the new ones.
SCHEMA = (
    """CREATE TABLE topics (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, first INTEGER NOT NULL, next INTEGER NOT NULL,
       bytes INTEGER NOT NULL, appended_at INTEGER NOT NULL, changed INTEGER NOT NULL, retention_s INTEGER NOT NULL,
       retention_bytes INTEGER NOT NULL, is_compacted INTEGER NOT NULL, compacted_to INTEGER NOT NULL,
       compacted_bytes INTEGER NOT NULL, compacted_at INTEGER NOT NULL)""",
    "CREATE INDEX topics_by_change ON topics (changed)",
    "CREATE TABLE records (number INTEGER PRIMARY KEY, appended_at INTEGER NOT NULL, key TEXT NOT NULL, value BLOB)",
    "CREATE TABLE groups (name TEXT PRIMARY KEY NOT NULL, generation INTEGER NOT NULL) WITHOUT ROWID",
    """CREATE TABLE members (member INTEGER PRIMARY KEY, group_name TEXT NOT NULL, topics TEXT NOT NULL,
       expires_at INTEGER NOT NULL)""",
    """CREATE TABLE claims (group_name TEXT NOT NULL, topic TEXT NOT NULL, member INTEGER NOT NULL, generation INTEGER NOT NULL,
       PRIMARY KEY (group_name, topic)) WITHOUT ROWID""",
    """CREATE TABLE committed (group_name TEXT NOT NULL, topic TEXT NOT NULL, next INTEGER NOT NULL,
       PRIMARY KEY (group_name, topic)) WITHOUT ROWID""",
    f"PRAGMA application_id = {APPLICATION}",
    f"PRAGMA user_version = {FORMAT}",
)

SYNCHRONOUS = {
    Durability.NONE: "OFF",
    # Syncs only at checkpoints of the write-ahead log, so that a power loss never corrupts the file.
    Durability.PROCESS_CRASH: "NORMAL",
    Durability.POWER_LOSS: "FULL",
}
SETTINGS = (
    f"cache_size = -{CACHE_KIB}",  # readers scan forward only
    "temp_store = MEMORY",
    "wal_autocheckpoint = 0",  # the writer does it itself, after it has notified all readers
    "secure_delete = OFF",  # Debian's default overwrites deleted data, at the cost of another write
)


@dataclass(frozen=True, slots=True)
class Database:
    """An open database; `inode` detects a file that was replaced."""

    file: Path
    durability: Durability
    inode: int

    def connect(self) -> sqlite3.Connection:
        """Return a configured connection, for one thread at a time."""
        return _connected(self.file, self.durability)

    def check(self) -> None:
        """Raise `LogUnavailable` if the file was moved or replaced: SQLite would write to the old one, invisibly to others."""
        try:
            is_there = self.file.stat().st_ino == self.inode
        except OSError:
            is_there = False
        if not is_there:
            raise replaced(self.file)


def open_database(folder: Path, durability: Durability) -> Database:
    """Open the database in a folder; both are created if missing."""
    file = folder / NAME
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _locked(folder):
            if not file.exists():
                _make(folder)
        _connected(file, durability).close()
        return Database(file, durability, file.stat().st_ino)
    except sqlite3.Error as error:
        raise unavailable(error, file) from error
    except OSError as error:
        raise LogUnavailable(f"cannot create or open {file}: {error.strerror}; use a writable directory") from error


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _make(folder: Path) -> None:
    if (folder / f"{NAME}-wal").exists():
        raise damaged(folder / NAME, f"it is missing, but {NAME}-wal exists")
    for leftover in folder.glob(f"{UNFINISHED}*"):
        leftover.unlink()
    with closing(sqlite3.connect(folder / UNFINISHED, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        connection.execute("BEGIN IMMEDIATE")
        for statement in SCHEMA:
            connection.execute(statement)
        connection.execute("COMMIT")
        if connection.execute("PRAGMA journal_mode = WAL").fetchone() != ("wal",):
            raise LogUnavailable(f"{folder}: its file system does not support SQLite's write-ahead log; use another directory")
    (folder / UNFINISHED).rename(folder / NAME)
    for changed in (folder, folder.parent):
        _sync(changed)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _connected(file: Path, durability: Durability) -> sqlite3.Connection:
    where = f"{file.absolute().as_uri()}?mode=rw"  # never creates a file
    connection = sqlite3.connect(
        where, uri=True, isolation_level=None, timeout=BUSY_S, cached_statements=STATEMENTS_MAX, check_same_thread=False
    )
    try:
        _check_format(connection, file)
        for setting in (*SETTINGS, f"synchronous = {SYNCHRONOUS[durability]}"):
            connection.execute(f"PRAGMA {setting}").fetchall()
    except BaseException:
        connection.close()
        raise
    return connection


def _check_format(connection: sqlite3.Connection, file: Path) -> None:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION or version < 1:
        raise damaged(file, "it was not written by Milepost")
    if version > FORMAT:
        raise too_new(file, version, FORMAT)
    if version < FORMAT:
        raise damaged(file, f"it has format {version} of an early release, and this one reads {FORMAT}")
