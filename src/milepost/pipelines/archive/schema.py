"""The tables of the archive, each a folder of Parquet files.

table         one row of            in the hour of    in the cell of
messages      MESSAGE_ROW           seen_at_us        its place, or nowhere
reports       REPORT_ROW            seen_at_us        its place
deliveries    DELIVERY_ROW          at_us             nowhere
unpublished   UNPUBLISHED_ROW       seen_at_us        nowhere
"""

from dataclasses import dataclass
from typing import Final

from milepost.pipelines.records.schema import DELIVERY_ROW, MESSAGE_ROW, REPORT_ROW

UNPUBLISHED_ROW: Final = "source string, id string, seen_at_us bigint, offset bigint, appended_at timestamp"
"""A message that its source has taken back (T6): `seen_at_us` and what follows are those of the message that says so."""


@dataclass(frozen=True, slots=True)
class Table:
    """What the archive needs to know of a table; its rows have an `offset` of the one topic that they come from."""

    name: str
    row: str
    time: str
    """The column that says in which hour a row is kept."""
    has_places: bool = False


MESSAGES: Final = Table("messages", MESSAGE_ROW, "seen_at_us", has_places=True)
REPORTS: Final = Table("reports", REPORT_ROW, "seen_at_us", has_places=True)
DELIVERIES: Final = Table("deliveries", DELIVERY_ROW, "at_us")
UNPUBLISHED: Final = Table("unpublished", UNPUBLISHED_ROW, "seen_at_us")
TABLES: Final = (MESSAGES, REPORTS, DELIVERIES, UNPUBLISHED)
