"""Positions on Spark, against plain Python: many cases in one DataFrame, and once through a stream."""

from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import orjson
from pyspark.sql import DataFrame, SparkSession

from live.pipelines.passes import ReportTuple, by_edge, output_of
from milepost.incidents.engine import CELLS
from milepost.model.instants import Instant
from milepost.model.places import Place
from milepost.pipelines.archive.schema import REPORT_ROW
from milepost.pipelines.positions import HANDOVERS_TOPIC, LAST_TOPIC, plans, slot_records, slots
from milepost.pipelines.records import LOG_ROW
from milepost.pipelines.settings import PipelineSettings
from milepost.wire.incidents import cell_from_json
from unit.pipelines.hazards_oracle import Sighting, expected_cells, last_of
from unit.pipelines.positions_oracle import PositionReport, handovers, last_places
from unit.pipelines.positions_oracle import slots as slots_of

START_US = 1_900_000_800_000_000
SETTINGS = PipelineSettings()


def drawn(seed: int, count: int) -> list[PositionReport]:
    random = Random(seed)
    return [
        PositionReport(
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


def report_tuple(one: PositionReport, verdict: int = 0) -> ReportTuple:
    position = (one.latitude, one.longitude, one.heading_deg, one.speed_mps)
    return one.edge, one.endpoint, one.seen_at_us, *position, verdict, one.covered


def statistics(records: list[tuple[str, str, dict[str, Any]]]) -> dict[tuple[str, str], tuple[Any, ...]]:
    """Return the valid record of each key: of several, the one with the most reports."""
    names = ("reports", "endpoints", "speed_mps_mean", "speed_mps_min", "speed_mps_max")
    ordered = sorted(records, key=lambda record: record[2]["reports"])
    return {(topic, key): tuple(value[name] for name in names if name in value) for topic, key, value in ordered}


def frame_of(spark: SparkSession, position_reports: list[PositionReport]) -> DataFrame:
    refused = PositionReport(START_US, "north/e1", 52.5, 13.4, 0.0, 99.0, "implausible", 2)
    rows = [report_tuple(one) for one in position_reports] + [report_tuple(refused, verdict=177)]
    appended_at = datetime.fromtimestamp((START_US + 200_000_000) / 1e6, UTC)
    return spark.createDataFrame([(*row, number, appended_at) for number, row in enumerate(rows)], REPORT_ROW)


def test_speeds_and_holes_equal_the_oracle_and_ignore_refused_reports(spark: SparkSession) -> None:
    position_reports = drawn(1, 3_000)
    found = slot_records(slots(frame_of(spark, position_reports), allowed_lateness_s=60.0)).collect()
    assert statistics([(row.topic, row.key, orjson.loads(row.value)) for row in found]) == slots_of(position_reports)


def test_a_stream_produces_the_last_positions_and_handovers_of_the_oracle(spark: SparkSession, tmp_path: Path) -> None:
    position_reports = sorted(drawn(2, 300), key=lambda one: one.rank)
    batches = [by_edge(map(report_tuple, position_reports[first : first + 100])) for first in range(0, 300, 100)]
    records = [record for batch in output_of(plans(SETTINGS)[0], batches, spark, tmp_path) for record in batch]
    last = {key: value for topic, key, value in records if topic == LAST_TOPIC}
    expected = last_places(position_reports)
    assert {key: (value["seen_at_us"], value["edge"], value.get("speed_mps")) for key, value in last.items()} == {
        key: (one.seen_at_us, one.edge, one.speed_mps) for key, one in expected.items()
    }
    moves = [value for topic, _, value in records if topic == HANDOVERS_TOPIC]
    found = [(one["endpoint"], one["from"], one["to"], one["seen_at_us"], one["gap_s"]) for one in moves]
    assert sorted(found) == handovers(position_reports)


def test_a_stream_produces_the_speeds_and_holes_of_one_pass(spark: SparkSession, tmp_path: Path) -> None:
    position_reports = drawn(3, 300)
    batches = [by_edge(map(report_tuple, position_reports[first : first + 100])) for first in range(0, 300, 100)]
    batches_out = output_of(plans(PipelineSettings(allowed_lateness_s=600.0))[1], batches, spark, tmp_path)
    assert statistics([record for batch in batches_out for record in batch]) == slots_of(position_reports)


def test_reported_speeds_and_messages_become_cells_of_congestion(spark: SparkSession) -> None:
    congestion = next(kind for kind in SETTINGS.kinds if kind.from_reports)
    (plan,) = [plan for plan in plans(SETTINGS) if plan.name == "positions-congestion"]
    position_reports = [one for one in drawn(4, 200) if one.speed_mps is not None]
    appended_at = datetime.fromtimestamp((START_US + 200_000_000) / 1e6, UTC)
    rows = [(row["topic"], None, row["value"], 0, appended_at) for row in by_edge(map(report_tuple, position_reports))]
    found = plan.transform(spark.createDataFrame(rows, LOG_ROW)).collect()
    expected = [
        Sighting(
            congestion.topic,
            one.endpoint,
            Place(one.latitude, one.longitude),
            Instant(one.seen_at_us * 1000),
            {"speed_mps": one.speed_mps or 0.0},
        )
        for one in position_reports
    ]
    assert {row.topic for row in found} == {CELLS}
    assert last_of(cell_from_json(row.value.encode()) for row in found) == expected_cells([congestion], expected)
