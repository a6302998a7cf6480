"""Places on a flat map: metres east and north, good for some kilometres around the first of them."""

from math import pi
from typing import Final

import numpy as np
from numpy.typing import NDArray

from milepost.model.places import EARTH_RADIUS_M

Floats = NDArray[np.float64]

DEGREE_M: Final = EARTH_RADIUS_M * pi / 180


def metres(latitudes: Floats, longitudes: Floats) -> tuple[Floats, Floats]:
    """East and north of the first place; the shorter way round."""
    east = (longitudes - longitudes[:1] + 180.0) % 360.0 - 180.0
    return east * np.cos(np.radians(latitudes[:1])) * DEGREE_M, (latitudes - latitudes[:1]) * DEGREE_M


def steps_m(latitudes: Floats, longitudes: Floats) -> tuple[Floats, Floats]:
    """East and north from each place to the next, wherever they are."""
    east = (np.diff(longitudes) + 180.0) % 360.0 - 180.0
    return east * np.cos(np.radians(latitudes[1:])) * DEGREE_M, np.diff(latitudes) * DEGREE_M
