"""Whether two areas have a place in common, as when an alert concerns an edge's coverage.

What must hold:
- two areas touch where their cores are no farther apart than they reach together, on the sphere, at the poles and across the
  antimeridian too; areas that miss each other by less than `TOUCH_RAD` may be told to touch, and no others;
- cores that have a place in common, but whose rims do not meet, lie one in the other, or each around the other's rim: then one
  of them holds a corner of the other;
- the shortest way between two rims begins or ends at a corner; or they cross; or an arc turns short
  of a parallel. Between two parallels nothing else is needed: one begins abreast of the other, or is farther off everywhere.
"""

from collections.abc import Sequence
from math import pi, sin
from typing import Final

import numpy as np

from milepost.model.areas.arcs import TOUCH_RAD, Angles, Arcs, angles_between_rad, blocks, distances_rad
from milepost.model.areas.bounds import SLACK_RAD
from milepost.model.areas.box import Box
from milepost.model.areas.circle import Circle
from milepost.model.areas.cores import Core, cores_of, least_cosine
from milepost.model.areas.corridor import Corridor
from milepost.model.areas.polygon import Polygon
from milepost.model.areas.union import Union
from milepost.model.areas.upstream import Upstream
from milepost.model.places import Flags, Vectors

_BESIDE: Final = 1e-12
"""Rounding allowed for when asking whether a point lies beside an arc: 6 µm."""

_Area = Circle | Box | Polygon | Corridor | Upstream | Union


def touches(one: _Area, other: _Area) -> bool:
    """Whether the areas have a place in common, their rims included."""
    if not _caps_meet([one], [other]).any():
        return False
    ones, others = cores_of(one), cores_of(other)
    pairs = np.argwhere(_caps_meet([core.shape for core in ones], [core.shape for core in others]))
    return any(_touch(ones[first], others[second]) for first, second in pairs.tolist())


def _caps_meet(ones: Sequence[_Area], others: Sequence[_Area]) -> Flags:
    """A table: whether the caps around the one and the other have a place in common."""
    (centres, angles), (their_centres, their_angles) = (
        (np.array([area.cap.centre for area in areas]), np.array([area.cap.angle_rad for area in areas]))
        for areas in (ones, others)
    )
    meet: Flags = angles_between_rad(centres[:, None], their_centres) <= angles[:, None] + their_angles + TOUCH_RAD
    return meet


def _touch(one: Core, other: Core) -> bool:
    """Whether two areas whose caps meet do so themselves."""
    one, other = one.near(other.shape.cap), other.near(one.shape.cap)
    reach_rad = one.reach_rad + other.reach_rad + TOUCH_RAD
    return (
        _are_near(one.corners, other.corners, reach_rad)
        or one.holds_one_of(other.corners)
        or other.holds_one_of(one.corners)
        or _are_near_beside(one.corners, other.arcs, reach_rad)
        or _are_near_beside(other.corners, one.arcs, reach_rad)
        or _are_near_parallels(one, other, reach_rad)
        or _are_near_parallels(other, one, reach_rad)
        or _cross(one.arcs, other.arcs)
    )


def _are_near(points: Vectors, others: Vectors, reach_rad: float) -> bool:
    """Whether one of the points is within reach of one of the others."""
    for block in blocks(len(points), len(others)):
        mine = points[block]
        first, second = np.nonzero(mine @ others.T >= least_cosine(reach_rad))
        if (angles_between_rad(mine[first], others[second]) <= reach_rad).any():
            return True
    return False


def _are_near_beside(points: Vectors, arcs: Arcs, reach_rad: float) -> bool:
    """Whether one of the points is within reach of one of the arcs, and beside it, not nearer to its ends."""
    onward, backward = np.cross(arcs.normals, arcs.starts), np.cross(arcs.ends, arcs.normals)
    off_line = sin(min(reach_rad + SLACK_RAD, pi / 2))
    for block in blocks(len(points), len(arcs)):
        mine = points[block]
        near = np.abs(mine @ arcs.normals.T) <= off_line
        near &= (mine @ onward.T >= -_BESIDE) & (mine @ backward.T >= -_BESIDE)
        first, second = np.nonzero(near)
        if (distances_rad(mine[first], arcs.take(second)) <= reach_rad).any():
            return True
    return False


def _are_near_parallels(one: Core, other: Core, reach_rad: float) -> bool:
    """Whether a corner or an arc of the one is within reach of a parallel of the other."""
    return any(
        bool((parallel.distances_rad(points) <= reach_rad).any())
        for parallel in other.parallels
        for points in (one.corners, parallel.nearest_of(one.arcs))
    )


def _cross(ones: Arcs, others: Arcs) -> bool:
    """Whether one of the arcs crosses one of the others."""
    for block in blocks(len(ones), len(others)):
        mine = ones.take(block)
        first, second = np.nonzero(_may_cross(mine, others))
        # Arcs on one line, but apart, have ends on whichever side rounding puts them; no end of theirs is beside the other.
        if _have_an_end_beside(mine.take(first), others.take(second)).any():
            return True
    return False


def _may_cross(ones: Arcs, others: Arcs) -> Flags:
    """A table: whether each arc has its ends on both sides of the other, and passes it here, not at the antipodes."""
    starts_left, ends_left = ones.starts @ others.normals.T > 0, ones.ends @ others.normals.T > 0
    their_starts_left, their_ends_left = ones.normals @ others.starts.T > 0, ones.normals @ others.ends.T > 0
    may: Flags = (starts_left != ends_left) & (their_starts_left != their_ends_left) & (starts_left != their_starts_left)
    return may


def _have_an_end_beside(ones: Arcs, others: Arcs) -> Flags:
    """For each pair of arcs, whether the nearest place to an end of one lies between the ends of the other."""
    beside: Flags = (
        _are_beside(ones.starts, others)
        | _are_beside(ones.ends, others)
        | _are_beside(others.starts, ones)
        | _are_beside(others.ends, ones)
    )
    return beside


def _are_beside(points: Vectors, arcs: Arcs) -> Flags:
    is_past_start = _dot(points, np.cross(arcs.normals, arcs.starts)) >= -_BESIDE
    is_before_end = _dot(points, np.cross(arcs.ends, arcs.normals)) >= -_BESIDE
    beside: Flags = is_past_start & is_before_end
    return beside


def _dot(ones: Vectors, others: Vectors) -> Angles:
    dots: Angles = np.einsum("ij,ij->i", ones, others)
    return dots
