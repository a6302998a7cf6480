"""Polygons of great-circle arcs, with holes.

*Invariants:*
- rings neither cross nor touch themselves or each other. Two edges meet where they cross or come within `TOUCH_RAD` of each
  other, except that neighbours share their corner; pairs are tested in blocks, by a cheap test that leaves few for the exact one;
- a point is inside if a line from it meets the edges an odd number of times, so that rings inside rings are holes.
"""

from dataclasses import dataclass, field
from math import pi
from typing import Final

import numpy as np
from numpy.typing import NDArray

from milepost.model.areas.arcs import (
    TOUCH_RAD,
    Angles,
    Arcs,
    Rows,
    arcs_along,
    blocks,
    check_steps,
    distances_rad,
    latitudes_rad,
    turns_rad,
    vectors_of,
    widened,
)
from milepost.model.areas.bounds import SLACK_RAD, Bounds, Cap
from milepost.model.areas.smallest_cap import cap_around
from milepost.model.places import Flags, Place, Vectors
from milepost.model.reasons import Malformed, Reason


@dataclass(frozen=True, slots=True, eq=False)
class Plane:
    """Closed rings of arcs in gnomonic projection, on the plane that touches the Earth at `axes[2]`: arcs are straight lines.

    All points and arcs lie in the open hemisphere around the centre; the caller ensures it. Whether an edge is met at all depends
    on which of its ends are above the point, and a corner is above or below for both its edges alike. The side on which it passes
    is decided by its ends where both are on one side, else by its normal: rounding can only concern points within nanometres of
    the edge.
    """

    axes: Vectors
    arcs: Arcs
    starts_y: Angles
    ends_y: Angles
    lefts: Angles
    rights: Angles

    def are_inside(self, points: Vectors) -> Flags:
        """Return which points lie inside an odd number of the rings."""
        inside = np.zeros(len(points), np.bool_)
        for block in blocks(len(points), len(self.arcs)):
            inside[block] = self._odd(points[block])
        return inside

    def _odd(self, points: Vectors) -> Flags:
        x, y = _laid_flat(points, self.axes)
        rows, edges = np.nonzero((self.starts_y > y[:, None]) != (self.ends_y > y[:, None]))
        met = np.bincount(rows[self._are_to_the_right(points, x, rows, edges)], minlength=len(points))
        odd: Flags = met % 2 == 1
        return odd

    def _are_to_the_right(self, points: Vectors, x: Angles, rows: Rows, edges: Rows) -> Flags:
        """Return for pairs of a point and an edge at its height whether the edge passes to the right of the point."""
        is_left = np.einsum("ij,ij->i", points[rows], self.arcs.normals[edges]) > 0
        is_upward = self.ends_y[edges] > self.starts_y[edges]
        beyond = x[rows]
        to_the_right: Flags = (beyond < self.lefts[edges]) | ((beyond <= self.rights[edges]) & (is_left == is_upward))
        return to_the_right


def plane_at(centre: Vectors, arcs: Arcs) -> Plane:
    """Return the rings on the plane that touches the Earth at *centre*."""
    aside = np.cross(centre, np.eye(3)[np.argmin(np.abs(centre))])
    aside /= np.linalg.norm(aside)
    axes = np.vstack([aside, np.cross(centre, aside), centre])
    starts_x, starts_y = _laid_flat(arcs.starts, axes)
    ends_x, ends_y = _laid_flat(arcs.ends, axes)
    return Plane(axes, arcs, starts_y, ends_y, np.minimum(starts_x, ends_x), np.maximum(starts_x, ends_x))


def _laid_flat(points: Vectors, axes: Vectors) -> tuple[Angles, Angles]:
    """Return where the line from the middle of the Earth through each point meets the plane."""
    # Not by a matrix product, whose rounding may depend on the number of points.
    x, y, height = (points[:, 0] * axis[0] + points[:, 1] * axis[1] + points[:, 2] * axis[2] for axis in axes)
    return x / height, y / height


Ring = tuple[Place, ...]
"""A closed ring of places: the last is the first."""

RING_POINTS_MIN: Final = 4
_BLUR: Final = 1e-13
"""Upper bound for the rounding of a squared distance computed from a scalar product."""


