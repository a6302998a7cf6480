"""Reputation at a constant rate: minutes of reports of 20,000 vehicles on Kafka, through the query of the pipeline.

The log holds some minutes of reports. A query reads them in batches of two seconds of reports, as a live one does, and one more
report that ends them all. The rate is that of the whole run: batches, checks of complete minutes, and scores.
"""

import os
import tempfile
import time
from pathlib import Path

import numpy as np
from pyspark.sql import SparkSession

from bench.harness import QUICK, Row, row
from milepost.eventlog.kafka import KafkaLog
from milepost.eventlog.log import Entry, LogUnavailable
from milepost.model.durability import Durability
from milepost.model.pipeline_records import REPUTATION
from milepost.model.places import EARTH_RADIUS_M
from milepost.model.site_records import EdgeRef
from milepost.pipelines.records import MESSAGES_TOPIC, REPORTS_TOPIC
from milepost.pipelines.reputation.pipeline import plans
from milepost.pipelines.settings import PipelineSettings
from milepost.pipelines.sources.kafka import KafkaSource
from milepost.runtime.services.kafka import Kafka
from milepost.wire.records import ReportRecord, reports_to_record

VEHICLES = 20_000
"""Each reports once a second."""
SECONDS = 60 if QUICK else 300
EDGES = 20
BATCH_S = 2
SIDE_M = 14_000.0
STREET_M = 200.0
LATENESS_S = 5.0
GOAL = 20_000
DEGREE_M = EARTH_RADIUS_M * np.pi / 180


def measure_reputation(spark: SparkSession, folder: Path, kafka: Kafka, notes: list[str]) -> list[Row]:
    """Measure reports per second, and the CPU time that they take."""
    prefix = "reputation."
    append_reports(KafkaLog(kafka.address, Durability.PROCESS_CRASH, client_id="bench", prefix=prefix))
    source = KafkaSource(kafka.address, prefix, {})
    (plan,) = plans(PipelineSettings(allowed_lateness_s=LATENESS_S))
    rows = plan.transform(source.stream(spark, plan.topics, records_max=EDGES * BATCH_S))
    sink = source.sink(rows, "bench").outputMode(plan.output).option("checkpointLocation", tempfile.mkdtemp(dir=folder))
    began, cpu_s = time.perf_counter(), cpu_seconds(os.getpid())
    query = sink.trigger(availableNow=True).start()
    query.awaitTermination()
    took_s, cpu_s = time.perf_counter() - began, cpu_seconds(os.getpid()) - cpu_s
    reports = VEHICLES * SECONDS
    cores = cpu_s / reports * GOAL
    notes.append(f"reputation: {reports:,} reports in {took_s:.0f} s, {cpu_s:.0f} s of CPU, load {os.getloadavg()[0]:.1f}")
    workload = f"reputation, {VEHICLES:,} vehicles, {SECONDS} s of reports on Kafka"
    return [
        row(workload, "/s", reports / took_s, ours_min=GOAL),
        row(f"{workload}: CPU at {GOAL:,}/s", "cores", cores, ours_max=2),
    ]


def append_reports(log: KafkaLog) -> None:
    """Append the reports of all seconds, and one after the last minute and its lateness."""
    log.make(REPUTATION)
    log.make(MESSAGES_TOPIC)
    begins_at = time.time_ns() // 60_000_000_000 * 60 - SECONDS - 240
    traffic = Traffic()
    for second in range(SECONDS):
        append(log, [traffic.record(edge, begins_at + second, second) for edge in range(EDGES)])
    append(log, [traffic.record(0, begins_at + SECONDS + 200, SECONDS)])
    log.close()


class Traffic:
    """Vehicles on the streets of a grid, at changing speeds, some standing at lights, with position errors of half a metre."""

    def __init__(self) -> None:
        self._rng = np.random.default_rng(1)
        self._street_m = self._rng.integers(0, int(SIDE_M / STREET_M), VEHICLES) * STREET_M
        self._begin_m = self._rng.uniform(0, SIDE_M, VEHICLES)
        self._phase_s = self._rng.uniform(0, 100, VEHICLES)
        self._is_eastbound = self._rng.random(VEHICLES) < 0.5

    def record(self, edge: int, seen_at_s: int, second: int) -> bytes:
        """Return the reports of one edge's vehicles in a second."""
        own = np.arange(edge, VEHICLES, EDGES)
        # Speed follows a sine cut off at 0: 14 m/s at most, standing for a fifth of the time.
        angle = 2 * np.pi * (np.arange(second + 1)[:, None] + self._phase_s[own]) / 100
        speeds = np.maximum(0.0, 5.5 + 8.5 * np.sin(angle))
        along_m = (self._begin_m[own] + speeds.sum(axis=0)) % SIDE_M
        is_east = self._is_eastbound[own]
        east_m = np.where(is_east, along_m, self._street_m[own]) + self._rng.normal(0, 0.5, own.size)
        north_m = np.where(is_east, self._street_m[own], along_m) + self._rng.normal(0, 0.5, own.size)
        record = ReportRecord(
            EdgeRef("bench", f"e{edge}"),
            [f"car-{number}" for number in own],
            np.full(own.size, seen_at_s * 1_000_000_000, np.int64),
            52.4 + north_m / DEGREE_M,
            13.3 + east_m / DEGREE_M / np.cos(np.radians(52.4)),
            np.where(is_east, 90.0, 0.0),
            speeds[-1],
            np.zeros(own.size, np.uint8),
            np.zeros(own.size, np.uint8),
        )
        return reports_to_record(record)


def append(log: KafkaLog, records: list[bytes]) -> None:
    """Append as soon as the log has space; give up after a minute."""
    give_up_at = time.monotonic() + 60.0
    while True:
        try:
            log.append([Entry(REPORTS_TOPIC, "e", record) for record in records])
            return
        except LogUnavailable:
            if time.monotonic() > give_up_at:
                raise
            time.sleep(0.05)


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process and its descendants, the ended ones included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    own_s = sum(int(ticks) for ticks in fields[11:15]) / os.sysconf("SC_CLK_TCK")
    below = [one for children in Path(f"/proc/{pid}/task").glob("*/children") for one in children.read_text().split()]
    return own_s + sum(cpu_seconds(int(one)) for one in below)
