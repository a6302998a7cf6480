"""Cells: squares of the map, each with a multicast group, so that one datagram reaches all endpoints that listen there.

    row     = floor((latitude + 90) / side)          group = first group + (31 * row + column) mod groups
    column  = floor((longitude + 180) / side)

Squares far apart may share a group: receivers check the area that a message is addressed to.
"""

import re
from dataclasses import dataclass
from math import ceil, floor, isfinite
from typing import Final

from milepost.model.areas import Area
from milepost.model.places import Place
from milepost.model.reasons import Malformed, Reason, shown

GROUPS_MAX: Final = 65_536
SIDE_DEG_MIN: Final = 0.0001
SIDE_DEG_MAX: Final = 10.0

_ROW_WEIGHT: Final = 31
_IPV4: Final = re.compile(r"(?:(?:25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])(?:\.(?!$)|$)){4}")


@dataclass(frozen=True, slots=True)
class MulticastGrid:
    """A grid of squares and the multicast groups they are mapped to."""

    group: str
    """The first of the groups, an IPv4 address."""
    groups: int
    port: int
    side_deg: float

    def __post_init__(self) -> None:
        first = _number_of(self.group)
        if not 1 <= self.groups <= GROUPS_MAX or first >> 28 != 0xE or (first + self.groups - 1) >> 28 != 0xE:
            raise Malformed(
                Reason.FIELD_RANGE, f"{shown(self.groups)} groups from {shown(self.group)} are not all multicast groups"
            )
        if not 1 <= self.port <= 65_535:
            raise Malformed(Reason.FIELD_RANGE, f"port is {shown(self.port)}, not in 1..65535")
        if not (isfinite(self.side_deg) and SIDE_DEG_MIN <= self.side_deg <= SIDE_DEG_MAX):
            raise Malformed(Reason.FIELD_RANGE, f"side_deg is {shown(self.side_deg)}, not in {SIDE_DEG_MIN}..{SIDE_DEG_MAX}")

    def group_at(self, place: Place) -> str:
        """Return the group of the square that contains *place*."""
        return self._group(*self._square(place.latitude, place.longitude))

    def find_groups_over(self, area: Area, most: int) -> frozenset[str] | None:
        """Return the groups of all squares that *area* may overlap; None if there are more than *most* squares."""
        found: set[str] = set()
        squares, columns = 0, self._columns
        for box in area.boxes:
            south, west = self._square(box.south, box.west)
            north, east = self._square(box.north, box.east)
            is_all_round = (box.east - box.west) % 360.0 + self.side_deg >= 360.0 or (box.west, box.east) == (-180.0, 180.0)
            width = columns if is_all_round else (east - west) % columns + 1
            squares += (north - south + 1) * width
            if squares > most:
                return None
            found |= {self._group(row, (west + step) % columns) for row in range(south, north + 1) for step in range(width)}
        return frozenset(found)

    @property
    def _columns(self) -> int:
        return ceil(360.0 / self.side_deg)

    def _square(self, latitude: float, longitude: float) -> tuple[int, int]:
        return floor((latitude + 90.0) / self.side_deg), floor((longitude + 180.0) / self.side_deg) % self._columns

    def _group(self, row: int, column: int) -> str:
        number = _number_of(self.group) + (_ROW_WEIGHT * row + column) % self.groups
        return ".".join(str(number >> shift & 0xFF) for shift in (24, 16, 8, 0))


def _number_of(group: str) -> int:
    if _IPV4.fullmatch(group) is None:
        raise Malformed(Reason.FIELD_RANGE, f"{shown(group)} is not an IPv4 address")
    return int.from_bytes(bytes(map(int, group.split("."))), "big")
