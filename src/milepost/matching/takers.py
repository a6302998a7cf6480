"""Takers: who gets a message, and by which of its subscriptions."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(slots=True, eq=False)  # not frozen: that would double the time to make one
class Takers:
    """Each endpoint that wants a message once, with all its subscriptions that matched.

    owners   7    3    9          one entry a taker
    starts   0    1    3          where the taker's rows begin; None where each taker has exactly one
    rows     12 | 4  8 | 5        subscriptions, those of one taker together
    """

    owners: NDArray[np.int32]
    rows: NDArray[np.int32]
    starts: NDArray[np.int64] | None

    def __len__(self) -> int:
        return self.owners.size

    def rows_of(self, index: int) -> NDArray[np.int32]:
        """The subscriptions of the taker at an index."""
        if self.starts is None:
            return self.rows[index : index + 1]
        end = self.starts[index + 1] if index + 1 < self.starts.size else self.rows.size
        return self.rows[self.starts[index] : end]

    def most(self, values: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """For each taker the greatest of the values (say, the quality of service) that its rows have."""
        return values if self.starts is None else np.maximum.reduceat(values, self.starts)


NOBODY = Takers(np.empty(0, np.int32), np.empty(0, np.int32), None)


def group(rows: NDArray[np.int32], owners: NDArray[np.int32], scratch: NDArray[np.int32]) -> Takers:
    """Matched rows and the owner of each, put together by owner; `scratch` has a place for every owner."""
    if owners.size < 2:
        return Takers(owners, rows, None)
    turn = np.arange(owners.size, dtype=np.int32)
    scratch[owners] = turn
    if (scratch[owners] == turn).all():
        return Takers(owners, rows, None)
    order = np.argsort(owners, kind="stable")
    rows, owners = rows[order], owners[order]
    starts = np.flatnonzero(np.concatenate(([True], owners[1:] != owners[:-1])))
    return Takers(owners[starts], rows, starts)
