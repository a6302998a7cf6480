"""Circles on the ground, fixed or around a moving endpoint."""

from dataclasses import dataclass, field
from math import cos, pi, sin
from typing import Final

import numpy as np

from milepost.model.areas.bounds import Bounds, Cap, bounds_of_cap
from milepost.model.places import EARTH_RADIUS_M, Flags, Place, Vectors
from milepost.model.reasons import Malformed, Reason, shown

RADIUS_M_MAX: Final = pi * EARTH_RADIUS_M

SMALL_RAD: Final = 2e-5
"""Below this (127 m) cosines are too close to 1 to resolve distances, so chords are measured instead."""


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
        """Return which points lie inside, the boundary included."""
        angle, centre = self.cap.angle_rad, self.cap.centre
        if angle > SMALL_RAD:
            inside: Flags = points @ centre >= cos(angle)
            return inside
        away = points - centre
        nearby: Flags = np.einsum("ij,ij->i", away, away) <= chord_squared(angle)
        return nearby


@dataclass(frozen=True, slots=True)
class Around:
    """All places within `radius_m` of the last reported position of the subscription's owner."""

    radius_m: float

    def __post_init__(self) -> None:
        check_distance("radius_m", self.radius_m)

    def at(self, place: Place) -> Circle:
        """Return the circle for an owner at *place*."""
        return Circle(place, self.radius_m)


def chord_squared(angle_rad: float) -> float:
    """Return the squared chord between two points of the unit sphere that are *angle_rad* apart."""
    return (2.0 * sin(min(angle_rad, pi) / 2.0)) ** 2


def check_distance(name: str, metres: float) -> None:
    """Raise `Malformed` unless *metres* is a positive distance on the Earth."""
    is_number = isinstance(metres, float | int) and not isinstance(metres, bool)
    if not is_number or not 0 < metres < RADIUS_M_MAX:
        raise Malformed(Reason.AREA_RADIUS, f"{name} is {shown(metres)}")
