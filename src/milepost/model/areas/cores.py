"""Areas as cores with a reach: the points and lines that tell how far apart two areas are.

What must hold:
- an area is all that is within `reach_rad` of its core: a circle's is its centre, a corridor's its path, and those of a box and a
  polygon, which have no reach, are the areas themselves. A core with an inside is in one piece; one of lines may be in many, as
  those of an upstream are, one for each width that stretches have;
- corners, arcs and parallels belong to the core, and its rim (all of it, where it has no inside) is made of them; every ring
  of a rim has a corner, and every end of an arc or a parallel, but for the middle of a box's side, is one;
- what a box or a polygon holds is what it says itself: within 8 m of a pole, a box tells latitudes apart no better than to
  centimetres.
"""

from dataclasses import dataclass, replace
from math import cos, pi, radians, sin
from typing import Final

import numpy as np

from milepost.model.areas.arcs import TOUCH_RAD, Angles, Arcs, angles_between_rad, arcs_along, vectors_of
from milepost.model.areas.bounds import SLACK_RAD, Cap
from milepost.model.areas.box import Box
from milepost.model.areas.circle import Circle
from milepost.model.areas.corridor import Corridor
from milepost.model.areas.polygon import Polygon
from milepost.model.areas.rings import joined
from milepost.model.areas.union import Union
from milepost.model.areas.upstream import Upstream
from milepost.model.places import EARTH_RADIUS_M, Vectors, vectors

_NO_ARCS: Final = Arcs(*np.empty((3, 0, 3)))

_BLUR: Final = 4e-15
"""Rounding of a scalar product, with room to spare."""


@dataclass(frozen=True, slots=True, eq=False)
class Parallel:
    """A side of a box: the places of one latitude, from a meridian so far to the east."""

    latitude_rad: float
    west_rad: float
    width_rad: float
    ends: Vectors

    def distances_rad(self, points: Vectors) -> Angles:
        """How far each point is from the parallel, as an angle."""
        x, y, z = points.T
        is_abreast = (np.arctan2(y, x) - self.west_rad) % (2 * pi) <= self.width_rad
        along_meridian = np.abs(np.arctan2(z, np.hypot(x, y)) - self.latitude_rad)
        to_ends = angles_between_rad(points[:, None], self.ends).min(axis=1)
        distances: Angles = np.where(is_abreast, along_meridian, to_ends)
        return distances

    def nearest_of(self, arcs: Arcs) -> Vectors:
        """Where each arc comes nearest to the latitude between its ends: where it crosses it, or turns short of it."""
        onward = np.cross(arcs.normals, arcs.starts)
        top = np.arctan2(onward[:, 2], arcs.starts[:, 2])
        # By the radius of the parallel, not its height, which close to a pole says nothing.
        radius, tilt = cos(self.latitude_rad), np.abs(arcs.normals[:, 2])
        aside = np.arctan2(np.sqrt(np.maximum(0, (radius - tilt) * (radius + tilt))), sin(self.latitude_rad))
        turns = np.concatenate([top - aside, top + aside]) % (2 * pi)
        turns = np.minimum(turns, np.tile(arcs.lengths_rad, 2))[:, None]
        found: Vectors = np.tile(arcs.starts, (2, 1)) * np.cos(turns) + np.tile(onward, (2, 1)) * np.sin(turns)
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Core:
    """What a shape is made of, for the question how far it is from another."""

    shape: Circle | Box | Polygon | Corridor | Upstream
    reach_rad: float
    corners: Vectors
    arcs: Arcs = _NO_ARCS
    parallels: tuple[Parallel, ...] = ()

    def holds_one_of(self, points: Vectors) -> bool:
        """Whether one of the points lies inside, where there is an inside."""
        return isinstance(self.shape, Box | Polygon) and bool(self.shape.contains(points).any())

    def near(self, cap: Cap) -> "Core":
        """The same with only those corners and arcs that something in the cap may be in reach of."""
        angle_rad = self.reach_rad + cap.angle_rad
        corners = self.corners[self.corners @ cap.centre >= least_cosine(angle_rad)]
        middles = self.arcs.starts + self.arcs.ends
        middles /= np.linalg.norm(middles, axis=1, keepdims=True)
        is_near = middles @ cap.centre >= least_cosine(self.arcs.lengths_rad / 2 + angle_rad)
        return replace(self, corners=corners, arcs=self.arcs.take(np.flatnonzero(is_near)))


def least_cosine(angles_rad: Angles | float) -> Angles:
    """What the scalar product of two unit vectors is not below where they are within an angle, whatever the rounding."""
    least: Angles = np.cos(np.minimum(pi, np.asarray(angles_rad) + SLACK_RAD)) - _BLUR
    return least


def cores_of(area: Circle | Box | Polygon | Corridor | Upstream | Union) -> list[Core]:
    """The core of a shape, or of each shape that a union is made of."""
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
    """The sides to the west and to the east, each in two arcs, as the poles are antipodes."""
    # Of sides too short to be arcs, the corners tell enough.
    if radians(box.north - box.south) <= 2 * TOUCH_RAD:
        return _NO_ARCS
    latitudes = [box.south, (box.south + box.north) / 2, box.north]
    return joined([arcs_along(vectors(latitudes, [longitude] * 3)) for longitude in (box.west, box.east)])
