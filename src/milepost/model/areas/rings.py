"""Rings: closed rows of arcs that neither cross nor touch themselves or each other.

Rules of this file:
- the pairs of edges are looked at in blocks; a cheap test on all pairs leaves a few for the precise one;
- two edges meet where they cross, or come within `TOUCH_RAD` of each other, except that neighbours share their corner.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from milepost.model.areas.arcs import TOUCH_RAD, Angles, Arcs, Rows, arcs_along, blocks, check_steps, distances_rad, vectors_of
from milepost.model.places import Flags, Place, Vectors
from milepost.model.reasons import Malformed, Reason

Ring = tuple[Place, ...]
"""Places around an area, the first again as the last."""

RING_POINTS_MIN: Final = 4
_BLUR: Final = 1e-13
"""Rounding of a squared distance made from a scalar product, with room to spare."""


def check_ring(ring: Ring, name: str) -> None:
    """Refuse a ring of too few points, or one that is not closed."""
    if len(ring) < RING_POINTS_MIN:
        raise Malformed(Reason.AREA_RING, f"{name} has {len(ring)} points, fewer than {RING_POINTS_MIN}")
    if ring[0] != ring[-1]:
        raise Malformed(Reason.AREA_RING, f"{name} begins at {_told(ring[0])} but ends at {_told(ring[-1])}")


def arcs_of_ring(ring: Ring, name: str) -> Arcs:
    """The edges of a ring that is a ring; whether they meet is not looked at."""
    check_ring(ring, name)
    points = vectors_of(ring)
    check_steps(points, Reason.AREA_RING, name)
    _check_is_not_flat(points, name)
    return arcs_along(points)


def joined(rings: list[Arcs]) -> Arcs:
    """The edges of all rings in a row."""
    return Arcs(*(np.concatenate([getattr(ring, name) for ring in rings]) for name in ("starts", "ends", "normals")))


def maybe_meeting(arcs: Arcs, following: Rows) -> tuple[int, int] | None:
    """Two edges that meet, if any do; `following` says which edge comes after each."""
    middles = arcs.starts + arcs.ends
    middles /= np.linalg.norm(middles, axis=1, keepdims=True)
    halves = arcs.lengths_rad / 2
    for block in blocks(len(arcs), len(arcs)):
        firsts, seconds = np.nonzero(_may_meet(arcs, middles, halves, block))
        firsts, seconds = firsts + block.start, seconds + block.start
        meeting = np.flatnonzero(_meet(arcs, following, firsts, seconds))
        if meeting.size:
            return int(firsts[meeting[0]]), int(seconds[meeting[0]])
    return None


def _check_is_not_flat(points: Vectors, name: str) -> None:
    farthest = points[np.argmax(np.linalg.norm(points - points[0], axis=1))]
    normal = np.cross(points[0] - farthest, points[0] + farthest)
    if np.abs(points @ (normal / np.linalg.norm(normal))).max() <= TOUCH_RAD:
        raise Malformed(Reason.AREA_EMPTY, f"{name} lies on one line, so nothing is inside")


def _may_meet(arcs: Arcs, middles: Vectors, halves: Angles, block: slice) -> Flags:
    """Which edges of the block may meet which edges from its first on: near enough, and on neither side of each other."""
    near = 2 - 2 * middles[block] @ middles[block.start :].T <= (halves[block, None] + halves[block.start :]) ** 2 + _BLUR
    mine, rest = arcs.take(block), arcs.take(slice(block.start, None))
    near &= ~_on_one_side(mine.starts @ rest.normals.T, mine.ends @ rest.normals.T)
    near &= ~_on_one_side(mine.normals @ rest.starts.T, mine.normals @ rest.ends.T)
    may: Flags = np.triu(near, 1)
    return may


def _on_one_side(starts: NDArray[np.float64], ends: NDArray[np.float64]) -> Flags:
    return (np.minimum(starts, ends) > TOUCH_RAD) | (np.maximum(starts, ends) < -TOUCH_RAD)


def _meet(arcs: Arcs, following: Rows, firsts: Rows, seconds: Rows) -> Flags:
    """Which of these pairs of edges meet elsewhere than at a corner they share."""
    one, other = arcs.take(firsts), arcs.take(seconds)
    is_before, is_after = following[firsts] == seconds, following[seconds] == firsts
    # Each corner is the start of one edge, so the ends need no look of their own.
    touch = (distances_rad(one.starts, other) <= TOUCH_RAD) & ~is_after
    touch |= (distances_rad(other.starts, one) <= TOUCH_RAD) & ~is_before
    cross = _on_both_sides(one, other) & _on_both_sides(other, one) & ~is_before & ~is_after
    meet: Flags = touch | cross
    return meet


def _on_both_sides(ones: Arcs, others: Arcs) -> Flags:
    starts = np.einsum("ij,ij->i", ones.starts, others.normals)
    ends = np.einsum("ij,ij->i", ones.ends, others.normals)
    on_both: Flags = (starts > 0) != (ends > 0)
    return on_both


def _told(place: Place) -> str:
    return f"latitude {place.latitude!r} longitude {place.longitude!r}"
