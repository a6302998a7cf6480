"""Places on the Earth, and the same places as unit vectors.

Rules of this file:
- a place is latitude and longitude in degrees on the WGS84 datum; distances are taken on the sphere of its mean radius;
- all geometry is done on unit vectors (x towards 0°N 0°E, y towards 0°N 90°E, z towards the north pole), so that poles and
  the antimeridian are places like any other; degrees are read once, here.
"""

from dataclasses import dataclass
from math import isfinite
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from milepost.model.reasons import Malformed, Reason

EARTH_RADIUS_M: Final = 6_371_008.8
"""Mean radius of the WGS84 ellipsoid."""

Vectors = NDArray[np.float64]
"""Unit vectors, one a row: shape (n, 3)."""

Flags = NDArray[np.bool_]
"""An answer for each row of a `Vectors`."""


@dataclass(frozen=True, slots=True)
class Place:
    """A point on the Earth, in degrees."""

    latitude: float
    longitude: float

    def __post_init__(self) -> None:
        check_coordinates(self.latitude, self.longitude)

    @property
    def vector(self) -> Vectors:
        """The place as one unit vector, shape (3,)."""
        vector: Vectors = vectors([self.latitude], [self.longitude])[0]
        return vector


def check_coordinates(latitude: float, longitude: float) -> None:
    """Refuse what is not a place: not a number, infinite, or out of range."""
    for name, value, limit in (("latitude", latitude, 90.0), ("longitude", longitude, 180.0)):
        is_number = isinstance(value, float | int) and not isinstance(value, bool)
        if not is_number or not isfinite(value) or abs(value) > limit:
            raise Malformed(Reason.COORDINATE_RANGE, f"{name} is {value!r}")


def vectors(latitudes: ArrayLike, longitudes: ArrayLike) -> Vectors:
    """Unit vectors of many places given in degrees; shape (n, 3)."""
    latitude = np.radians(np.asarray(latitudes, np.float64))
    longitude = np.radians(np.asarray(longitudes, np.float64))
    found = np.empty((latitude.size, 3))
    across = np.cos(latitude)
    np.multiply(across, np.cos(longitude), out=found[:, 0])
    np.multiply(across, np.sin(longitude), out=found[:, 1])
    np.sin(latitude, out=found[:, 2])
    return found


def distance_m(one: Place, other: Place) -> float:
    """Metres between two places along the sphere."""
    a, b = one.vector, other.vector
    return float(np.arctan2(np.linalg.norm(np.cross(a, b)), a @ b)) * EARTH_RADIUS_M
