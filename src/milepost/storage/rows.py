"""Rows: the changes of a turn as statements, and what was kept read back.

Three things make it fast, each measured: several rows to a statement, ranges of numbers removed at once, and bodies given as
bytearray, because Python's sqlite3 looks for an adapter for each bytes object (and bool) and for none of these.
"""

import sqlite3
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import NamedTuple, TypeVar

from milepost.edge.keeping import Changes, Kept, Queued
from milepost.storage.places import PlacePlan, Places

TOGETHER = 16
"""Rows in one statement."""

Key = TypeVar("Key")


class Put(NamedTuple):
    """The statement that puts a row, for one and for several together."""

    one: str
    several: str


def _put(head: str, columns: int, tail: str = "") -> Put:
    values = f"({', '.join('?' * columns)})"
    one, several = (f"{head} VALUES {', '.join([values] * count)} {tail}" for count in (1, TOGETHER))
    return Put(one, several)


PUT_SESSION = _put("INSERT OR REPLACE INTO sessions", 2)
PUT_SUBSCRIPTION = _put("INSERT OR REPLACE INTO subscriptions", 3)
# Replaced as a whole, a row would also be taken out of the index and put in again.
PUT_RETAINED = _put("INSERT INTO retained", 2, "ON CONFLICT (topic) DO UPDATE SET body = excluded.body")
PUT_MESSAGE = _put("INSERT OR REPLACE INTO messages", 2)
PUT_QUEUED = _put("INSERT OR REPLACE INTO queued", 7)
PUT_RECEIVED = _put("INSERT OR REPLACE INTO received", 2)
PUT_OUTBOX = _put("INSERT OR REPLACE INTO outbox", 2)
PUT_MARK = _put("INSERT OR REPLACE INTO marks", 2)
PUT_STAY = _put("INSERT OR REPLACE INTO stays", 2)
PUT_STANDING = _put("INSERT OR REPLACE INTO standing", 2)
PUT_TOLD = _put("INSERT OR REPLACE INTO told", 3)


def write_rows(cursor: sqlite3.Cursor, changes: Changes, dropped: set[int], plan: PlacePlan) -> None:
    """All of a turn, inside a transaction; sessions go first, with all that is theirs."""
    if changes.sessions:
        _write_sessions(cursor, changes, dropped)
    if changes.messages:
        _drop_ranges(cursor, "DELETE FROM messages WHERE number BETWEEN ? AND ?", _gone(changes.messages))
        _put_all(cursor, PUT_MESSAGE, _there(changes.messages))
    if changes.queued or dropped:
        _drop_ranges(cursor, "DELETE FROM queued WHERE place BETWEEN ? AND ?", plan.gone)
        _put_all(cursor, PUT_QUEUED, plan.rows)
    if changes.retained:
        cursor.executemany("DELETE FROM retained WHERE topic = ?", [(topic,) for topic in _gone(changes.retained)])
        _put_all(cursor, PUT_RETAINED, _there(changes.retained))
    if changes.received:
        cursor.executemany(
            "DELETE FROM received WHERE session = ? AND number = ?",
            [key for key, is_open in changes.received.items() if not is_open],
        )
        _put_all(cursor, PUT_RECEIVED, [key for key, is_open in changes.received.items() if is_open])
    if changes.subscriptions:
        names = [key for key, details in changes.subscriptions.items() if details is None]
        cursor.executemany("DELETE FROM subscriptions WHERE session = ? AND name = ?", names)
        _put_all(cursor, PUT_SUBSCRIPTION, [(*key, details) for key, details in _there(changes.subscriptions)])
    if changes.standing:
        cursor.executemany("DELETE FROM standing WHERE incident = ?", [(incident,) for incident in _gone(changes.standing)])
        _put_all(cursor, PUT_STANDING, _there(changes.standing))
    if changes.told:
        cursor.executemany(
            "DELETE FROM told WHERE session = ? AND incident = ?",
            [key for key, details in changes.told.items() if details is None],
        )
        _put_all(cursor, PUT_TOLD, [(*key, details) for key, details in _there(changes.told)])
    _write_site(cursor, changes)


