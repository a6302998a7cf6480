"""Positions at a constant rate: reports of edges, through `milepost pipeline run positions` in its own process.

The lag of the queries behind the log and the memory of the driver are sampled every few seconds. Growth shows as a difference
between the second half and the first.
"""

import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from bench.harness import QUICK, Row, row
from bench.pipelines_latency import processes
from milepost.eventlog.kafka import KafkaLog
from milepost.eventlog.log import Entry
from milepost.model.durability import Durability
from milepost.model.site_records import EdgeRef
from milepost.pipelines.records import REPORTS_TOPIC
from milepost.runtime.pipeline_status import STATUS_FILE
from milepost.runtime.services.kafka import Kafka
from milepost.wire.records import ReportRecord, reports_to_record

RATE = 20_000
SECONDS = 40 if QUICK else 600
WARM_S = 20 if QUICK else 60
BATCHES_PER_S = 5
EDGES = 20
VEHICLES = 20_000
SAMPLE_INTERVAL_S = 5.0

SETTINGS = """
[site]
name = "bench"
log = "kafka"
address = "{address}"
prefix = "positions."
[pipelines]
folder = "{folder}"
http = ""
memory = "2g"
"""


@dataclass
class Samples:
    """The samples of a run."""

    lags_s: list[float] = field(default_factory=list)
    bytes: list[float] = field(default_factory=list)

    def halves(self, values: list[float]) -> tuple[float, float]:
        """Return the medians of the first and the second half."""
        middle = len(values) // 2
        return float(np.median(values[:middle])), float(np.median(values[middle:]))


def measure_positions(folder: Path, kafka: Kafka, notes: list[str]) -> list[Row]:
    """Measure lag and memory at a constant rate."""
    place = folder / "positions"
    place.mkdir()
    (place / "m.toml").write_text(SETTINGS.format(address=kafka.address, folder=place / "pipelines"))
    log = KafkaLog(kafka.address, Durability.PROCESS_CRASH, client_id="bench", prefix="positions.")
    with processes(place, {"pipelines": ("pipeline", "run", "positions")}) as (pid,):
        samples = feed(log, pid, place / "pipelines" / STATUS_FILE, notes)
    log.close()
    workload = f"positions, {RATE:,} reports/s for {SECONDS} s"
    lag, memory = samples.halves(samples.lags_s), samples.halves(samples.bytes)
    return [
        row(f"{workload}: behind the log", "s", lag[1], "first half", lag[0], less_is_better=True, ours_max=10),
        row(
            f"{workload}: driver memory", "MB", memory[1] / 1e6, "first half", memory[0] / 1e6, less_is_better=True, ratio_min=0.9
        ),
    ]


def feed(log: KafkaLog, pid: int, status: Path, notes: list[str]) -> Samples:
    """Append at the rate, and sample."""
    samples, late, began = Samples(), 0, time.perf_counter()
    sample_at = began + WARM_S
    for batch in range((WARM_S + SECONDS) * BATCHES_PER_S):
        wait_s = began + batch / BATCHES_PER_S - time.perf_counter()
        if wait_s > 0:
            time.sleep(wait_s)
        late += wait_s < -1.0
        log.append([Entry(REPORTS_TOPIC, f"e{edge}", reports_of(edge, batch)) for edge in range(EDGES)])
        if time.perf_counter() >= sample_at:
            sample_at += SAMPLE_INTERVAL_S
            lags = [one["lag"] for one in json.loads(status.read_text())["queries"]]
            samples.lags_s.append(max(lag or 0 for lag in lags) / (EDGES * BATCHES_PER_S))
            samples.bytes.append(float(resident_bytes(pid)))
    notes.append(f"positions: {late} of {(WARM_S + SECONDS) * BATCHES_PER_S} batches of the feeder were more than a second late")
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
        52.4 + numbers % 141 / 141 * 0.2 + swing,
        13.3 + numbers % 149 / 149 * 0.2 - swing,
        np.full(count, 90.0),
        8.0 + numbers % 10,
        np.zeros(count, np.uint8),
        np.zeros(count, np.uint8),
    )
    return reports_to_record(reports)


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process and its descendants; 0 if it has ended."""
    try:
        below = [one for children in Path(f"/proc/{pid}/task").glob("*/children") for one in children.read_text().split()]
        own = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return own + sum(resident_bytes(int(one)) for one in below)
