"""Catching up: every query of the catalogue, alone and with default settings, on a backlog in Kafka.

    backlog of messages and reports ─▶ Runner, micro-batches, every pause between batches counted ─▶ end of the backlog

A live site has 20,000 reports and 5,000 messages per second; a query must read its backlog twice as fast, hazards faster.
"""

import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import orjson
from pyspark.sql import SparkSession

from bench.harness import QUICK, Row, row
from bench.pipelines_latency import record_in_city
from milepost.eventlog.kafka import KafkaLog
from milepost.eventlog.log import Entry, LogUnavailable
from milepost.model.durability import Durability
from milepost.model.incidents import EVENT_KINDS
from milepost.model.instants import SECOND_NS, Instant
from milepost.pipelines.catalogue import PIPELINE_PLANS, TOPICS, plans_of
from milepost.pipelines.plan import Plan
from milepost.pipelines.records import DELIVERIES_TOPIC, MESSAGES_TOPIC, REPORTS_TOPIC
from milepost.pipelines.runner import Runner
from milepost.pipelines.settings import BatchSettings, Mode, PipelineSettings
from milepost.pipelines.sources.kafka import KafkaSource
from milepost.runtime.services.kafka import Kafka
from milepost.wire.times import instant_to_text

MESSAGES: Final = 200_000 if QUICK else 2_000_000
REPORTS: Final = 200_000 if QUICK else 4_000_000
DELIVERIES: Final = 100_000 if QUICK else 1_000_000
PER_RECORD: Final = 400
"""Reports of one edge in 0.2 s, if ten edges have 20,000 endpoints."""
ENDPOINTS: Final = 20_000
MESSAGES_PER_S: Final = 5_000
GIVE_UP_S: Final = 120.0 if QUICK else 600.0
GOALS: Final = {"hazards": 130_000, "archive-messages": 10_000, "archive-deliveries": 10_000}
"""Rows per second; all others read reports: twice 20,000."""
ALL_OTHERS: Final = 40_000
ROWS: Final = {MESSAGES_TOPIC: MESSAGES, REPORTS_TOPIC: REPORTS, DELIVERIES_TOPIC: DELIVERIES}
CHOSEN: Final = os.environ.get("CATCH_UP", "").split()
"""Names of queries; empty: all."""


def measure_catch_up(spark: SparkSession, folder: Path, kafka: Kafka, notes: list[str]) -> list[Row]:
    """Measure each query on the same backlog; the first one warms Spark up, and is measured again."""
    prefix = "catch-up."
    log = KafkaLog(kafka.address, Durability.PROCESS_CRASH, client_id="bench", prefix=prefix)
    for topic in TOPICS:
        log.make(topic)
    fill(log)
    source = KafkaSource(kafka.address, prefix, {})
    plans = plans_of(list(PIPELINE_PLANS), PipelineSettings(folder=str(folder / "archive"), kinds=EVENT_KINDS))
    chosen = [plan for plan in plans if not CHOSEN or plan.name in CHOSEN]
    notes.append(f"Catch-up: {MESSAGES:,} messages, {REPORTS:,} reports in records of {PER_RECORD}, 2 cores")
    rows: list[Row] = []
    for plan in (chosen[0], *chosen):
        ends = {topic: log.ends(topic)[1] for topic in plan.topics}
        took_s = catch_up_s(spark, source, replace(plan, name=f"{plan.name}-{len(rows)}"), ends, folder)
        count = sum(ROWS[topic] for topic in plan.topics)
        goal = GOALS.get(plan.name, ALL_OTHERS)
        rows.append(row(f"catch-up of {plan.name} on {count:,} rows on Kafka", "/s", count / took_s, ours_min=goal))
    log.close()
    return rows[1:]


