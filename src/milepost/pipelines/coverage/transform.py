"""Who was inside an area while a message was valid, and what edges say became of it."""

from collections.abc import Iterator

import pandas as pd
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from milepost.model.areas import Area, Bounds, Going, holds_going
from milepost.model.places import vectors
from milepost.pipelines.columns import names_of
from milepost.pipelines.coverage.schema import GOT_ROW, INSIDE_ROW, PROOF_ROW

_SIGHTING = ("endpoint", "seen_at_us", "latitude", "longitude", "heading_deg", "speed_mps", "edge", "covered", "verdict")


def inside(reports: DataFrame, area: Area, *, start_us: int, end_us: int) -> DataFrame:
    """INSIDE_ROW: who was in an area at one instant, by its last report, or came into it up to another."""
    known = reports.where(f.col("seen_at_us") <= end_us).select(*_SIGHTING)
    is_before = f.col("seen_at_us") <= start_us
    last = (
        known.where(is_before).groupBy("endpoint").agg(f.max_by(f.struct(*_SIGHTING), "seen_at_us").alias("one")).select("one.*")
    )
    sightings = within(last.unionByName(known.where(~is_before)), area)
    return (
        sightings.groupBy("endpoint")
        .agg(
            f.min("seen_at_us").alias("first_us"),
            f.max("seen_at_us").alias("last_us"),
            *(f.min_by(name, "seen_at_us").alias(name) for name in ("latitude", "longitude", "edge", "covered")),
            f.count_if(f.col("verdict") == 0).alias("accepted"),
            f.max_by(f.col("verdict"), f.when(f.col("verdict") != 0, f.col("seen_at_us"))).alias("refusal"),
        )
        .select(*names_of(INSIDE_ROW))
    )


def within(rows: DataFrame, area: Area) -> DataFrame:
    """The rows whose place lies in an area; if that is on roads, of those that go its way."""

    def kept(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for batch in batches:
            going = Going(batch["heading_deg"].to_numpy(float), batch["speed_mps"].to_numpy(float))
            yield batch[holds_going(area, vectors(batch["latitude"], batch["longitude"]), going)]

    near = f.lit(False)
    for box in area.boxes:
        near = near | _in_box(box)
    # In Python, because what an area holds is decided by one piece of code.
    return rows.where(near).mapInPandas(kept, rows.schema)


def got(deliveries: DataFrame, *, source: str, message_id: str) -> DataFrame:
    """GOT_ROW: what edges say about a message."""
    about = deliveries.where((f.col("source") == source) & (f.col("id") == message_id))
    states = ("matched", "sent", "acknowledged", "dropped")
    return (
        about.groupBy("endpoint")
        .agg(
            *(f.min(f.when(f.col("state") == state, f.col("at_us"))).alias(f"{state}_us") for state in states),
            f.max_by("reason", f.when(f.col("state") == "dropped", f.col("at_us"))).alias("reason"),
            f.max_by("edge", "at_us").alias("told_by"),
        )
        .select(*names_of(GOT_ROW))
    )


def proof(insiders: DataFrame, takers: DataFrame) -> DataFrame:
    """PROOF_ROW: each endpoint that was inside or that edges know of."""
    return insiders.join(takers, on="endpoint", how="full_outer").select(*names_of(PROOF_ROW))


def _in_box(box: Bounds) -> Column:
    latitude, longitude = f.col("latitude"), f.col("longitude")
    is_at_height = latitude.between(box.south, box.north)
    if box.west <= box.east:
        return is_at_height & longitude.between(box.west, box.east)
    return is_at_height & ((longitude >= box.west) | (longitude <= box.east))
