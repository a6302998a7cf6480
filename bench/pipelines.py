"""Spark pipelines: throughput of cells, and latency from a report to its alert: `make bench-pipelines` (QUICK=1: smaller).

    reports ─▶ log ─▶ `milepost pipeline run hazards` ─▶ cells ─▶ `milepost incidents run` ─▶ alerts
    └────────────────────── timed from the append to when a reader of the log has it ─────────┘

`python -m bench.pipelines batch catch-up recovery latency positions reputation history` runs some of it.
"""

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from bench.harness import QUICK, Row, publish, row
from bench.pipelines_catch_up import measure_catch_up
from bench.pipelines_history import measure_history
from bench.pipelines_latency import measure_latency
from bench.pipelines_positions import measure_positions
from bench.pipelines_recovery import measure_recovery
from bench.pipelines_reputation import measure_reputation
from milepost.model.incidents import EVENT_KINDS
from milepost.pipelines.hazards import KEY, cells, with_slot, with_square
from milepost.pipelines.spark_session import open_session
from milepost.runtime.services.jars import kafka_jars
from milepost.runtime.services.kafka import running_kafka

EVENTS = 2_000_000 if QUICK else 10_000_000
PLACES = 200
"""Number of places with events, so that a cell has several reports."""
ROUNDS = 2 if QUICK else 3
KINDS = tuple(kind for kind in EVENT_KINDS if not kind.from_reports)
WORKLOADS = ("batch", "catch-up", "recovery", "latency", "positions", "reputation", "history")


def main() -> None:
    workloads = sys.argv[1:] or list(WORKLOADS)
    rows: list[Row] = []
    notes = [f"load average {os.getloadavg()[0]:.1f} before the run"]
    try:
        with tempfile.TemporaryDirectory(prefix="bench-pipelines-") as name:
            measure(workloads, Path(name), rows, notes)
    finally:
        if rows:  # an interrupted run publishes what there is
            publish("pipelines", rows, notes)


def measure(workloads: Sequence[str], folder: Path, rows: list[Row], notes: list[str]) -> None:
    """Run the selected workloads, in this order; each adds its rows."""
    if "batch" in workloads:
        rows += measure_batch(folder, notes)
    with running_kafka(folder / "kafka") as kafka:
        if "catch-up" in workloads:
            spark = session(folder)
            rows += measure_catch_up(spark, folder, kafka, notes)
            spark.stop()
        if "recovery" in workloads:
            rows += measure_recovery(folder / "recovery", kafka, notes)
        if "latency" in workloads:
            rows += measure_latency(folder, kafka, notes)
        if "positions" in workloads:
            rows += measure_positions(folder, kafka, notes)
        if "reputation" in workloads:
            spark = session(folder)
            rows += measure_reputation(spark, folder, kafka, notes)
            spark.stop()
    if "history" in workloads:
        spark = session(folder)
        rows += measure_history(spark, folder, notes)
        spark.stop()


def session(folder: Path, *, cores: int = 2) -> SparkSession:
    settings = {"spark.driver.memory": "3g", "spark.local.dir": str(folder / "spark")}
    return open_session("bench", master=f"local[{cores}]", jars=kafka_jars(progress=print), settings=settings)


def measure_batch(folder: Path, notes: list[str]) -> list[Row]:
    """Measure cells of events read from a file, compared with the exact number of witnesses by the same keys."""
    spark = session(folder)
    path = str(folder / "events")
    make_events(spark).write.parquet(path)
    events = spark.read.parquet(path)
    by_key = with_square(with_slot(events, KINDS)).groupBy(*KEY)
    found = best_in_turn_s(
        lambda: discard(cells(events, KINDS, allowed_lateness_s=60.0)),
        lambda: discard(by_key.agg(f.count_distinct("endpoint"))),
        lambda: discard(by_key.count()),
    )
    spark.stop()
    shutil.rmtree(path)
    cells_s, distinct_s, bare_s = found
    notes.append(f"hazards in batch: a bare count by the same keys, without witnesses, took {EVENTS / bare_s:,.0f} reports/s")
    workload = f"hazards in batch, {EVENTS:,} reports"
    return [
        row(workload, "/s", EVENTS / cells_s, "count_distinct of endpoints by the same keys", EVENTS / distinct_s, ratio_min=1.3)
    ]


def make_events(spark: SparkSession) -> DataFrame:
    """Return 16,667 events per second at some places of a city, by 20,000 endpoints, each at its place."""
    names = f.array(*(f.lit(kind.name) for kind in KINDS))
    endpoint = f.pmod(f.xxhash64("id", f.lit(1)), f.lit(20_000))
    place = endpoint % PLACES
    drawn = spark.range(EVENTS, numPartitions=4).withColumn("_drawn", f.xxhash64("id"))
    return drawn.select(
        f.element_at(names, (f.pmod("_drawn", f.lit(len(KINDS))) + 1).cast("int")).alias("kind"),
        f.concat(f.lit("car-"), endpoint).alias("endpoint"),
        (f.lit(1_893_499_200_000_000) + f.col("id") * 60).alias("seen_at_us"),
        (f.lit(52.4) + place * 0.0007 + f.rand(1) * 0.0005).alias("latitude"),
        (f.lit(13.3) + place * 0.0011 + f.rand(2) * 0.0005).alias("longitude"),
        f.lit(None).cast("map<string, double>").alias("fields"),
    )


def discard(rows: DataFrame) -> None:
    rows.write.format("noop").mode("overwrite").save()


def best_in_turn_s(*calls: Callable[[], object]) -> list[float]:
    """Return the best of a few rounds of each call, after one to warm up; in turn, so that all have the same noise."""
    found: list[list[float]] = [[] for _ in calls]
    for _ in range(1 + ROUNDS):
        for call, times in zip(calls, found, strict=True):
            began = time.perf_counter()
            call()
            times.append(time.perf_counter() - began)
    return [min(times[1:]) for times in found]


def best_s(call: Callable[[], object]) -> float:
    """Return the best of a few rounds: noise only adds time."""
    found = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        call()
        found.append(time.perf_counter() - began)
    return min(found)


if __name__ == "__main__":
    main()
