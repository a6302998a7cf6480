"""Positions on Spark, against plain Python: many cases in one frame, and once through a stream."""

from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import orjson
from pyspark.sql import DataFrame, SparkSession

from live.pipelines.passes import Seen, by_edge, told_by
from milepost.incidents.engine import CELLS
from milepost.model.instants import Instant
from milepost.model.places import Place
from milepost.pipelines.archive.schema import REPORT_ROW
from milepost.pipelines.positions import HANDOVERS_TOPIC, LAST_TOPIC, plans, slot_records, slots
from milepost.pipelines.records import LOG_ROW
from milepost.pipelines.settings import PipelineSettings
from milepost.wire.incidents import cell_from_json
from unit.pipelines.hazards_oracle import Sighting, expected_cells, last_of
from unit.pipelines.positions_oracle import Sight, handovers, last_places
from unit.pipelines.positions_oracle import slots as slots_of

START_US = 1_900_000_800_000_000
SETTINGS = PipelineSettings()


def drawn(seed: int, count: int) -> list[Sight]:
    random = Random(seed)
    return [
        Sight(
            seen_at_us=START_US + random.randrange(180_000_000),
            edge=random.choice(["north/e1", "north/e2"]),
            latitude=random.choice([52.5, -33.9, 0.0, 89.9999]) + random.uniform(0, 1e-4),
            longitude=random.choice([13.4, 179.9999, -180.0]) + random.uniform(0, 1e-4),
            heading_deg=random.choice([None, 0.0, 22.5, 22.4999, 337.5, 359.9, random.uniform(0, 360)]),
            speed_mps=random.choice([None, 0.0, random.uniform(0, 40)]),
            endpoint=f"car-{random.randrange(20)}",
            covered=random.choice([0, 0, 1, 2]),
        )
        for _ in range(count)
    ]


def seen(one: Sight, verdict: int = 0) -> Seen:
    where = (one.latitude, one.longitude, one.heading_deg, one.speed_mps)
    return one.edge, one.endpoint, one.seen_at_us, *where, verdict, one.covered


def figures(records: list[tuple[str, str, dict[str, Any]]]) -> dict[tuple[str, str], tuple[Any, ...]]:
    """The last record under each key: of two with one key the one with more reports counts."""
    names = ("reports", "endpoints", "speed_mps_mean", "speed_mps_min", "speed_mps_max")
    told = sorted(records, key=lambda record: record[2]["reports"])
    return {(topic, key): tuple(value[name] for name in names if name in value) for topic, key, value in told}


def frame_of(spark: SparkSession, sights: list[Sight]) -> DataFrame:
    refused = Sight(START_US, "north/e1", 52.5, 13.4, 0.0, 99.0, "liar", 2)
    rows = [seen(one) for one in sights] + [seen(refused, verdict=177)]
    appended_at = datetime.fromtimestamp((START_US + 200_000_000) / 1e6, UTC)
    return spark.createDataFrame([(*row, number, appended_at) for number, row in enumerate(rows)], REPORT_ROW)


def test_speeds_and_holes_are_those_of_the_definition_and_refused_reports_count_for_nothing(spark: SparkSession) -> None:
    sights = drawn(1, 3_000)
    found = slot_records(slots(frame_of(spark, sights), late_s=60.0)).collect()
    assert figures([(row.topic, row.key, orjson.loads(row.value)) for row in found]) == slots_of(sights)


def test_through_a_stream_last_places_and_handovers_are_those_of_the_definition(spark: SparkSession, tmp_path: Path) -> None:
    sights = sorted(drawn(2, 300), key=lambda one: one.rank)
    batches = [by_edge(map(seen, sights[first : first + 100])) for first in range(0, 300, 100)]
    told = [record for batch in told_by(plans(SETTINGS)[0], batches, spark, tmp_path) for record in batch]
    last = {key: value for topic, key, value in told if topic == LAST_TOPIC}
    expected = last_places(sights)
    assert {key: (value["seen_at_us"], value["edge"], value.get("speed_mps")) for key, value in last.items()} == {
        key: (one.seen_at_us, one.edge, one.speed_mps) for key, one in expected.items()
    }
    moves = [value for topic, _, value in told if topic == HANDOVERS_TOPIC]
    found = [(one["endpoint"], one["from"], one["to"], one["seen_at_us"], one["gap_s"]) for one in moves]
    assert sorted(found) == handovers(sights)


def test_through_a_stream_speeds_and_holes_are_those_of_one_pass(spark: SparkSession, tmp_path: Path) -> None:
    sights = drawn(3, 300)
    batches = [by_edge(map(seen, sights[first : first + 100])) for first in range(0, 300, 100)]
    told = told_by(plans(PipelineSettings(late_s=600.0))[1], batches, spark, tmp_path)
    assert figures([record for batch in told for record in batch]) == slots_of(sights)


def test_slow_traffic_is_cells_of_congestion_together_with_what_drivers_say(spark: SparkSession) -> None:
    congestion = next(kind for kind in SETTINGS.kinds if kind.from_reports)
    (plan,) = [plan for plan in plans(SETTINGS) if plan.name == "positions-congestion"]
    sights = [one for one in drawn(4, 200) if one.speed_mps is not None]
    appended_at = datetime.fromtimestamp((START_US + 200_000_000) / 1e6, UTC)
    rows = [(row["topic"], None, row["value"], 0, appended_at) for row in by_edge(map(seen, sights))]
    found = plan.transform(spark.createDataFrame(rows, LOG_ROW)).collect()
    expected = [
        Sighting(
            congestion.topic,
            one.endpoint,
            Place(one.latitude, one.longitude),
            Instant(one.seen_at_us * 1000),
            {"speed_mps": one.speed_mps or 0.0},
        )
        for one in sights
    ]
    assert {row.topic for row in found} == {CELLS}
    assert last_of(cell_from_json(row.value.encode()) for row in found) == expected_cells([congestion], expected)
