"""The pipeline `positions`: last positions, handovers, speeds and coverage holes from position reports, in three queries.

    topic                 key                  value
    positions.last        endpoint             the last position of an endpoint
    positions.handovers   endpoint             a move of the endpoint from one edge to another
    positions.speeds      SLOT/WAY             speeds of endpoints on a way, in one slot
    positions.holes       SLOT/ROW/COLUMN      reports from a square that no edge covers, in one slot

    reports ─▶ places: PLACE_ROW, stateful by bucket ─▶ place_records
    reports ─▶ slots: SLOT_ROW, one groupBy ─▶ slot_records
    reports, messages ─▶ report_events ─▶ cells of the kinds that count reports (hazards)

`docs/reference/positions.md` describes the records.

*Invariants:*
- only reports that an edge accepted count, and the result does not depend on their order. A slot is published again as reports
  arrive; of two records with one key the one with more reports counts;
- the last position is the one of the latest `seen_at`, in whatever order and batches reports arrive; of two at the same instant
  the one with the greater edge, then latitude, longitude, heading, speed;
- a handover is published once. Reports of a batch are taken in the order in which they were seen; a report seen before those of
  an earlier batch is skipped: edges append theirs within a second;
- an endpoint not seen for `forget_s` is forgotten, so that the state has no more rows than endpoints in that time.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final
from zlib import crc32

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from milepost.model.incidents import EventKind, Grid
from milepost.pipelines.hazards import CLOCK_AHEAD_S_MAX, cell_records, cells, events, tallied_fields, with_square
from milepost.pipelines.plan import Plan
from milepost.pipelines.records import MESSAGES_TOPIC, REPORTS_TOPIC, messages, reports
from milepost.pipelines.settings import PipelineSettings
from milepost.pipelines.stateful_buckets import apply_in_buckets, bucket_of

LAST_TOPIC: Final = "positions.last"
HANDOVERS_TOPIC: Final = "positions.handovers"
SPEEDS_TOPIC: Final = "positions.speeds"
HOLES_TOPIC: Final = "positions.holes"

SIDE_M: Final = 150.0
"""Side of the squares of ways and holes."""
SLOT_S: Final = 60

REPORT_COLUMNS: Final = ("endpoint", "seen_at_us", "edge", "latitude", "longitude", "heading_deg", "speed_mps")
"""Columns of a report in the state of `places`."""

PLACE_ROW: Final = """
    topic string, endpoint string, seen_at_us bigint, edge string, latitude double, longitude double, heading_deg double,
    speed_mps double, previous_edge string, gap_s double
"""
"""A last position or a handover, by `topic`. `previous_edge` and `gap_s` are for handovers only: the edge before, and the time
between the last report there and the first one here."""

SLOT_ROW: Final = """
    topic string, place string, slot bigint, reports bigint, endpoints int, speed_mps_mean double, speed_mps_min double,
    speed_mps_max double
