"""Polygons of great-circle arcs, with holes."""

from dataclasses import dataclass, field
from math import pi
from typing import Final

import numpy as np

from milepost.model.areas.arcs import Arcs, latitudes_rad, turns_rad, widened
from milepost.model.areas.bounds import SLACK_RAD, Bounds, Cap
from milepost.model.areas.caps import cap_around
from milepost.model.areas.plane import Plane, plane_at
from milepost.model.areas.rings import Ring, arcs_of_ring, joined, maybe_meeting
from milepost.model.places import Flags, Vectors
from milepost.model.reasons import Malformed, Reason

POLYGON_POINTS_MAX: Final = 1000
"""Points of all rings together, the last of each counted too."""


@dataclass(frozen=True, slots=True)
class Polygon:
    """All places inside the outer ring and outside the holes; rings are closed, their edges great-circle arcs.

    - The outer ring fits into half the globe, and inside is the smaller side, whichever way round it is drawn. It may go
      around a pole or across the antimeridian.
    - Rings do not touch themselves or each other, to within a millimetre; holes lie inside the outer ring and apart.
    - A point on an edge, to within a micrometre, may be told inside or outside; of two polygons with the same edge between
      them, any other point is inside one.
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
        """The box around the outer ring; all longitudes where it goes around a pole."""
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
        """Which points lie inside."""
        inside = np.zeros(len(points), np.bool_)
        near = np.flatnonzero(points @ self.cap.centre >= np.cos(self.cap.angle_rad))
        inside[near] = self._plane.are_inside(points[near])
        return inside


def _name(which: int) -> str:
    return "the outer ring" if which == 0 else f"hole {which}"


def _check_holes_are_near(rings: list[Arcs], cap: Cap) -> None:
    """Refuse holes with points outside the cap, where the plane cannot show them."""
    for which, hole in enumerate(rings[1:], 1):
        if (hole.starts @ cap.centre < np.cos(cap.angle_rad)).any():
            raise Malformed(Reason.AREA_HOLE, f"{_name(which)} is not inside the outer ring")


def _check_nothing_meets(edges: Arcs, rings: list[Arcs]) -> None:
    """Refuse edges that cross or touch, and say which."""
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
    """Refuse holes outside the outer ring or inside each other; as nothing meets, one point tells for its ring."""
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
