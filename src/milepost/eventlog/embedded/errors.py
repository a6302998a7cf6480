"""Errors of SQLite and of the operating system as `LogUnavailable`, with the cause and the remedy."""

import sqlite3
from pathlib import Path

from milepost.eventlog.log import LogUnavailable

_ADVICE = {
    sqlite3.SQLITE_BUSY: "another process has locked it for too long: look for a stopped process",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened: check its directory and permissions",
    sqlite3.SQLITE_CORRUPT: "it is damaged",
    sqlite3.SQLITE_FULL: "the disk is full: writing resumes when there is space",
    sqlite3.SQLITE_IOERR: "the disk failed to read or write: writing resumes when the disk works again",
    sqlite3.SQLITE_NOTADB: "it is not a database",
    sqlite3.SQLITE_PERM: "permission denied: grant access to the user of this process",
    sqlite3.SQLITE_READONLY: "it is read-only: grant write access to the user of this process",
}
_DAMAGE = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_PRIMARY_CODE = 0xFF  # the low byte of an extended error code


def unavailable(error: sqlite3.Error, file: Path) -> LogUnavailable:
    """Translate an error of SQLite; one without a code means that Python could not decode the data read."""
    code = code_of(error)
    if code is None or code in _DAMAGE:
        return damaged(file, _text_of(error))
    return LogUnavailable(f"{file}: {_text_of(error)}")


def damaged(file: Path, what: str) -> LogUnavailable:
    """Return the fault for an unreadable file: starting without it would lose its records for good."""
    folder = file.parent
    return LogUnavailable(
        f"{file}: {what}. Stop all processes that use it and move the directory away (mv {folder} {folder}.damaged) "
        "to start with an empty log"
    )


def too_new(file: Path, found: int, known: int) -> LogUnavailable:
    """Return the fault for a file written by a newer release."""
    return LogUnavailable(
        f"{file} has format {found}, and this release reads formats up to {known}: "
        "start the newer release that wrote it, or configure another directory"
    )


def replaced(file: Path) -> LogUnavailable:
    """Return the fault for a file removed or replaced after it was opened."""
    return LogUnavailable(f"{file} was removed or replaced: put it back, or restart to continue without it")


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


def _text_of(error: sqlite3.Error) -> str:
    code = code_of(error)
    if code is None:
        return str(error)
    return f"{_ADVICE.get(code, str(error))} ({error.sqlite_errorname})"
