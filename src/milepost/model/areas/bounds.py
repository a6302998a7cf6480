"""Bounds of an area for an index: a cap around it, boxes that cover it."""

from dataclasses import dataclass
from math import asin, atan2, cos, degrees, hypot, pi, sin
from typing import Final, NamedTuple

from milepost.model.places import EARTH_RADIUS_M, Vectors

SLACK_RAD: Final = 1e-9
"""Bounds are this much (6 mm) wider than the area, so that rounding never excludes a point."""


class Bounds(NamedTuple):
    """A box in degrees; `west` is greater than `east` where it crosses the antimeridian."""

    south: float
    west: float
    north: float
    east: float


WHOLE_EARTH: Final = Bounds(-90.0, -180.0, 90.0, 180.0)


@dataclass(frozen=True, slots=True, eq=False)
class Cap:
    """A spherical cap: all points within an angle of a centre."""

    centre: Vectors
    angle_rad: float

    @property
    def cosine(self) -> float:
        """A point is in the cap if its scalar product with the centre is not below this; -2 for a cap of the whole Earth."""
        return -2.0 if self.angle_rad >= pi - SLACK_RAD else cos(self.angle_rad)

    @property
    def radius_m(self) -> float:
        """The angle as a distance along the ground."""
        return self.angle_rad * EARTH_RADIUS_M


def bounds_of_cap(cap: Cap) -> Bounds:
    """Return the box around a cap; all longitudes where it contains a pole."""
    angle = cap.angle_rad + SLACK_RAD
    x, y, z = cap.centre.tolist()
    latitude, longitude = atan2(z, hypot(x, y)), atan2(y, x)
    south, north = latitude - angle, latitude + angle
    if south <= -pi / 2 or north >= pi / 2:
        return Bounds(max(-90.0, degrees(south)), -180.0, min(90.0, degrees(north)), 180.0)
    half = asin(min(1.0, sin(angle) / cos(latitude)))
    west, east = longitude - half, longitude + half
    if west < -pi:
        west += 2 * pi
    if east > pi:
        east -= 2 * pi
    return Bounds(degrees(south), degrees(west), degrees(north), degrees(east))
