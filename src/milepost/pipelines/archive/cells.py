"""Cells of the archive: squares of a tenth of a degree, coarse enough to be folders.

What must hold: names are made by the same whole and double numbers here and in Spark, so that what lies in an area lies in a cell
that `cells_over` wants.
"""

from collections.abc import Callable
from typing import Final

from milepost.model.areas import Area, Bounds

NOWHERE: Final = "nowhere"
"""The cell of what has no place."""
RECENT: Final = "recent"
"""The cell of what has not been sorted into cells yet."""

CELL_SQL: Final = f"""
    case when latitude is null or longitude is null then '{NOWHERE}' else
    concat('r', cast((latitude + 90D) * 10D as int), 'c', cast((longitude + 180D) * 10D as int) % 3600) end
"""

_AROUND: Final = 3600

Wanted = Callable[[str], bool]
"""Whether a cell, by its name, may hold what is looked for."""


def cell_name(latitude: float, longitude: float) -> str:
    """The cell of a place."""
    return f"r{_row(latitude)}c{_column(longitude) % _AROUND}"


def everywhere(name: str) -> bool:
    """Wants all cells."""
    del name
    return True


def cells_over(area: Area) -> Wanted:
    """Wants the cells that may hold places of an area."""
    boxes = area.boxes

    def is_wanted(name: str) -> bool:
        if name in (NOWHERE, RECENT):
            return name == RECENT
        row, _, column = name[1:].partition("c")
        return any(_touches(box, int(row), int(column)) for box in boxes)

    return is_wanted


def _touches(box: Bounds, row: int, column: int) -> bool:
    if not _row(box.south) <= row <= _row(box.north):
        return False
    west, east = _column(box.west), _column(box.east)
    return east - west >= _AROUND or (column - west) % _AROUND <= (east - west) % _AROUND


def _row(latitude: float) -> int:
    return int((latitude + 90.0) * 10.0)


def _column(longitude: float) -> int:
    return int((longitude + 180.0) * 10.0)
