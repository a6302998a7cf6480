"""Z-order (Morton) curve over latitude and longitude: nearby places mostly get nearby keys.

```
   63                                  24 23        0
   | latitude and longitude, 20 bits each | the point's |
   | interleaved, longitude first         | own number  |
```
A key denotes a square of about 20 x 40 m at the equator; the point's own number makes keys unique within a square.
The rows of squares at the poles, 20 m high, count as one square each: longitude is meaningless there.
"""

from bisect import bisect_right
from collections.abc import Sequence
from math import acos, pi
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from milepost.matching.columns import column
from milepost.model.areas import Bounds, Cap
from milepost.model.places import Vectors, vectors

BITS: Final = 20
SIDE: Final = 1 << BITS
NUMBER_BITS: Final = 24
KEY_MAX: Final = (1 << 64) - 1

Keys = NDArray[np.uint64]
Stretch = tuple[int, int]
"""Key range: first and last key, inclusive."""

FEW_SQUARES: Final = 4
"""Approximate number of squares per side of a box's cover: more squares exclude more leaves, but take longer to look up."""
FEWER_SQUARES: Final = 2
"""The same, for each of several boxes."""

_DEPTH: Final = 3
"""Maximum subdivisions of a square into quarters to approximate the part that a stretch covers."""
_CAP_SLACK_RAD: Final = 1e-6
_HALF: Final = 10
_TABLE: Final = 1 << _HALF
_ONE: Final = np.uint64(1)


def _spread_table() -> Keys:
    numbers = np.arange(_TABLE, dtype=np.uint64)
    table = np.zeros(_TABLE, np.uint64)
    for bit in range(_HALF):
        table |= ((numbers >> np.uint64(bit)) & np.uint64(1)) << np.uint64(2 * bit + NUMBER_BITS)
    return table


_LOW: Final = _spread_table()
_HIGH: Final = _LOW << np.uint64(2 * _HALF)
_LOW_LIST: Final[list[int]] = _LOW.tolist()
_HIGH_LIST: Final[list[int]] = _HIGH.tolist()


