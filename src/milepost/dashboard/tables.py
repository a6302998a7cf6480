"""A table of what the map shows of one sort: rows of plain JSON by key, and what changed since it was last asked.

What must hold: there are never more rows than the limit, the oldest go first; what `take_changes` gave, put one after the other
over an empty table, is the table.
"""

from collections.abc import Iterator, Mapping
from typing import Any

Row = Mapping[str, Any]
Changes = dict[str, Row | None]
"""Rows by key; nothing in place of one: it is gone."""


class Table:
    """Rows, and which of them changed."""

    __slots__ = ("_changed", "_limit", "_rows")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rows: dict[str, Row] = {}
        self._changed: set[str] = set()

    def put(self, key: str, row: Row) -> None:
        """A row that is new, or other than before."""
        if self._rows.get(key) == row:
            return
        self._rows[key] = row
        self._changed.add(key)
        if len(self._rows) > self._limit:
            self.drop(next(iter(self._rows)))

    def drop(self, key: str) -> None:
        """A row that is there no more, if it was."""
        if self._rows.pop(key, None) is not None:
            self._changed.add(key)

    def replace(self, rows: Mapping[str, Row]) -> None:
        """These rows, and no others."""
        for key in [key for key in self._rows if key not in rows]:
            self.drop(key)
        for key, row in rows.items():
            self.put(key, row)

    def maybe(self, key: str) -> Row | None:
        """The row of a key."""
        return self._rows.get(key)

    def items(self) -> Iterator[tuple[str, Row]]:
        """All rows, the oldest first; the table may be changed meanwhile."""
        return iter(list(self._rows.items()))

    def __len__(self) -> int:
        return len(self._rows)

    def whole(self) -> Changes:
        """All of it, as a change from nothing."""
        return dict(self._rows)

    def take_changes(self) -> Changes:
        """What changed since this was last called."""
        changed, self._changed = self._changed, set()
        return {key: self._rows.get(key) for key in changed}
