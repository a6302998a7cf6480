"""Areas and direction: the points inside an area that move in its direction, and the corridor along a heading."""

import numpy as np

from milepost.model.areas.arcs import Angles
from milepost.model.areas.box import Box
from milepost.model.areas.circle import RADIUS_M_MAX, Circle, check_distance
from milepost.model.areas.corridor import Corridor
from milepost.model.areas.polygon import Polygon
from milepost.model.areas.union import Union
from milepost.model.areas.upstream import Motion, Upstream
from milepost.model.places import Flags, Place, Vectors, moved
from milepost.model.reasons import Malformed, Reason, shown

_Area = Circle | Box | Polygon | Corridor | Upstream | Union


def contains_moving(area: _Area, points: Vectors, motion: Motion) -> Flags:
    """Return which points lie inside; on the roads of an `Upstream`, only those that move in the driving direction."""
    match area:
        case Upstream():
            return area.holds(points, motion)
        case Union():
            inside = contains_moving(area.parts[0], points, motion)
            for part in area.parts[1:]:
                inside |= contains_moving(part, points, motion)
            return inside
        case _:
            return area.contains(points)


def seconds_to_reach(area: _Area, points: Vectors, motion: Motion) -> Angles:
    """Return the travel time by road from each point to the target of the area; 0 in areas without one; NaN outside."""
    match area:
        case Upstream():
            return area.seconds_to_reach(points, motion)
        case Union():
            least: Angles = np.fmin.reduce([seconds_to_reach(part, points, motion) for part in area.parts])
            return least
        case _:
            return np.where(area.contains(points), 0.0, np.nan)


def depends_on_heading(area: _Area) -> bool:
    """Return whether headings matter for the area."""
    return isinstance(area, Upstream) or (isinstance(area, Union) and any(map(depends_on_heading, area.parts)))


def corridor_ahead(place: Place, heading_deg: float, *, ahead_m: float, behind_m: float, half_width_m: float) -> Corridor:
    """Return the straight corridor along a heading, from *behind_m* behind a place to *ahead_m* ahead; one of them may be 0."""
    if not 0 <= heading_deg < 360:
        raise Malformed(Reason.HEADING_RANGE, f"the heading is {shown(heading_deg)}")
    for name, metres in (("ahead_m", ahead_m), ("behind_m", behind_m)):
        if not 0 <= metres < RADIUS_M_MAX:
            raise Malformed(Reason.AREA_RADIUS, f"{name} is {shown(metres)}")
    # From half the Earth's circumference, the shorter way between the ends would be around the other side.
    check_distance("ahead_m and behind_m together", ahead_m + behind_m)
    ends = (moved(place, heading_deg + 180, behind_m), moved(place, heading_deg, ahead_m))
    return Corridor(ends, half_width_m)
