"""Shares: subscriptions of which one at a time is served, in turn."""

import numpy as np
from numpy.typing import NDArray

from milepost.matching.columns import column, numbers_of


class Shares:
    """Which share each of at most `limit` rows belongs to. A share is a name and a query; all its rows take turns."""

    def __init__(self, limit: int) -> None:
        self._share = column(limit, np.int32)  # by row; 0 is none
        self._turn = numbers_of(column(limit + 1, np.int64))  # by share
        self._members: dict[int, int] = {}
        self._named: dict[tuple[str, int], int] = {}
        self._names: dict[int, tuple[str, int]] = {}
        self._free: list[int] = []
        self.count = 0
        """How many shares there are."""

    def join(self, row: int, name: str, query: int) -> None:
        """Let a row take turns with all others that share this name and query."""
        share = self._named.get((name, query))
        if share is None:
            share = self._free.pop() if self._free else self.count + 1
            self._named[name, query] = share
            self._names[share] = (name, query)
            self._turn[share] = 0
            self.count += 1
        self._members[share] = self._members.get(share, 0) + 1
        self._share[row] = share

    def leave(self, row: int) -> None:
        """Let a row take turns no longer."""
        share = int(self._share[row])
        self._share[row] = 0
        self._members[share] -= 1
        if not self._members[share]:
            del self._members[share], self._named[self._names.pop(share)]
            self._free.append(share)
            self.count -= 1

    def of(self, rows: NDArray[np.int32]) -> NDArray[np.int32]:
        """The share of each row, 0 for none."""
        shares: NDArray[np.int32] = self._share[rows]
        return shares

    def one_of_each(self, rows: NDArray[np.int32]) -> NDArray[np.int32]:
        """All rows that belong to no share, and of each share the one whose turn it is."""
        shares = self._share[rows]
        if not shares.any():
            return rows
        chosen = []
        for share in np.unique(shares[shares > 0]).tolist():
            members = np.sort(rows[shares == share])
            chosen.append(members[self._turn[share] % members.size])
            self._turn[share] += 1
        return np.concatenate((rows[shares == 0], np.array(chosen, np.int32)))
