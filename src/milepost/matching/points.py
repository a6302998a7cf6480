"""Spatial index of moving points: find the points inside an area.

Points lie along a space-filling curve (`curve`), split into leaves of at most 64, each owning a key range of the curve:

    directory   low key  |  0 ... | 41 ... | 77 ... |      sorted; one entry per leaf
                leaf     |    3   |   0    |   7    |
    leaf 0      [p p . p p . . . ]                         64 slots: number (-1: hole), unit vector, key

A point that leaves its leaf first goes to the insert buffer: a few leaves outside the directory that every search scans. When
the buffer is full, all its points are moved to their leaves at once.

Invariants:
- the key ranges of the directory's leaves partition the whole curve, without gap or overlap;
- a point is in the leaf whose range contains its key, or in the buffer; `_slot_of` has its slot;
- `_counts[leaf]` of a leaf's slots are points, the others holes.

A full leaf is split, a sparse one merged with its neighbour: work on a few leaves, never on all of them.
This module must not know what a point represents (an endpoint, or the centre of a subscription's area).
"""

from math import pi
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from milepost.matching.columns import column
from milepost.matching.z_order import KEY_MAX, NUMBER_BITS, Keys, LeafDirectory, key_ranges_over, keys_of
from milepost.model.areas import Area, Cap, Circle
from milepost.model.areas.circle import SMALL_RAD
from milepost.model.places import Vectors, vectors
from milepost.model.reasons import Malformed, Reason

LEAF: Final = 64
_LEAF_BITS: Final = 6
_SPLIT_SIZE: Final = 46
"""Approximate number of points per leaf after a split; at least 32."""
_MERGED_MAX: Final = 40
"""Maximum points of two neighbours together for a merge."""
_SPARSE: Final = 32
"""Number of points below which a leaf that has lost some becomes a candidate for a merge."""
_MOVES_PER_CHECK: Final = 8
"""Points that leave their leaves per additional sparse leaf checked; each batch checks at least one."""
_POINTS_PER_LEAF_MIN: Final = 16
"""Minimum average of points per leaf, at the limit: with more leaves, all sparse ones are checked before further splits."""
_CAP_SLACK_RAD: Final = 1e-7
"""Search margin around an area's cap (0.6 m), where the area itself tests the candidates anyway."""
_BUFFER_LEAVES: Final = 8
"""Number of leaves of the insert buffer, the first ones."""
_BUFFER_SLOTS: Final = _BUFFER_LEAVES * LEAF
MANY_LEAVES: Final = 128
"""Number of leaves beyond which filtering them by the area's cap first pays off."""

Numbers = NDArray[np.int32]
Slots = NDArray[np.signedinteger]

_NO_POINTS: Final[Numbers] = np.empty(0, np.int32)


