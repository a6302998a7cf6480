"""The pipeline `positions`: places of endpoints, their stays at edges, speeds and coverage holes from position reports.

    topic                 key                   value
    positions.last        EDGE/ENDPOINT         the last position of an endpoint at an edge
    positions.stays       SLOT/EDGE/ENDPOINT    the first and the last report of an endpoint at an edge, in one slot
    positions.speeds      SLOT/WAY              speeds of endpoints on a way, in one slot
    positions.holes       SLOT/ROW/COLUMN       reports from a square that no edge covers, in one slot

    reports ─▶ place_records: without state, in real-time mode
    reports ─▶ slots: SLOT_ROW, one groupBy for stays, speeds and holes ─▶ slot_records
    observations ─▶ observed_events ─▶ cells of the kinds that count reports (hazards)

`docs/reference/positions.md` describes the records; decision 0035 has the costs of the alternatives.

*Invariants:*
- only reports that an edge accepted count, and the result does not depend on their order. A slot is published again as reports
  arrive; of two records with one key the one with more reports counts;
- an edge accepts reports of an endpoint in the order in which they were seen, and appends them in that order, so the last record
  under a key of `positions.last` is the last position there: the log is the state;
- aggregates have buffers of fixed width, updated in place by compiled code, and the state of a slot ends by the watermark. A
  clock that runs ahead would advance it for all, so such a report counts in no slot.
"""

from collections.abc import Callable, Sequence
from typing import Final
from zlib import crc32

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from milepost.model.incidents import EventKind, Grid
from milepost.pipelines.hazards import (
    CLOCK_AHEAD_S_MAX,
    cell_records,
    cells,
    kinds_by_topic,
    numbers_in,
    tallied_fields,
    with_square,
)
from milepost.pipelines.plan import Plan
from milepost.pipelines.records import MESSAGES_TOPIC, REPORTS_TOPIC, observations, reports
from milepost.pipelines.settings import PipelineSettings

LAST_TOPIC: Final = "positions.last"
STAYS_TOPIC: Final = "positions.stays"
SPEEDS_TOPIC: Final = "positions.speeds"
HOLES_TOPIC: Final = "positions.holes"

SIDE_M: Final = 150.0
"""Side of the squares of ways and holes."""
SLOT_S: Final = 60
SLOT_INTERVAL_S: Final = 10.0
"""Minimum time between batches of slots: each batch reads and writes the state of every endpoint that has reported."""

SKETCH_BITS: Final = 256
"""Bits of the sketch by which endpoints are counted; see `_endpoint_count`."""

SLOT_ROW: Final = """
    topic string, place string, slot bigint, reports bigint, endpoints bigint, speed_mps_mean double, speed_mps_min double,
    speed_mps_max double, first_at_us bigint, first_spot bigint, last_at_us bigint, last_spot bigint
"""
"""One stay, way or hole in one slot, by `topic`. Speeds are whole thousandths, null for holes and stays; `endpoints` is an
estimate. The spots are null unless it is a stay; see `_spot`."""

UNKNOWN: Final = "-"
"""The octant of a report without heading."""

Ways = Callable[[DataFrame], DataFrame]
"""Adds the column `way` to rows with `latitude`, `longitude`, `heading_deg`, `row` and `column`; null: on no way."""

STATE_VERSION: Final = 4
"""Version of the state of the queries."""

_WORDS: Final = SKETCH_BITS // 64
_TIE_BITS: Final = 37
"""Bits of a moment below the microseconds since the begin of the slot, which need 26."""
_LONGITUDES: Final = 2**32


def plans(settings: PipelineSettings) -> list[Plan]:
    """Return the three queries; the third only if a kind counts reports."""

    def in_slots(log: DataFrame) -> DataFrame:
        return slot_records(slots(reports(log), allowed_lateness_s=settings.allowed_lateness_s))

    return [
        Plan("positions-places", (REPORTS_TOPIC,), STATE_VERSION, lambda log: place_records(reports(log)), is_urgent=True),
        Plan("positions-slots", (REPORTS_TOPIC,), STATE_VERSION, in_slots, interval_s_min=SLOT_INTERVAL_S),
        *_congestion(settings),
    ]


def _congestion(settings: PipelineSettings) -> list[Plan]:
    """Return the query for the kinds that count reports; it counts their messages too, as a cell must have a single producer."""
    kinds = [kind for kind in settings.kinds if kind.from_reports]

    def transform(log: DataFrame) -> DataFrame:
        found = observed_events(observations(log), kinds)
        return cell_records(cells(found, kinds, allowed_lateness_s=settings.allowed_lateness_s))

    # The state has a column for each tallied field: other fields need new state.
    state_version = crc32(",".join(tallied_fields(kinds)).encode(), STATE_VERSION)
    return [Plan("positions-congestion", (MESSAGES_TOPIC, REPORTS_TOPIC), state_version, transform)] if kinds else []


