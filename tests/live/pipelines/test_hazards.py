"""Hazards against the oracle: in one batch, as a stream on both logs, and in real-time mode."""

import random
import time
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from live.pipelines.logs import SiteLog, wait_until
from milepost.incidents.engine import CELLS
from milepost.model.incidents import EVENT_KINDS, EventKind
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.places import Place
from milepost.pipelines.hazards import EVENT_ROW, cell_records, cells, plans
from milepost.pipelines.records import MESSAGES_TOPIC
from milepost.pipelines.runner import Runner
from milepost.pipelines.settings import BatchSettings, Mode, PipelineSettings
from milepost.wire.incidents import cell_from_json, cell_key
from unit.incidents.events import HOME, NOON, away
from unit.pipelines.hazards_oracle import Sighting, expected_cells, last_of

WITH_FIELDS = EventKind("Slow", "Slow", "mean_speed_mps < 4 and max_lanes > 1", "Alert/Slow", interval_s=2.5, side_m=80.0)
SAME_TOPIC = EventKind("Slow_wide", "Slow", "count_lanes > 3", None, side_m=1_000.0, interval_s=60.0)
KINDS = (*(kind for kind in EVENT_KINDS if not kind.from_reports), WITH_FIELDS, SAME_TOPIC)
NAMES = ["car-1", "truck-7", "ä", "\U0001f69a", "z", "\uffee"]

places = st.one_of(
    st.sampled_from([HOME, away(100.0), away(0.0, 149.0), Place(90.0, 0.0), Place(-90.0, -180.0), Place(0.0, 180.0)]),
    st.builds(Place, st.floats(-90, 90), st.floats(-180, 180)),
)
sightings = st.builds(
    lambda topic, endpoint, place, micros, fields: Sighting(topic, endpoint, place, Instant(NOON + micros * 1_000), fields),
    st.sampled_from([*(kind.topic for kind in KINDS), "Weather"]),
    st.sampled_from(NAMES) | st.integers(0, 99).map(lambda number: f"car-{number:02}"),
    places,
    st.integers(0, 65_000_000),
    st.dictionaries(
        st.sampled_from(["speed_mps", "lanes", "other"]),
        st.floats(-1.1e6, 1.1e6) | st.sampled_from([0.0, -0.0, 1e-9, 3.9999, -3.9999, 1e6, -1e6, 1e300]),
    ),
)


@settings(max_examples=4, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(st.lists(sightings, min_size=1, max_size=400), st.randoms(use_true_random=False))
def test_cells_equal_the_oracle_in_any_order_of_reports(
    spark: SparkSession, found: list[Sighting], shuffling: random.Random
) -> None:
    crowd = [Sighting("Slow", f"car-{number:03}", HOME, NOON, {"lanes": float(number)}) for number in range(70)]
    everything = [*found, *crowd]
    shuffling.shuffle(everything)
    rows = [
        (kind.name, one.endpoint, one.seen_at // 1000, one.place.latitude, one.place.longitude, one.fields)
        for one in everything
        for kind in KINDS
        if one.topic == kind.topic
    ]
    records = cell_records(cells(spark.createDataFrame(rows, EVENT_ROW), KINDS, allowed_lateness_s=1.0)).collect()
    found_cells = [cell_from_json(row.value.encode()) for row in records]
    assert last_of(found_cells) == expected_cells(KINDS, everything)
    assert [row.key for row in records] == [cell_key(cell) for cell in found_cells]
    assert {row.topic for row in records} == {CELLS}


def recent_sightings(count: int, *, seconds: float = 50.0) -> list[Sighting]:
    """Return sightings of the last seconds, out of order, in a few squares."""
    now = time.time_ns()
    return [
        Sighting(
            KINDS[number % len(KINDS)].topic,
            f"car-{number * 7 % 90}",
            away(number * 37 % 500, number * 61 % 300),
            Instant((now - int(number * 0.618034 % 1 * seconds * SECOND_NS)) // 1000 * 1000),
            {"speed_mps": float(number % 13), "lanes": 2.0 + number % 3},
        )
        for number in range(count)
    ]


def check_stream(spark: SparkSession, site: SiteLog, folder: Path, mode: Mode) -> None:
    for topic in (MESSAGES_TOPIC, CELLS):
        site.log.make(topic)
    events: list[str] = []
    plan = plans(PipelineSettings(kinds=KINDS, allowed_lateness_s=60.0))
    batches = BatchSettings(mode=mode, alert_interval_s=0.0, real_time_batch_s=5.0, records_max=500)
    runner = Runner(spark, site.source, plan, batches, folder=str(folder), on_event=lambda *event: events.append(str(event)))
    runner.start(0.0)
    try:
        found = recent_sightings(2_000)
        for at in range(0, len(found), 400):
            site.append_sightings(found[at : at + 400])
        expected = expected_cells(KINDS, found)
        wait_until(lambda: site.cells() == expected, "cells are those of the oracle")
        runner.tick(1.0)
    finally:
        runner.stop()
    assert len(events) == 1, events
    assert (mode is Mode.REAL_TIME) == ("real-time" in events[0])


def test_a_stream_on_either_log_produces_the_cells_of_the_oracle(spark: SparkSession, site: SiteLog, tmp_path: Path) -> None:
    check_stream(spark, site, tmp_path, Mode.MICRO_BATCH)


def test_real_time_mode_produces_the_cells_of_the_oracle(spark: SparkSession, on_kafka: SiteLog, tmp_path: Path) -> None:
    check_stream(spark, on_kafka, tmp_path, Mode.REAL_TIME)