"""
"""One way or one hole in one slot, by `topic`. Speeds are whole thousandths, null for holes."""


FORGET_S: Final = 3_600.0
"""Time after which the state of an endpoint expires: a return after an hour is a journey, not a handover."""

_SECOND_US: Final = 1_000_000
_COLUMNS: Final = list(REPORT_COLUMNS)
_TYPES: Final = pa.schema(
    [
        ("endpoint", pa.string()),
        ("seen_at_us", pa.int64()),
        ("edge", pa.string()),
        ("latitude", pa.float64()),
        ("longitude", pa.float64()),
        ("heading_deg", pa.float64()),
        ("speed_mps", pa.float64()),
    ]
)

UNKNOWN: Final = "-"
"""The octant of a report without heading."""

Ways = Callable[[DataFrame], DataFrame]
"""Adds the column `way` to rows with `latitude`, `longitude`, `heading_deg`, `row` and `column`; null: on no way."""

STATE_VERSION: Final = 2
"""Version of the state of the queries."""


def plans(settings: PipelineSettings) -> list[Plan]:
    """Return the three queries; the third only if a kind counts reports."""

    def in_slots(log: DataFrame) -> DataFrame:
        return slot_records(slots(reports(log), allowed_lateness_s=settings.allowed_lateness_s))

    return [
        Plan("positions-places", (REPORTS_TOPIC,), STATE_VERSION, lambda log: place_records(places(reports(log)))),
        Plan("positions-slots", (REPORTS_TOPIC,), STATE_VERSION, in_slots),
        *_congestion(settings),
    ]


def _congestion(settings: PipelineSettings) -> list[Plan]:
    """Return the query for the kinds that count reports; it counts their messages too, as a cell must have a single producer."""
    kinds = [kind for kind in settings.kinds if kind.from_reports]

    def transform(log: DataFrame) -> DataFrame:
        all_events = report_events(reports(log), kinds).unionByName(events(messages(log), kinds))
        return cell_records(cells(all_events, kinds, allowed_lateness_s=settings.allowed_lateness_s))

    # The state has a column for each tallied field: other fields need new state.
    state_version = crc32(",".join(tallied_fields(kinds)).encode(), STATE_VERSION)
    return [Plan("positions-congestion", (MESSAGES_TOPIC, REPORTS_TOPIC), state_version, transform)] if kinds else []


def places(reports: DataFrame) -> DataFrame:
    """Return last positions and handovers, as PLACE_ROW; streaming only."""
    rows = reports.where("verdict = 0").select(*REPORT_COLUMNS, bucket_of("endpoint").alias("bucket"))
    return apply_in_buckets(rows, _step, PLACE_ROW, output="Update")


def by_square_and_octant(reports: DataFrame) -> DataFrame:
    """Add ways without a road map: ROW/COLUMN/OCTANT; octant 0 is north ± 22.5°."""
    octant = f.pmod(f.floor((f.col("heading_deg") + 22.5) / 45), f.lit(8)).cast("string")
    return reports.withColumn("way", f.concat_ws("/", "row", "column", f.coalesce(octant, f.lit(UNKNOWN))))


def slots(reports: DataFrame, *, allowed_lateness_s: float, ways: Ways = by_square_and_octant) -> DataFrame:
    """Return speeds on ways and holes in the coverage, slot by slot, as SLOT_ROW."""
    accepted = reports.where("verdict = 0").where(_is_clock_plausible()).withColumn("seen_at", f.timestamp_micros("seen_at_us"))
    accepted = accepted.withWatermark("seen_at", f"{allowed_lateness_s} seconds").withColumn(
        "height", f.lit(Grid(SIDE_M).height).cast("bigint")
    )
    placed = ways(with_square(accepted))
    # Whole thousandths: their sum is the same in any order.
    speed = f.when(~f.isnan("speed_mps"), (f.col("speed_mps") * 1000).cast("bigint"))
    on_way = f.when(speed.isNotNull() & f.col("way").isNotNull(), _part(SPEEDS_TOPIC, f.col("way"), speed))
    in_hole = f.when(f.col("covered") == 2, _part(HOLES_TOPIC, f.concat_ws("/", "row", "column"), f.lit(None).cast("bigint")))
    parts = placed.select("seen_at", "endpoint", f.explode(f.array_compact(f.array(on_way, in_hole))).alias("part"))
    summed = parts.groupBy(f.window("seen_at", f"{SLOT_S} seconds"), "part.topic", "part.place").agg(
        f.count("*").alias("reports"),
        # An exact set, not an estimate: the number of endpoints in a square is bounded.
        f.size(f.collect_set("endpoint")).alias("endpoints"),
        f.sum("part.speed").alias("total"),
        f.count("part.speed").alias("speeds"),
        f.min("part.speed").alias("least"),
        f.max("part.speed").alias("greatest"),
    )
    return summed.select(
        "topic",
        "place",
        (f.unix_seconds("window.start") / SLOT_S).cast("bigint").alias("slot"),
        "reports",
        "endpoints",
        (f.col("total") / f.col("speeds") / 1000).alias("speed_mps_mean"),
        (f.col("least") / 1000).alias("speed_mps_min"),
        (f.col("greatest") / 1000).alias("speed_mps_max"),
    )


def report_events(reports: DataFrame, kinds: Sequence[EventKind]) -> DataFrame:
    """Return the events in reports (REPORT_ROW), with schema EVENT_ROW: a speed at a place, for each of these kinds (M21)."""
    has_speed = f.col("speed_mps").isNotNull() & ~f.isnan("speed_mps")
    known = reports.where("verdict = 0").where(has_speed).where(_is_clock_plausible())
    return known.select(
        f.explode(f.array(*(f.lit(kind.name) for kind in kinds))).alias("kind"),
        *("endpoint", "seen_at_us", "latitude", "longitude"),
        f.create_map(f.lit("speed_mps"), "speed_mps").alias("fields"),
    )


def place_records(rows: DataFrame) -> DataFrame:
    """Return PLACE_ROW as records of the log."""
    position = ("latitude", "longitude", "heading_deg", "speed_mps")
    last = f.to_json(f.struct(f.lit("last").alias("type"), "endpoint", "edge", "seen_at_us", *position))
    from_edge = f.col("previous_edge").alias("from")
    handover = f.struct(
        f.lit("handover").alias("type"), "endpoint", from_edge, f.col("edge").alias("to"), "seen_at_us", "gap_s", *position
    )
    value = f.when(f.col("topic") == LAST_TOPIC, last).when(f.col("topic") == HANDOVERS_TOPIC, f.to_json(handover))
    return rows.select("topic", f.col("endpoint").alias("key"), value.alias("value"))


def slot_records(rows: DataFrame) -> DataFrame:
    """Return SLOT_ROW as records of the log."""
    key = f.concat_ws("/", "slot", "place")
    parts = f.split("place", "/")
    square = (parts[0].cast("bigint").alias("row"), parts[1].cast("bigint").alias("column"))
    speeds = f.struct(
        f.lit("speeds").alias("type"),
        "slot",
        f.col("place").alias("way"),
        *("reports", "endpoints", "speed_mps_mean", "speed_mps_min", "speed_mps_max"),
    )
    hole = f.struct(f.lit("hole").alias("type"), "slot", *square, "reports", "endpoints")
    value = f.when(f.col("topic") == SPEEDS_TOPIC, f.to_json(speeds)).when(f.col("topic") == HOLES_TOPIC, f.to_json(hole))
    return rows.select("topic", key.alias("key"), value.alias("value"))


def _is_clock_plausible() -> Column:
    """Return whether the clock does not run ahead: that would advance the watermark for all endpoints."""
    return f.col("seen_at_us") <= f.unix_micros("appended_at") + CLOCK_AHEAD_S_MAX * 1_000_000


def _part(topic: str, place: Column, speed: Column) -> Column:
    return f.struct(f.lit(topic).alias("topic"), place.alias("place"), speed.alias("speed"))


def _step(state: bytes | None, reports: pd.DataFrame) -> tuple[bytes, pd.DataFrame]:
    before = LastPositions.empty() if state is None else LastPositions.from_bytes(state)
    after, rows = update_positions(before, reports)
    return after.to_bytes(), rows


@dataclass(frozen=True, slots=True)
class LastPositions:
    """The last position of each endpoint, one row each."""

    rows: pd.DataFrame

    @classmethod
    def empty(cls) -> "LastPositions":
        """Return the state without endpoints."""
        return cls(_TYPES.empty_table().to_pandas())

    @classmethod
    def from_bytes(cls, state: bytes) -> "LastPositions":
        """Return the positions in stored state."""
        return cls(pa.ipc.open_stream(state).read_pandas())

    def to_bytes(self) -> bytes:
        """Return the positions as state to be stored."""
        sink = pa.BufferOutputStream()
        table = pa.Table.from_pandas(self.rows, _TYPES, preserve_index=False)
        with pa.ipc.new_stream(sink, _TYPES) as writer:
            writer.write_table(table)
        return bytes(sink.getvalue())


def update_positions(
    before: LastPositions, reports: pd.DataFrame, *, forget_s: float = FORGET_S
) -> tuple[LastPositions, pd.DataFrame]:
    """Return the positions after a batch of reports, and the rows to publish (PLACE_ROW)."""
    both = pd.concat([before.rows[_COLUMNS].assign(is_new=False), reports[_COLUMNS].assign(is_new=True)], ignore_index=True)
    both = both.sort_values([*_COLUMNS, "is_new"], ignore_index=True)
    both = both[_is_current(both)]
    previous = both.groupby("endpoint", sort=False)[["edge", "seen_at_us"]].shift()
    gap_s = (both["seen_at_us"] - previous["seen_at_us"]) / _SECOND_US
    both = both.assign(previous_edge=previous["edge"], gap_s=gap_s)
    is_handover = both["previous_edge"].notna() & (both["previous_edge"] != both["edge"]) & (both["gap_s"] <= forget_s)
    last = both.drop_duplicates("endpoint", keep="last")
    new_last = last[last["is_new"]].assign(topic=LAST_TOPIC, previous_edge=None, gap_s=np.nan)
    output = pd.concat([both[is_handover].assign(topic=HANDOVERS_TOPIC), new_last], ignore_index=True)
    oldest = last["seen_at_us"].max() - forget_s * _SECOND_US
    return LastPositions(last.loc[last["seen_at_us"] >= oldest, _COLUMNS]), output[["topic", *_COLUMNS, "previous_edge", "gap_s"]]


def _is_current(both: pd.DataFrame) -> "pd.Series[bool]":
    """Return the rows that are not older than the known position of their endpoint; all rows of unknown endpoints."""
    known = both.loc[~both["is_new"], "endpoint"]
    starts = both["endpoint"].map(pd.Series(known.index, index=known.to_numpy()))
    return starts.isna() | (both.index >= starts)