def place_records(reports: DataFrame) -> DataFrame:
    """Return the accepted reports (REPORT_ROW) as records of last positions."""
    position = ("latitude", "longitude", "heading_deg", "speed_mps")
    last = f.struct(f.lit("last").alias("type"), "endpoint", "edge", "seen_at_us", *position)
    return reports.where("verdict = 0").select(
        f.lit(LAST_TOPIC).alias("topic"), f.concat_ws("/", "edge", "endpoint").alias("key"), f.to_json(last).alias("value")
    )


def by_square_and_octant(reports: DataFrame) -> DataFrame:
    """Add ways without a road map: ROW/COLUMN/OCTANT; octant 0 is north ± 22.5°."""
    octant = f.pmod(f.floor((f.col("heading_deg") + 22.5) / 45), f.lit(8)).cast("string")
    return reports.withColumn("way", f.concat_ws("/", "row", "column", f.coalesce(octant, f.lit(UNKNOWN))))


def slots(reports: DataFrame, *, allowed_lateness_s: float, ways: Ways = by_square_and_octant) -> DataFrame:
    """Return stays, speeds on ways and holes in the coverage, slot by slot, as SLOT_ROW."""
    accepted = reports.where("verdict = 0").where(_is_clock_plausible()).withColumn("seen_at", f.timestamp_micros("seen_at_us"))
    watermark_delay_s = allowed_lateness_s + CLOCK_AHEAD_S_MAX
    accepted = accepted.withWatermark("seen_at", f"{round(watermark_delay_s * 1000)} milliseconds").withColumn(
        "height", f.lit(Grid(SIDE_M).height).cast("bigint")
    )
    parts = ways(with_square(accepted)).select(
        "seen_at", _moment().alias("moment"), f.xxhash64("endpoint").alias("hash"), f.explode(_parts()).alias("part")
    )
    summed = parts.groupBy(f.window("seen_at", f"{SLOT_S} seconds"), "part.topic", "part.place").agg(
        f.count(f.lit(1)).alias("reports"),
        *(f.bit_or(_sketch_word(number)).alias(f"word_{number}") for number in range(_WORDS)),
        f.sum("part.speed").alias("total"),
        f.count("part.speed").alias("speeds"),
        f.min("part.speed").alias("least"),
        f.max("part.speed").alias("greatest"),
        f.min("moment").alias("first"),
        f.max("moment").alias("last"),
        f.min_by("part.spot", "moment").alias("first_spot"),
        f.max_by("part.spot", "moment").alias("last_spot"),
    )
    begins_us = f.unix_micros("window.start")
    return summed.select(
        "topic",
        "place",
        f.expr(f"unix_seconds(window.start) div {SLOT_S}").alias("slot"),
        "reports",
        _endpoint_count().alias("endpoints"),
        (f.col("total") / f.col("speeds") / 1000).alias("speed_mps_mean"),
        (f.col("least") / 1000).alias("speed_mps_min"),
        (f.col("greatest") / 1000).alias("speed_mps_max"),
        (begins_us + f.shiftright("first", _TIE_BITS)).alias("first_at_us"),
        "first_spot",
        (begins_us + f.shiftright("last", _TIE_BITS)).alias("last_at_us"),
        "last_spot",
    )


def report_events(reports: DataFrame, kinds: Sequence[EventKind], *others: str) -> DataFrame:
    """Return the events in reports (REPORT_ROW), a speed at a place, for each kind: EVENT_ROW and columns *others* (M21)."""
    has_speed = f.col("speed_mps").isNotNull() & ~f.isnan("speed_mps")
    known = reports.where("verdict = 0").where(has_speed).where(_is_clock_plausible())
    return known.select(
        f.explode(f.array(*(f.lit(kind.name) for kind in kinds))).alias("kind"),
        *("endpoint", "seen_at_us", "latitude", "longitude"),
        f.create_map(f.lit("speed_mps"), "speed_mps").alias("fields"),
        *others,
    )


def observed_events(observations: DataFrame, kinds: Sequence[EventKind]) -> DataFrame:
    """Return the events in observations (OBSERVATION_ROW), with schema EVENT_ROW: those of both `events` and `report_events`."""
    is_report = f.col("topic").isNull()
    has_speed = f.col("speed_mps").isNotNull() & ~f.isnan("speed_mps")
    by_report = f.when((f.col("verdict") == 0) & has_speed, f.array(*(f.lit(kind.name) for kind in kinds)))
    speed = f.create_map(f.lit("speed_mps"), "speed_mps")
    return observations.where(_is_clock_plausible()).select(
        f.explode(f.when(is_report, by_report).otherwise(kinds_by_topic(kinds)[f.col("topic")])).alias("kind"),
        *("endpoint", "seen_at_us", "latitude", "longitude"),
        f.when(is_report, speed).otherwise(numbers_in("fields")).alias("fields"),
    )


