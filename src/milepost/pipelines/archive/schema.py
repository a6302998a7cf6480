"""The tables of the archive, each a folder of Parquet files.

table         one row of            in the hour of    in the cell of
messages      MESSAGE_ROW           seen_at_us        its place, or nowhere
reports       REPORT_ROW            seen_at_us        its place
deliveries    DELIVERY_ROW          at_us             nowhere
unpublished   UNPUBLISHED_ROW       seen_at_us        nowhere
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from milepost.model.areas import Area, Bounds

MESSAGE_ROW: Final = """
    edge string, number bigint, qos int, id string, source string, topic string, seen_at_us bigint, valid_until_us bigint,
    latitude double, longitude double, priority string, tags array<string>, address string, fields map<string, string>,
    body binary, offset bigint, appended_at timestamp
"""
"""A message. `id` is an unsigned integer in digits; `address` is the JSON of its address, null if addressed to content."""

REPORT_ROW: Final = """
    edge string, endpoint string, seen_at_us bigint, latitude double, longitude double, heading_deg double, speed_mps double,
    verdict int, covered int, offset bigint, appended_at timestamp
"""
"""A report. `verdict` is 0 or the reason for which the edge refused it; `covered`: the place is covered by 0 this edge, 1 another
edge, 2 no edge."""

DELIVERY_ROW: Final = """
    edge string, source string, id string, topic string, endpoint string, state string, at_us bigint, reason int,
    offset bigint, appended_at timestamp
"""
"""The state of an area message for one endpoint: `matched`, `sent`, `acknowledged` or `dropped` for a reason."""

# Cells of the archive: squares of a tenth of a degree, coarse enough to be folders.
#
# Invariants: names are computed by the same integer and double arithmetic here and in Spark, so that every place in an area lies
# in a cell that `cells_over` selects.

NOWHERE: Final = "nowhere"
"""The cell of rows without a place."""
RECENT: Final = "recent"
"""The cell of rows not sorted into cells yet."""

CELL_SQL: Final = f"""
    case when latitude is null or longitude is null then '{NOWHERE}' else
    concat('r', cast((latitude + 90D) * 10D as int), 'c', cast((longitude + 180D) * 10D as int) % 3600) end
"""

_COLUMNS: Final = 3600

CellFilter = Callable[[str], bool]
"""Filter of cells by name."""


def cell_name(latitude: float, longitude: float) -> str:
    """Return the name of the cell of a place."""
    return f"r{_row(latitude)}c{_column(longitude) % _COLUMNS}"


def all_cells(name: str) -> bool:
    """Select all cells."""
    del name
    return True


def cells_over(area: Area) -> CellFilter:
    """Return a filter for the cells that may hold places of an area."""
    boxes = area.boxes

    def may_hold(name: str) -> bool:
        if name in (NOWHERE, RECENT):
            return name == RECENT
        row, _, column = name[1:].partition("c")
        return any(_touches(box, int(row), int(column)) for box in boxes)

    return may_hold


def _touches(box: Bounds, row: int, column: int) -> bool:
    if not _row(box.south) <= row <= _row(box.north):
        return False
    west, east = _column(box.west), _column(box.east)
    return east - west >= _COLUMNS or (column - west) % _COLUMNS <= (east - west) % _COLUMNS


def _row(latitude: float) -> int:
    return int((latitude + 90.0) * 10.0)


def _column(longitude: float) -> int:
    return int((longitude + 180.0) * 10.0)


UNPUBLISHED_ROW: Final = "source string, id string, seen_at_us bigint, offset bigint, appended_at timestamp"
"""A message unpublished by its source (T6): `seen_at_us` and the following columns are those of the unpublishing message."""


@dataclass(frozen=True, slots=True)
class ArchiveTable:
    """A table of the archive; `offset` of its rows is that in the one topic that they come from."""

    name: str
    row: str
    time: str
    """The column that determines the hour of a row."""
    has_places: bool = False


MESSAGES: Final = ArchiveTable("messages", MESSAGE_ROW, "seen_at_us", has_places=True)
REPORTS: Final = ArchiveTable("reports", REPORT_ROW, "seen_at_us", has_places=True)
DELIVERIES: Final = ArchiveTable("deliveries", DELIVERY_ROW, "at_us")
UNPUBLISHED: Final = ArchiveTable("unpublished", UNPUBLISHED_ROW, "seen_at_us")
TABLES: Final = (MESSAGES, REPORTS, DELIVERIES, UNPUBLISHED)
