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
KeyRange = tuple[int, int]
"""Key range: first and last key, inclusive."""

SQUARES_PER_SIDE: Final = 4
"""Approximate number of squares per side of a box's cover: more squares exclude more leaves, but take longer to look up."""
SQUARES_PER_SIDE_OF_MANY: Final = 2
"""The same, for each of several boxes."""

_DEPTH: Final = 3
"""Maximum subdivisions of a square into quarters to approximate the part that a key range covers."""
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
    keys: Keys = _interleave(columns) | (_interleave(rows) << _ONE)
    return keys


def keys_of(latitudes: ArrayLike, longitudes: ArrayLike, numbers: NDArray[np.int32]) -> Keys:
    """Return the key of each point: its square, then its own number."""
    keys: Keys = square_keys(*squares(latitudes, longitudes)) | numbers.astype(np.uint64)
    return keys


def key_ranges_over(boxes: Sequence[Bounds]) -> list[KeyRange]:
    """Return sorted, disjoint key ranges of the curve that together cover the boxes, by a few squares each."""
    rectangles = [rectangle for box in boxes for rectangle in _rectangles(box)]
    if len(rectangles) == 1:
        return _cover(*rectangles[0], SQUARES_PER_SIDE)
    squares_per_side = SQUARES_PER_SIDE if len(boxes) == 1 else SQUARES_PER_SIDE_OF_MANY
    return _merge_ranges([key_range for rectangle in rectangles for key_range in _cover(*rectangle, squares_per_side)])


def cap_over(first: int, last: int) -> tuple[Vectors, float]:
    """Return a spherical cap around all places with keys from *first* to *last*: its centre, and its angle in radians."""
    first, last = first >> NUMBER_BITS, last >> NUMBER_BITS
    level = (first ^ last).bit_length() + 1 >> 1  # the smallest square that contains both has 2**level squares per side
    west, south = _deinterleave(first >> 2 * level << 2 * level)
    boxes = _covering_boxes(first, last, level, west, south, _DEPTH)
    west, south = min(box[0] for box in boxes), min(box[1] for box in boxes)
    east, north = max(box[2] for box in boxes), max(box[3] for box in boxes)
    if level > BITS - 3 or south == 0 or north == SIDE:  # too wide to be worth it, or at a pole
        return np.array([0.0, 0.0, 1.0]), pi
    edges = [value * (180.0 / SIDE) - 90.0 for value in (south, north)]
    sides = [value * (360.0 / SIDE) - 180.0 for value in (west, east)]
    centre: Vectors = vectors([sum(edges) / 2], [sum(sides) / 2])[0]
    corners = vectors([*edges, *edges], [sides[0], sides[0], sides[1], sides[1]])
    return centre, acos(max(-1.0, min(1.0, float((corners @ centre).min())))) + _CAP_SLACK_RAD


def _covering_boxes(first: int, last: int, level: int, west: int, south: int, depth: int) -> list[tuple[int, int, int, int]]:
    """Return boxes (west, south, east, north) over the part of a square between two positions on the curve."""
    if depth == 0 or level == 0 or last - first + 1 == 1 << 2 * level:
        return [(west, south, west + (1 << level), south + (1 << level))]
    boxes = []
    half = level - 1
    for quarter in range(first >> 2 * half & 3, (last >> 2 * half & 3) + 1):
        start = (first >> 2 * level << 2) + quarter << 2 * half
        end = start + (1 << 2 * half) - 1
        x, y = west + ((quarter & 1) << half), south + ((quarter >> 1) << half)
        boxes += _covering_boxes(max(first, start), min(last, end), half, x, y, depth - 1)
    return boxes


def _deinterleave(square: int) -> tuple[int, int]:
    """Return column and row of a square on the curve."""
    column = row = 0
    for bit in range(BITS):
        column |= (square >> 2 * bit & 1) << bit
        row |= (square >> 2 * bit + 1 & 1) << bit
    return column, row


def _rectangles(box: Bounds) -> list[tuple[int, int, int, int]]:
    """Return the box as rectangles of squares (west, east, south, north), with a margin of one square against rounding."""
    south = max(0, int((box.south + 90.0) * (SIDE / 180.0)) - 1)
    north = min(SIDE - 1, int((box.north + 90.0) * (SIDE / 180.0)) + 1)
    west = int((box.west + 180.0) * (SIDE / 360.0)) - 1
    east = int((box.east + 180.0) * (SIDE / 360.0)) + 1
    if box.west > box.east:
        east += SIDE
    if east - west >= SIDE - 1:
        west, east = 0, SIDE - 1
    rectangles = [(west, east, south, north)]
    if west < 0:
        rectangles = [(0, east, south, north), (SIDE + west, SIDE - 1, south, north)]
    elif east >= SIDE:
        rectangles = [(west, SIDE - 1, south, north), (0, east - SIDE, south, north)]
    if south == 0:
        rectangles.append((0, 0, 0, 0))
    if north == SIDE - 1:
        rectangles.append((0, 0, SIDE - 1, SIDE - 1))
    return rectangles


