"""Rows: the changes of one tick as SQL statements, and the stored state read back.

Three things make it fast, each measured: several rows per statement, ranges of numbers deleted at once, and bodies passed as
bytearray, because Python's sqlite3 looks for an adapter for every bytes object and bool, but not for a bytearray.
"""

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple, TypeVar

from milepost.broker.effects import Changes, Kept, Queued

QueuedRow = tuple[int, int, int, int, int, int, bytearray]
"""Place, session, delivery, message, qos, is_released, details."""

_NONE: dict[int, int] = {}


@dataclass(slots=True)
class PlacePlan:
    """The changes of one tick to the table `queued`."""

    gone: list[int] = field(default_factory=list)
    rows: list[QueuedRow] = field(default_factory=list)


class Places:
    """The place of each delivery in the order in which deliveries were queued, by session and delivery.

    Rows of `queued` are stored by place, not by session: rows queued in one tick then share a page or two, however many sessions
    they belong to, and are deleted from there. The mapping from session and delivery to the place is in memory.

    Invariants:
    - `planned` changes nothing but the next place; `settle` is called with the same changes once they are committed;
    - a changed delivery keeps its place; a delivery of a session that ended gets a new one.
    """

    def __init__(self, rows: Iterable[tuple[int, int, int]] = ()) -> None:
        self._of: dict[int, dict[int, int]] = {}
        self._next = 1
        for place, session, delivery in rows:
            self._of.setdefault(session, {})[delivery] = place
            self._next = max(self._next, place + 1)

    def is_same_as(self, other: "Places") -> bool:
        """Return whether both have the same deliveries at the same places."""
        return self._of == other._of

    def planned(self, changes: Changes, dropped: set[int]) -> PlacePlan:
        """Return the rows to delete and to insert; `dropped` are the sessions that are deleted before anything else."""
        plan = PlacePlan([place for session in dropped for place in self._of.get(session, _NONE).values()])
        for (session, delivery), queued in changes.queued.items():
            place = None if session in dropped else self._of.get(session, _NONE).get(delivery)
            if queued is not None:
                if place is None:
                    place = self._next
                    self._next += 1
                message, qos, is_released, details = queued
                plan.rows.append((place, session, delivery, message, qos, 1 if is_released else 0, bytearray(details)))
            elif place is not None:
                plan.gone.append(place)
        return plan

    def settle(self, changes: Changes, dropped: set[int], plan: PlacePlan) -> None:
        """Apply changes that were committed."""
        for session in dropped:
            self._of.pop(session, None)
        if plan.gone:
            self._leave([key for key, queued in changes.queued.items() if queued is None])
        for row in plan.rows:
            place, session, delivery = row[:3]
            places = self._of.get(session)
            if places is None:
                self._of[session] = {delivery: place}
            else:
                places[delivery] = place

    def _leave(self, keys: list[tuple[int, int]]) -> None:
        for session, delivery in keys:
            places = self._of.get(session, _NONE)
            if places.pop(delivery, None) is not None and not places:
                del self._of[session]


TOGETHER = 16
"""Rows per statement."""

Key = TypeVar("Key")


class Put(NamedTuple):
    """The statements that insert one row, and several together."""

    one: str
    several: str


def _put(head: str, columns: int, tail: str = "") -> Put:
    values = f"({', '.join('?' * columns)})"
    one, several = (f"{head} VALUES {', '.join([values] * count)} {tail}" for count in (1, TOGETHER))
    return Put(one, several)


PUT_SESSION = _put("INSERT OR REPLACE INTO sessions", 2)
PUT_SUBSCRIPTION = _put("INSERT OR REPLACE INTO subscriptions", 3)
# A replaced row would also be deleted from the index and inserted again.
PUT_RETAINED = _put("INSERT INTO retained", 2, "ON CONFLICT (topic) DO UPDATE SET body = excluded.body")
PUT_MESSAGE = _put("INSERT OR REPLACE INTO messages", 2)
PUT_QUEUED = _put("INSERT OR REPLACE INTO queued", 7)
PUT_RECEIVED = _put("INSERT OR REPLACE INTO received", 2)
PUT_OUTBOX = _put("INSERT OR REPLACE INTO outbox", 2)
PUT_CURSOR = _put("INSERT OR REPLACE INTO cursors", 2)
PUT_RESIDENCY = _put("INSERT OR REPLACE INTO residencies", 2)
PUT_STANDING = _put("INSERT OR REPLACE INTO standing", 2)
PUT_TOLD = _put("INSERT OR REPLACE INTO told", 3)


def write_rows(cursor: sqlite3.Cursor, changes: Changes, dropped: set[int], plan: PlacePlan) -> None:
    """Write all changes of a tick, inside a transaction; ended sessions are deleted first, with all their rows."""
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
    if changes.cursors:
        _put_all(cursor, PUT_CURSOR, list(changes.cursors.items()))
    if changes.residencies:
        cursor.executemany("DELETE FROM residencies WHERE endpoint = ?", [(endpoint,) for endpoint in _gone(changes.residencies)])
        _put_all(cursor, PUT_RESIDENCY, _there(changes.residencies))


def read_places(connection: sqlite3.Connection) -> Places:
    """Read the place of each delivery."""
    return Places(connection.execute("SELECT place, session, delivery FROM queued"))


def read_kept(connection: sqlite3.Connection) -> Kept:
    """Read the whole state; `queued` is in the order of places."""
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
        cursors=dict(connection.execute("SELECT name, number FROM cursors")),
        residencies=dict(connection.execute("SELECT endpoint, details FROM residencies")),
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
    cursor.executemany("DELETE FROM received WHERE session = ?", gone)  # its queued deliveries are in the plan
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
    """Delete consecutive numbers by one statement: rows of one tick are mostly deleted in one, too."""
    if numbers:
        numbers.sort()
        starts = [at for at in range(1, len(numbers)) if numbers[at] != numbers[at - 1] + 1]
        firsts, ends = [0, *starts], [*starts, len(numbers)]
        cursor.executemany(statement, [(numbers[first], numbers[end - 1]) for first, end in zip(firsts, ends, strict=True)])
