"""Pipelines over the past: a backtest over a day of a city, and a thousand queries in one pass.

The day is generated: vehicles drive along the streets of a grid, each reports some thousand times, and in some squares all are
slow for some minutes. The hours are archived as by the archive pipeline.
"""

import time
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from bench.harness import QUICK, Row, row
from milepost.model.areas import Circle
from milepost.model.incidents import EVENT_KINDS
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.places import Place
from milepost.model.queries import parse_query
from milepost.model.time_windows import TimeWindow
from milepost.pipelines.archive.files import HOUR_NS, TableFolder
from milepost.pipelines.archive.ingest import append
from milepost.pipelines.archive.schema import MESSAGES, REPORTS, ArchiveTable
from milepost.pipelines.backtest import Replay, alerts
from milepost.pipelines.search import ArchiveQuery, search_messages

HOURS, HOURS_BEFORE = (3, 1) if QUICK else (24, 2)
REPORTS_PER_HOUR = 200_000 if QUICK else 4_166_667
MESSAGES_PER_HOUR = 20_000 if QUICK else 100_000
VEHICLES = 20_000
STREETS, STREETS_DEG = 20, 0.2
"""Streets a kilometre apart, in both directions; vehicles drive at ten metres per second."""
DAY = Instant(1_893_456_000 * SECOND_NS)
"""2030-01-01, the beginning of an hour."""
QUESTIONS = 1_000
LATE_S = 2.0
KINDS = tuple(kind for kind in EVENT_KINDS if kind.from_reports or kind.name == "Collision")


def measure_history(spark: SparkSession, folder: Path, notes: list[str]) -> list[Row]:
    """Measure a backtest over some hours and over all, and one query and a thousand."""
    archive = folder / "archive"
    began = time.perf_counter()
    for hour in range(HOURS):
        append(reports_in(spark, hour), TableFolder(archive, REPORTS))
        append(messages_in(spark, hour), TableFolder(archive, MESSAGES))
    notes.append(f"{HOURS} hours were generated and archived in {time.perf_counter() - began:.0f} s")
    rows = measure_backtest(spark, archive, notes)
    return rows + measure_search(spark, archive, notes)


def measure_backtest(spark: SparkSession, archive: Path, notes: list[str]) -> list[Row]:
    """Measure reports per second over all hours, compared with the first few: linear cost is a ratio of about one."""
    rates = {}
    for hours in (HOURS_BEFORE, HOURS):
        began = time.perf_counter()
        replay = Replay("bench", KINDS, allowed_lateness_s=LATE_S, since=DAY)
        count = sum(1 for _ in alerts(spark, archive, replay, start=DAY, end=Instant(DAY + hours * HOUR_NS)))
        spent_s = time.perf_counter() - began
        rates[hours] = hours * REPORTS_PER_HOUR / spent_s
        notes.append(f"backtest of {hours} hours, {hours * REPORTS_PER_HOUR:,} reports: {spent_s:.0f} s, {count:,} alerts")
    workload = f"backtest, {HOURS * REPORTS_PER_HOUR:,} reports"
    return [
        row(workload, "/s", rates[HOURS], f"{HOURS_BEFORE} hours of them", rates[HOURS_BEFORE], ratio_min=0.9),
        row(f"{workload}: a day of 100 M in ten minutes", "/s", rates[HOURS], ours_min=100e6 / 600),
    ]


def measure_search(spark: SparkSession, archive: Path, notes: list[str]) -> list[Row]:
    """Measure a thousand queries over an hour and a kilometre each, compared with one over all hours and the whole city."""
    everything = ArchiveQuery(
        parse_query("collision"), Circle(Place(52.5, 13.4), 50_000), TimeWindow(DAY, Instant(DAY + HOURS * HOUR_NS))
    )
    one_s = query_time_s(spark, archive, [everything])
    many_s = query_time_s(spark, archive, [question(number) for number in range(QUESTIONS)])
    notes.append(f"one query takes {one_s:.1f} s, {QUESTIONS:,} take {many_s:.1f} s, over {HOURS * MESSAGES_PER_HOUR:,} messages")
    workload = f"{QUESTIONS:,} past time windows in one pass"
    return [row(workload, "s", many_s, "one time window over all hours", one_s, less_is_better=True, ratio_min=1 / 3)]


