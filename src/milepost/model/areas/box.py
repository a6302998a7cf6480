"""Boxes between two parallels and two meridians."""

from dataclasses import dataclass, field
from math import degrees, pi, radians
from typing import Final

import numpy as np

from milepost.model.areas.arcs import angles_between_rad
from milepost.model.areas.bounds import SLACK_RAD, Bounds, Cap
from milepost.model.areas.smallest_cap import blurred
from milepost.model.places import Flags, Vectors, check_coordinates, vectors
from milepost.model.reasons import Malformed, Reason

_RIM: Final = 2e-15
"""Tolerance for rounding at the boundary, so that the boundary is inside: 13 nm."""

_LID_RAD: Final = _RIM / SLACK_RAD
"""Within 13 m of a pole, longitudes are too close for `_RIM` to separate; there the boxes for an index include all of them."""


@dataclass(frozen=True, slots=True)
class Box:
    """All places between two parallels and two meridians, boundary included; if `west` > `east`, across the antimeridian.

    -180 to 180 is all longitudes. A pole is inside if its latitude is, whatever the longitudes.
    """

    south: float
    west: float
    north: float
    east: float
    cap: Cap = field(init=False, repr=False, compare=False)
    boxes: tuple[Bounds, ...] = field(init=False, repr=False, compare=False)
    _heights: tuple[float, float] = field(init=False, repr=False, compare=False)
    _meridians: Vectors = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_coordinates(self.south, self.west)
        check_coordinates(self.north, self.east)
        if not self.south < self.north:
            raise Malformed(Reason.AREA_EMPTY, f"south is {self.south!r}, not below north, {self.north!r}")
        if self.width_deg == 0:
            raise Malformed(Reason.AREA_EMPTY, f"west {self.west!r} and east {self.east!r} are the same meridian")
        low, high = vectors([self.south, self.north], [0.0, 0.0])[:, 2]
        object.__setattr__(self, "_heights", (float(low) - _RIM, float(high) + _RIM))
        object.__setattr__(self, "_meridians", vectors([0.0] * 3, [self.west, self.east, self.west + self.width_deg / 2]))
        object.__setattr__(self, "cap", _cap_around(self))
        object.__setattr__(self, "boxes", self._boxes())

    @property
    def width_deg(self) -> float:
        """Degrees of longitude from west to east, above 0 and up to 360."""
        return self.east - self.west if self.east >= self.west else self.east - self.west + 360.0

    def _boxes(self) -> tuple[Bounds, ...]:
        """Return the box with a margin for rounding, and a box of all longitudes at each pole that it reaches."""
        low, high = np.arcsin(np.clip((self._heights[0] - _RIM, self._heights[1] + _RIM), -1, 1)).tolist()
        south, north = max(-90.0, degrees(low - SLACK_RAD)), min(90.0, degrees(high + SLACK_RAD))
        west, east = _with_slack(self)
        lid_deg = degrees(_LID_RAD)
        found = [Bounds(south, west, north, east)]
        if north > 90 - lid_deg:
            found.append(Bounds(max(south, 90 - lid_deg), -180.0, north, 180.0))
        if south < -90 + lid_deg:
            found.append(Bounds(south, -180.0, min(north, -90 + lid_deg), 180.0))
        return tuple(found)

    def contains(self, points: Vectors) -> Flags:
        """Return which points lie inside, the boundary included."""
        x, y, z = points.T
        inside: Flags = (z >= self._heights[0]) & (z <= self._heights[1])
        if self.width_deg == 360:
            return inside
        (west_x, west_y), (east_x, east_y), (middle_x, middle_y) = self._meridians[:, :2]
        is_past_west = west_x * y - west_y * x >= -_RIM
        is_before_east = east_y * x - east_x * y >= -_RIM
        if self.width_deg > 180:
            inside &= is_past_west | is_before_east
        else:
            # The last test separates a very narrow box from the opposite meridian.
            inside &= is_past_west & is_before_east & (middle_x * x + middle_y * y >= -_RIM)
        return inside


def _with_slack(box: Box) -> tuple[float, float]:
    """Return west and east of the box, widened by `SLACK_RAD`."""
    slack_deg = degrees(SLACK_RAD)
    if box.width_deg + 2 * slack_deg >= 360:
        return -180.0, 180.0
    west, east = box.west - slack_deg, box.east + slack_deg
    return west + 360 if west < -180 else west, east - 360 if east > 180 else east


def _cap_around(box: Box) -> Cap:
    """Return the smallest of a few caps that contain the box: centred on a pole, or on the middle meridian."""
    south, north, half = radians(box.south), radians(box.north), radians(box.width_deg / 2)
    found = [(pi / 2 - south, pi / 2), (pi / 2 + north, -pi / 2)]
    if half <= pi / 2:
        # The corners are the farthest points: candidates are equally far from both pairs, or nearest to one pair.
        found += [
            (_reach(latitude, south, north, half), latitude)
            for latitude in (
                float(np.arctan2(np.sin((south + north) / 2) * np.cos(half), np.cos((south + north) / 2))),
                float(np.arctan2(np.sin(south), np.cos(south) * np.cos(half))),
                float(np.arctan2(np.sin(north), np.cos(north) * np.cos(half))),
            )
        ]
    angle, latitude = min(found)
    centre: Vectors = vectors([degrees(latitude)], [box.west + box.width_deg / 2])[0]
    return Cap(centre, blurred(angle))


def _reach(latitude: float, south: float, north: float, half: float) -> float:
    """Return the angle from a place on the middle meridian to the farther corner; all in radians."""
    centre = vectors([degrees(latitude)], [0.0])[0]
    corners = vectors([degrees(south), degrees(north)], [degrees(half)] * 2)
    return float(angles_between_rad(corners, centre).max())
