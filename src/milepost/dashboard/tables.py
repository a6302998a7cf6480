"""Tables of the map: rows of plain JSON by key with their changes, and the table of reported hazards.

Invariants: a table never has more rows than its limit, and drops the oldest first; the results of `take_changes`, applied in
order to an empty table, produce the table.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from milepost.model.incidents import EventKind
from milepost.model.instants import Instant
from milepost.model.site_records import ForwardedMessage

Row = Mapping[str, Any]
RowChanges = dict[str, Row | None]
"""Rows by key; None for a removed row."""


HAZARDS_MAX: Final = 500
SHOWN_MS: Final = 60_000
"""How long a report is shown, unless its validity ends before."""


class SceneTable:
    """Rows, and the keys of the changed ones."""

    __slots__ = ("_changed", "_limit", "_rows")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rows: dict[str, Row] = {}
        self._changed: set[str] = set()

    def put(self, key: str, row: Row) -> None:
        """Add or replace a row."""
        if self._rows.get(key) == row:
            return
        self._rows[key] = row
        self._changed.add(key)
        if len(self._rows) > self._limit:
            self.drop(next(iter(self._rows)))

    def drop(self, key: str) -> None:
        """Remove a row if it exists."""
        if self._rows.pop(key, None) is not None:
            self._changed.add(key)

    def replace(self, rows: Mapping[str, Row]) -> None:
        """Make these the only rows."""
        for key in [key for key in self._rows if key not in rows]:
            self.drop(key)
        for key, row in rows.items():
            self.put(key, row)

    def find(self, key: str) -> Row | None:
        """Return the row of a key."""
        return self._rows.get(key)

    def items(self) -> Iterator[tuple[str, Row]]:
        """Return all rows, oldest first; the table may be changed during the iteration."""
        return iter(list(self._rows.items()))

    def __len__(self) -> int:
        return len(self._rows)

    def whole(self) -> RowChanges:
        """Return all rows, as changes to an empty table."""
        return dict(self._rows)

    def take_changes(self) -> RowChanges:
        """Return the changes since the last call."""
        changed, self._changed = self._changed, set()
        return {key: self._rows.get(key) for key in changed}


class Hazards:
    """Recent reports of events of known kinds, with their places."""

    def __init__(self, kinds: Sequence[EventKind]) -> None:
        self.table = SceneTable(HAZARDS_MAX)
        self._kinds = {kind.topic: kind.name for kind in kinds}

    def take(self, forwarded: ForwardedMessage, source_place: tuple[float, float] | None) -> None:
        """Add a message if its topic is that of an event kind and it, or its source, has a place."""
        message = forwarded.message
        kind = self._kinds.get(message.topic)
        place = (message.place.latitude, message.place.longitude) if message.place else source_place
        if kind is None or place is None:
            return
        seen_ms = message.seen_at // 1_000_000
        until_ms = min(seen_ms + SHOWN_MS, message.valid_until // 1_000_000)
        row = {"kind": kind, "place": [place[1], place[0]], "source": message.source, "seen_ms": seen_ms, "until_ms": until_ms}
        self.table.put(f"{forwarded.sender}:{forwarded.number}", row)  # not every MQTT message has an id

    def tick(self, now: Instant) -> None:
        """Remove expired reports."""
        now_ms = now // 1_000_000
        for key, row in self.table.items():
            if row["until_ms"] < now_ms:
                self.table.drop(key)
