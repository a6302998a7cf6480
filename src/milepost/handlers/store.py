"""The store of a handler: JSON values by key. The changes of a call are committed together with its answer, or not at all."""

from collections.abc import Iterator
from typing import Final

import orjson

KEYS_MAX: Final = 100_000
BYTES_MAX: Final = 64_000_000
KEY_BYTES_MAX: Final = 512
VALUE_BYTES_MAX: Final = 200_000
CHANGES_BYTES_MAX: Final = 300_000
"""Maximum total size of the keys and values that one call changes."""

ROW_BYTES: Final = 300
"""Maximum overhead of a value in the log, beyond its key and value."""


class StoreFault(ValueError):
    """An invalid key or value, or a full store: the call fails."""


def change_bytes(key: str, value: bytes | None) -> int:
    """Return the maximum size of a change in a note: escaping may double the size of a key."""
    return 2 * len(key.encode()) + len(value or b"") + ROW_BYTES


class StoreValues:
    """All committed values of a store, as bytes."""

    def __init__(self, values: dict[str, bytes]) -> None:
        self.values = values
        self.size = sum(len(value) for value in values.values())

    def apply(self, changes: dict[str, bytes | None]) -> None:
        """Commit the changes of a call."""
        for key, value in changes.items():
            self.size += len(value or b"") - len(self.values.pop(key, b""))
            if value is not None:
                self.values[key] = value


class Store:
    """The store as one call sees it: its own changes over the committed values."""

    def __init__(self, committed: StoreValues) -> None:
        self._committed = committed
        self._is_closed = False
        self.changes: dict[str, bytes | None] = {}
        self._added_keys = self._added_bytes = self._changed_bytes = 0

    def get(self, key: str, default: object = None) -> object:
        """Return a copy of the value of a key; call `put` to store changes to it."""
        self._check()
        value = self.changes[key] if key in self.changes else self._committed.values.get(key)
        return default if value is None else orjson.loads(value)

    def put(self, key: str, value: object) -> None:
        """Store a value under a key; any JSON value."""
        if not isinstance(key, str) or not key or not key.isprintable() or len(key.encode()) > KEY_BYTES_MAX:
            raise StoreFault(f"invalid key {str(key)[:50]!r}: a key is printable text of 1 to {KEY_BYTES_MAX} bytes")
        try:
            encoded = orjson.dumps(value)
        except orjson.JSONEncodeError as fault:
            raise StoreFault(f"{key[:50]!r}: the value cannot be encoded as JSON: {fault}") from None
        if len(encoded) > VALUE_BYTES_MAX:
            raise StoreFault(f"{key[:50]!r}: the value has {len(encoded)} bytes; the maximum is {VALUE_BYTES_MAX}")
        self._change(key, encoded)

    def remove(self, key: str) -> None:
        """Remove a key if it exists."""
        if key in self:
            self._change(key, None)

    def keys(self, prefix: str = "") -> list[str]:
        """Return the keys with a prefix, sorted."""
        self._check()
        stored = (key for key in self._committed.values if key not in self.changes)
        changed = (key for key, value in self.changes.items() if value is not None)
        return sorted(key for keys in (stored, changed) for key in keys if key.startswith(prefix))

    def items(self, prefix: str = "") -> Iterator[tuple[str, object]]:
        """Return the keys with a prefix, sorted, and their values."""
        return ((key, self.get(key)) for key in self.keys(prefix))

    def __contains__(self, key: str) -> bool:
        self._check()
        return (self.changes[key] is not None) if key in self.changes else key in self._committed.values

    def close(self) -> None:
        """Refuse further calls from the thread of an abandoned call."""
        self._is_closed = True

    def _change(self, key: str, value: bytes | None) -> None:
        self._check()
        before = self.changes[key] if key in self.changes else self._committed.values.get(key)
        keys = self._added_keys + (value is not None) - (before is not None)
        size = self._added_bytes + len(value or b"") - len(before or b"")
        changed = self._changed_bytes + change_bytes(key, value)
        if key in self.changes:
            changed -= change_bytes(key, before)
        if changed > CHANGES_BYTES_MAX:
            raise StoreFault(f"one call may change at most {CHANGES_BYTES_MAX} bytes of keys and values")
        if keys > self._added_keys and len(self._committed.values) + keys > KEYS_MAX:
            raise StoreFault(f"the store is full: the maximum is {KEYS_MAX} keys")
        if size > self._added_bytes and self._committed.size + size > BYTES_MAX:
            raise StoreFault(f"the store is full: the maximum is {BYTES_MAX} bytes")
        self.changes[key] = value
        self._added_keys, self._added_bytes, self._changed_bytes = keys, size, changed

    def _check(self) -> None:
        if self._is_closed:
            raise StoreFault("this call exceeded its timeout and was abandoned: its changes are discarded")