def catch_up_s(spark: SparkSession, source: KafkaSource, plan: Plan, ends: dict[str, int], folder: Path) -> float:
    """Return the seconds until a query has read everything, from its start."""
    checkpoints = tempfile.mkdtemp(dir=folder)
    batches = BatchSettings(mode=Mode.MICRO_BATCH, restarts_max=0)
    runner = Runner(spark, source, [plan], batches, folder=checkpoints, on_event=lambda *_: None)
    began = time.monotonic()
    runner.start(began)
    (one,) = runner.queries
    try:
        while one.progress is None or any(one.progress.positions.get(topic, 0) < end for topic, end in ends.items()):
            runner.tick(time.monotonic())
            assert not one.restarts.is_given_up, one.restarts.fault
            if time.monotonic() - began > GIVE_UP_S:
                return float("inf")
            time.sleep(0.02)
        return time.monotonic() - began
    finally:
        runner.stop()


def fill(log: KafkaLog) -> None:
    """Append the backlog: seen at the rate of a live site, up to now."""
    now = time.time_ns()
    start = now - max(MESSAGES // MESSAGES_PER_S, REPORTS // ENDPOINTS) * 1_000_000_000
    for topic, values in (
        (MESSAGES_TOPIC, messages(start)),
        (REPORTS_TOPIC, reports(start // 1_000)),
        (DELIVERIES_TOPIC, deliveries(start // 1_000)),
    ):
        some: list[Entry] = []
        for value in values:
            some.append(Entry(topic, "e", value))
            if len(some) == 1_000:
                append(log, some)
                some = []
        append(log, some)


def messages(start: int) -> Iterator[bytes]:
    """Yield events all over the city; one record is a template for all, which saves a minute."""
    topics = [kind.topic for kind in EVENT_KINDS if not kind.from_reports]
    record = orjson.loads(record_in_city(topics[0], 1, start))
    message, place = record["message"], record["message"]["place"]
    for number in range(1, MESSAGES + 1):
        if number % MESSAGES_PER_S == 1:
            message["seen_at"] = instant_to_text(Instant(start + number // MESSAGES_PER_S * SECOND_NS))
        record["number"] = message["id"] = str(number)
        message["source"], message["topic"] = f"car-{number % MESSAGES_PER_S}", topics[number % len(topics)]
        place["latitude"] = 52.4 + number * 7_919 % 1_000 / 10_000
        place["longitude"] = 13.3 + number * 104_729 % 1_000 / 10_000
        yield orjson.dumps(record)


def reports(start_us: int) -> Iterator[bytes]:
    """Yield records of endpoints that drive north at 10 m/s."""
    for first in range(0, REPORTS, PER_RECORD):
        numbers = range(first, first + PER_RECORD)
        seconds = first // ENDPOINTS
        yield orjson.dumps(
            {
                "type": "reports",
                "edge": f"north/e{first // PER_RECORD % 10}",
                "endpoints": [f"car-{number % ENDPOINTS}" for number in numbers],
                "seen_at_us": [start_us + number * 1_000_000 // ENDPOINTS for number in numbers],
                "latitudes": [52.4 + number % 1_000 * 1e-4 + seconds * 9e-5 for number in numbers],
                "longitudes": [13.3 + number % ENDPOINTS // 1_000 * 5e-3 for number in numbers],
                "headings_deg": [0.0] * PER_RECORD,
                "speeds_mps": [10.0] * PER_RECORD,
                "verdicts": [0] * PER_RECORD,
                "covered": [0] * PER_RECORD,
            }
        )


def deliveries(start_us: int) -> Iterator[bytes]:
    for first in range(0, DELIVERIES, PER_RECORD):
        numbers = range(first, first + PER_RECORD)
        yield orjson.dumps(
            {
                "type": "deliveries",
                "edge": "north/e1",
                "source": "car-0",
                "id": str(first + 1),
                "topic": "Collision",
                "endpoints": [f"car-{number % ENDPOINTS}" for number in numbers],
                "states": ["sent"] * PER_RECORD,
                "at_us": [start_us + number for number in numbers],
                "reasons": [0] * PER_RECORD,
            }
        )


def append(log: KafkaLog, entries: Sequence[Entry]) -> None:
    """Append as soon as the log has space; give up after a minute."""
    give_up_at = time.monotonic() + 60.0
    while True:
        try:
            log.append(entries)
            return
        except LogUnavailable:
            if time.monotonic() > give_up_at:
                raise
            time.sleep(0.05)
