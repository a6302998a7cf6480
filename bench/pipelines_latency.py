"""Latency from a report to its cell and its alert, through real processes: `milepost pipeline run` and `milepost incidents run`.

Most reports are of one kind and lie in the squares of a city. Ten per second are of another kind, of which one report is an
incident, each at its own place: their alerts are recognised by the square that they name.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import orjson

from bench.harness import QUICK, Goal, Row, row
from milepost.eventlog.embedded import EmbeddedLog
from milepost.eventlog.kafka import KafkaLog
from milepost.eventlog.log import Entry, Log, Record, TopicEnd
from milepost.incidents.engine import CELLS
from milepost.model.durability import Durability
from milepost.model.endpoints import EndpointId
from milepost.model.incidents import EventKind
from milepost.model.instants import Instant
from milepost.model.messages import Message, MessageId
from milepost.model.places import Place
from milepost.model.site_records import CROSS_HUB, EdgeRef, ForwardedMessage
from milepost.pipelines.records import MESSAGES_TOPIC
from milepost.runtime.services.kafka import Kafka
from milepost.wire.records import to_record

SECONDS = 12 if QUICK else 60
WARM_S = 8 if QUICK else 30
HOT_PER_S = 10
PIECES_PER_S = 100
START_S = 180.0
START_PIECES = 60 * PIECES_PER_S
"""Maximum duration of the first batch, before anything is counted."""
EDGE = EdgeRef("bench", "e1")
HOT = EventKind("Hot", "Hot", "reports >= 1", "Alert/Hot")

VERBS = {"pipelines": ("pipeline", "run", "hazards"), "incidents": ("incidents", "run")}
SETTINGS = """
[site]
{site}
[pipelines]
folder = "{folder}"
http = ""
mode = "{mode}"
memory = "1g"
[[incidents.kinds]]
name = "Hot"
topic = "Hot"
alert = "Alert/Hot"
predicate = "reports >= 1"
clear_after_s = 20.0
[[incidents.kinds]]
name = "Collision"
topic = "Collision"
alert = "Alert/Collision"
predicate = "weight >= 1000"
"""


@dataclass
class Found:
    """Append times of reports, and latencies of their cells and alerts, in seconds."""

    appended: dict[tuple[int, int], float] = field(default_factory=dict)
    cells: list[float] = field(default_factory=list)
    alerts: list[float] = field(default_factory=list)
    has_begun: bool = False
    is_measured: bool = False

    def take_cells(self, records: Sequence[Record]) -> None:
        now, self.has_begun = time.time(), True
        if not self.is_measured:
            return
        for record in records:
            cell = orjson.loads(record.value or b"{}")
            if cell["kind"] == HOT.name and (at := self.appended.get((cell["row"], cell["column"]))):
                self.cells.append(now - at)

    def take_alerts(self, records: Sequence[Record]) -> None:
        now = time.time()
        for record in records:
            message = orjson.loads(record.value or b"{}").get("message", {})
            fields = message.get("fields", {})
            if fields.get("phase") in ("early", "raised") and self.is_measured:
                row_, column = fields["incident"].split("-")[-2:]
                at = self.appended.pop((int(row_), int(column)), None)
                self.alerts += [] if at is None else [now - at]


def measure_latency(folder: Path, kafka: Kafka, notes: list[str]) -> list[Row]:
    """Measure each variant at its rates."""
    variants = [
        ("Kafka, real-time", "real-time", (500, 5_000), 40.0, 100.0),
        ("Kafka, micro-batch", "micro-batch", (500,), None, 1_500.0),
    ]
    rows: list[Row] = []
    for name, mode, rates, goal_p50, goal_p99 in (*variants, ("embedded", "micro-batch", (500,), None, 1_500.0)):
        is_kafka = name != "embedded"
        place = folder / name.replace(", ", "-")
        log: Log
        if is_kafka:
            log = KafkaLog(kafka.address, Durability.PROCESS_CRASH, client_id="bench", prefix=f"{mode}.")
            site = f'name = "bench"\nlog = "kafka"\naddress = "{kafka.address}"\nprefix = "{mode}."\n'
        else:
            log = EmbeddedLog(place / "log", Durability.PROCESS_CRASH)
            site = f'name = "bench"\nfolder = "{place / "log"}"\n'
        place.mkdir(parents=True, exist_ok=True)
        (place / "m.toml").write_text(SETTINGS.format(site=site, folder=place / "pipelines", mode=mode))
        with processes(place, VERBS):
            for rate in rates:
                found = measure_rate(log, rate)
                rows += rows_of(f"report → alert, {name}, {rate:,}/s", found, goal_p50, goal_p99)
                notes.append(f"{name}, {rate:,}/s: {len(found.cells)} cells and {len(found.alerts)} alerts timed")
        log.close()
    return rows


def rows_of(workload: str, found: Found, goal_p50: float | None, goal_p99: float) -> list[Row]:
    if not found.alerts or not found.cells:
        return [row(f"{workload}: none arrived", "ms", float("nan"), ours_max=goal_p99)]
    alerts, cells = (np.array(some) * 1000 for some in (found.alerts, found.cells))
    found_rows = []
    for share, goal_ms in ((50, goal_p50), (99, goal_p99)):
        goal: Goal = {} if goal_ms is None else {"ours_max": goal_ms}
        ours, cell = float(np.percentile(alerts, share)), float(np.percentile(cells, share))
        found_rows.append(row(f"{workload}, p{share}", "ms", ours, "its cell", cell, less_is_better=True, **goal))
    return found_rows


@contextmanager
def processes(folder: Path, verbs: Mapping[str, Sequence[str]]) -> Iterator[list[int]]:
    """Run commands for the block; yield their process ids when all are ready."""
    started = []
    environment = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"}
    try:
        for name, verb in verbs.items():
            with (folder / f"{name}.log").open("wb") as out:
                command = [sys.executable, "-m", "milepost", *verb, "--config", str(folder / "m.toml")]
                started.append(subprocess.Popen(command, stdout=out, stderr=out, env=environment))
        give_up_at = time.monotonic() + START_S
        while not all(f"{name} ready" in (folder / f"{name}.log").read_text() for name in verbs):
            is_given_up = time.monotonic() > give_up_at or any(process.poll() is not None for process in started)
            assert not is_given_up, "".join((folder / f"{name}.log").read_text()[-2000:] for name in verbs)
            time.sleep(0.2)
        yield [process.pid for process in started]
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait(timeout=120)


def measure_rate(log: Log, rate: int) -> Found:
    """Append reports at a rate; the time before and shortly after the first cell is not counted."""
    found = Found()
    following = [
        log.follow({CELLS: TopicEnd.END}, found.take_cells, print),
        log.follow({CROSS_HUB: TopicEnd.END}, found.take_alerts, print),
    ]
    base, begun = time.time_ns() // 1_000_000, time.perf_counter()
    counted_from: int | None = None
    for piece in range(START_PIECES + (WARM_S + SECONDS) * PIECES_PER_S):
        wait_s = begun + piece / PIECES_PER_S - time.perf_counter()
        if wait_s > 0:
            time.sleep(wait_s)
        if counted_from is None and found.has_begun:
            counted_from = piece + WARM_S * PIECES_PER_S
        if counted_from is not None and piece >= counted_from + SECONDS * PIECES_PER_S:
            break
        found.is_measured = counted_from is not None and piece >= counted_from
        append_piece(log, found, base, piece, rate)
    time.sleep(3.0)
    for one in following:
        one.close()
    return found


def append_piece(log: Log, found: Found, base: int, piece: int, rate: int) -> None:
    """Append the reports of a hundredth of a second, and perhaps one that is an incident."""
    now = time.time_ns()
    some = [record_in_city("Collision", base + piece * 1_000 + one, now) for one in range(rate // PIECES_PER_S)]
    if piece % (PIECES_PER_S // HOT_PER_S) == 0:
        place = separate_place(base, piece)
        row_, column = HOT.grid.locate(place).square
        if found.is_measured:
            found.appended[row_, column] = time.time()
        some.append(record_at("Hot", piece, now, place))
    log.append([Entry(MESSAGES_TOPIC, "e", one) for one in some])


def separate_place(base: int, piece: int) -> Place:
    """Return a place that is kilometres away from all others."""
    number = piece // (PIECES_PER_S // HOT_PER_S)
    return Place(-50.0 + (number // 200) * 0.1 + base % 89 / 1_000, -170.0 + (number % 200) * 0.1 + base % 97 / 1_000)


def record_in_city(topic: str, number: int, now: int) -> bytes:
    """Return the record of a report somewhere in the city."""
    place = Place(52.4 + number * 7_919 % 1_000 / 1_000 * 0.1, 13.3 + number * 104_729 % 1_000 / 1_000 * 0.1)
    return record_at(topic, number, now, place)


def record_at(topic: str, number: int, now: int, place: Place) -> bytes:
    message = Message(MessageId(number % 2**63), EndpointId(f"car-{number % 5_000}"), topic, Instant(now), place=place)
    return to_record(ForwardedMessage(EDGE, number, message))
