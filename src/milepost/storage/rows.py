"""Rows: the changes of one tick as SQL statements, and the stored state read back.

Three things make it fast, each measured: several rows per statement, ranges of numbers deleted at once, and bodies passed as
bytearray, because Python's sqlite3 looks for an adapter for every bytes object and bool, but not for a bytearray.
"""

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple, TypeVar

from milepost.broker.effects import Queued, StateChanges, StoredState

QueuedRow = tuple[int, int, int, int, int, int, bytearray]
"""Sequence number, session, delivery, message, qos, is_released, details."""

_NONE: dict[int, int] = {}


@dataclass(slots=True)
class SequencePlan:
    """The changes of one tick to the table `queued`."""

    deleted: list[int] = field(default_factory=list)
    rows: list[QueuedRow] = field(default_factory=list)


class DeliverySequence:
    """The sequence number of each delivery, in the order in which deliveries were queued, by session and delivery.

    Rows of `queued` are stored by sequence number, not by session: rows queued in one tick then share a page or two, however many
    sessions they belong to, and are deleted from there. The mapping from session and delivery to the number is in memory.

    Invariants:
    - `plan` changes nothing but the next number; `commit` is called with the same changes once they are committed;
    - a changed delivery keeps its number; a delivery of a session that ended gets a new one.
    """

    def __init__(self, rows: Iterable[tuple[int, int, int]] = ()) -> None:
        self._numbers: dict[int, dict[int, int]] = {}
        self._next = 1
        for sequence, session, delivery in rows:
            self._numbers.setdefault(session, {})[delivery] = sequence
            self._next = max(self._next, sequence + 1)

    def is_same_as(self, other: "DeliverySequence") -> bool:
        """Return whether both have the same deliveries under the same numbers."""
        return self._numbers == other._numbers

    def plan(self, changes: StateChanges, dropped: set[int]) -> SequencePlan:
        """Return the rows to delete and to insert; `dropped` are the sessions that are deleted before anything else."""
        plan = SequencePlan([sequence for session in dropped for sequence in self._numbers.get(session, _NONE).values()])
        for (session, delivery), queued in changes.queued.items():
            sequence = None if session in dropped else self._numbers.get(session, _NONE).get(delivery)
            if queued is not None:
                if sequence is None:
                    sequence = self._next
                    self._next += 1
                message, qos, is_released, details = queued
                plan.rows.append((sequence, session, delivery, message, qos, 1 if is_released else 0, bytearray(details)))
            elif sequence is not None:
                plan.deleted.append(sequence)
        return plan

    def commit(self, changes: StateChanges, dropped: set[int], plan: SequencePlan) -> None:
        """Apply changes that were committed."""
        for session in dropped:
            self._numbers.pop(session, None)
        if plan.deleted:
            self._remove([key for key, queued in changes.queued.items() if queued is None])
        for row in plan.rows:
            sequence, session, delivery = row[:3]
            numbers = self._numbers.get(session)
            if numbers is None:
                self._numbers[session] = {delivery: sequence}
            else:
                numbers[delivery] = sequence

    def _remove(self, keys: list[tuple[int, int]]) -> None:
        for session, delivery in keys:
            numbers = self._numbers.get(session, _NONE)
            if numbers.pop(delivery, None) is not None and not numbers:
                del self._numbers[session]


ROWS_PER_STATEMENT = 16
"""Rows per statement."""

Key = TypeVar("Key")


class InsertStatements(NamedTuple):
    """The statements that insert one row, and several together."""

    one: str
    several: str


def _insert(head: str, columns: int, tail: str = "") -> InsertStatements:
    values = f"({', '.join('?' * columns)})"
    one, several = (f"{head} VALUES {', '.join([values] * count)} {tail}" for count in (1, ROWS_PER_STATEMENT))
    return InsertStatements(one, several)


INSERT_SESSION = _insert("INSERT OR REPLACE INTO sessions", 2)
INSERT_SUBSCRIPTION = _insert("INSERT OR REPLACE INTO subscriptions", 3)
# A replaced row would also be deleted from the index and inserted again.
INSERT_RETAINED = _insert("INSERT INTO retained", 2, "ON CONFLICT (topic) DO UPDATE SET body = excluded.body")
INSERT_MESSAGE = _insert("INSERT OR REPLACE INTO messages", 2)
INSERT_QUEUED = _insert("INSERT OR REPLACE INTO queued", 7)
INSERT_RECEIVED = _insert("INSERT OR REPLACE INTO received", 2)
INSERT_OUTBOX = _insert("INSERT OR REPLACE INTO outbox", 2)
INSERT_CURSOR = _insert("INSERT OR REPLACE INTO cursors", 2)
INSERT_RESIDENCY = _insert("INSERT OR REPLACE INTO residencies", 2)
INSERT_ACTIVE_ALERT = _insert("INSERT OR REPLACE INTO active_alerts", 2)
INSERT_NOTIFIED = _insert("INSERT OR REPLACE INTO notified", 3)


