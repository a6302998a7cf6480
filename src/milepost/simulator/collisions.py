"""Collisions: where one hurts most, and who sees it.

A vehicle stops where many are on their way to. Whoever comes near says so again and again as long as it stands there; the longer
it does, the longer the queue behind it, and the farther away it is noticed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

import numpy as np

from milepost.model.areas import Area, Circle, Going, holds_going
from milepost.model.places import Place, vectors
from milepost.roads import Network, Placing, Reach, maybe_upstream
from milepost.simulator.traffic import Cars

CANDIDATES: Final = 40
BEHIND_S: Final = 20.0
"""A place is busy if many are within so many seconds of driving of it."""
BEHIND_SHARE_MAX: Final = 0.15
SEEN_M: Final = 90.0
SPREADS_MPS: Final = 3.0
SEEN_M_MAX: Final = 140.0
AGAIN_S: Final = 2
"""So often who sees it says so."""
_FAST_MPS: Final = 4.0


@dataclass(frozen=True, slots=True)
class Collision:
    """Somebody stands where he should drive."""

    car: str
    place: Place
    began_s: float

    def seen_m(self, now_s: float) -> float:
        """From how far it is noticed."""
        return min(SEEN_M_MAX, SEEN_M + SPREADS_MPS * (now_s - self.began_s))


def maybe_choose(network: Network, placing: Placing, cars: Cars, avoided: Sequence[Area], draw: Random) -> int | None:
    """Whom to stop: of some who drive outside of what is avoided, the one behind whom most are; nothing if there is nobody.

    Where nearly all are, nothing could be told apart: there may be no more behind than a part of all.
    """
    points, going = vectors(cars.latitudes, cars.longitudes), Going(cars.headings_deg, cars.speeds_mps)
    is_free = (cars.speeds_mps > _FAST_MPS) & np.array([not road.startswith(":") for road in cars.roads], bool)
    for where in avoided:
        is_free &= ~where.contains(points)
    free = np.flatnonzero(is_free).tolist()
    found, most = None, 0
    for at in draw.sample(free, min(CANDIDATES, len(free))):
        place = Place(float(cars.latitudes[at]), float(cars.longitudes[at]))
        area = maybe_upstream(network, placing.spots_at(place), Reach(seconds=BEHIND_S))
        behind = 0 if area is None else int(holds_going(area, points, going).sum())
        if most < behind <= BEHIND_SHARE_MAX * len(cars):
            found, most = at, behind
    return found


def witnesses(collision: Collision, seen: Cars, now_s: int) -> list[str]:
    """Who reports it in this second: each who sees it, every `AGAIN_S`, not all at once."""
    near = Circle(collision.place, collision.seen_m(now_s)).contains(vectors(seen.latitudes, seen.longitudes))
    return [seen.names[at] for at in np.flatnonzero(near).tolist() if (now_s + at) % AGAIN_S == 0]
