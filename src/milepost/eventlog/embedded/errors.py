"""Errors of SQLite and of the operating system as `LogUnavailable`, with the cause and the remedy."""

import sqlite3
from pathlib import Path

from milepost.eventlog.log import LogUnavailable

_WHAT = {
    sqlite3.SQLITE_BUSY: "another process has held it for too long: look for one that was stopped",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened: look at its directory and who may use it",
    sqlite3.SQLITE_CORRUPT: "it is damaged",
    sqlite3.SQLITE_FULL: "the disk is full: it goes on by itself when there is space",
    sqlite3.SQLITE_IOERR: "the disk failed to read or write: it goes on by itself when that works",
    sqlite3.SQLITE_NOTADB: "it is not a database",
    sqlite3.SQLITE_PERM: "access is not permitted: give it to the user that runs this",
    sqlite3.SQLITE_READONLY: "it can only be read: give write access to the user that runs this",
}
_DAMAGE = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_PRIMARY_CODE = 0xFF  # the low byte of an extended error code


def unavailable(error: sqlite3.Error, file: Path) -> LogUnavailable:
    """Translate an error of SQLite; one without a code means that Python could not decode the data read."""
    code = code_of(error)
    if code is None or code in _DAMAGE:
        return damaged(file, _told(error))
    return LogUnavailable(f"{file}: {_told(error)}")


def damaged(file: Path, what: str) -> LogUnavailable:
    """Return the fault for an unreadable file: starting without it would lose its records for good."""
    folder = file.parent
    return LogUnavailable(
        f"{file}: {what}. Stop all that use it and move the directory away (mv {folder} {folder}.damaged) "
        "to start with an empty log"
    )


def too_new(file: Path, found: int, known: int) -> LogUnavailable:
    """Return the fault for a file written by a newer release."""
    return LogUnavailable(
        f"{file} has format {found}, and this release reads formats up to {known}: "
        "start the newer release that wrote it, or give this one another directory"
    )


def gone(file: Path) -> LogUnavailable:
    """Return the fault for a file removed or replaced after it was opened."""
    return LogUnavailable(f"{file} was removed or replaced: put it back, or restart to go on without it")


def is_busy(error: sqlite3.Error) -> bool:
    """Whether another connection holds the write lock, a transient condition."""
    return code_of(error) == sqlite3.SQLITE_BUSY


def is_full(error: sqlite3.Error) -> bool:
    """Whether the disk is full."""
    return code_of(error) == sqlite3.SQLITE_FULL


def code_of(error: sqlite3.Error) -> int | None:
    """Return the primary error code, or `None` if the error is not SQLite's own."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & _PRIMARY_CODE


def _told(error: sqlite3.Error) -> str:
    code = code_of(error)
    if code is None:
        return str(error)
    return f"{_WHAT.get(code, str(error))} ({error.sqlite_errorname})"
