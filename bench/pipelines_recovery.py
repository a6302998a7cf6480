"""Recovery: how long alerts are away after a crash of the pipeline or of the incident engine, on Kafka in real-time mode.

    SIGKILL, started again at once ─▶ ready ─▶ first alert about an event appended after the kill
    └──────────────────────────── measured, from the start of the new process ───────────┘

A supervisor (systemd, Kubernetes) adds its own delay before the start. Events flow all the time, with a background of reports:
what the killed process had not committed, up to one batch, is read again before the new events.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import orjson

from bench.harness import QUICK, Row, row
from bench.pipelines_latency import record_at, record_in_city
from milepost.eventlog.kafka import KafkaLog
from milepost.eventlog.log import Entry, Record, TopicEnd
from milepost.model.durability import Durability
from milepost.model.incidents import EventKind
from milepost.model.places import Place
from milepost.model.site_records import CROSS_HUB
from milepost.pipelines.records import MESSAGES_TOPIC
from milepost.runtime.services.kafka import Kafka

RATE: Final = 500
"""Reports per second beside the events."""
PIECES_PER_S: Final = 20
BEFORE_S: Final = 10.0 if QUICK else 120.0
"""Time between the first alert and the kill; Spark reads the input of this time again."""
GIVE_UP_S: Final = 120.0
GOAL_S: Final = 10.0
HOT: Final = EventKind("Hot", "Hot", "reports >= 1", "Alert/Hot")
VERBS: Final = {"pipeline": ("pipeline", "run", "hazards"), "incident engine": ("incidents", "run")}
SETTINGS: Final = """
[site]
name = "bench"
log = "kafka"
address = "{address}"
prefix = "recovery."
[pipelines]
folder = "{folder}"
http = ""
mode = "real-time"
[[incidents.kinds]]
name = "Hot"
topic = "Hot"
alert = "Alert/Hot"
predicate = "reports >= 1"
[[incidents.kinds]]
name = "Collision"
topic = "Collision"
alert = "Alert/Collision"
predicate = "weight >= 1000"
"""


class EventFlow:
    """Events, each at a place of its own, and the times of their first alerts."""

    def __init__(self, log: KafkaLog) -> None:
        self._log = log
        self.appended_at: dict[tuple[int, int], float] = {}
        self.alerted_at: dict[tuple[int, int], float] = {}
        self._is_over = threading.Event()
        self._feeder = threading.Thread(target=self._feed, daemon=True)
        self._reader = log.follow({CROSS_HUB: TopicEnd.END}, self._take, print)
        self._feeder.start()

    def first_alert_after(self, at: float) -> float | None:
        """Return when the first event appended after *at* had an alert."""
        found = [when for square, when in list(self.alerted_at.items()) if self.appended_at.get(square, 0.0) > at]
        return min(found, default=None)

    def close(self) -> None:
        self._is_over.set()
        self._feeder.join()
        self._reader.close()

    def _feed(self) -> None:
        number = 1
        while not self._is_over.wait(1 / PIECES_PER_S):
            now, place = time.time_ns(), Place(-50.0 + number // 300 * 0.1, -170.0 + number % 300 * 0.1)
            others = [record_in_city("Collision", number * 1_000 + one, now) for one in range(RATE // PIECES_PER_S)]
            self.appended_at[HOT.grid.locate(place).square] = time.monotonic()
            self._log.append([Entry(MESSAGES_TOPIC, "e", one) for one in (*others, record_at("Hot", number, now, place))])
            number += 1

    def _take(self, records: Sequence[Record]) -> None:
        for record in records:
            fields = orjson.loads(record.value or b"{}").get("message", {}).get("fields", {})
            if fields.get("phase") in ("early", "raised"):
                row_, column = fields["incident"].split("-")[-2:]
                self.alerted_at.setdefault((int(row_), int(column)), time.monotonic())


def measure_recovery(folder: Path, kafka: Kafka, notes: list[str]) -> list[Row]:
    """Kill each process once, and measure from its next start to the first new alert."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "m.toml").write_text(SETTINGS.format(address=kafka.address, folder=folder / "pipelines"))
    log = KafkaLog(kafka.address, Durability.PROCESS_CRASH, client_id="bench", prefix="recovery.")
    log.make(MESSAGES_TOPIC)
    running = {name: start(folder, name) for name in VERBS}
    flow, rows = EventFlow(log), list[Row]()
    try:
        wait(flow, 0.0)
        time.sleep(BEFORE_S)
        for name in VERBS:
            running[name].send_signal(signal.SIGKILL)
            running[name].wait()
            began = time.monotonic()
            running[name] = start(folder, name)
            took_s = wait(flow, began) - began
            rows.append(row(f"{name} killed, started again → first new alert", "s", took_s, ours_max=GOAL_S))
    finally:
        flow.close()
        for process in running.values():
            process.terminate()
        for process in running.values():
            process.wait(timeout=60)
        log.close()
    notes.append(f"Recovery: {RATE:,} reports/s, killed {BEFORE_S:g} s after the first alert, which are read again")
    return rows


def start(folder: Path, name: str) -> "subprocess.Popen[bytes]":
    with (folder / f"{name}.log").open("ab") as out:
        command = [sys.executable, "-m", "milepost", *VERBS[name], "--config", str(folder / "m.toml")]
        return subprocess.Popen(command, stdout=out, stderr=out, env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"})


def wait(flow: EventFlow, at: float) -> float:
    """Return when the first event appended after *at* had an alert; infinity if none has."""
    give_up_at = time.monotonic() + GIVE_UP_S
    while (found := flow.first_alert_after(at)) is None:
        if time.monotonic() > give_up_at:
            return float("inf")
        time.sleep(0.01)
    return found