def write_rows(cursor: sqlite3.Cursor, changes: StateChanges, dropped: set[int], plan: SequencePlan) -> None:
    """Write all changes of a tick, inside a transaction; ended sessions are deleted first, with all their rows."""
    if changes.sessions:
        _write_sessions(cursor, changes, dropped)
    if changes.messages:
        _drop_ranges(cursor, "DELETE FROM messages WHERE number BETWEEN ? AND ?", _deleted(changes.messages))
        _insert_all(cursor, INSERT_MESSAGE, _stored(changes.messages))
    if changes.queued or dropped:
        _drop_ranges(cursor, "DELETE FROM queued WHERE sequence BETWEEN ? AND ?", plan.deleted)
        _insert_all(cursor, INSERT_QUEUED, plan.rows)
    if changes.retained:
        cursor.executemany("DELETE FROM retained WHERE topic = ?", [(topic,) for topic in _deleted(changes.retained)])
        _insert_all(cursor, INSERT_RETAINED, _stored(changes.retained))
    if changes.received:
        cursor.executemany(
            "DELETE FROM received WHERE session = ? AND number = ?",
            [key for key, is_open in changes.received.items() if not is_open],
        )
        _insert_all(cursor, INSERT_RECEIVED, [key for key, is_open in changes.received.items() if is_open])
    if changes.subscriptions:
        names = [key for key, details in changes.subscriptions.items() if details is None]
        cursor.executemany("DELETE FROM subscriptions WHERE session = ? AND name = ?", names)
        _insert_all(cursor, INSERT_SUBSCRIPTION, [(*key, details) for key, details in _stored(changes.subscriptions)])
    if changes.active_alerts:
        cursor.executemany(
            "DELETE FROM active_alerts WHERE incident = ?", [(incident,) for incident in _deleted(changes.active_alerts)]
        )
        _insert_all(cursor, INSERT_ACTIVE_ALERT, _stored(changes.active_alerts))
    if changes.notified:
        cursor.executemany(
            "DELETE FROM notified WHERE session = ? AND incident = ?",
            [key for key, details in changes.notified.items() if details is None],
        )
        _insert_all(cursor, INSERT_NOTIFIED, [(*key, details) for key, details in _stored(changes.notified)])
    _write_site(cursor, changes)


def _write_site(cursor: sqlite3.Cursor, changes: StateChanges) -> None:
    if changes.outbox:
        _drop_ranges(cursor, "DELETE FROM outbox WHERE number BETWEEN ? AND ?", _deleted(changes.outbox))
        _insert_all(cursor, INSERT_OUTBOX, _stored(changes.outbox))
    if changes.cursors:
        _insert_all(cursor, INSERT_CURSOR, list(changes.cursors.items()))
    if changes.residencies:
        cursor.executemany(
            "DELETE FROM residencies WHERE endpoint = ?", [(endpoint,) for endpoint in _deleted(changes.residencies)]
        )
        _insert_all(cursor, INSERT_RESIDENCY, _stored(changes.residencies))


def read_sequence(connection: sqlite3.Connection) -> DeliverySequence:
    """Read the sequence number of each delivery."""
    return DeliverySequence(connection.execute("SELECT sequence, session, delivery FROM queued"))


def read_state(connection: sqlite3.Connection) -> StoredState:
    """Read the whole state; `queued` is in the order of sequence numbers."""
    rows = connection.execute("SELECT session, delivery, message, qos, is_released, details FROM queued ORDER BY sequence")
    return StoredState(
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
        active_alerts=dict(connection.execute("SELECT incident, body FROM active_alerts")),
        notified={
            (session, incident): details
            for session, incident, details in connection.execute("SELECT session, incident, details FROM notified")
        },
    )


def _write_sessions(cursor: sqlite3.Cursor, changes: StateChanges, dropped: set[int]) -> None:
    deleted = [(session,) for session in dropped]
    cursor.executemany("DELETE FROM sessions WHERE number = ?", deleted)
    cursor.executemany("DELETE FROM subscriptions WHERE session = ?", deleted)
    cursor.executemany("DELETE FROM notified WHERE session = ?", deleted)
    cursor.executemany("DELETE FROM received WHERE session = ?", deleted)  # its queued deliveries are in the plan
    _insert_all(cursor, INSERT_SESSION, _stored(changes.sessions))


def _stored(changed: Mapping[Key, bytes | None]) -> list[tuple[Key, bytearray]]:
    return [(key, bytearray(body)) for key, body in changed.items() if body is not None]


def _deleted(changed: Mapping[Key, bytes | None]) -> list[Key]:
    return [key for key, body in changed.items() if body is None]


def _insert_all(cursor: sqlite3.Cursor, insert: InsertStatements, rows: Sequence[tuple[object, ...]]) -> None:
    whole = len(rows) - len(rows) % ROWS_PER_STATEMENT
    if whole:
        batches = [list(chain.from_iterable(rows[at : at + ROWS_PER_STATEMENT])) for at in range(0, whole, ROWS_PER_STATEMENT)]
        cursor.executemany(insert.several, batches)
    if whole < len(rows):
        cursor.executemany(insert.one, rows[whole:])


def _drop_ranges(cursor: sqlite3.Cursor, statement: str, numbers: list[int]) -> None:
    """Delete consecutive numbers by one statement: rows of one tick are mostly deleted in one, too."""
    if numbers:
        numbers.sort()
        starts = [at for at in range(1, len(numbers)) if numbers[at] != numbers[at - 1] + 1]
        firsts, ends = [0, *starts], [*starts, len(numbers)]
        cursor.executemany(statement, [(numbers[first], numbers[end - 1]) for first, end in zip(firsts, ends, strict=True)])