def check_ring(ring: Ring, name: str) -> None:
    """Raise `Malformed` if the ring has too few points, or is not closed."""
    if len(ring) < RING_POINTS_MIN:
        raise Malformed(Reason.AREA_RING, f"{name} has {len(ring)} points, fewer than {RING_POINTS_MIN}")
    if ring[0] != ring[-1]:
        raise Malformed(Reason.AREA_RING, f"{name} begins at {_describe(ring[0])} but ends at {_describe(ring[-1])}")


def arcs_of_ring(ring: Ring, name: str) -> Arcs:
    """Return the edges of a ring after validation; does not check whether they meet."""
    check_ring(ring, name)
    points = vectors_of(ring)
    check_steps(points, Reason.AREA_RING, name)
    _check_is_not_flat(points, name)
    return arcs_along(points)


def joined(rings: list[Arcs]) -> Arcs:
    """Return the edges of all rings, concatenated."""
    return Arcs(*(np.concatenate([getattr(ring, name) for ring in rings]) for name in ("starts", "ends", "normals")))


def maybe_meeting(arcs: Arcs, following: Rows) -> tuple[int, int] | None:
    """Return two edges that meet, or None; `following` is the next edge of each."""
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
        raise Malformed(Reason.AREA_EMPTY, f"{name} lies on one line and encloses no area")


def _may_meet(arcs: Arcs, middles: Vectors, halves: Angles, block: slice) -> Flags:
    """Return which edges of the block may meet which edges from its first on: close, and neither all on one side of the other."""
    near = 2 - 2 * middles[block] @ middles[block.start :].T <= (halves[block, None] + halves[block.start :]) ** 2 + _BLUR
    mine, rest = arcs.take(block), arcs.take(slice(block.start, None))
    near &= ~_on_one_side(mine.starts @ rest.normals.T, mine.ends @ rest.normals.T)
    near &= ~_on_one_side(mine.normals @ rest.starts.T, mine.normals @ rest.ends.T)
    may: Flags = np.triu(near, 1)
    return may


def _on_one_side(starts: NDArray[np.float64], ends: NDArray[np.float64]) -> Flags:
    return (np.minimum(starts, ends) > TOUCH_RAD) | (np.maximum(starts, ends) < -TOUCH_RAD)


def _meet(arcs: Arcs, following: Rows, firsts: Rows, seconds: Rows) -> Flags:
    """Return which of these pairs of edges meet elsewhere than at a corner they share."""
    one, other = arcs.take(firsts), arcs.take(seconds)
    is_before, is_after = following[firsts] == seconds, following[seconds] == firsts
    # Each corner is the start of one edge, so the ends need no test.
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


def _describe(place: Place) -> str:
    return f"latitude {place.latitude!r} longitude {place.longitude!r}"


POLYGON_POINTS_MAX: Final = 1000
"""Maximum points of all rings together, the last of each included."""


