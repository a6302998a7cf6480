"""Latency from a report to its cell and its alert, through real processes: `milepost pipeline run` and `milepost incidents run`.

    report ─▶ Kafka ─▶ Spark ─▶ cell in Kafka ─▶ incident engine ─▶ alert in Kafka ─▶ reader
         append     cell                    engine             alert             read      the stages of the notes

Most reports are of one kind and lie in the squares of a city. Ten per second are of another kind, of which one report is an
incident, each at its own place: their alerts are recognised by the square that they name. Beside each of them a record goes
through Kafka alone (a hop): the peer, and the time at which Kafka had the report. Kafka's own times are whole milliseconds.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import mean

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
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.messages import Message, MessageId
from milepost.model.places import Place
from milepost.model.site_records import CROSS_HUB, EdgeRef, ForwardedMessage
from milepost.pipelines.records import MESSAGES_TOPIC
from milepost.runtime.services.kafka import Kafka
from milepost.wire.records import to_record
from milepost.wire.times import instant_from_text

SECONDS = 10 if QUICK else 60
WARM_S = 6 if QUICK else 30
BOUNDARY_S = 16 if QUICK else 120
"""Measured time across the boundaries of real-time batches."""
BOUNDARY_BATCH_S = 5 if QUICK else 15
STALL_S = 0.1
"""Latency from which an alert counts as delayed by a stall."""
DEFAULT_BATCH_S = 300
HOT_PER_S = 10
PIECES_PER_S = 100
START_S = 180.0
START_PIECES = 60 * PIECES_PER_S
"""Maximum duration of the first batch, before anything is counted."""
EDGE = EdgeRef("bench", "e1")
HOT = EventKind("Hot", "Hot", "reports >= 1", "Alert/Hot")
HOP = "hop"
"""The topic of records that go through the log alone."""
HALF_MILLISECOND_S = 0.0005
"""Mean error of a time that is cut to whole milliseconds."""
STAGES = ("append", "cell", "engine", "alert", "read")

VERBS = {"pipelines": ("pipeline", "run", "hazards"), "incidents": ("incidents", "run")}
SETTINGS = """
[site]
{site}
[pipelines]
folder = "{folder}"
http = ""
mode = "{mode}"
memory = "1g"
real_time_batch_s = {batch_s}
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

Goals = tuple[float | None, float | None]
"""Maximum p50 and p99 in milliseconds."""


@dataclass(frozen=True)
class Variant:
    """A log and mode, its rates, and the goals of alerts and of cells at each rate."""

    name: str
    mode: str
    alerts: Mapping[int, Goals]
    cells: Mapping[int, Goals] = field(default_factory=dict)
    seconds: int = SECONDS
    batch_s: int = DEFAULT_BATCH_S

    @property
    def is_kafka(self) -> bool:
        return self.name.startswith("Kafka")


VARIANTS = (
    Variant("Kafka, real-time", "real-time", {500: (8.0, 25.0), 5_000: (10.0, 30.0)}, {500: (6.0, 14.0), 5_000: (None, None)}),
    Variant(
        "Kafka, real-time, with batch boundaries",
        "real-time",
        {500: (None, None)},
        seconds=BOUNDARY_S,
        batch_s=BOUNDARY_BATCH_S,
    ),
    Variant("Kafka, micro-batch", "micro-batch", {500: (None, 1_500.0)}),
    Variant("embedded", "micro-batch", {500: (200.0, 1_500.0)}),
)


@dataclass
class Trace:
    """Times of one report that is an incident, in seconds since 1970: appended, and in the log as report, cell and alert."""

    appended: float
    report: float | None = None
    hop: float | None = None
    """Time at which a reader had the record that went through the log alone."""
    cell: float | None = None
    cell_read: float | None = None
    decided: float | None = None
    """Time of the alert in the incident engine."""
    alert: float | None = None
    alert_read: float | None = None

    def stages(self) -> tuple[float, ...] | None:
        """Return the duration of each of `STAGES`, in seconds."""
        times = (self.appended, self.report, self.cell, self.decided, self.alert, self.alert_read)
        known = [one for one in times if one is not None]
        if len(known) < len(times):
            return None
        return tuple(after - before for before, after in pairwise(known))


