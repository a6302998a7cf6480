"""Spark pipelines: how fast cells are made, and how soon an alert follows a report: `make bench-pipelines` (QUICK=1: smaller).

    reports ─▶ log ─▶ `milepost pipeline run hazards` ─▶ cells ─▶ `milepost incidents run` ─▶ alerts
    └────────────────────── timed from the append to when a reader of the log has it ─────────┘

`python -m bench.pipelines batch catching latency positions past` measures some of it.
"""

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.pipelines_history import measure_past
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from bench.harness import QUICK, Row, publish, row
from bench.pipelines_latency import measure_latency, said_at
from bench.pipelines_positions import measure_positions
from milepost.eventlog.kafka import KafkaLog
from milepost.eventlog.log import Entry, LogUnavailable
from milepost.model.durability import Durability
from milepost.model.incidents import EVENT_KINDS
from milepost.pipelines.hazards import KEY, cells, plans, with_slot, with_square
from milepost.pipelines.records import MESSAGES_TOPIC
from milepost.pipelines.session import open_session
from milepost.pipelines.settings import PipelineSettings
from milepost.pipelines.sources.kafka import KafkaSource
from milepost.runtime.services.jars import kafka_jars
from milepost.runtime.services.kafka import Kafka, running_kafka

EVENTS = 2_000_000 if QUICK else 10_000_000
WAITING = 100_000 if QUICK else 2_000_000
"""Reports that a stream finds waiting: fewer than the goal's, for the disk's sake; the rate is what counts."""
PLACES = 200
"""Where something happens: a cell then has some reports, as it has where there is something to report."""
ROUNDS = 2 if QUICK else 3
KINDS = tuple(kind for kind in EVENT_KINDS if not kind.from_reports)
WORKS = ("batch", "catching", "latency", "positions", "past")


def main() -> None:
    works = sys.argv[1:] or list(WORKS)
    rows: list[Row] = []
    notes = [f"load average {os.getloadavg()[0]:.1f} before the run"]
    try:
        with tempfile.TemporaryDirectory(prefix="bench-pipelines-") as name:
            measure(works, Path(name), rows, notes)
    finally:
        if rows:  # who stops it sees what there is
            publish("pipelines", rows, notes)


def measure(works: Sequence[str], folder: Path, rows: list[Row], notes: list[str]) -> None:
    """The works that are asked for, in this order; each adds its rows."""
    if "batch" in works:
        rows += measure_batch(folder)
    with running_kafka(folder / "kafka") as kafka:
        if "catching" in works:
            rows += measure_catching_up(folder, kafka)
        if "latency" in works:
            rows += measure_latency(folder, kafka, notes)
        if "positions" in works:
            rows += measure_positions(folder, kafka, notes)
    if "past" in works:
        spark = session(folder)
        rows += measure_past(spark, folder, notes)
        spark.stop()


def session(folder: Path, *, cores: int = 2) -> SparkSession:
    settings = {"spark.driver.memory": "3g", "spark.local.dir": str(folder / "spark")}
    return open_session("bench", master=f"local[{cores}]", jars=kafka_jars(told=print), settings=settings)


def measure_batch(folder: Path) -> list[Row]:
    """Cells of events that are read from a file, beside a count by the same keys."""
    spark = session(folder)
    path = str(folder / "events")
    made(spark).write.parquet(path)
    events = spark.read.parquet(path)
    whole = best_s(lambda: into_nothing(cells(events, KINDS, late_s=60.0)))
    bare = best_s(lambda: into_nothing(with_square(with_slot(events, KINDS)).groupBy(*KEY).count()))
    spark.stop()
    shutil.rmtree(path)
    what = f"hazards in batch, {EVENTS:,} reports, exact witnesses"
    return [row(what, "/s", EVENTS / whole, "groupBy-count on the same keys", EVENTS / bare, ratio_min=0.5)]


def made(spark: SparkSession) -> DataFrame:
    """16,667 events a second at some places of a city, by 20,000 endpoints, each at its place."""
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


def measure_catching_up(folder: Path, kafka: Kafka) -> list[Row]:
    """A stream that finds reports waiting, beside one batch over the same."""
    prefix = "catching."
    log = KafkaLog(kafka.address, Durability.PROCESS_CRASH, client_id="bench", prefix=prefix)
    now = time.time_ns()
    for first in range(0, WAITING, 1_000):
        some = [Entry(MESSAGES_TOPIC, "e", said_at("Collision", one, now)) for one in range(first, first + 1_000)]
        appended(log, some)
    log.make("cells")
    log.close()
    spark = session(folder)
    source = KafkaSource(kafka.address, prefix, {})
    (plan,) = plans(PipelineSettings(kinds=KINDS))
    batch = best_s(lambda: into_nothing(plan.transform(source.table(spark, plan.topics))))
    stream = best_s(lambda: catch_up(spark, source, folder))
    spark.stop()
    what = f"hazards streaming, catching up on {WAITING:,} reports on Kafka"
    return [row(what, "/s", WAITING / stream, "one batch over the same", WAITING / batch, ratio_min=0.5)]


def appended(log: KafkaLog, entries: list[Entry]) -> None:
    """As soon as the log has room; it is given a minute."""
    give_up_at = time.monotonic() + 60.0
    while True:
        try:
            log.append(entries)
            return
        except LogUnavailable:
            if time.monotonic() > give_up_at:
                raise
            time.sleep(0.05)


def catch_up(spark: SparkSession, source: KafkaSource, folder: Path) -> None:
    (plan,) = plans(PipelineSettings(kinds=KINDS))
    checkpoint = tempfile.mkdtemp(dir=folder)
    sink = source.sink(plan.transform(source.stream(spark, plan.topics, records_max=max(20_000, WAITING // 10))), "bench")
    query = sink.outputMode(plan.output).option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()


def into_nothing(rows: DataFrame) -> None:
    rows.write.format("noop").mode("overwrite").save()


def best_s(work: Callable[[], object]) -> float:
    """The best of a few: noise only adds."""
    found = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        work()
        found.append(time.perf_counter() - began)
    return min(found)


if __name__ == "__main__":
    main()
