"""Which rows ask a query: for each query none, one (the usual case, kept in place) or a list of them."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from milepost.matching.columns import column, numbers_of
from milepost.matching.lists import Lists

_NONE: Final = 0

Rows = NDArray[np.int32]


class RowsByQuery:
    """The rows, at most `limit`, of queries numbered below `limit`; a row stands under one query."""

    def __init__(self, limit: int) -> None:
        self._lists = Lists(limit // 2, limit)
        self._entries = column(limit, np.int32)  # 0: none; below 0: -1 - the row; above 0: the list of rows
        self._entry_of = numbers_of(self._entries)
        self._position = numbers_of(column(limit, np.int32))
        self.count = 0
        """How many rows there are."""

    def put(self, query: int, row: int) -> None:
        """Let a row ask a query."""
        self.count += 1
        entry = self._entry_of[query]
        if entry == _NONE:
            self._entry_of[query] = ~row
            return
        if entry < 0:
            which = self._lists.new()
            self._position[~entry] = self._lists.append(which, ~entry)
            self._entry_of[query] = entry = which
        self._position[row] = self._lists.append(entry, row)

    def take_away(self, query: int, row: int) -> None:
        """Let a row ask its query no longer."""
        self.count -= 1
        entry = self._entry_of[query]
        if entry < 0:
            self._entry_of[query] = _NONE
            return
        moved = self._lists.remove(entry, self._position[row])
        if moved >= 0:
            self._position[moved] = self._position[row]
        if self._lists.length(entry) == 1:
            self._entry_of[query] = ~int(self._lists.view(entry)[0])
            self._lists.remove(entry, 0)
            self._lists.drop(entry)

    def of(self, queries: list[int]) -> Rows:
        """The rows of a few queries."""
        single: list[int] = []
        lists: list[Rows] = []
        for query in queries:
            entry = self._entry_of[query]
            if entry < 0:
                single.append(~entry)
            elif entry > 0:
                lists.append(self._lists.view(entry))
        rows = np.array(single, np.int32)
        return np.concatenate((rows, *lists)) if lists else rows

    def of_many(self, queries: NDArray[np.int32]) -> Rows:
        """The rows of many queries."""
        entries = self._entries.take(queries)
        rows: Rows = ~entries[entries < 0]
        lists = entries[entries > 0]
        return np.concatenate((rows, self._lists.gather(lists))) if lists.size else rows

    def total(self, queries: NDArray[np.int32]) -> int:
        """How many rows many queries have."""
        entries = self._entries.take(queries)
        return int(np.count_nonzero(entries < 0)) + self._lists.total(entries[entries > 0])