@dataclass
class Found:
    """The traces of a run, and the CPU seconds per second of each process."""

    traces: dict[tuple[int, int], Trace] = field(default_factory=dict)
    cpu: dict[str, float] = field(default_factory=dict)
    has_begun: bool = False
    is_measured: bool = False

    def take_hops(self, records: Sequence[Record]) -> None:
        now = time.time()
        for record in records:
            row_, column = (record.value or b"").split()
            if (trace := self.traces.get((int(row_), int(column)))) is not None:
                trace.report, trace.hop = _kafka_s(record), now

    def take_cells(self, records: Sequence[Record]) -> None:
        now, self.has_begun = time.time(), True
        for record in records if self.is_measured else ():
            if not record.key.startswith(f"{HOT.name}/"):
                continue
            row_, column = record.key.split("/")[-2:]
            trace = self.traces.get((int(row_), int(column)))
            if trace is not None and trace.cell is None:
                trace.cell, trace.cell_read = _kafka_s(record), now

    def take_alerts(self, records: Sequence[Record]) -> None:
        now = time.time()
        for record in records:
            message = orjson.loads(record.value or b"{}").get("message", {})
            fields = message.get("fields", {})
            if fields.get("phase") not in ("early", "raised"):
                continue
            row_, column = fields["incident"].split("-")[-2:]
            trace = self.traces.get((int(row_), int(column)))
            if trace is not None and trace.alert is None:
                trace.decided = instant_from_text(message["seen_at"], Instant(0)) / SECOND_NS
                trace.alert, trace.alert_read = _kafka_s(record), now

    def latencies_ms(self, name: str) -> list[float]:
        """Return the milliseconds from the append of each report to one of its times."""
        times = [(trace, getattr(trace, name)) for trace in self.traces.values()]
        return [(at - trace.appended) * 1000 for trace, at in times if at is not None]

    def stages_ms(self) -> dict[str, float]:
        """Return the mean duration of each stage among the alerts without a stall."""
        found = [stages for trace in self.traces.values() if (stages := trace.stages()) and sum(stages) < STALL_S]
        return {stage: mean(times) * 1000 for stage, times in zip(STAGES, zip(*found, strict=True), strict=True)} if found else {}

    def stalls(self) -> list[float]:
        """Return the longest latency of each stall, in seconds: alerts that are late one after the other are one stall."""
        found: list[float] = []
        is_stalled = False
        for trace in self.traces.values():
            late_s = 0.0 if trace.alert_read is None else trace.alert_read - trace.appended
            if late_s > STALL_S:
                found = [*found[:-1], max(found[-1], late_s)] if is_stalled else [*found, late_s]
            is_stalled = late_s > STALL_S
        return found


def _kafka_s(record: Record) -> float:
    return record.appended_at / SECOND_NS + HALF_MILLISECOND_S


def measure_latency(folder: Path, kafka: Kafka, notes: list[str]) -> list[Row]:
    """Measure each variant at its rates."""
    rows: list[Row] = []
    notes.append(
        "public figures for Kafka → stateful → Kafka, p50/p99, by their vendors: Databricks' real-time mode 7/14 ms at 10,000"
        " rows/s on a cluster, Flink 16/45 ms"
    )
    for number, variant in enumerate(VARIANTS):
        place = folder / f"latency-{number}"
        place.mkdir(parents=True, exist_ok=True)
        log, site = open_log(variant, place, kafka, prefix=f"latency-{number}.")
        settings = SETTINGS.format(site=site, folder=place / "pipelines", mode=variant.mode, batch_s=variant.batch_s)
        (place / "m.toml").write_text(settings)
        log.make(HOP)
        with processes(place, VERBS) as started:
            watched = dict(zip(VERBS, started, strict=True)) | ({"Kafka": kafka.find_pid(1) or 0} if variant.is_kafka else {})
            for rate, goals in variant.alerts.items():
                found = measure_rate(log, rate, variant.seconds, watched)
                name = f"{variant.name}, {rate:,}/s"
                rows += rows_of(name, found, goals, variant.cells.get(rate))
                notes.append(note_of(name, found, variant))
        log.close()
    return rows


def open_log(variant: Variant, place: Path, kafka: Kafka, prefix: str) -> tuple[Log, str]:
    """Return the log of a variant, and its settings."""
    if variant.is_kafka:
        log: Log = KafkaLog(kafka.address, Durability.PROCESS_CRASH, client_id="bench", prefix=prefix)
        return log, f'name = "bench"\nlog = "kafka"\naddress = "{kafka.address}"\nprefix = "{prefix}"\n'
    return EmbeddedLog(place / "log", Durability.PROCESS_CRASH), f'name = "bench"\nfolder = "{place / "log"}"\n'


