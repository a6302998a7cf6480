"""Positions at a constant rate: reports of edges, through `milepost pipeline run positions` in its own process.

    feeder ─▶ reports ─▶ `milepost pipeline run positions` ─▶ positions.last ─▶ reader: lag since the report was seen
                         └── processor time and PSS of its process tree

The heap has a fixed size and is touched at the start, so that growth of the PSS is growth outside it: state, buffers, threads.
Growth shows as a difference between the second half and the first.
"""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

import numpy as np
import orjson

from bench.harness import QUICK, Row, row
from bench.pipelines_latency import processes
from milepost.eventlog.kafka import KafkaLog
from milepost.eventlog.log import Entry, Record, TopicEnd
from milepost.model.durability import Durability
from milepost.model.site_records import EdgeRef
from milepost.pipelines.positions import LAST_TOPIC
from milepost.pipelines.records import REPORTS_TOPIC
from milepost.runtime.services.kafka import Kafka
from milepost.wire.records import ReportRecord, reports_to_record

RATE = 20_000
SECONDS = int(os.environ.get("POSITIONS_S", "25" if QUICK else "300"))
WARM_S = 15 if QUICK else 90
"""Time before anything is counted: the code is compiled."""
BATCHES_PER_S = 5
EDGES = 20
VEHICLES = 20_000
SAMPLE_INTERVAL_S = 2.0
KEPT_UP = 0.95
"""Minimum share of the reports whose last places were read while they were appended."""
LAG_EVERY = 50
"""Number of records for each measured lag."""

FIXED_HEAP = "-Xms1g -XX:+AlwaysPreTouch"
SETTINGS = """
[site]
name = "bench"
log = "kafka"
address = "{address}"
prefix = "positions."
[pipelines]
folder = "{folder}"
http = ""
memory = "1g"
"""


@dataclass
class Samples:
    """The samples of a run."""

    lags_ms: list[float] = field(default_factory=list)
    bytes: list[float] = field(default_factory=list)
    cores: float = float("nan")
    """Processor time per time; unknown if the pipeline did not keep up."""
    is_measured: bool = False
    records: int = 0

    def take(self, records: Sequence[Record]) -> None:
        """Take the lag of some records."""
        now_us = time.time_ns() / 1000
        self.records += len(records)
        for record in records[::LAG_EVERY] if self.is_measured else ():
            self.lags_ms.append((now_us - orjson.loads(record.value or b"{}")["seen_at_us"]) / 1000)

    def halves(self) -> tuple[float, float]:
        """Return the median memory of the first and the second half."""
        middle = len(self.bytes) // 2
        return float(np.median(self.bytes[:middle])), float(np.median(self.bytes[middle:]))


def measure_positions(folder: Path, kafka: Kafka, notes: list[str]) -> list[Row]:
    """Measure processor time, lag and memory at a constant rate."""
    place = folder / "positions"
    place.mkdir()
    (place / "m.toml").write_text(SETTINGS.format(address=kafka.address, folder=place / "pipelines"))
    log = KafkaLog(kafka.address, Durability.PROCESS_CRASH, client_id="bench", prefix="positions.")
    with (
        patch.dict(os.environ, {"SPARK_SUBMIT_OPTS": FIXED_HEAP}),
        processes(place, {"pipelines": ("pipeline", "run", "positions")}) as (pid,),
    ):
        samples = feed(log, pid, notes)
    log.close()
    return rows_of(samples)


def rows_of(samples: Samples) -> list[Row]:
    workload = f"positions, {RATE:,} reports/s for {SECONDS} s"
    first, second = (size / 1e6 for size in samples.halves())
    p50, p99 = np.percentile(samples.lags_ms, (50, 99)) if samples.lags_ms else (float("nan"), float("nan"))
    return [
        row(f"{workload}: processor time", "% of a core", samples.cores * 100, ours_max=50),
        row(f"{workload}: last place behind, p50", "ms", float(p50), ours_max=150),
        row(f"{workload}: last place behind, p99", "ms", float(p99)),
        row(f"{workload}: PSS with a heap of 1 GiB", "MB", second, "first half", first, less_is_better=True, ratio_min=0.97),
    ]


def feed(log: KafkaLog, pid: int, notes: list[str]) -> Samples:
    """Append at the rate, and sample."""
    samples, late, began = Samples(), 0, time.perf_counter()
    following = log.follow({LAST_TOPIC: TopicEnd.END}, samples.take, print)
    sample_at, used_s, records = began + WARM_S, 0.0, 0
    for batch in range((WARM_S + SECONDS) * BATCHES_PER_S):
        wait_s = began + batch / BATCHES_PER_S - time.perf_counter()
        if wait_s > 0:
            time.sleep(wait_s)
        late += wait_s < -1.0
        if batch == WARM_S * BATCHES_PER_S:
            samples.is_measured, used_s, records = True, processor_s(pid), samples.records
        log.append([Entry(REPORTS_TOPIC, f"e{edge}", reports_of(edge, batch)) for edge in range(EDGES)])
        if time.perf_counter() >= sample_at:
            sample_at += SAMPLE_INTERVAL_S
            samples.bytes.append(float(proportional_bytes(pid)))
    if samples.records - records >= KEPT_UP * RATE * SECONDS:
        samples.cores = (processor_s(pid) - used_s) / SECONDS
    following.close()
    batches = (WARM_S + SECONDS) * BATCHES_PER_S
    notes.append(f"positions: {late} of {batches} batches of the feeder were more than a second late")
    notes.append(f"positions: {samples.records:,} last places for {batches * RATE // BATCHES_PER_S:,} reports")
    return samples


def reports_of(edge: int, batch: int) -> bytes:
    """Return the record of an edge for a fifth of a second."""
    count = RATE // BATCHES_PER_S // EDGES
    numbers = (np.arange(count) + batch * count) % (VEHICLES // EDGES) + edge * (VEHICLES // EDGES)
    now = time.time_ns()
    swing = np.sin(batch / 500.0 + numbers) * 0.01
    reports = ReportRecord(
        EdgeRef("bench", f"e{edge}"),
        [f"car-{pid}" for pid in numbers],
        np.full(count, now, np.int64),
        np.round(52.4 + numbers % 141 / 141 * 0.2 + swing, 7),
        np.round(13.3 + numbers % 149 / 149 * 0.2 - swing, 7),
        np.full(count, 90.0),
        8.0 + numbers % 10,
        np.zeros(count, np.uint8),
        np.zeros(count, np.uint8),
    )
    return reports_to_record(reports)


def processor_s(pid: int) -> float:
    """Return the processor time of a process and its descendants; of one that has ended, nothing."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):  # Hadoop starts processes for a moment
        return 0.0
    own = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # utime and stime: proc(5)
    return own + sum(map(processor_s, children_of(pid)))


def proportional_bytes(pid: int) -> int:
    """Return the proportional set size (PSS) of a process and its descendants."""
    try:
        lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:])
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(lines["Pss"].split()[0]) * 1024 + sum(map(proportional_bytes, children_of(pid)))


def children_of(pid: int) -> list[int]:
    try:
        return [int(one) for children in Path(f"/proc/{pid}/task").glob("*/children") for one in children.read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []
