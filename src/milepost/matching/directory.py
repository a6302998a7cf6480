"""The directory of leaves: which leaf owns which stretch of the curve.

The low end of every stretch is kept twice, sorted: in an array, to find the leaves of many keys at once, and in a list of
Python's own integers, to find the few stretches of one search, where calling numpy costs more than the search itself.
"""

from bisect import bisect_right
from math import pi

import numpy as np
from numpy.typing import NDArray

from milepost.matching.columns import column
from milepost.matching.curve import KEY_MAX, Keys, Stretch, cap_over
from milepost.model.areas import Cap

Leaves = NDArray[np.int32]


class Directory:
    """At most `limit` leaves that together own the whole curve; at first the leaf `first` owns all of it."""

    def __init__(self, limit: int, first: int) -> None:
        self._lows = [0]
        self._low_keys = column(limit, np.uint64)
        self._leaves = column(limit, np.int32)
        self._leaves[0] = first
        self.low: Keys = column(limit, np.uint64)
        self.high: Keys = column(limit, np.uint64)
        """First and last key that each leaf owns."""
        self.high[first] = KEY_MAX
        self._middle = column(limit, np.float64, 3)
        self._reach = column(limit, np.float64)
        self._reach[: first + 1] = pi

    def __len__(self) -> int:
        return len(self._lows)

    def leaves_of(self, keys: Keys) -> Leaves:
        """The leaf that owns each key."""
        leaves: Leaves = self._leaves[np.searchsorted(self._low_keys[: len(self._lows)], keys, side="right") - 1]
        return leaves

    def spans_over(self, stretches: list[Stretch]) -> list[Leaves]:
        """The leaves that own a part of sorted stretches, in pieces; each leaf once."""
        found = []
        done = 0
        for first, last in stretches:
            start = max(bisect_right(self._lows, first, done) - 1, done)
            end = bisect_right(self._lows, last, start)
            if end > start:
                found.append(self._leaves[start:end])
                done = end
        return found

    def sorted_out(self, leaves: Leaves, cap: Cap) -> tuple[Leaves, Leaves]:
        """Of some leaves those that lie in a cap as a whole, and those that may have a part of it; the others are left out."""
        angles = np.arccos(np.clip(self._middle.take(leaves, axis=0) @ cap.centre, -1.0, 1.0))
        reaches = self._reach.take(leaves)
        is_inside = angles + reaches < cap.angle_rad
        is_near = angles - reaches <= cap.angle_rad
        return leaves[is_inside], leaves[is_near & ~is_inside]

    def neighbours(self, leaf: int) -> list[tuple[int, int]]:
        """The leaf with the one after it, and the one before it with the leaf."""
        at = self._position(leaf)
        pairs = [(left, left + 1) for left in (at, at - 1) if left >= 0 and left + 1 < len(self)]
        return [(int(self._leaves[left]), int(self._leaves[right])) for left, right in pairs]

    def cut(self, leaf: int, lows: Keys, made: list[int]) -> None:
        """Cut the stretch of a leaf at each of `lows`; the leaves `made` own what follows each cut."""
        at = self._position(leaf) + 1
        size, more = len(self), len(made)
        for array in (self._low_keys, self._leaves):
            array[at + more : size + more] = array[at:size].copy()
        self._low_keys[at : at + more] = lows
        self._leaves[at : at + more] = made
        self._lows[at:at] = lows.tolist()
        self.low[made] = lows
        self.high[[leaf, *made]] = np.append(lows - np.uint64(1), self.high[leaf])
        for changed in (leaf, *made):
            self._bound(changed)

    def join(self, left: int, right: int) -> None:
        """Give the stretch of a leaf to the leaf before it."""
        at = self._position(right)
        size = len(self)
        for array in (self._low_keys, self._leaves):
            array[at : size - 1] = array[at + 1 : size].copy()
        del self._lows[at]
        self.high[left] = self.high[right]
        self.low[right], self.high[right] = KEY_MAX, 0
        self._bound(left)

    def owns(self, leaf: int) -> bool:
        """Whether a leaf owns anything."""
        return bool(self.low[leaf] <= self.high[leaf])

    def _bound(self, leaf: int) -> None:
        """Note where on the Earth the stretch of a leaf lies."""
        self._middle[leaf], self._reach[leaf] = cap_over(int(self.low[leaf]), int(self.high[leaf]))

    def _position(self, leaf: int) -> int:
        return bisect_right(self._lows, int(self.low[leaf])) - 1
