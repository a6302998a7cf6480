"""Faults that must not stop pipelines: invalid records, and a Kafka that is unavailable for a while."""

import json
import time
from pathlib import Path
from typing import Any

import orjson
import pytest
from pyspark.sql import SparkSession

from live.pipelines.logs import EDGE, SiteLog, kafka_site, message_of, wait_until
from live.pipelines.test_hazards import KINDS, recent_sightings
from milepost.eventlog.log import Entry
from milepost.incidents.engine import CELLS
from milepost.model.site_records import ForwardedMessage
from milepost.pipelines.dead_letters import DEAD_LETTERS_TOPIC, VALUE_CHARACTERS_MAX
from milepost.pipelines.dead_letters import plans as dead_letters
from milepost.pipelines.hazards import plans as hazards
from milepost.pipelines.records import MESSAGES_TOPIC, TOPICS
from milepost.pipelines.runner import Runner
from milepost.pipelines.settings import BatchSettings, Mode, PipelineSettings
from milepost.runtime.services.kafka import running_kafka
from milepost.wire.records import to_record
from unit.pipelines.hazards_oracle import expected_cells

SETTINGS = PipelineSettings(kinds=KINDS, allowed_lateness_s=60.0)


def message_record(**changed: Any) -> bytes:
    """Build a record whose message has other members."""
    found = orjson.loads(to_record(ForwardedMessage(EDGE, 1, message_of(recent_sightings(1)[0]))))
    found["message"] |= changed
    return json.dumps(found).encode()  # unlike orjson, json encodes NaN


def faulty() -> list[Entry]:
    """Return records that are one dead letter each."""
    values = [
        b"",
        b"nonsense",
        b"\xff\xfe\x00",
        b"[]",
        b"x" * 890_000,
        b"{" * 10_000,
        b'{"type":"forwarded", "message": 7}',
        message_record(id=None),
        message_record(source=""),
        message_record(seen_at="1970-01-01T00:00:00Z"),
        message_record(seen_at="2100-01-01T00:00:00Z"),
        message_record(seen_at="yesterday"),
        message_record(place={"latitude": float("nan"), "longitude": 0.0}),
        message_record(place={"latitude": 0.0, "longitude": float("inf")}),
        message_record(place={"latitude": 91.0, "longitude": 0.0}),
        message_record(place={"latitude": 1.0}),
    ]
    batches = [("reports", b'{"type": "reports", "edge": "north/e1", "endpoints": [1, 2]}'), ("deliveries", b"{}")]
    return [*(Entry(MESSAGES_TOPIC, "e", value) for value in values), *(Entry(topic, "e", value) for topic, value in batches)]


def harmless() -> list[Entry]:
    """Return records that are neither events nor dead letters."""
    ahead = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 300))
    values = [
        message_record(place=None),
        message_record(topic="Weather"),
        message_record(topic="Weather", body="A" * 880_000),
        message_record(seen_at=ahead),  # it would end all other slots
    ]
    return [Entry(MESSAGES_TOPIC, "e", value) for value in values]


def run(spark: SparkSession, site: SiteLog, folder: Path, mode: Mode) -> Runner:
    for topic in (*TOPICS, CELLS, DEAD_LETTERS_TOPIC):
        site.log.make(topic)
    batches = BatchSettings(mode=mode, alert_interval_s=0.0, batch_interval_s=0.0, real_time_batch_s=5.0, records_max=150)
    queries = [*hazards(SETTINGS), *(dead_letters(SETTINGS) if mode is Mode.MICRO_BATCH else [])]
    runner = Runner(spark, site.source, queries, batches, folder=str(folder), on_event=print)
    runner.start(time.monotonic())
    return runner


def test_invalid_records_change_nothing_but_the_number_of_dead_letters(
    spark: SparkSession, site: SiteLog, tmp_path: Path
) -> None:
    found, bad = recent_sightings(600), faulty()
    runner = run(spark, site, tmp_path, Mode.MICRO_BATCH)
    try:
        site.append_sightings(found[:300])
        site.append([*bad, *harmless()])
        site.append_sightings(found[300:])
        expected = expected_cells(KINDS, found)
        wait_until(lambda: site.cells() == expected, "cells are those of the good records")
        wait_until(lambda: len(list(site.records(DEAD_LETTERS_TOPIC))) >= len(bad), "all dead letters are published")
        runner.tick(time.monotonic())
    finally:
        runner.stop()
    assert [one.restarts.fault for one in runner.queries] == ["", ""]
    published = [json.loads(record.value or b"") for record in site.records(DEAD_LETTERS_TOPIC)]
    assert len(published) == len(bad)
    assert all(one["fault"] and len(one["value"]) <= VALUE_CHARACTERS_MAX for one in published)
    assert sorted(one["topic"] for one in published) == sorted(entry.topic for entry in bad)


@pytest.mark.parametrize("mode", [Mode.REAL_TIME, Mode.MICRO_BATCH])
def test_an_unavailable_kafka_leaves_no_gap(spark: SparkSession, need_java: str, tmp_path: Path, mode: Mode) -> None:
    found = recent_sightings(400)
    with running_kafka(tmp_path / "kafka") as kafka:
        site = kafka_site(kafka)
        runner = run(spark, site, tmp_path / "pipelines", mode)
        try:
            site.append_sightings(found[:200])
            wait_until(lambda: site.cells() == expected_cells(KINDS, found[:200]), "the cells are complete")
            kafka.kill()
            give_up_at = time.monotonic() + 20
            while time.monotonic() < give_up_at:
                runner.tick(time.monotonic())
                time.sleep(0.5)
            kafka.start()
            site.append_sightings(found[200:])
            expected = expected_cells(KINDS, found)

            def is_complete() -> bool:
                runner.tick(time.monotonic())
                return site.cells() == expected

            wait_until(is_complete, "the cells are complete again", seconds=180)
        finally:
            runner.stop()
            site.log.close()
    assert not runner.queries[0].restarts.is_given_up