def _write_site(cursor: sqlite3.Cursor, changes: Changes) -> None:
    if changes.outbox:
        _drop_ranges(cursor, "DELETE FROM outbox WHERE number BETWEEN ? AND ?", _gone(changes.outbox))
        _put_all(cursor, PUT_OUTBOX, _there(changes.outbox))
    if changes.marks:
        _put_all(cursor, PUT_MARK, list(changes.marks.items()))
    if changes.stays:
        cursor.executemany("DELETE FROM stays WHERE endpoint = ?", [(endpoint,) for endpoint in _gone(changes.stays)])
        _put_all(cursor, PUT_STAY, _there(changes.stays))


def read_places(connection: sqlite3.Connection) -> Places:
    """Where each delivery stands."""
    return Places(connection.execute("SELECT place, session, delivery FROM queued"))


def read_kept(connection: sqlite3.Connection) -> Kept:
    """Everything; the order of `queued` is that of the places."""
    rows = connection.execute("SELECT session, delivery, message, qos, is_released, details FROM queued ORDER BY place")
    return Kept(
        sessions=dict(connection.execute("SELECT number, details FROM sessions")),
        subscriptions={
            (session, name): details
            for session, name, details in connection.execute("SELECT session, name, details FROM subscriptions")
        },
        retained=dict(connection.execute("SELECT topic, body FROM retained")),
        messages=dict(connection.execute("SELECT number, body FROM messages")),
        queued={
            (session, delivery): Queued(message, qos, bool(is_released), details)
            for session, delivery, message, qos, is_released, details in rows
        },
        received=connection.execute("SELECT session, number FROM received").fetchall(),
        outbox=dict(connection.execute("SELECT number, body FROM outbox ORDER BY number")),
        marks=dict(connection.execute("SELECT name, number FROM marks")),
        stays=dict(connection.execute("SELECT endpoint, details FROM stays")),
        standing=dict(connection.execute("SELECT incident, body FROM standing")),
        told={
            (session, incident): details
            for session, incident, details in connection.execute("SELECT session, incident, details FROM told")
        },
    )


def _write_sessions(cursor: sqlite3.Cursor, changes: Changes, dropped: set[int]) -> None:
    gone = [(session,) for session in dropped]
    cursor.executemany("DELETE FROM sessions WHERE number = ?", gone)
    cursor.executemany("DELETE FROM subscriptions WHERE session = ?", gone)
    cursor.executemany("DELETE FROM told WHERE session = ?", gone)
    cursor.executemany("DELETE FROM received WHERE session = ?", gone)  # what was queued for it is in the plan
    _put_all(cursor, PUT_SESSION, _there(changes.sessions))


def _there(changed: Mapping[Key, bytes | None]) -> list[tuple[Key, bytearray]]:
    return [(key, bytearray(body)) for key, body in changed.items() if body is not None]


def _gone(changed: Mapping[Key, bytes | None]) -> list[Key]:
    return [key for key, body in changed.items() if body is None]


def _put_all(cursor: sqlite3.Cursor, put: Put, rows: Sequence[tuple[object, ...]]) -> None:
    whole = len(rows) - len(rows) % TOGETHER
    if whole:
        packs = [list(chain.from_iterable(rows[at : at + TOGETHER])) for at in range(0, whole, TOGETHER)]
        cursor.executemany(put.several, packs)
    if whole < len(rows):
        cursor.executemany(put.one, rows[whole:])


def _drop_ranges(cursor: sqlite3.Cursor, statement: str, numbers: list[int]) -> None:
    """Numbers that follow each other are removed by one statement: what was put in one turn mostly goes in one."""
    if numbers:
        numbers.sort()
        starts = [at for at in range(1, len(numbers)) if numbers[at] != numbers[at - 1] + 1]
        firsts, ends = [0, *starts], [*starts, len(numbers)]
        cursor.executemany(statement, [(numbers[first], numbers[end - 1]) for first, end in zip(firsts, ends, strict=True)])
