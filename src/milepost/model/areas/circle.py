"""Circles on the ground, fixed or around an endpoint that moves."""

from dataclasses import dataclass, field
from math import cos, pi, sin
from typing import Final

import numpy as np

from milepost.model.areas.bounds import Bounds, Cap, bounds_of_cap
from milepost.model.places import EARTH_RADIUS_M, Flags, Place, Vectors
from milepost.model.reasons import Malformed, Reason, shown

RADIUS_M_MAX: Final = pi * EARTH_RADIUS_M

SMALL_RAD: Final = 2e-5
"""Below this (127 m) cosines are too near to one to tell distances apart, and the straight line is measured instead."""


@dataclass(frozen=True, slots=True)
class Circle:
    """All places within `radius_m` of the centre, along the ground."""

    centre: Place
    radius_m: float
    cap: Cap = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_distance("radius_m", self.radius_m)
        object.__setattr__(self, "cap", Cap(self.centre.vector, self.radius_m / EARTH_RADIUS_M))

    @property
    def boxes(self) -> tuple[Bounds, ...]:
        """The box around the circle."""
        return (bounds_of_cap(self.cap),)

    def contains(self, points: Vectors) -> Flags:
        """Which points lie inside, the rim included."""
        angle, centre = self.cap.angle_rad, self.cap.centre
        if angle > SMALL_RAD:
            inside: Flags = points @ centre >= cos(angle)
            return inside
        away = points - centre
        nearby: Flags = np.einsum("ij,ij->i", away, away) <= chord_squared(angle)
        return nearby


@dataclass(frozen=True, slots=True)
class Around:
    """Around me: all places within `radius_m` of wherever the owner of the subscription last reported from."""

    radius_m: float

    def __post_init__(self) -> None:
        check_distance("radius_m", self.radius_m)

    def at(self, place: Place) -> Circle:
        """The circle while the owner is at `place`."""
        return Circle(place, self.radius_m)


def chord_squared(angle_rad: float) -> float:
    """The square of the straight line between two points of the unit sphere that are an angle apart."""
    return (2.0 * sin(min(angle_rad, pi) / 2.0)) ** 2


def check_distance(name: str, metres: float) -> None:
    """Refuse a radius or width that is not a positive distance on the Earth."""
    is_number = isinstance(metres, float | int) and not isinstance(metres, bool)
    if not is_number or not 0 < metres < RADIUS_M_MAX:
        raise Malformed(Reason.AREA_RADIUS, f"{name} is {shown(metres)}")