def _cover(west: int, east: int, south: int, north: int, squares_per_side: int) -> list[KeyRange]:
    """Cover a rectangle with equal squares, about *squares_per_side*; return them as sorted, merged key ranges."""
    shift = (max(east - west, north - south) // squares_per_side).bit_length()
    low, high = _LOW_LIST, _HIGH_LIST
    columns = [low[x & _TABLE - 1] | high[x >> _HALF] for x in range(west >> shift, (east >> shift) + 1)]
    rows = [(low[y & _TABLE - 1] | high[y >> _HALF]) << 1 for y in range(south >> shift, (north >> shift) + 1)]
    squares = sorted(row | column for row in rows for column in columns)
    ranges = []
    step = 1 << NUMBER_BITS
    first = previous = squares[0]
    for square in squares[1:]:
        if square != previous + step:
            ranges.append((first << 2 * shift, (previous + step << 2 * shift) - 1))
            first = square
        previous = square
    ranges.append((first << 2 * shift, (previous + step << 2 * shift) - 1))
    return ranges


def _merge_ranges(ranges: list[KeyRange]) -> list[KeyRange]:
    """Sort key ranges and merge overlapping ones."""
    ranges.sort()
    merged = ranges[:1]
    for first, last in ranges[1:]:
        previous = merged[-1]
        if first > previous[1] + 1:
            merged.append((first, last))
        elif last > previous[1]:
            merged[-1] = (previous[0], last)
    return merged


def _interleave(numbers: NDArray[np.int64]) -> Keys:
    """Spread each number's bits over every other bit of a key's upper part."""
    return _LOW.take(numbers & (_TABLE - 1)) | _HIGH.take(numbers >> _HALF)


Leaves = NDArray[np.int32]


class LeafDirectory:
    """Partition of the curve into at most `limit` leaves, each owning a key range; initially leaf `first` owns all of it.

    The low end of every range is stored twice, sorted: in an array, to find the leaves of many keys at once, and in a list of
    Python integers, to find the few ranges of one search, where a numpy call costs more than the search itself.
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
        self._centre = column(limit, np.float64, 3)
        self._radius_rad = column(limit, np.float64)
        self._radius_rad[: first + 1] = pi

    def __len__(self) -> int:
        return len(self._lows)

    def leaves_of(self, keys: Keys) -> Leaves:
        """Return the leaf that owns each key."""
        leaves: Leaves = self._leaves[np.searchsorted(self._low_keys[: len(self._lows)], keys, side="right") - 1]
        return leaves

    def leaves_over(self, ranges: list[KeyRange]) -> list[Leaves]:
        """Return the leaves that intersect sorted key ranges, each leaf once, in slices."""
        found = []
        done = 0
        for first, last in ranges:
            start = max(bisect_right(self._lows, first, done) - 1, done)
            end = bisect_right(self._lows, last, start)
            if end > start:
                found.append(self._leaves[start:end])
                done = end
        return found

    def classify(self, leaves: Leaves, cap: Cap) -> tuple[Leaves, Leaves]:
        """Return those of the leaves entirely inside a cap, and those that may intersect it; the others are dropped."""
        angles = np.arccos(np.clip(self._centre.take(leaves, axis=0) @ cap.centre, -1.0, 1.0))
        radii = self._radius_rad.take(leaves)
        is_inside = angles + radii < cap.angle_rad
        is_near = angles - radii <= cap.angle_rad
        return leaves[is_inside], leaves[is_near & ~is_inside]

    def neighbours(self, leaf: int) -> list[tuple[int, int]]:
        """Return the pairs (leaf, next leaf) and (previous leaf, leaf), as far as they exist."""
        at = self._position(leaf)
        pairs = [(left, left + 1) for left in (at, at - 1) if left >= 0 and left + 1 < len(self)]
        return [(int(self._leaves[left]), int(self._leaves[right])) for left, right in pairs]

    def split(self, leaf: int, lows: Keys, new_leaves: list[int]) -> None:
        """Split the range of a leaf at each of `lows`; the leaves `new_leaves` own the parts after each split."""
        at = self._position(leaf) + 1
        size, more = len(self), len(new_leaves)
        for array in (self._low_keys, self._leaves):
            array[at + more : size + more] = array[at:size].copy()
        self._low_keys[at : at + more] = lows
        self._leaves[at : at + more] = new_leaves
        self._lows[at:at] = lows.tolist()
        self.low[new_leaves] = lows
        self.high[[leaf, *new_leaves]] = np.append(lows - np.uint64(1), self.high[leaf])
        for changed in (leaf, *new_leaves):
            self._bound(changed)

    def merge(self, left: int, right: int) -> None:
        """Merge the range of leaf *right* into the leaf *left* before it."""
        at = self._position(right)
        size = len(self)
        for array in (self._low_keys, self._leaves):
            array[at : size - 1] = array[at + 1 : size].copy()
        del self._lows[at]
        self.high[left] = self.high[right]
        self.low[right], self.high[right] = KEY_MAX, 0
        self._bound(left)

    def owns(self, leaf: int) -> bool:
        """Whether a leaf owns a key range."""
        return bool(self.low[leaf] <= self.high[leaf])

    def _bound(self, leaf: int) -> None:
        """Update the bounding cap of a leaf."""
        self._centre[leaf], self._radius_rad[leaf] = cap_over(int(self.low[leaf]), int(self.high[leaf]))

    def _position(self, leaf: int) -> int:
        return bisect_right(self._lows, int(self.low[leaf])) - 1