@dataclass(frozen=True, slots=True)
class Polygon:
    """All places inside the outer ring and outside the holes; rings are closed, their edges great-circle arcs.

    - The outer ring fits into half the globe, and inside is the smaller side, whichever way round it is drawn. It may go
      around a pole or across the antimeridian.
    - Rings do not touch themselves or each other, to within a millimetre; holes lie inside the outer ring and apart.
    - A point on an edge, to within a micrometre, may count as inside or outside; of two polygons that share an edge,
      any other point is inside one.
    """

    outer: Ring
    holes: tuple[Ring, ...] = ()
    cap: Cap = field(init=False, repr=False, compare=False)
    boxes: tuple[Bounds, ...] = field(init=False, repr=False, compare=False)
    _plane: Plane = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.points > POLYGON_POINTS_MAX:
            raise Malformed(Reason.AREA_TOO_COMPLEX, f"the polygon has {self.points} points, more than {POLYGON_POINTS_MAX}")
        names = [_name(which) for which in range(1 + len(self.holes))]
        rings = [arcs_of_ring(ring, name) for ring, name in zip((self.outer, *self.holes), names, strict=True)]
        cap = cap_around(rings[0].starts)
        if cap is None:
            raise Malformed(Reason.AREA_TOO_LARGE, "the outer ring does not fit into half the globe")
        _check_holes_are_near(rings, cap)
        edges = joined(rings)
        _check_nothing_meets(edges, rings)
        _check_holes_are_inside(rings, cap)
        object.__setattr__(self, "cap", cap)
        object.__setattr__(self, "_plane", plane_at(cap.centre, edges))
        object.__setattr__(self, "boxes", self._boxes())

    @property
    def points(self) -> int:
        """Points of all rings together."""
        return sum(len(ring) for ring in (self.outer, *self.holes))

    def _boxes(self) -> tuple[Bounds, ...]:
        """Return the box around the outer ring; all longitudes where it goes around a pole."""
        edges = self._plane.arcs.take(slice(len(self.outer) - 1))
        south, north = float(latitudes_rad(edges)[0].min()), float(latitudes_rad(edges)[1].max())
        turned = np.cumsum(turns_rad(edges))
        if abs(turned[-1]) > pi:
            is_northern = self.cap.centre[2] > 0
            return (widened(south, -pi, pi / 2, pi, SLACK_RAD) if is_northern else widened(-pi / 2, -pi, north, pi, SLACK_RAD),)
        first = float(np.arctan2(edges.starts[0, 1], edges.starts[0, 0]))
        west, east = first + min(0.0, float(turned.min())), first + max(0.0, float(turned.max()))
        return (widened(south, west, north, east, SLACK_RAD),)

    def contains(self, points: Vectors) -> Flags:
        """Return which points lie inside."""
        inside = np.zeros(len(points), np.bool_)
        near = np.flatnonzero(points @ self.cap.centre >= np.cos(self.cap.angle_rad))
        inside[near] = self._plane.are_inside(points[near])
        return inside


def _name(which: int) -> str:
    return "the outer ring" if which == 0 else f"hole {which}"


def _check_holes_are_near(rings: list[Arcs], cap: Cap) -> None:
    """Raise `Malformed` if a hole has points outside the cap, where the projection may not be defined."""
    for which, hole in enumerate(rings[1:], 1):
        if (hole.starts @ cap.centre < np.cos(cap.angle_rad)).any():
            raise Malformed(Reason.AREA_HOLE, f"{_name(which)} is not inside the outer ring")


def _check_nothing_meets(edges: Arcs, rings: list[Arcs]) -> None:
    """Raise `Malformed`, naming the edges, if any cross or touch."""
    sizes = [len(ring) for ring in rings]
    firsts = np.cumsum([0, *sizes[:-1]])
    following = np.arange(1, len(edges) + 1)
    following[firsts + sizes - 1] = firsts
    meeting = maybe_meeting(edges, following)
    if meeting is None:
        return
    (one_ring, one), (other_ring, other) = (_ring_and_edge(edge, firsts.tolist()) for edge in meeting)
    if one_ring == other_ring:
        detail = f"edges {one} and {other} of {_name(one_ring)} (counted from 0) cross or touch"
        raise Malformed(Reason.AREA_SELF_CROSSING, detail)
    detail = f"edge {one} of {_name(one_ring)} and edge {other} of {_name(other_ring)} (counted from 0) cross or touch"
    raise Malformed(Reason.AREA_HOLE, detail)


def _ring_and_edge(edge: int, firsts: list[int]) -> tuple[int, int]:
    which = max(ring for ring, first in enumerate(firsts) if first <= edge)
    return which, edge - firsts[which]


def _check_holes_are_inside(rings: list[Arcs], cap: Cap) -> None:
    """Raise `Malformed` if a hole is outside the outer ring or inside another; as no edges meet, one point per ring suffices."""
    outer, *holes = rings
    if not holes:
        return
    corners = np.vstack([hole.starts[0] for hole in holes])
    outside = np.flatnonzero(~plane_at(cap.centre, outer).are_inside(corners))
    if outside.size:
        raise Malformed(Reason.AREA_HOLE, f"{_name(int(outside[0]) + 1)} is not inside the outer ring")
    for which, hole in enumerate(holes, 1):
        within = np.delete(np.arange(len(holes)), which - 1)
        inner = within[plane_at(cap.centre, hole).are_inside(corners[within])]
        if inner.size:
            raise Malformed(Reason.AREA_HOLE, f"{_name(int(inner[0]) + 1)} is inside {_name(which)}")
