"""Corridors: all places near a route.

Invariants:
- a path is searched in stretches of 32 segments, each with a cap that excludes most points;
- a scalar product decides the clear cases; distances are computed only for the rest.
"""

from dataclasses import dataclass, field
from math import cos, pi
from typing import Final

import numpy as np

from milepost.model.areas.arcs import Arcs, arcs_along, blocks, bounds_around, check_steps, cut, distances_rad, vectors_of
from milepost.model.areas.bounds import SLACK_RAD, Bounds, Cap
from milepost.model.areas.circle import check_distance
from milepost.model.areas.smallest_cap import blurred, cap_around, cap_around_middle
from milepost.model.places import EARTH_RADIUS_M, Flags, Place, Vectors
from milepost.model.reasons import Malformed, Reason

CORRIDOR_POINTS_MAX: Final = 1000
CORRIDOR_CUTS_MAX: Final = 256
CORRIDOR_BOXES_MAX: Final = CORRIDOR_POINTS_MAX - 1 + CORRIDOR_CUTS_MAX
"""One box for each segment, and up to `CORRIDOR_CUTS_MAX` more for long segments."""

_STRETCH_SEGMENTS: Final = 32
_BLUR: Final = 4e-15
"""Upper bound for the rounding of a scalar product."""


@dataclass(frozen=True, slots=True)
class Corridor:
    """All places within `half_width_m` of a path of great-circle arcs, along the ground; its ends are round."""

    path: tuple[Place, ...]
    half_width_m: float
    cap: Cap = field(init=False, repr=False, compare=False)
    boxes: tuple[Bounds, ...] = field(init=False, repr=False, compare=False)
    _arcs: Arcs = field(init=False, repr=False, compare=False)
    _stretches: "tuple[_Stretch, ...]" = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if len(self.path) < 2:
            raise Malformed(Reason.AREA_EMPTY, f"the path has {len(self.path)} points, fewer than 2")
        if len(self.path) > CORRIDOR_POINTS_MAX:
            raise Malformed(Reason.AREA_TOO_COMPLEX, f"the path has {len(self.path)} points, more than {CORRIDOR_POINTS_MAX}")
        check_distance("half_width_m", self.half_width_m)
        points = vectors_of(self.path)
        check_steps(points, Reason.AREA_EMPTY, "the path")
        arcs, half_width_rad = arcs_along(points), self.half_width_rad
        stretches = (arcs.take(slice(first, first + _STRETCH_SEGMENTS)) for first in range(0, len(arcs), _STRETCH_SEGMENTS))
        object.__setattr__(self, "_arcs", arcs)
        object.__setattr__(self, "_stretches", tuple(_stretch(some, half_width_rad) for some in stretches))
        object.__setattr__(self, "cap", _grown(cap_around(points), half_width_rad))
        object.__setattr__(self, "boxes", self._boxes())

    @property
    def half_width_rad(self) -> float:
        """The half width as an angle."""
        return self.half_width_m / EARTH_RADIUS_M

    def _boxes(self) -> tuple[Bounds, ...]:
        """Return a box for each segment, several for long ones: no piece is longer than twice the width, or 1/256 of the path."""
        piece_rad = max(4 * self.half_width_rad, float(self._arcs.lengths_rad.sum()) / CORRIDOR_CUTS_MAX)
        return bounds_around(cut(self._arcs, piece_rad), self.half_width_rad + SLACK_RAD)

    def contains(self, points: Vectors) -> Flags:
        """Return which points lie inside, the boundary included."""
        inside = np.zeros(len(points), np.bool_)
        near = np.flatnonzero(points @ self.cap.centre >= self.cap.cosine)
        for stretch in self._stretches:
            found = stretch.are_near(points[near])
            inside[near[found]] = True
            near = near[~found]
        return inside


@dataclass(frozen=True, slots=True, eq=False)
class _Stretch:
    """Some segments of a path, and all places within an angle of them."""

    arcs: Arcs
    half_width_rad: float
    cap: Cap
    middles: Vectors
    reaches: Vectors
    """For each segment, the cosine of the maximum distance of a near point from its middle."""

    def are_near(self, points: Vectors) -> Flags:
        """Return which points are near at least one of the segments."""
        found = np.zeros(len(points), np.bool_)
        near = np.flatnonzero(points @ self.cap.centre >= self.cap.cosine)
        for block in blocks(len(near), len(self.arcs)):
            rows = near[block]
            is_near = self._are_near_a_point(points[rows])
            is_near[~is_near] = self._are_near_a_segment(points[rows[~is_near]])
            found[rows] = is_near
        return found

    def _are_near_a_point(self, points: Vectors) -> Flags:
        """Return which points are certainly near because they are near an end of a segment."""
        enough = cos(self.half_width_rad) + _BLUR
        near: Flags = (points @ self.arcs.starts.T).max(axis=1) > enough
        near |= points @ self.arcs.ends[-1] > enough
        return near

    def _are_near_a_segment(self, points: Vectors) -> Flags:
        """Return which points are near by their computed distance from the candidate segments."""
        rows, segments = np.nonzero(points @ self.middles.T >= self.reaches)
        is_near = distances_rad(points[rows], self.arcs.take(segments)) <= self.half_width_rad
        near: Flags = np.bincount(rows[is_near], minlength=len(points)) > 0
        return near


def _stretch(arcs: Arcs, half_width_rad: float) -> _Stretch:
    middles = arcs.starts + arcs.ends
    middles /= np.linalg.norm(middles, axis=1, keepdims=True)
    reaches = np.cos(np.minimum(pi, arcs.lengths_rad / 2 + half_width_rad)) - _BLUR
    cap = _grown(cap_around_middle(np.vstack([arcs.starts, arcs.ends[-1]])), half_width_rad)
    return _Stretch(arcs, half_width_rad, cap, middles, reaches)


def _grown(cap: Cap | None, half_width_rad: float) -> Cap:
    """Return *cap* widened by the half width; the whole Earth if the path has no cap, as it does not fit into half the globe."""
    return Cap(np.array([0.0, 0.0, 1.0]), pi) if cap is None else Cap(cap.centre, blurred(cap.angle_rad + half_width_rad))
