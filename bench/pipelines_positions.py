"""Positions at a steady rate: reports as edges tell of them, through `milepost pipeline run positions` in a process of its own.

Every few seconds it is written down how far the queries are behind the log, and what the driver occupies. A lag that grows, or
memory that does, shows in the second half beside the first.
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
from milepost.model.sites import EdgeRef
from milepost.pipelines.records import REPORTS_TOPIC
from milepost.runtime.pipeline_status import STATUS_FILE
from milepost.runtime.services.kafka import Kafka
from milepost.wire.records import Reports, reports_to_record

RATE = 20_000
SECONDS = 40 if QUICK else 600
WARM_S = 20 if QUICK else 60
TURNS_A_SECOND = 5
EDGES = 20
VEHICLES = 20_000
LOOK_S = 5.0

SETTINGS = """
[site]
name = "bench"
backbone = "kafka"
address = "{address}"
prefix = "positions."
[pipelines]
folder = "{folder}"
http = ""
memory = "2g"
"""


@dataclass
class Looks:
    """What was seen, look by look."""

    lags_s: list[float] = field(default_factory=list)
    bytes: list[float] = field(default_factory=list)

    def halves(self, values: list[float]) -> tuple[float, float]:
        """The median of the first half and of the second."""
        middle = len(values) // 2
        return float(np.median(values[:middle])), float(np.median(values[middle:]))


def measure_positions(folder: Path, kafka: Kafka, notes: list[str]) -> list[Row]:
    """So many reports a second for so long."""
    place = folder / "positions"
    place.mkdir()
    (place / "m.toml").write_text(SETTINGS.format(address=kafka.address, folder=place / "pipelines"))
    log = KafkaLog(kafka.address, Durability.PROCESS_CRASH, client_id="bench", prefix="positions.")
    with processes(place, {"pipelines": ("pipeline", "run", "positions")}) as (number,):
        looks = fed(log, number, place / "pipelines" / STATUS_FILE, notes)
    log.close()
    what = f"positions, {RATE:,} reports/s for {SECONDS} s"
    lag, memory = looks.halves(looks.lags_s), looks.halves(looks.bytes)
    return [
        row(f"{what}: behind the log", "s", lag[1], "first half", lag[0], less_is_better=True, ours_max=10),
        row(f"{what}: driver memory", "MB", memory[1] / 1e6, "first half", memory[0] / 1e6, less_is_better=True, ratio_min=0.9),
    ]


def fed(log: KafkaLog, pid: int, status: Path, notes: list[str]) -> Looks:
    """Append at the rate, look now and then."""
    looks, late, began = Looks(), 0, time.perf_counter()
    look_at = began + WARM_S
    for turn in range((WARM_S + SECONDS) * TURNS_A_SECOND):
        wait_s = began + turn / TURNS_A_SECOND - time.perf_counter()
        if wait_s > 0:
            time.sleep(wait_s)
        late += wait_s < -1.0
        log.append([Entry(REPORTS_TOPIC, f"e{edge}", told_by(edge, turn)) for edge in range(EDGES)])
        if time.perf_counter() >= look_at:
            look_at += LOOK_S
            behind = [one["lag"] for one in json.loads(status.read_text())["queries"]]
            looks.lags_s.append(max(lag or 0 for lag in behind) / (EDGES * TURNS_A_SECOND))
            looks.bytes.append(float(occupied_bytes(pid)))
    notes.append(f"positions: {late} of {(WARM_S + SECONDS) * TURNS_A_SECOND} turns of the feeder came more than a second late")
    return looks


def told_by(edge: int, turn: int) -> bytes:
    """What an edge tells of a fifth of a second."""
    count = RATE // TURNS_A_SECOND // EDGES
    numbers = (np.arange(count) + turn * count) % (VEHICLES // EDGES) + edge * (VEHICLES // EDGES)
    now = time.time_ns()
    swing = np.sin(turn / 500.0 + numbers) * 0.01
    reports = Reports(
        EdgeRef("bench", f"e{edge}"),
        [f"car-{number}" for number in numbers],
        np.full(count, now, np.int64),
        52.4 + numbers % 141 / 141 * 0.2 + swing,
        13.3 + numbers % 149 / 149 * 0.2 - swing,
        np.full(count, 90.0),
        8.0 + numbers % 10,
        np.zeros(count, np.uint8),
        np.zeros(count, np.uint8),
    )
    return reports_to_record(reports)


def occupied_bytes(pid: int) -> int:
    """Of a process and all below it; one that has just ended occupies nothing."""
    try:
        below = [one for children in Path(f"/proc/{pid}/task").glob("*/children") for one in children.read_text().split()]
        own = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return own + sum(occupied_bytes(int(one)) for one in below)
