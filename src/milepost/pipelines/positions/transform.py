"""From reports to last places, handovers, speeds, holes, and events that speeds tell of.

What must hold: only reports that an edge has let in count, and what they give does not depend on the order in which they come.
A slot is told again as reports come in; of two records with one key the one with more reports counts.
"""

from collections.abc import Callable, Sequence
from typing import Final

import pandas as pd
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from milepost.model.incidents import EventKind, Grid
from milepost.pipelines.buckets import bucket_of, in_steps
from milepost.pipelines.grid import with_square
from milepost.pipelines.hazards.transform import AHEAD_S
from milepost.pipelines.positions.places import Places, take
from milepost.pipelines.positions.schema import (
    HANDOVERS_TOPIC,
    HOLES_TOPIC,
    LAST_TOPIC,
    PLACE_ROW,
    REPORT_COLUMNS,
    SIDE_M,
    SLOT_S,
    SPEEDS_TOPIC,
)

UNKNOWN: Final = "-"
"""The octant of who says no heading."""

Ways = Callable[[DataFrame], DataFrame]
"""Adds the column `way` to rows with `latitude`, `longitude`, `heading_deg`, `row` and `column`; nothing: on none."""


def places(reports: DataFrame) -> DataFrame:
    """Last places and handovers, as PLACE_ROW; a stream only."""
    rows = reports.where("verdict = 0").select(*REPORT_COLUMNS, bucket_of("endpoint").alias("bucket"))
    return in_steps(rows, _step, PLACE_ROW, output="Update")


def by_square_and_octant(reports: DataFrame) -> DataFrame:
    """Ways as long as there are no roads: ROW/COLUMN/OCTANT, north and what is up to 22.5° off it being octant 0."""
    octant = f.pmod(f.floor((f.col("heading_deg") + 22.5) / 45), f.lit(8)).cast("string")
    return reports.withColumn("way", f.concat_ws("/", "row", "column", f.coalesce(octant, f.lit(UNKNOWN))))


def slots(reports: DataFrame, *, late_s: float, ways: Ways = by_square_and_octant) -> DataFrame:
    """Speeds on ways and holes in the coverage, slot by slot, as SLOT_ROW."""
    accepted = reports.where("verdict = 0").where(_is_in_time()).withColumn("seen_at", f.timestamp_micros("seen_at_us"))
    accepted = accepted.withWatermark("seen_at", f"{late_s} seconds").withColumn(
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
        # A set and no estimate: there are no more than fit into a square.
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
    """EVENT_ROW of REPORT_ROW: that somebody was so fast there, for each of these kinds (M21: nobody presses a button)."""
    has_speed = f.col("speed_mps").isNotNull() & ~f.isnan("speed_mps")
    told = reports.where("verdict = 0").where(has_speed).where(_is_in_time())
    return told.select(
        f.explode(f.array(*(f.lit(kind.name) for kind in kinds))).alias("kind"),
        *("endpoint", "seen_at_us", "latitude", "longitude"),
        f.create_map(f.lit("speed_mps"), "speed_mps").alias("fields"),
    )


def place_records(told: DataFrame) -> DataFrame:
    """PLACE_ROW as records of the log."""
    where = ("latitude", "longitude", "heading_deg", "speed_mps")
    last = f.to_json(f.struct(f.lit("last").alias("type"), "endpoint", "edge", "seen_at_us", *where))
    left = f.col("left_edge").alias("from")
    moved = f.struct(f.lit("handover").alias("type"), "endpoint", left, f.col("edge").alias("to"), "seen_at_us", "gap_s", *where)
    value = f.when(f.col("topic") == LAST_TOPIC, last).when(f.col("topic") == HANDOVERS_TOPIC, f.to_json(moved))
    return told.select("topic", f.col("endpoint").alias("key"), value.alias("value"))


def slot_records(told: DataFrame) -> DataFrame:
    """SLOT_ROW as records of the log."""
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
    return told.select("topic", key.alias("key"), value.alias("value"))


def _is_in_time() -> Column:
    """Whether its clock does not run ahead: it would end slots for everybody."""
    return f.col("seen_at_us") <= f.unix_micros("appended_at") + AHEAD_S * 1_000_000


def _part(topic: str, place: Column, speed: Column) -> Column:
    return f.struct(f.lit(topic).alias("topic"), place.alias("place"), speed.alias("speed"))


def _step(kept: bytes | None, reports: pd.DataFrame) -> tuple[bytes, pd.DataFrame]:
    before = Places.empty() if kept is None else Places.from_bytes(kept)
    after, told = take(before, reports)
    return after.to_bytes(), told