def slot_records(rows: DataFrame) -> DataFrame:
    """Return SLOT_ROW as records of the log."""
    parts = f.split("place", "/", 3)
    stay = f.struct(
        *(f.lit("stay").alias("type"), "slot", parts[2].alias("endpoint"), f.concat_ws("/", parts[0], parts[1]).alias("edge")),
        *("reports", "first_at_us", _place_of("first_spot").alias("first"), "last_at_us", _place_of("last_spot").alias("last")),
    )
    speeds = f.struct(
        *(f.lit("speeds").alias("type"), "slot", f.col("place").alias("way"), "reports", "endpoints"),
        *("speed_mps_mean", "speed_mps_min", "speed_mps_max"),
    )
    square = (parts[0].cast("bigint").alias("row"), parts[1].cast("bigint").alias("column"))
    hole = f.struct(f.lit("hole").alias("type"), "slot", *square, "reports", "endpoints")
    value = (
        f.when(f.col("topic") == STAYS_TOPIC, f.to_json(stay))
        .when(f.col("topic") == SPEEDS_TOPIC, f.to_json(speeds))
        .when(f.col("topic") == HOLES_TOPIC, f.to_json(hole))
    )
    return rows.select("topic", f.concat_ws("/", "slot", "place").alias("key"), value.alias("value"))


def _is_clock_plausible() -> Column:
    """Return whether the clock does not run ahead: that would advance the watermark for all endpoints."""
    return f.col("seen_at_us") <= f.unix_micros("appended_at") + CLOCK_AHEAD_S_MAX * 1_000_000


def _parts() -> Column:
    """Return the slots in which a report counts: its stay, its way and its hole, without those that it has not."""
    # Whole thousandths: their sum is the same in any order.
    speed = f.when(~f.isnan("speed_mps"), (f.col("speed_mps") * 1000).cast("bigint"))
    stay = _part(STAYS_TOPIC, f.concat_ws("/", "edge", "endpoint"), spot=_spot())
    on_way = f.when(speed.isNotNull() & f.col("way").isNotNull(), _part(SPEEDS_TOPIC, f.col("way"), speed=speed))
    in_hole = f.when(f.col("covered") == 2, _part(HOLES_TOPIC, f.concat_ws("/", "row", "column")))
    return f.array_compact(f.array(stay, on_way, in_hole))


def _part(topic: str, place: Column, *, speed: Column | None = None, spot: Column | None = None) -> Column:
    nothing = f.lit(None).cast("bigint")
    members = {"speed": nothing if speed is None else speed, "spot": nothing if spot is None else spot}
    return f.struct(f.lit(topic).alias("topic"), place.alias("place"), *(column.alias(name) for name, column in members.items()))


def _moment() -> Column:
    """Return the time since the begin of the slot and, for reports of one microsecond, a hash of the place: one sort key."""
    tie = f.xxhash64("latitude", "longitude").bitwiseAND(f.lit(2**_TIE_BITS - 1))
    return f.shiftleft(f.expr(f"pmod(seen_at_us, {SLOT_S * 1_000_000}L)"), _TIE_BITS) + tie


def _spot() -> Column:
    """Return a place as one number: latitude, then longitude, in 1e-7 degrees from the south pole and the antimeridian."""
    return f.expr(f"cast((latitude + 90D) * 1e7D as bigint) * {_LONGITUDES}L + cast((longitude + 180D) * 1e7D as bigint)")


def _place_of(spot: str) -> Column:
    latitude = f.expr(f"round({spot} div {_LONGITUDES}L / 1e7D - 90D, 7)")
    longitude = f.expr(f"round({spot} % {_LONGITUDES}L / 1e7D - 180D, 7)")
    return f.struct(latitude.alias("latitude"), longitude.alias("longitude"))


def _sketch_word(number: int) -> Column:
    """Return this word of a sketch of SKETCH_BITS bits, of which each endpoint sets one."""
    is_here = f.col("hash").bitwiseAND(f.lit(_WORDS - 1)) == number
    return f.when(is_here, f.expr("shiftleft(1L, cast(shiftrightunsigned(hash, 58) as int))")).otherwise(f.lit(0).cast("bigint"))


def _endpoint_count() -> Column:
    """Return an estimate of the number of endpoints: linear counting, by the share of bits that no endpoint has set.

    An exact set would need a buffer that grows: it is not updated in place, and a crowded square would have no limit.
    """
    zeros = f.lit(SKETCH_BITS) - sum((f.bit_count(f"word_{number}") for number in range(_WORDS)), f.lit(0))
    estimate = f.round(-SKETCH_BITS * f.log(f.greatest(zeros, f.lit(1)) / SKETCH_BITS)).cast("bigint")
    return f.least(estimate, "reports")
