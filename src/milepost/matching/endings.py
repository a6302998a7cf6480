"""Endings: which subscriptions end, and when.

Rows are kept by the stretch of time (8.6 s) in which they end, so that adding and removing one costs the same however many
there are, and looking for those that are over touches only stretches that have passed.
"""

from heapq import heappop, heappush
from typing import Final

import numpy as np
from numpy.typing import NDArray

from milepost.matching.columns import column, numbers_of
from milepost.matching.lists import Lists
from milepost.model.instants import FOREVER, Instant

_STRETCH_BITS: Final = 33


class Endings:
    """The ends of at most `limit` rows."""

    def __init__(self, limit: int) -> None:
        self.end: NDArray[np.int64] = column(limit, np.int64)
        """The end of each row."""
        self._lists = Lists(limit, limit)
        self._position = numbers_of(column(limit, np.int32))
        self._stretches: dict[int, int] = {}
        self._order: list[int] = []

    def put(self, row: int, end: Instant) -> None:
        """Remember when a row ends."""
        self.end[row] = end
        if end == FOREVER:
            return
        stretch = end >> _STRETCH_BITS
        which = self._stretches.get(stretch)
        if which is None:
            which = self._stretches[stretch] = self._lists.new()
            heappush(self._order, stretch)
        self._position[row] = self._lists.append(which, row)

    def take_away(self, row: int) -> None:
        """Forget when a row ends."""
        end = int(self.end[row])
        if end == FOREVER:
            return
        moved = self._lists.remove(self._stretches[end >> _STRETCH_BITS], self._position[row])
        if moved >= 0:
            self._position[moved] = self._position[row]

    def over(self, now: Instant, limit: int) -> list[int]:
        """Up to `limit` rows of one stretch that have ended, the oldest stretch first; none only if none has."""
        while self._order and self._order[0] <= now >> _STRETCH_BITS:
            stretch = self._order[0]
            rows = self._lists.view(self._stretches[stretch])
            if rows.size or stretch == now >> _STRETCH_BITS:
                over: list[int] = rows[self.end[rows] < now][:limit].tolist()
                return over
            self._lists.drop(self._stretches.pop(stretch))
            heappop(self._order)
        return []
