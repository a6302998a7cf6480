"""Faults of storage: errors of SQLite and of the operating system, with a text that states what to do.

All are `StorageUnavailable`. The three classes of this file do not pass by themselves: an operator must do what their text says.
"""

import sqlite3
from pathlib import Path

from milepost.broker.effects import StorageUnavailable

_CAUSES = {
    sqlite3.SQLITE_BUSY: "another program has opened it",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened",
    sqlite3.SQLITE_CORRUPT: "it is damaged",
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_IOERR: "the disk failed to read or write",
    sqlite3.SQLITE_NOTADB: "it is not a database",
    sqlite3.SQLITE_PERM: "access is not permitted",
    sqlite3.SQLITE_READONLY: "it is read-only",
}
_DAMAGE = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_PRIMARY_CODE = 0xFF  # the low byte of an extended error code


class StorageInUse(StorageUnavailable):
    """Another process has locked the directory."""

    def __init__(self, folder: Path, process: str) -> None:
        holder = f"process {process}" if process else "another process"
        super().__init__(f"{folder} is in use by {holder}: stop that process, or give each edge its own directory")


class StorageTooNew(StorageUnavailable):
    """A newer release wrote the file."""

    def __init__(self, file: Path, found: int, known: int) -> None:
        super().__init__(
            f"{file} has format {found}, and this release reads formats up to {known}: "
            "start the newer release that wrote it, or use another directory"
        )


class StorageDamaged(StorageUnavailable):
    """The stored state cannot be read, and starting without it would lose it for good."""

    def __init__(self, file: Path, what: str) -> None:
        aside = f"{file.parent}.damaged"
        super().__init__(f"{file}: {what}. To start with an empty state, move the directory away: mv {file.parent} {aside}")


def unavailable(error: sqlite3.Error, file: Path) -> StorageUnavailable:
    """Return the exception for an error of SQLite that may pass, such as a full disk."""
    return StorageUnavailable(f"{_describe(error)}: {file}")


def unreadable(error: sqlite3.Error, file: Path) -> StorageUnavailable:
    """Return the exception for an error while reading; one without a code means that Python could not decode SQLite's result."""
    code = code_of(error)
    return StorageDamaged(file, _describe(error)) if code is None or code in _DAMAGE else unavailable(error, file)


def code_of(error: sqlite3.Error) -> int | None:
    """Return the primary error code; None if the error is not SQLite's own."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & _PRIMARY_CODE


def is_sync_fault(error: sqlite3.Error) -> bool:
    """Return whether all was written and only the sync to disk failed."""
    return getattr(error, "sqlite_errorcode", None) in (sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_IOERR_DIR_FSYNC)


def _describe(error: sqlite3.Error) -> str:
    code = code_of(error)
    if code is None:
        return str(error)
    return f"{_CAUSES.get(code, str(error))} ({error.sqlite_errorname})"
