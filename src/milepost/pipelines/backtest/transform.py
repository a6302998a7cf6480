"""From what the archive has to cells, in the order in which their slots ended."""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from milepost.model.incidents import EventKind
from milepost.pipelines.backtest.schema import ENDED_ROW
from milepost.pipelines.columns import names_of
from milepost.pipelines.hazards.transform import cell_records, cells, events
from milepost.pipelines.positions.transform import report_events

_ON_TIME_S: Final = 0.0
"""Watermarks are for streams: in the past everything has come."""


def all_events(messages: DataFrame, reports: DataFrame, kinds: Sequence[EventKind]) -> DataFrame:
    """EVENT_ROW of messages on the topics of kinds, and of reports for the kinds that count these."""
    found = events(messages, kinds)
    moving = [kind for kind in kinds if kind.from_reports]
    return found.unionByName(report_events(reports, moving)) if moving else found


def ended_cells(events: DataFrame, kinds: Sequence[EventKind], *, parts: int) -> DataFrame:
    """ENDED_ROW of events, in order; `parts` of it come to the driver one after the other."""
    lengths = [part for kind in kinds for part in (f.lit(kind.name), f.lit(kind.interval_ns).cast("bigint"))]
    lengths_ns = f.create_map(*lengths)
    told = cell_records(cells(events, kinds, late_s=_ON_TIME_S))
    key = f.split("key", "/")
    ended = told.select(((key[1].cast("bigint") + 1) * lengths_ns[key[0]]).alias("ends_ns"), "key", "value")
    in_order = ended.repartitionByRange(parts, "ends_ns").sortWithinPartitions("ends_ns", "key")
    return in_order.select(*names_of(ENDED_ROW))
