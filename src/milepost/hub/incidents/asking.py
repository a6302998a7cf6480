"""What is going on around here? For one kind: the incidents that touch an area, and the hottest bin that does (M25)."""

from collections.abc import Sequence
from math import pi
from typing import Final

import numpy as np

from milepost.hub.incidents.bins import Weights
from milepost.hub.incidents.ledger import Ledger
from milepost.model.areas import Area, Circle, touches
from milepost.model.incidents import Bin, Conditions, EventKind, Square, holds
from milepost.model.instants import Instant
from milepost.model.places import EARTH_RADIUS_M

_SIDES: Final = 4.0
"""No bin's circle, nor its centre, is farther from the middle of its square than so many sides, if it is not for the minimum."""


def conditions(ledger: Ledger, area: Area, now: Instant, weights: Weights) -> Conditions:
    """What is known of one kind in an area."""
    kind = ledger.kind
    incidents = tuple(one for one in ledger.lives.living if touches(one.circle, area))
    slot = now // kind.interval_ns
    near = _near(kind, ledger.squares(slot), area)
    found = [(block.bin(), holds(kind.condition, block.value_of)) for block in ledger.blocks(slot, now, weights, near)]
    found.sort(key=lambda one: (not one[1], one[0].rank))
    hottest, is_hot = next((one for one in found if _touches(one[0], area)), (None, False))
    return Conditions(kind.name, incidents, hottest, is_hot)


def _near(kind: EventKind, squares: Sequence[Square], area: Area) -> list[Square]:
    """The squares whose bins may touch the area."""
    if not squares:
        return []
    reach_rad = area.cap.angle_rad + (_SIDES * kind.side_m + max(_SIDES * kind.side_m, kind.radius_m_min)) / EARTH_RADIUS_M
    is_near = kind.grid.middles(squares) @ area.cap.centre >= np.cos(min(reach_rad, pi))
    return [square for square, near in zip(squares, is_near.tolist(), strict=True) if near]


def _touches(one: Bin, area: Area) -> bool:
    return touches(Circle(one.centre, one.radius_m), area)
