"""What an index needs to know of an area: a cap around it, boxes over it."""

from dataclasses import dataclass
from math import asin, atan2, cos, degrees, hypot, pi, sin
from typing import Final, NamedTuple

from milepost.model.places import EARTH_RADIUS_M, Vectors

SLACK_RAD: Final = 1e-9
"""Bounds are this much (6 mm) wider than the area, so that rounding never cuts anything off."""


class Bounds(NamedTuple):
    """A box in degrees; `west` is greater than `east` where it lies across the antimeridian."""

    south: float
    west: float
    north: float
    east: float


WHOLE_EARTH: Final = Bounds(-90.0, -180.0, 90.0, 180.0)


@dataclass(frozen=True, slots=True, eq=False)
class Cap:
    """All that is within an angle of a centre: the round lid that holds an area."""

    centre: Vectors
    angle_rad: float

    @property
    def cosine(self) -> float:
        """A point is in the cap if its product with the centre is not below this; no product is where it holds everything."""
        return -2.0 if self.angle_rad >= pi - SLACK_RAD else cos(self.angle_rad)

    @property
    def radius_m(self) -> float:
        """The angle as a distance on the ground."""
        return self.angle_rad * EARTH_RADIUS_M


def bounds_of_cap(cap: Cap) -> Bounds:
    """The box around a cap; all longitudes where it holds a pole."""
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