def rows_of(name: str, found: Found, alert_goals: Goals, cell_goals: Goals | None) -> list[Row]:
    """Return the rows of alerts and, with goals for them, of cells."""
    hops, cells, alerts = (found.latencies_ms(which) for which in ("hop", "cell_read", "alert_read"))
    if not alerts or not cells or not hops:
        return [row(f"report → alert, {name}: none arrived", "ms", float("nan"), ours_max=0.0)]
    rows = []
    if cell_goals is not None:
        rows += percentiles(f"report → cell, {name}", cells, hops, cell_goals)
    rows += percentiles(f"report → alert, {name}", alerts, hops, alert_goals)
    return rows


def percentiles(workload: str, ours_ms: list[float], hops_ms: list[float], goals: Goals) -> list[Row]:
    """Return the rows of the median and of the 99th percentile."""
    rows = []
    for share, goal_ms in zip((50, 99), goals, strict=True):
        goal: Goal = {} if goal_ms is None else {"ours_max": goal_ms}
        ours, hop = float(np.percentile(ours_ms, share)), float(np.percentile(hops_ms, share))
        rows.append(row(f"{workload}, p{share}", "ms", ours, "the log alone", hop, less_is_better=True, **goal))
    return rows


def note_of(name: str, found: Found, variant: Variant) -> str:
    """Return stages, stalls and CPU time as a sentence."""
    alerts, stalls = found.latencies_ms("alert_read"), found.stalls()
    late = sum(one > STALL_S * 1000 for one in alerts)
    stages = ", ".join(f"{stage} {ms:.1f} ms" for stage, ms in found.stages_ms().items())
    cpu = ", ".join(f"{process} {cpu_s:.2f}" for process, cpu_s in found.cpu.items())
    text = f"{name}: {len(alerts)} alerts timed; mean stages: {stages}; CPU seconds per second: {cpu}"
    if variant.mode == "real-time":
        text += f"; stalls over {STALL_S * 1000:.0f} ms: {len(stalls)}, longest {max(stalls, default=0.0) * 1000:.0f} ms,"
        text += f" {late / max(1, len(alerts)):.1%} of the alerts, with a batch of {variant.batch_s} s"
    return text


def cpu_s(root: int) -> float:
    """Return the CPU seconds of a process and its descendants."""
    parents, times = {}, {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                values = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(folder.name)], times[int(folder.name)] = int(values[1]), int(values[11]) + int(values[12])
    family, ticks = {root}, 0
    while family:
        ticks += sum(times.get(one, 0) for one in family)
        family = {one for one, parent in parents.items() if parent in family}
    return ticks / os.sysconf("SC_CLK_TCK")


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


def measure_rate(log: Log, rate: int, seconds: int, watched: Mapping[str, int]) -> Found:
    """Append reports at a rate; the time before and shortly after the first cell is not counted."""
    found = Found()
    following = [
        log.follow({topic: TopicEnd.END}, take, print)
        for topic, take in ((HOP, found.take_hops), (CELLS, found.take_cells), (CROSS_HUB, found.take_alerts))
    ]
    base, begun = time.time_ns() // 1_000_000, time.perf_counter()
    counted_from: int | None = None
    before: dict[str, float] = {}
    for piece in range(START_PIECES + (WARM_S + seconds) * PIECES_PER_S):
        wait_s = begun + piece / PIECES_PER_S - time.perf_counter()
        if wait_s > 0:
            time.sleep(wait_s)
        if counted_from is None and found.has_begun:
            counted_from = piece + WARM_S * PIECES_PER_S
        if counted_from is not None and piece >= counted_from + seconds * PIECES_PER_S:
            break
        if piece == counted_from:
            before = {name: cpu_s(pid) for name, pid in watched.items()}
        found.is_measured = counted_from is not None and piece >= counted_from
        append_piece(log, found, base, piece, rate)
    found.cpu = {name: (cpu_s(pid) - before.get(name, 0.0)) / seconds for name, pid in watched.items()}
    time.sleep(2.0)
    for one in following:
        one.close()
    return found


def append_piece(log: Log, found: Found, base: int, piece: int, rate: int) -> None:
    """Append the reports of a hundredth of a second, and perhaps one that is an incident."""
    now = time.time_ns()
    some = [record_in_city("Collision", base + piece * 1_000 + one, now) for one in range(rate // PIECES_PER_S)]
    entries = [Entry(MESSAGES_TOPIC, "e", one) for one in some]
    if piece % (PIECES_PER_S // HOT_PER_S) == 0:
        place = separate_place(base, piece)
        row_, column = HOT.grid.locate(place).square
        if found.is_measured:
            found.traces[row_, column] = Trace(time.time())
        entries += [
            Entry(MESSAGES_TOPIC, "e", record_at("Hot", piece + 1, now, place)),
            Entry(HOP, "", b"%d %d" % (row_, column)),
        ]
    log.append(entries)


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
