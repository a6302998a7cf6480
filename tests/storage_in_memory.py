"""Storage in memory for tests. Loading from it again simulates a restart."""

from collections.abc import Mapping
from typing import TypeVar

from milepost.broker.effects import Queued, StateChanges, StoredState

Key = TypeVar("Key")
Value = TypeVar("Value")


class StorageInMemory:
    """A reference implementation in plain dicts; it passes the catalogue of `conformance/test_storage.py`."""

    def __init__(self) -> None:
        self._sessions: dict[int, bytes] = {}
        self._subscriptions: dict[tuple[int, str], bytes] = {}
        self._retained: dict[str, bytes] = {}
        self._messages: dict[int, bytes] = {}
        self._queued: dict[tuple[int, int], Queued] = {}
        self._received: dict[tuple[int, int], bool] = {}
        self._outbox: dict[int, bytes] = {}
        self._cursors: dict[str, int] = {}
        self._residencies: dict[str, bytes] = {}
        self._active_alerts: dict[str, bytes] = {}
        self._notified: dict[tuple[int, str], bytes] = {}
        self.writes = 0
        """Number of writes."""

    def load(self) -> StoredState:
        return StoredState(
            dict(self._sessions),
            dict(self._subscriptions),
            dict(self._retained),
            dict(self._messages),
            dict(self._queued),
            list(self._received),
            {number: self._outbox[number] for number in sorted(self._outbox)},
            dict(self._cursors),
            dict(self._residencies),
            dict(self._active_alerts),
            dict(self._notified),
        )

    def write(self, changes: StateChanges) -> None:
        self.writes += 1
        for session, details in changes.sessions.items():
            if details is None:
                self._forget(session)
        _apply(self._sessions, changes.sessions)
        _apply(self._subscriptions, changes.subscriptions)
        _apply(self._retained, changes.retained)
        _apply(self._messages, changes.messages)
        _apply(self._queued, changes.queued)
        _apply(self._received, {key: is_open or None for key, is_open in changes.received.items()})
        _apply(self._outbox, changes.outbox)
        _apply(self._cursors, changes.cursors)
        _apply(self._residencies, changes.residencies)
        _apply(self._active_alerts, changes.active_alerts)
        _apply(self._notified, changes.notified)

    def close(self) -> None:
        """Do nothing: the state remains."""

    def _forget(self, session: int) -> None:
        self._subscriptions = {key: value for key, value in self._subscriptions.items() if key[0] != session}
        self._queued = {key: value for key, value in self._queued.items() if key[0] != session}
        self._received = {key: value for key, value in self._received.items() if key[0] != session}
        self._notified = {key: value for key, value in self._notified.items() if key[0] != session}


def _apply(stored: dict[Key, Value], changed: Mapping[Key, Value | None]) -> None:
    for key, value in changed.items():
        if value is None:
            stored.pop(key, None)
        else:
            stored[key] = value
