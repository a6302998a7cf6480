"""Test whether two areas have a place in common, such as an alert and an edge's coverage.

*Invariants:*
- an area is all places within `reach_rad` of its core. The core of a circle is its centre, that of a corridor its path; a box and
  a polygon are their own cores and have no reach. A core with an interior is in one piece; a core of lines may be in many, as for
  an upstream area, one for each width of its stretches;
- corners, arcs and parallels belong to the core, and its boundary (all of it, where it has no interior) consists of them; every
  ring of a boundary has a corner, and every end of an arc or a parallel, except for the middle of a box's side, is one;
- a box or a polygon decides itself which points it contains: within 8 m of a pole a box resolves latitudes only to centimetres;
- two areas touch where their cores are no farther apart than their reaches together, on the sphere, also at the poles and across
  the antimeridian; areas that miss each other by less than `TOUCH_RAD` may count as touching, and no others;
- of two cores with a place in common whose boundaries do not meet, one contains a corner of the other;
- the shortest way between two boundaries begins or ends at a corner; or they cross; or an arc turns short of a parallel. Two
  parallels need no test of their own: one begins abreast of the other, or is farther away everywhere.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import cos, pi, radians, sin
from typing import Final

import numpy as np

from milepost.model.areas.arcs import TOUCH_RAD, Angles, Arcs, angles_between_rad, arcs_along, blocks, distances_rad, vectors_of
from milepost.model.areas.bounds import SLACK_RAD, Cap
from milepost.model.areas.box import Box
from milepost.model.areas.circle import Circle
from milepost.model.areas.corridor import Corridor
from milepost.model.areas.polygon import Polygon, joined
from milepost.model.areas.union import Union
from milepost.model.areas.upstream import Upstream
from milepost.model.places import EARTH_RADIUS_M, Flags, Vectors, vectors

_NO_ARCS: Final = Arcs(*np.empty((3, 0, 3)))

_BLUR: Final = 4e-15
"""Upper bound for the rounding of a scalar product."""


@dataclass(frozen=True, slots=True, eq=False)
class Parallel:
    """A side of a box: the places of one latitude, from a meridian `width_rad` to the east."""

    latitude_rad: float
    west_rad: float
    width_rad: float
    ends: Vectors

    def distances_rad(self, points: Vectors) -> Angles:
        """Return the distance of each point from the parallel, as an angle."""
        x, y, z = points.T
        is_abreast = (np.arctan2(y, x) - self.west_rad) % (2 * pi) <= self.width_rad
        along_meridian = np.abs(np.arctan2(z, np.hypot(x, y)) - self.latitude_rad)
        to_ends = angles_between_rad(points[:, None], self.ends).min(axis=1)
        distances: Angles = np.where(is_abreast, along_meridian, to_ends)
        return distances

    def nearest_of(self, arcs: Arcs) -> Vectors:
        """Return where each arc, between its ends, comes nearest to the latitude: where it crosses it, or turns short of it."""
        onward = np.cross(arcs.normals, arcs.starts)
        top = np.arctan2(onward[:, 2], arcs.starts[:, 2])
        # From the radius of the parallel, not its height, which is too imprecise close to a pole.
        radius, tilt = cos(self.latitude_rad), np.abs(arcs.normals[:, 2])
        aside = np.arctan2(np.sqrt(np.maximum(0, (radius - tilt) * (radius + tilt))), sin(self.latitude_rad))
        turns = np.concatenate([top - aside, top + aside]) % (2 * pi)
        turns = np.minimum(turns, np.tile(arcs.lengths_rad, 2))[:, None]
        found: Vectors = np.tile(arcs.starts, (2, 1)) * np.cos(turns) + np.tile(onward, (2, 1)) * np.sin(turns)
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Core:
    """The parts of a shape that determine its distance from another."""

    shape: Circle | Box | Polygon | Corridor | Upstream
    reach_rad: float
    corners: Vectors
    arcs: Arcs = _NO_ARCS
    parallels: tuple[Parallel, ...] = ()

    def holds_one_of(self, points: Vectors) -> bool:
        """Return whether the core has an interior and one of the points lies in it."""
        return isinstance(self.shape, Box | Polygon) and bool(self.shape.contains(points).any())

    def near(self, cap: Cap) -> "Core":
        """Return the core with only those corners and arcs that may be within reach of the cap."""
        angle_rad = self.reach_rad + cap.angle_rad
        corners = self.corners[self.corners @ cap.centre >= least_cosine(angle_rad)]
        middles = self.arcs.starts + self.arcs.ends
        middles /= np.linalg.norm(middles, axis=1, keepdims=True)
        is_near = middles @ cap.centre >= least_cosine(self.arcs.lengths_rad / 2 + angle_rad)
        return replace(self, corners=corners, arcs=self.arcs.take(np.flatnonzero(is_near)))


def least_cosine(angles_rad: Angles | float) -> Angles:
    """Return a lower bound, rounding included, for the scalar product of two unit vectors within an angle of each other."""
    least: Angles = np.cos(np.minimum(pi, np.asarray(angles_rad) + SLACK_RAD)) - _BLUR
    return least


def cores_of(area: Circle | Box | Polygon | Corridor | Upstream | Union) -> list[Core]:
    """Return the core of a shape, or of each shape of a union."""
    match area:
        case Union():
            return [core for part in area.parts for core in cores_of(part)]
        case Circle():
            return [Core(area, area.cap.angle_rad, area.cap.centre[None])]
        case Corridor():
            path = vectors_of(area.path)
            return [Core(area, area.half_width_rad, path, arcs_along(path))]
        case Upstream():
            return [_core_of_width(area, width_m) for width_m in np.unique(area.widths_m).tolist()]
        case Polygon():
            edges = joined([arcs_along(vectors_of(ring)) for ring in (area.outer, *area.holes)])
            return [Core(area, 0.0, edges.starts, edges)]
        case Box():
            parallels = _parallels(area)
            corners = np.vstack([parallel.ends for parallel in parallels])
            return [Core(area, 0.0, corners, _meridians(area), parallels)]


def _core_of_width(area: Upstream, width_m: float) -> Core:
    arcs = area.arcs.take(np.flatnonzero(area.widths_m == width_m))
    return Core(area, width_m / EARTH_RADIUS_M, np.vstack([arcs.starts, arcs.ends]), arcs)


def _parallels(box: Box) -> tuple[Parallel, ...]:
    west, width = radians(box.west), radians(box.width_deg)
    return tuple(
        Parallel(radians(latitude), west, width, vectors([latitude] * 2, [box.west, box.east]))
        for latitude in (box.south, box.north)
    )


def _meridians(box: Box) -> Arcs:
    """Return the west and east sides, each as two arcs, because the poles are antipodes."""
    # For sides too short to be arcs, the corners suffice.
    if radians(box.north - box.south) <= 2 * TOUCH_RAD:
        return _NO_ARCS
    latitudes = [box.south, (box.south + box.north) / 2, box.north]
    return joined([arcs_along(vectors(latitudes, [longitude] * 3)) for longitude in (box.west, box.east)])


_BESIDE: Final = 1e-12
"""Tolerance for the test whether a point lies beside an arc: 6 µm."""

_Area = Circle | Box | Polygon | Corridor | Upstream | Union


def touches(one: _Area, other: _Area) -> bool:
    """Return whether the areas have a place in common, boundaries included."""
    if not _caps_meet([one], [other]).any():
        return False
    ones, others = cores_of(one), cores_of(other)
    pairs = np.argwhere(_caps_meet([core.shape for core in ones], [core.shape for core in others]))
    return any(_touch(ones[first], others[second]) for first, second in pairs.tolist())


def _caps_meet(ones: Sequence[_Area], others: Sequence[_Area]) -> Flags:
    """Return a table: whether the caps of each pair of areas have a place in common."""
    (centres, angles), (their_centres, their_angles) = (
        (np.array([area.cap.centre for area in areas]), np.array([area.cap.angle_rad for area in areas]))
        for areas in (ones, others)
    )
    meet: Flags = angles_between_rad(centres[:, None], their_centres) <= angles[:, None] + their_angles + TOUCH_RAD
    return meet


def _touch(one: Core, other: Core) -> bool:
    """Return whether two areas whose caps meet have a place in common."""
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
    """Return whether one of the points is within reach of one of the others."""
    for block in blocks(len(points), len(others)):
        mine = points[block]
        first, second = np.nonzero(mine @ others.T >= least_cosine(reach_rad))
        if (angles_between_rad(mine[first], others[second]) <= reach_rad).any():
            return True
    return False


def _are_near_beside(points: Vectors, arcs: Arcs, reach_rad: float) -> bool:
    """Return whether one of the points is within reach of one of the arcs, and beside it, not nearer to its ends."""
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
    """Return whether a corner or an arc of *one* is within reach of a parallel of *other*."""
    return any(
        bool((parallel.distances_rad(points) <= reach_rad).any())
        for parallel in other.parallels
        for points in (one.corners, parallel.nearest_of(one.arcs))
    )


def _cross(ones: Arcs, others: Arcs) -> bool:
    """Return whether one of the arcs crosses one of the others."""
    for block in blocks(len(ones), len(others)):
        mine = ones.take(block)
        first, second = np.nonzero(_may_cross(mine, others))
        # For arcs that are apart on one line, rounding decides the side of their ends; but no end of one is beside the other.
        if _have_an_end_beside(mine.take(first), others.take(second)).any():
            return True
    return False


def _may_cross(ones: Arcs, others: Arcs) -> Flags:
    """Return a table: whether each arc has its ends on both sides of the other, and crosses it here, not at the antipodes."""
    starts_left, ends_left = ones.starts @ others.normals.T > 0, ones.ends @ others.normals.T > 0
    their_starts_left, their_ends_left = ones.normals @ others.starts.T > 0, ones.normals @ others.ends.T > 0
    may: Flags = (starts_left != ends_left) & (their_starts_left != their_ends_left) & (starts_left != their_starts_left)
    return may


def _have_an_end_beside(ones: Arcs, others: Arcs) -> Flags:
    """Return for each pair of arcs whether the nearest place to an end of one lies between the ends of the other."""
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
