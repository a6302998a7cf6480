"""A backtest produces the alerts of the live stream, byte for byte (M24)."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from live.pipelines.archives import NOON_US, Row, append_batch, frame_of, instant, message, report
from milepost.incidents.engine import IncidentEngine
from milepost.model.incidents import EVENT_KINDS
from milepost.model.instants import FOREVER
from milepost.model.places import Place, moved
from milepost.model.site_records import CROSS_HUB
from milepost.pipelines.archive.compaction import compact
from milepost.pipelines.archive.schema import MESSAGES, REPORTS
from milepost.pipelines.backtest import Replay, alerts, all_events, incidents_of, pair_incidents
from milepost.pipelines.hazards import cell_records, cells

HOME: Final = Place(40.7608, -111.891)
KINDS: Final = tuple(kind for kind in EVENT_KINDS if kind.name in ("Collision", "Obstacle", "Congestion"))
TOPICS: Final = [kind.topic for kind in KINDS]
MINUTES: Final = 10
LATE_S: Final = 2
END_US: Final = NOON_US + MINUTES * 60_000_000


def somewhere(chance: random.Random) -> tuple[float, float]:
    place = moved(HOME, chance.choice((0, 120, 240)), chance.choice((0, 60, 1500, 5000)))
    return place.latitude, place.longitude


def recorded(chance: random.Random) -> tuple[list[Row], list[Row]]:
    """Return ten minutes of messages and reports, in order of arrival."""
    times = sorted(NOON_US + chance.randrange(MINUTES * 60_000_000 - LATE_S * 1_000_000) for _ in range(400))
    messages = [
        message(offset, at_us, source=f"car-{chance.randrange(12)}", topic=chance.choice(TOPICS), place=somewhere(chance))
        for offset, at_us in enumerate(times)
    ]
    seen = [
        report(offset, at_us, endpoint=f"car-{chance.randrange(30)}", place=somewhere(chance), speed_mps=chance.uniform(0, 6))
        for offset, at_us in enumerate(times)
    ]
    return messages, seen


def live(spark: SparkSession, messages: list[Row], seen: list[Row]) -> list[bytes]:
    """Return the alerts of the incident engine when cells are published again as they grow."""
    engine = IncidentEngine("north", KINDS, allowed_lateness_s=LATE_S, since=FOREVER)
    appended = []
    for seconds in (0.0, 95.0, 301.3, 590.0, 602.0):
        until_us = NOON_US + int(seconds * 1_000_000)
        values = cell_values(spark, [row for row in messages if row[6] < until_us], [row for row in seen if row[2] < until_us])
        random.Random(until_us).shuffle(values)
        engine.add_cells(values, instant(until_us))
        engine.tick(instant(until_us))
        appended += [append.value for append in engine.take_appends() if append.topic == CROSS_HUB]
    return appended


def cell_values(spark: SparkSession, messages: list[Row], seen: list[Row]) -> list[bytes | None]:
    found: DataFrame = all_events(frame_of(spark, MESSAGES, messages), frame_of(spark, REPORTS, seen), KINDS)
    return [row.value.encode() for row in cell_records(cells(found, KINDS, allowed_lateness_s=0.0)).collect()]


def test_a_backtest_produces_the_alerts_of_the_live_stream_byte_for_byte(spark: SparkSession, tmp_path: Path) -> None:
    messages, seen = recorded(random.Random(7))
    expected = live(spark, messages, seen)
    append_batch(spark, tmp_path, MESSAGES, messages[:250])
    append_batch(spark, tmp_path, MESSAGES, messages[250:])
    append_batch(spark, tmp_path, REPORTS, seen)
    compact(spark, tmp_path, now=instant(END_US + 2 * 3_600_000_000))
    replay = Replay("north", KINDS)
    start, end = instant(NOON_US), instant(END_US)
    assert list(alerts(spark, tmp_path, replay, KINDS, start=start, end=end)) == expected
    assert {one.kind for one in incidents_of(expected)} == {kind.name for kind in KINDS}
    assert not replay.dropped
    stricter = [replace(kind, predicate="weight >= 6 and reports >= 8") for kind in KINDS]
    found = incidents_of(alerts(spark, tmp_path, Replay("north", stricter), stricter, start=start, end=end))
    assert 0 < len(found) < len(incidents_of(expected))
    assert {pair.raised_by for pair in pair_incidents(incidents_of(expected), found)} == {"A", "both"}
