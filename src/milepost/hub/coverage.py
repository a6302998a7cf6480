"""Coverage: which sites have an edge that an area concerns (M15).

What must hold: no site is left out that has an endpoint inside; one that has none there may be told to be concerned.
"""

from math import floor
from typing import Final

from milepost.model.areas import Area, touches
from milepost.model.sites import STRAY_SIDE_DEG, EdgeInfo, EdgeRef

ANSWERS_MAX: Final = 1_000
_COLUMNS: Final = round(360 / STRAY_SIDE_DEG)


class Coverage:
    """The edges of all sites, and where their endpoints may be."""

    def __init__(self) -> None:
        self._edges: dict[EdgeRef, EdgeInfo] = {}
        self._answers: dict[Area, frozenset[str]] = {}

    def put(self, info: EdgeInfo) -> None:
        """An edge says what it covers."""
        if self._edges.get(info.edge) != info:
            self._edges[info.edge] = info
            self._answers.clear()

    def take_away(self, edge: EdgeRef) -> None:
        """An edge is no more."""
        if self._edges.pop(edge, None) is not None:
            self._answers.clear()

    def edges(self) -> list[EdgeInfo]:
        """All of them."""
        return list(self._edges.values())

    def sites_touching(self, area: Area) -> frozenset[str]:
        """The sites with an edge that may have somebody inside."""
        found = self._answers.get(area)
        if found is None:
            found = frozenset(edge.site for edge, info in self._edges.items() if _concerns(info, area))
            if len(self._answers) >= ANSWERS_MAX:
                self._answers.clear()
            self._answers[area] = found
        return found


def _concerns(info: EdgeInfo, area: Area) -> bool:
    return info.coverage is None or touches(info.coverage, area) or _has_strays_in(info, area)


def _has_strays_in(info: EdgeInfo, area: Area) -> bool:
    """Whether a square with strays meets one of the boxes around the area."""
    for box in area.boxes if info.strays else ():
        south, north = _square(box.south), _square(box.north)
        west = _square(box.west)
        width = (_square(box.east) - west) % _COLUMNS if box.east - box.west < 360.0 else _COLUMNS
        if any(south <= row <= north and (column - west) % _COLUMNS <= width for row, column in info.strays):
            return True
    return False


def _square(degrees: float) -> int:
    return floor(degrees / STRAY_SIDE_DEG)
