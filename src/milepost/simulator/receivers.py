"""Receivers: what a vehicle makes of where it truly is. Places wander by metres; who stands does not know which way it faces."""

from typing import Final

import numpy as np

from milepost.model.places import EARTH_RADIUS_M
from milepost.simulator.scenarios import Floats
from milepost.simulator.traffic import Cars

SPREAD_M: Final = 3.0
"""How far off a receiver is, each way, on average over long."""
LASTING_S: Final = 30.0
"""How long it stays off the same way."""
HEADING_SPREAD_DEG: Final = 4.0
SPEED_SPREAD_MPS: Final = 0.2
STANDS_MPS: Final = 0.3


class Receivers:
    """The receivers of all vehicles; the same seed gives the same errors."""

    def __init__(self, seed: int) -> None:
        self._draw = np.random.default_rng(seed)
        self._off_m: dict[str, Floats] = {}

    def seen(self, cars: Cars) -> Cars:
        """Where they say that they are."""
        keep = np.exp(-1.0 / LASTING_S)
        pushes = self._draw.normal(0.0, SPREAD_M, (len(cars), 2))
        off_m = np.array(
            [
                pushes[at] if name not in self._off_m else keep * self._off_m[name] + np.sqrt(1 - keep * keep) * pushes[at]
                for at, name in enumerate(cars.names)
            ]
        ).reshape(-1, 2)
        self._off_m = dict(zip(cars.names, off_m, strict=True))
        is_standing = cars.speeds_mps < STANDS_MPS
        headings = cars.headings_deg + self._draw.normal(0.0, HEADING_SPREAD_DEG, len(cars))
        speeds = cars.speeds_mps + self._draw.normal(0.0, SPEED_SPREAD_MPS, len(cars)) * ~is_standing
        return Cars(
            cars.names,
            cars.latitudes + np.degrees(off_m[:, 0] / EARTH_RADIUS_M),
            cars.longitudes + np.degrees(off_m[:, 1] / EARTH_RADIUS_M) / np.cos(np.radians(cars.latitudes)),
            np.where(is_standing, self._draw.uniform(0.0, 360.0, len(cars)), headings) % 360.0,
            np.maximum(speeds, 0.0),
            cars.roads,
        )