def query_time_s(spark: SparkSession, archive: Path, queries: list[ArchiveQuery]) -> float:
    """Return the better of two runs."""
    found = []
    for _ in range(2):
        began = time.perf_counter()
        assert sum(answer["found"] for answer in search_messages(spark, archive, queries)), "no message was found"
        found.append(time.perf_counter() - began)
    return min(found)


def question(number: int) -> ArchiveQuery:
    """Return a query over a kilometre and an hour."""
    centre = Place(52.4 + number * 7_919 % 1_000 / 5_000, 13.3 + number * 104_729 % 1_000 / 5_000)
    start = Instant(DAY + number % (2 * HOURS - 1) * HOUR_NS // 2)
    return ArchiveQuery(
        parse_query("collision" if number % 2 else "obstacle"), Circle(centre, 1_000), TimeWindow(start, Instant(start + HOUR_NS))
    )


def reports_in(spark: SparkSession, hour: int) -> DataFrame:
    """Return the REPORT_ROWs of an hour."""
    rows = draw_rows(spark, hour, REPORTS_PER_HOUR).withColumns(
        {
            "edge": f.lit("bench/e1"),
            "heading_deg": f.lit(90.0),
            "speed_mps": speed(),
            "verdict": f.lit(0),
            "covered": f.lit(0),
        }
    )
    return in_columns(rows, REPORTS)


def messages_in(spark: SparkSession, hour: int) -> DataFrame:
    """Return the MESSAGE_ROWs of an hour: every second one is a collision."""
    is_collision = f.col("id") % 2 == 0
    rows = draw_rows(spark, hour, MESSAGES_PER_HOUR).withColumns(
        {
            "edge": f.lit("bench/e1"),
            "qos": f.lit(1),
            "source": f.col("endpoint"),
            "topic": f.when(is_collision, f.lit("Collision")).otherwise(f.lit("Obstacle")),
            "valid_until_us": f.lit(2**62),
            "priority": f.lit("safety"),
            "tags": f.array(f.when(is_collision, f.lit("collision")).otherwise(f.lit("obstacle"))),
            "address": f.lit(None).cast("string"),
            "fields": f.lit(None).cast("map<string, string>"),
            "body": f.lit(b""),
        }
    )
    return in_columns(rows.withColumn("id", f.col("offset").cast("string")), MESSAGES)


def draw_rows(spark: SparkSession, hour: int, count: int) -> DataFrame:
    """Return vehicles with times and positions; offsets continue from hour to hour."""
    at_us = f.lit(DAY // 1_000 + hour * HOUR_NS // 1_000) + (f.col("id") * (3_600_000_000 / count)).cast("bigint")
    rows = spark.range(count, numPartitions=4).withColumns(
        {
            "offset": f.col("id") + hour * count,
            "seen_at_us": at_us,
            "number": f.pmod(f.xxhash64("id", f.lit(hour)), f.lit(VEHICLES)),
        }
    )
    street = f.floor(f.col("number") / 2) % STREETS * (STREETS_DEG / STREETS)
    along = (f.col("number") * 0.00137 + f.col("seen_at_us") * 90e-12) % STREETS_DEG
    is_northbound = f.col("number") % 2 == 0
    return rows.withColumns(
        {
            "endpoint": f.concat(f.lit("car-"), "number"),
            "latitude": 52.4 + f.when(is_northbound, along).otherwise(street),
            "longitude": 13.3 + f.when(is_northbound, street).otherwise(along) * 1.64,
            "appended_at": f.timestamp_micros(f.col("seen_at_us") + 250_000),
        }
    )


def speed() -> Column:
    """Return speeds: slow for ten minutes of each hour in one square of forty, else city speed."""
    square = f.floor(f.col("latitude") * 100) * 31 + f.floor(f.col("longitude") * 100)
    is_slow = (square % 40 == 0) & (f.col("seen_at_us") / 600e6 % 6 < 1)
    return f.when(is_slow, f.lit(1.5)).otherwise(8.0 + f.col("number") % 10)


def in_columns(rows: DataFrame, table: ArchiveTable) -> DataFrame:
    """Return the columns of a table, in its order and types."""
    schema = StructType.fromDDL(table.row)
    assert isinstance(schema, StructType)
    return rows.select(*(f.col(one.name).cast(one.dataType).alias(one.name) for one in schema))
