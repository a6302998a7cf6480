"""Who is inside an area, where it is known which way they go."""

import numpy as np

from milepost.model.areas.arcs import Angles
from milepost.model.areas.box import Box
from milepost.model.areas.circle import Circle
from milepost.model.areas.corridor import Corridor
from milepost.model.areas.polygon import Polygon
from milepost.model.areas.union import Union
from milepost.model.areas.upstream import Going, Upstream
from milepost.model.places import Flags, Vectors

_Area = Circle | Box | Polygon | Corridor | Upstream | Union


def holds_going(area: _Area, points: Vectors, going: Going) -> Flags:
    """Which points lie inside; where the area is on roads, only those that go the way it goes."""
    match area:
        case Upstream():
            return area.holds(points, going)
        case Union():
            inside = holds_going(area.parts[0], points, going)
            for part in area.parts[1:]:
                inside |= holds_going(part, points, going)
            return inside
        case _:
            return area.contains(points)


def seconds_to_reach(area: _Area, points: Vectors, going: Going) -> Angles:
    """How long it takes from each point to what an area is about, as roads allow; 0 where it has none; NaN for those outside."""
    match area:
        case Upstream():
            return area.seconds_to_reach(points, going)
        case Union():
            least: Angles = np.fmin.reduce([seconds_to_reach(part, points, going) for part in area.parts])
            return least
        case _:
            return np.where(area.contains(points), 0.0, np.nan)


def asks_which_way(area: _Area) -> bool:
    """Whether it matters which way points go."""
    return isinstance(area, Upstream) or (isinstance(area, Union) and any(map(asks_which_way, area.parts)))
