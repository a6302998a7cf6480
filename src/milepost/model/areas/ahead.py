"""The stretch of road around something that moves: the area of an alert about it."""

from milepost.model.areas.circle import RADIUS_M_MAX, check_distance
from milepost.model.areas.corridor import Corridor
from milepost.model.places import Place, moved
from milepost.model.reasons import Malformed, Reason, shown


def corridor_ahead(place: Place, heading_deg: float, *, ahead_m: float, behind_m: float, half_width_m: float) -> Corridor:
    """The straight corridor along a heading, from so far behind a place to so far ahead of it; one of the two may be 0."""
    if not 0 <= heading_deg < 360:
        raise Malformed(Reason.HEADING_RANGE, f"the heading is {shown(heading_deg)}")
    for name, metres in (("ahead_m", ahead_m), ("behind_m", behind_m)):
        if not 0 <= metres < RADIUS_M_MAX:
            raise Malformed(Reason.AREA_RADIUS, f"{name} is {shown(metres)}")
    # From half the Earth's circumference on, the shorter way from end to end would lead around the other side.
    check_distance("ahead_m and behind_m together", ahead_m + behind_m)
    ends = (moved(place, heading_deg + 180, behind_m), moved(place, heading_deg, ahead_m))
    return Corridor(ends, half_width_m)