class PointIndex:
    """Points by number, from 0 to below `limit`; moved in batches, found by area."""

    def __init__(self, limit: int) -> None:
        assert limit <= 1 << NUMBER_BITS, f"keys distinguish {1 << NUMBER_BITS} points"
        self._limit = limit
        # Merging leaves over 20 points per leaf, splitting at least 32: this many leaves never run out.
        leaves = limit // _POINTS_PER_LEAF_MIN + limit // 32 + 64 + _BUFFER_LEAVES
        self._numbers = column(leaves, np.int32, LEAF)
        self._vectors = column(leaves, np.float64, 3, LEAF)  # of each leaf all x, then all y, then all z
        self._keys = column(leaves, np.uint64, LEAF)
        self._counts = column(leaves, np.int16)
        self._directory = LeafDirectory(leaves, _BUFFER_LEAVES)
        self._slot_of = column(limit, np.int32)  # slot + 1, so that zeroed memory means unknown
        self._free: list[int] = []
        self._leaves_allocated = _BUFFER_LEAVES + 1
        self._buffer = np.arange(_BUFFER_LEAVES, dtype=np.int32)
        self._buffer_fill = 0
        self._sparse: set[int] = set()
        self._count = 0
        self._numbers[: _BUFFER_LEAVES + 1] = -1
        self._directory.low[:_BUFFER_LEAVES] = KEY_MAX  # no key stays in the buffer

    def __len__(self) -> int:
        return self._count

    def move(self, numbers: ArrayLike, latitudes: ArrayLike, longitudes: ArrayLike) -> None:
        """Set the position of each point, new or known; of several moves of one point the last counts.

        A batch with a number or a coordinate out of range is refused as a whole.
        """
        points = self._checked(numbers)
        north, east = _degrees("latitude", latitudes, 90.0), _degrees("longitude", longitudes, 180.0)
        assert points.size == north.size == east.size, "each point has a latitude and a longitude"
        keys = keys_of(north, east, points)
        positions = vectors(north, east)
        if _has_duplicates(points):
            _, last = np.unique(points[::-1], return_index=True)
            last = points.size - 1 - last
            points, keys, positions = points[last], keys[last], positions[last]
        slots = self._slot_of.take(points) - np.intp(1)
        leaves = slots >> _LEAF_BITS
        low, high = self._directory.low, self._directory.high
        leaving = np.flatnonzero((slots < 0) | (low.take(leaves) > keys) | (keys > high.take(leaves)))
        if leaving.size < points.size:
            known = slice(None) if slots.min() >= 0 else slots >= 0
            # leaving points too: their old slots are cleared below
            self._write_positions(slots[known], keys[known], positions[known])
        if leaving.size:
            self._clear(slots[leaving])
            self._add(points[leaving], keys[leaving], positions[leaving])
            self._merge_sparse(1 + leaving.size // _MOVES_PER_CHECK)

    def remove(self, numbers: ArrayLike) -> None:
        """Remove points; unknown ones are ignored."""
        points = np.unique(self._checked(numbers))
        slots = self._slot_of.take(points) - np.intp(1)
        self._clear(slots)
        self._slot_of[points] = 0
        self._merge_sparse(1 + slots.size // _MOVES_PER_CHECK)

    def inside(self, area: Area) -> Numbers:
        """Return the numbers of all points inside an area, unordered."""
        cap = area.cap
        is_circle = isinstance(area, Circle) and cap.angle_rad > SMALL_RAD
        leaves = self._leaves_over(area)
        whole = _NO_POINTS
        if leaves.size > MANY_LEAVES:
            within, leaves = self._directory.classify(leaves, cap)
            if is_circle:
                whole = self._numbers.take(within, axis=0)
                whole = whole[whole >= 0]
            else:
                leaves = np.concatenate((within, leaves))
        numbers = self._numbers.take(leaves, axis=0)
        cosine_min = cap.cosine if is_circle else Cap(cap.centre, min(pi, cap.angle_rad + _CAP_SLACK_RAD)).cosine
        is_near = cap.centre @ self._vectors.take(leaves, axis=0) >= cosine_min
        is_near &= numbers >= 0
        if is_circle:
            return np.concatenate((whole, numbers[is_near]))
        row, at = np.nonzero(is_near)
        near: Numbers = numbers[row, at]
        return near[area.contains(self._vectors_at(leaves[row] * LEAF + at))]

    def positions_of(self, numbers: Numbers) -> tuple[NDArray[np.bool_], Vectors]:
        """Return for each number whether its position is known, and the position (meaningless if unknown)."""
        slots = self._slot_of.take(numbers) - np.intp(1)
        return slots >= 0, self._vectors_at(slots)

    def _checked(self, numbers: ArrayLike) -> Numbers:
        points = np.asarray(numbers)
        if points.size and not 0 <= int(points.min()) <= int(points.max()) < self._limit:
            raise Malformed(Reason.ENDPOINTS_FULL, f"endpoint numbers are 0 to {self._limit - 1}")
        return points.astype(np.int32, copy=False)

    def _leaves_over(self, area: Area) -> NDArray[np.int32]:
        """Return the leaves that may have points inside an area, those in use in the buffer first."""
        spans = self._directory.leaves_over(key_ranges_over(area.boxes))
        return np.concatenate([self._buffer[: -(-self._buffer_fill // LEAF)], *spans])

    def _write(self, slots: Slots, points: Numbers, keys: Keys, positions: Vectors) -> None:
        self._numbers.reshape(-1)[slots] = points
        self._write_positions(slots, keys, positions)

    def _write_positions(self, slots: Slots, keys: Keys, positions: Vectors) -> None:
        self._keys.reshape(-1)[slots] = keys
        vectors, at = self._vectors.reshape(-1), _x_index_of(slots)
        for component in positions.T:
            vectors[at] = component
            at += LEAF

    def _vectors_at(self, slots: Slots) -> Vectors:
        vectors, at = self._vectors.reshape(-1), _x_index_of(slots)
        return np.stack([vectors.take(at), vectors.take(at + LEAF), vectors.take(at + 2 * LEAF)]).T

    def _clear(self, slots: Slots) -> None:
        """Clear the slots of points; a slot below 0 belongs to a point not known yet."""
        slots = slots[slots >= 0]
        self._numbers.reshape(-1)[slots] = -1
        self._count -= slots.size
        leaves = slots[slots >= _BUFFER_SLOTS] >> _LEAF_BITS
        np.subtract.at(self._counts, leaves, np.int16(1))
        self._sparse.update(leaves[self._counts[leaves] < _SPARSE].tolist())

    def _add(self, points: Numbers, keys: Keys, positions: Vectors) -> None:
        """Add points to the buffer; when it is full, move its points and the new ones to their leaves."""
        self._count += points.size
        first = self._buffer_fill
        if first + points.size <= _BUFFER_SLOTS:
            slots = np.arange(first, first + points.size, dtype=np.int32)
            self._write(slots, points, keys, positions)
            self._slot_of[points] = slots + 1
            self._buffer_fill += points.size
            return
        buffered = np.flatnonzero(self._numbers[:_BUFFER_LEAVES].reshape(-1) >= 0)
        points = np.concatenate((self._numbers[:_BUFFER_LEAVES].reshape(-1)[buffered], points))
        keys = np.concatenate((self._keys[:_BUFFER_LEAVES].reshape(-1)[buffered], keys))
        positions = np.concatenate((self._vectors_at(buffered), positions))
        self._numbers[:_BUFFER_LEAVES] = -1
        self._buffer_fill = 0
        self._insert(points, keys, positions)

    def _insert(self, points: Numbers, keys: Keys, positions: Vectors) -> None:
        """Insert points into the holes of leaves with enough of them; split the other leaves one by one."""
        if len(self._directory) > self._limit // _POINTS_PER_LEAF_MIN + 32:
            self._merge_sparse(len(self._sparse))
        leaf_of = self._directory.leaves_of(keys)
        order = np.argsort(leaf_of, kind="stable")
        leaf_of, points, keys, positions = leaf_of[order], points[order], keys[order], positions[order]
        starts = np.flatnonzero(np.concatenate(([True], leaf_of[1:] != leaf_of[:-1])))
        counts = np.diff(np.append(starts, leaf_of.size))
        leaves = leaf_of[starts]
        has_room = self._counts[leaves] + counts <= LEAF
        easy = np.repeat(has_room, counts)
        slots = self._take_holes(leaves[has_room], counts[has_room])
        self._write(slots, points[easy], keys[easy], positions[easy])
        self._slot_of[points[easy]] = slots + 1
        for index in np.flatnonzero(~has_room):
            new = slice(starts[index], starts[index] + counts[index])
            self._rewrite(int(leaves[index]), points[new], keys[new], positions[new])

    def _take_holes(self, leaves: NDArray[np.int32], counts: NDArray[np.intp]) -> Slots:
        """Return slots for *counts* new points in each of the leaves, leaf by leaf."""
        _, holes = np.nonzero(self._numbers.take(leaves, axis=0) < 0)
        first_hole = np.cumsum(LEAF - self._counts[leaves]) - (LEAF - self._counts[leaves])
        first_point = np.cumsum(counts) - counts
        taken = np.arange(int(counts.sum())) + np.repeat(first_hole - first_point, counts)
        self._counts[leaves] += counts.astype(np.int16)
        slots: Slots = np.repeat(leaves * np.intp(LEAF), counts) + holes[taken]
        return slots

    def _rewrite(self, leaf: int, points: Numbers, keys: Keys, positions: Vectors) -> None:
        """Insert points into a leaf, split into as many leaves as necessary."""
        is_live = self._numbers[leaf] >= 0
        points = np.concatenate((self._numbers[leaf][is_live], points))
        keys = np.concatenate((self._keys[leaf][is_live], keys))
        positions = np.concatenate((self._vectors[leaf][:, is_live].T, positions))
        order = np.argsort(keys)
        points, keys, positions = points[order], keys[order], positions[order]
        parts = 1 if points.size <= LEAF else -(-points.size // _SPLIT_SIZE)
        cuts = [points.size * part // parts for part in range(parts + 1)]
        leaves = [leaf, *self._new_leaves(leaf, keys[cuts[1:-1]])]
        for part, target in enumerate(leaves):
            piece = slice(cuts[part], cuts[part + 1])
            size = cuts[part + 1] - cuts[part]
            slots = target * LEAF + np.arange(size, dtype=np.int32)
            self._numbers[target] = -1
            self._write(slots, points[piece], keys[piece], positions[piece])
            self._slot_of[points[piece]] = slots + 1
            self._counts[target] = size

    def _new_leaves(self, leaf: int, lows: Keys) -> list[int]:
        """Split the range of a leaf at `lows`; return the new leaves, which own the parts after each split."""
        if not lows.size:
            return []
        made = [self._take_leaf() for _ in range(lows.size)]
        self._directory.split(leaf, lows, made)
        return made

    def _take_leaf(self) -> int:
        if self._free:
            return self._free.pop()
        assert self._leaves_allocated < len(self._counts), "there are always leaves left"
        self._leaves_allocated += 1
        return self._leaves_allocated - 1

    def _merge_sparse(self, limit: int) -> None:
        """Merge up to *limit* sparse leaves with the next or previous leaf."""
        for _ in range(min(limit, len(self._sparse))):
            leaf = self._sparse.pop()
            if not self._directory.owns(leaf) or self._counts[leaf] >= _SPARSE:
                continue
            for left, right in self._directory.neighbours(leaf):
                if self._counts[left] + self._counts[right] <= _MERGED_MAX:
                    self._merge(left, right)
                    break

    def _merge(self, left: int, right: int) -> None:
        """Move the points of leaf *right* into the leaf *left* before it."""
        self._directory.merge(left, right)
        is_live = self._numbers[right] >= 0
        points, keys, positions = self._numbers[right][is_live], self._keys[right][is_live], self._vectors[right][:, is_live].T
        self._counts[right] = 0
        self._numbers[right] = -1
        self._free.append(right)
        self._rewrite(left, points, keys, positions)


def _degrees(name: str, values: ArrayLike, limit: float) -> NDArray[np.float64]:
    degrees = np.asarray(values, np.float64)
    if degrees.size and not np.abs(degrees).max() <= limit:  # also catches NaN
        wrong = int(np.flatnonzero(~(np.abs(degrees) <= limit))[0])
        raise Malformed(
            Reason.COORDINATE_RANGE, f"{name} {wrong} of {degrees.size} is {degrees[wrong]}, not in -{limit:g}..{limit:g}"
        )
    return degrees


def _x_index_of(slots: Slots) -> NDArray[np.intp]:
    """Return the index of a slot's x among the vectors; y and z follow at distances of `LEAF` and twice `LEAF`."""
    return (slots >> _LEAF_BITS) * np.intp(3 * LEAF) + (slots & LEAF - 1)


def _has_duplicates(numbers: Numbers) -> bool:
    ordered = np.sort(numbers)
    return bool((ordered[1:] == ordered[:-1]).any())