def squares(latitudes: ArrayLike, longitudes: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return column and row of the square of each place, given in degrees."""
    columns = ((np.asarray(longitudes, np.float64) + 180.0) * (SIDE / 360.0)).astype(np.int64) & (SIDE - 1)
    rows = np.minimum(((np.asarray(latitudes, np.float64) + 90.0) * (SIDE / 180.0)).astype(np.int64), SIDE - 1)
    if rows.size and (rows.min() == 0 or rows.max() == SIDE - 1):
        columns[(rows == 0) | (rows == SIDE - 1)] = 0
    return columns, rows


def square_keys(columns: NDArray[np.int64], rows: NDArray[np.int64]) -> Keys:
    """Return the lowest key of each square."""
    keys: Keys = _spread(columns) | (_spread(rows) << _ONE)
    return keys


def keys_of(latitudes: ArrayLike, longitudes: ArrayLike, numbers: NDArray[np.int32]) -> Keys:
    """Return the key of each point: its square, then its own number."""
    keys: Keys = square_keys(*squares(latitudes, longitudes)) | numbers.astype(np.uint64)
    return keys


def stretches_over(boxes: Sequence[Bounds]) -> list[Stretch]:
    """Return sorted, disjoint stretches of the curve that together cover the boxes, by a few squares each."""
    spans = [span for box in boxes for span in _spans(box)]
    if len(spans) == 1:
        return _cover(*spans[0], FEW_SQUARES)
    a_side = FEW_SQUARES if len(boxes) == 1 else FEWER_SQUARES
    return _joined([stretch for span in spans for stretch in _cover(*span, a_side)])


def cap_over(first: int, last: int) -> tuple[Vectors, float]:
    """Return a spherical cap around all places with keys from *first* to *last*: its centre, and its angle in radians."""
    first, last = first >> NUMBER_BITS, last >> NUMBER_BITS
    level = (first ^ last).bit_length() + 1 >> 1  # the smallest square that contains both has 2**level squares per side
    west, south = _unspread(first >> 2 * level << 2 * level)
    boxes = _parts(first, last, level, west, south, _DEPTH)
    west, south = min(box[0] for box in boxes), min(box[1] for box in boxes)
    east, north = max(box[2] for box in boxes), max(box[3] for box in boxes)
    if level > BITS - 3 or south == 0 or north == SIDE:  # too wide to be worth it, or at a pole
        return np.array([0.0, 0.0, 1.0]), pi
    edges = [value * (180.0 / SIDE) - 90.0 for value in (south, north)]
    sides = [value * (360.0 / SIDE) - 180.0 for value in (west, east)]
    middle: Vectors = vectors([sum(edges) / 2], [sum(sides) / 2])[0]
    corners = vectors([*edges, *edges], [sides[0], sides[0], sides[1], sides[1]])
    return middle, acos(max(-1.0, min(1.0, float((corners @ middle).min())))) + _CAP_SLACK_RAD


def _parts(first: int, last: int, level: int, west: int, south: int, depth: int) -> list[tuple[int, int, int, int]]:
    """Return boxes (west, south, east, north) over the part of a square between two positions on the curve."""
    if depth == 0 or level == 0 or last - first + 1 == 1 << 2 * level:
        return [(west, south, west + (1 << level), south + (1 << level))]
    boxes = []
    half = level - 1
    for quarter in range(first >> 2 * half & 3, (last >> 2 * half & 3) + 1):
        start = (first >> 2 * level << 2) + quarter << 2 * half
        end = start + (1 << 2 * half) - 1
        x, y = west + ((quarter & 1) << half), south + ((quarter >> 1) << half)
        boxes += _parts(max(first, start), min(last, end), half, x, y, depth - 1)
    return boxes


def _unspread(square: int) -> tuple[int, int]:
    """Return column and row of a square on the curve."""
    column = row = 0
    for bit in range(BITS):
        column |= (square >> 2 * bit & 1) << bit
        row |= (square >> 2 * bit + 1 & 1) << bit
    return column, row


def _spans(box: Bounds) -> list[tuple[int, int, int, int]]:
    """Return the box as rectangles of squares (west, east, south, north), with a margin of one square against rounding."""
    south = max(0, int((box.south + 90.0) * (SIDE / 180.0)) - 1)
    north = min(SIDE - 1, int((box.north + 90.0) * (SIDE / 180.0)) + 1)
    west = int((box.west + 180.0) * (SIDE / 360.0)) - 1
    east = int((box.east + 180.0) * (SIDE / 360.0)) + 1
    if box.west > box.east:
        east += SIDE
    if east - west >= SIDE - 1:
        west, east = 0, SIDE - 1
    spans = [(west, east, south, north)]
    if west < 0:
        spans = [(0, east, south, north), (SIDE + west, SIDE - 1, south, north)]
    elif east >= SIDE:
        spans = [(west, SIDE - 1, south, north), (0, east - SIDE, south, north)]
    if south == 0:
        spans.append((0, 0, 0, 0))
    if north == SIDE - 1:
        spans.append((0, 0, SIDE - 1, SIDE - 1))
    return spans


def _cover(west: int, east: int, south: int, north: int, a_side: int) -> list[Stretch]:
    """Cover a rectangle with equal squares, about *a_side* per side; return them as sorted stretches, adjacent ones merged."""
    shift = (max(east - west, north - south) // a_side).bit_length()
    low, high = _LOW_LIST, _HIGH_LIST
    columns = [low[x & _TABLE - 1] | high[x >> _HALF] for x in range(west >> shift, (east >> shift) + 1)]
    rows = [(low[y & _TABLE - 1] | high[y >> _HALF]) << 1 for y in range(south >> shift, (north >> shift) + 1)]
    squares = sorted(row | column for row in rows for column in columns)
    stretches = []
    step = 1 << NUMBER_BITS
    first = before = squares[0]
    for square in squares[1:]:
        if square != before + step:
            stretches.append((first << 2 * shift, (before + step << 2 * shift) - 1))
            first = square
        before = square
    stretches.append((first << 2 * shift, (before + step << 2 * shift) - 1))
    return stretches


def _joined(stretches: list[Stretch]) -> list[Stretch]:
    """Sort stretches and merge overlapping ones."""
    stretches.sort()
    joined = stretches[:1]
    for first, last in stretches[1:]:
        before = joined[-1]
        if first > before[1] + 1:
            joined.append((first, last))
        elif last > before[1]:
            joined[-1] = (before[0], last)
    return joined


def _spread(numbers: NDArray[np.int64]) -> Keys:
    """Spread each number's bits over every other bit of a key's upper part."""
    return _LOW.take(numbers & (_TABLE - 1)) | _HIGH.take(numbers >> _HALF)


Leaves = NDArray[np.int32]


class Directory:
    """Partition of the curve into at most `limit` leaves, each owning a stretch; initially leaf `first` owns all of it.

    The low end of every stretch is stored twice, sorted: in an array, to find the leaves of many keys at once, and in a list of
    Python integers, to find the few stretches of one search, where a numpy call costs more than the search itself.
    """

    def __init__(self, limit: int, first: int) -> None:
        self._lows = [0]
        self._low_keys = column(limit, np.uint64)
        self._leaves = column(limit, np.int32)
        self._leaves[0] = first
        self.low: Keys = column(limit, np.uint64)
        self.high: Keys = column(limit, np.uint64)
        """Last key that each leaf owns; `low` is the first."""
        self.high[first] = KEY_MAX
        self._middle = column(limit, np.float64, 3)
        self._reach = column(limit, np.float64)
        self._reach[: first + 1] = pi

    def __len__(self) -> int:
        return len(self._lows)

    def leaves_of(self, keys: Keys) -> Leaves:
        """Return the leaf that owns each key."""
        leaves: Leaves = self._leaves[np.searchsorted(self._low_keys[: len(self._lows)], keys, side="right") - 1]
        return leaves

    def spans_over(self, stretches: list[Stretch]) -> list[Leaves]:
        """Return the leaves that intersect sorted stretches, each leaf once, in slices."""
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
        """Return those of the leaves entirely inside a cap, and those that may intersect it; the others are dropped."""
        angles = np.arccos(np.clip(self._middle.take(leaves, axis=0) @ cap.centre, -1.0, 1.0))
        reaches = self._reach.take(leaves)
        is_inside = angles + reaches < cap.angle_rad
        is_near = angles - reaches <= cap.angle_rad
        return leaves[is_inside], leaves[is_near & ~is_inside]

    def neighbours(self, leaf: int) -> list[tuple[int, int]]:
        """Return the pairs (leaf, next leaf) and (previous leaf, leaf), as far as they exist."""
        at = self._position(leaf)
        pairs = [(left, left + 1) for left in (at, at - 1) if left >= 0 and left + 1 < len(self)]
        return [(int(self._leaves[left]), int(self._leaves[right])) for left, right in pairs]

    def cut(self, leaf: int, lows: Keys, made: list[int]) -> None:
        """Split the stretch of a leaf at each of `lows`; the leaves `made` own the parts after each split."""
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
        """Merge the stretch of leaf *right* into the leaf *left* before it."""
        at = self._position(right)
        size = len(self)
        for array in (self._low_keys, self._leaves):
            array[at : size - 1] = array[at + 1 : size].copy()
        del self._lows[at]
        self.high[left] = self.high[right]
        self.low[right], self.high[right] = KEY_MAX, 0
        self._bound(left)

    def owns(self, leaf: int) -> bool:
        """Whether a leaf owns a stretch."""
        return bool(self.low[leaf] <= self.high[leaf])

    def _bound(self, leaf: int) -> None:
        """Update the bounding cap of a leaf."""
        self._middle[leaf], self._reach[leaf] = cap_over(int(self.low[leaf]), int(self.high[leaf]))

    def _position(self, leaf: int) -> int:
        return bisect_right(self._lows, int(self.low[leaf])) - 1
