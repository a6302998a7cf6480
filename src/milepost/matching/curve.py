"""The curve through all places: nearby places mostly get nearby keys.

```
   63                                  20 19          0
   | latitude and longitude, 22 bits each | number, low |
   | interleaved, longitude first         | 20 bits     |
```
A key names a square of about 5 x 10 m; the low bits of the point's own number keep keys apart where many share a square.
The rows of squares at the poles, 5 m high, count as one square each: there, longitude says nothing.
"""

from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from milepost.model.areas import Bounds

BITS: Final = 22
SIDE: Final = 1 << BITS
NUMBER_BITS: Final = 20
KEY_MAX: Final = (1 << 64) - 1

Keys = NDArray[np.uint64]

_HALF: Final = 11
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


def squares(latitudes: ArrayLike, longitudes: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Column and row of the square that holds each place, given in degrees."""
    columns = ((np.asarray(longitudes, np.float64) + 180.0) * (SIDE / 360.0)).astype(np.int64) & (SIDE - 1)
    rows = np.minimum(((np.asarray(latitudes, np.float64) + 90.0) * (SIDE / 180.0)).astype(np.int64), SIDE - 1)
    columns[(rows == 0) | (rows == SIDE - 1)] = 0
    return columns, rows


def square_keys(columns: NDArray[np.int64], rows: NDArray[np.int64]) -> Keys:
    """The lowest key of each square."""
    keys: Keys = _spread(columns) | (_spread(rows) << _ONE)
    return keys


def keys_of(latitudes: ArrayLike, longitudes: ArrayLike, numbers: NDArray[np.int32]) -> Keys:
    """The key of each point: its square, then the low bits of its own number."""
    keys: Keys = square_keys(*squares(latitudes, longitudes)) | (numbers & ((1 << NUMBER_BITS) - 1)).astype(np.uint64)
    return keys


def key_ranges(box: Bounds, *, squares_a_side: int) -> tuple[Keys, Keys]:
    """First and last key of stretches of the curve, sorted and apart, that together cover a box."""
    spans = _spans(box)
    if len(spans) == 1:
        return _cover(*spans[0], squares_a_side)
    covers = [_cover(*span, squares_a_side) for span in spans]
    first = np.concatenate([low for low, _ in covers])
    order = np.argsort(first)
    last = np.concatenate([high for _, high in covers])[order]
    return first[order], np.maximum.accumulate(last)  # spans may overlap at a pole


def _spans(box: Bounds) -> list[tuple[int, int, int, int]]:
    """The box as rectangles of squares (west, east, south, north), a square wider all around so that rounding cuts nothing off."""
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


def _cover(west: int, east: int, south: int, north: int, a_side: int) -> tuple[Keys, Keys]:
    """Squares of one size over a rectangle, those that follow each other on the curve taken together."""
    shift = (max(east - west, north - south) // a_side).bit_length()
    columns = _spread(np.arange(west >> shift, (east >> shift) + 1))
    rows = _spread(np.arange(south >> shift, (north >> shift) + 1)) << _ONE
    first = (rows[:, None] | columns).reshape(-1) << np.uint64(2 * shift)
    first.sort()
    after = first + np.uint64(1 << (2 * shift + NUMBER_BITS))
    is_cut = first[1:] != after[:-1]
    starts = np.concatenate((first[:1], first[1:][is_cut]))
    ends = np.concatenate((after[:-1][is_cut], after[-1:]))
    return starts, ends - _ONE


def _spread(numbers: NDArray[np.int64]) -> Keys:
    """Each number's bits moved to every other place of a key's upper part."""
    return _LOW.take(numbers & (_TABLE - 1)) | _HIGH.take(numbers >> _HALF)
