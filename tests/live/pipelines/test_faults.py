"""What must not stop pipelines: records that nobody could mean, and a Kafka that is away for a while."""

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
from milepost.model.sites import ForwardedMessage
from milepost.pipelines.dead_letters import DEAD_LETTERS_TOPIC, VALUE_CHARACTERS_MAX
from milepost.pipelines.dead_letters import plans as letters
from milepost.pipelines.hazards import plans as hazards
from milepost.pipelines.records import MESSAGES_TOPIC, TOPICS
from milepost.pipelines.runner import Runner
from milepost.pipelines.settings import Mode, Pace, PipelineSettings
from milepost.runtime.services.kafka import running_kafka
from milepost.wire.records import to_record
from unit.pipelines.hazards_oracle import expected_cells

SETTINGS = PipelineSettings(kinds=KINDS, late_s=60.0)


def said(**changed: Any) -> bytes:
    """A record whose message has other members."""
    found = orjson.loads(to_record(ForwardedMessage(EDGE, 1, message_of(recent_sightings(1)[0]))))
    found["message"] |= changed
    return json.dumps(found).encode()  # unlike orjson it can say NaN


def faulty() -> list[Entry]:
    """Each is one dead letter."""
    values = [
        b"",
        b"nonsense",
        b"\xff\xfe\x00",
        b"[]",
        b"x" * 890_000,
        b"{" * 10_000,
        b'{"type": "said", "message": 7}',
        said(id=None),
        said(source=""),
        said(seen_at="1970-01-01T00:00:00Z"),
        said(seen_at="2100-01-01T00:00:00Z"),
        said(seen_at="yesterday"),
        said(place={"latitude": float("nan"), "longitude": 0.0}),
        said(place={"latitude": 0.0, "longitude": float("inf")}),
        said(place={"latitude": 91.0, "longitude": 0.0}),
        said(place={"latitude": 1.0}),
    ]
    batches = [("reports", b'{"type": "reports", "edge": "north/e1", "endpoints": [1, 2]}'), ("deliveries", b"{}")]
    return [*(Entry(MESSAGES_TOPIC, "e", value) for value in values), *(Entry(topic, "e", value) for topic, value in batches)]


def harmless() -> list[Entry]:
    """None of these is an event or a letter."""
    ahead = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 300))
    values = [
        said(place=None),
        said(topic="Weather"),
        said(topic="Weather", body="A" * 880_000),
        said(seen_at=ahead),  # it would let all other slots end
    ]
    return [Entry(MESSAGES_TOPIC, "e", value) for value in values]


def run(spark: SparkSession, site: SiteLog, folder: Path, mode: Mode) -> Runner:
    for topic in (*TOPICS, CELLS, DEAD_LETTERS_TOPIC):
        site.log.make(topic)
    pace = Pace(mode=mode, urgent_s=0.0, other_s=0.0, real_time_s=5.0, records_max=150)
    queries = [*hazards(SETTINGS), *(letters(SETTINGS) if mode is Mode.MICRO_BATCH else [])]
    runner = Runner(spark, site.source, queries, pace, folder=str(folder), tell=print)
    runner.start(time.monotonic())
    return runner


def test_a_poisoned_topic_changes_nothing_but_the_count_of_dead_letters(
    spark: SparkSession, site: SiteLog, tmp_path: Path
) -> None:
    found, bad = recent_sightings(600), faulty()
    runner = run(spark, site, tmp_path, Mode.MICRO_BATCH)
    try:
        site.say(found[:300])
        site.append([*bad, *harmless()])
        site.say(found[300:])
        wanted = expected_cells(KINDS, found)
        wait_until(lambda: site.cells() == wanted, "cells are those of the good records")
        wait_until(lambda: len(list(site.records(DEAD_LETTERS_TOPIC))) >= len(bad), "all letters are told")
        runner.tick(time.monotonic())
    finally:
        runner.stop()
    assert [one.restarts.fault for one in runner.queries] == ["", ""]
    told = [json.loads(record.value or b"") for record in site.records(DEAD_LETTERS_TOPIC)]
    assert len(told) == len(bad)
    assert all(one["fault"] and len(one["value"]) <= VALUE_CHARACTERS_MAX for one in told)
    assert sorted(one["topic"] for one in told) == sorted(entry.topic for entry in bad)


@pytest.mark.parametrize("mode", [Mode.REAL_TIME, Mode.MICRO_BATCH])
def test_kafka_away_for_a_while_and_back_leaves_no_gap(spark: SparkSession, need_java: str, tmp_path: Path, mode: Mode) -> None:
    found = recent_sightings(400)
    with running_kafka(tmp_path / "kafka") as kafka:
        site = kafka_site(kafka)
        runner = run(spark, site, tmp_path / "pipelines", mode)
        try:
            site.say(found[:200])
            wait_until(lambda: site.cells() == expected_cells(KINDS, found[:200]), "it works")
            kafka.kill()
            give_up_at = time.monotonic() + 20
            while time.monotonic() < give_up_at:
                runner.tick(time.monotonic())
                time.sleep(0.5)
            kafka.start()
            site.say(found[200:])
            wanted = expected_cells(KINDS, found)

            def is_as_wanted() -> bool:
                runner.tick(time.monotonic())
                return site.cells() == wanted

            wait_until(is_as_wanted, "it works again", seconds=180)
        finally:
            runner.stop()
            site.log.close()
    assert not runner.queries[0].restarts.is_given_up
