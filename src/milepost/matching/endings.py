"""Endings: which subscriptions end, and when.

Rows are kept by the stretch of time (69 s) in which they end, so that adding and removing one costs the same however many
there are, and looking for those that are over touches only stretches that have passed.
"""

from heapq import heappop, heappush
from typing import Final

import numpy as np
from numpy.typing import NDArray

from milepost.matching.columns import column, numbers_of
from milepost.matching.lists import Lists
from milepost.model.instants import FOREVER, Instant

_STRETCH_BITS: Final = 36
_FORGOTTEN_MAX: Final = 64
"""So many stretches, more than those in use, may stand in the order though they are empty."""


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
        stretch = end >> _STRETCH_BITS
        which = self._stretches[stretch]
        moved = self._lists.remove(which, self._position[row])
        if moved >= 0:
            self._position[moved] = self._position[row]
        if not self._lists.length(which):
            self._lists.drop(self._stretches.pop(stretch))
            if len(self._order) > 2 * len(self._stretches) + _FORGOTTEN_MAX:
                self._order = sorted(self._stretches)

    def over(self, now: Instant, limit: int) -> list[int]:
        """Up to `limit` rows of one stretch that have ended, the oldest stretch first; none only if none has."""
        while self._order and self._order[0] <= now >> _STRETCH_BITS:
            which = self._stretches.get(self._order[0])
            if which is not None:
                rows = self._lists.view(which)
                over: list[int] = rows[self.end[rows] < now][:limit].tolist()
                return over
            heappop(self._order)
        return []
