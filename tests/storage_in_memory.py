"""Storage for tests: keeps what is written, in memory, and gives it back. Loading it again plays the part of a restart."""

from collections.abc import Mapping
from typing import TypeVar

from milepost.broker.effects import Changes, Kept, Queued

Key = TypeVar("Key")
Value = TypeVar("Value")


class KeptInMemory:
    """What storage means, in plain dicts; it passes the catalogue of `conformance/test_storage.py`."""

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
        self._standing: dict[str, bytes] = {}
        self._told: dict[tuple[int, str], bytes] = {}
        self.writes = 0
        """How often something was written."""

    def load(self) -> Kept:
        return Kept(
            dict(self._sessions),
            dict(self._subscriptions),
            dict(self._retained),
            dict(self._messages),
            dict(self._queued),
            list(self._received),
            {number: self._outbox[number] for number in sorted(self._outbox)},
            dict(self._cursors),
            dict(self._residencies),
            dict(self._standing),
            dict(self._told),
        )

    def write(self, changes: Changes) -> None:
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
        _apply(self._standing, changes.standing)
        _apply(self._told, changes.told)

    def close(self) -> None:
        """What was written stays."""

    def _forget(self, session: int) -> None:
        self._subscriptions = {key: value for key, value in self._subscriptions.items() if key[0] != session}
        self._queued = {key: value for key, value in self._queued.items() if key[0] != session}
        self._received = {key: value for key, value in self._received.items() if key[0] != session}
        self._told = {key: value for key, value in self._told.items() if key[0] != session}


def _apply(kept: dict[Key, Value], changed: Mapping[Key, Value | None]) -> None:
    for key, value in changed.items():
        if value is None:
            kept.pop(key, None)
        else:
            kept[key] = value
