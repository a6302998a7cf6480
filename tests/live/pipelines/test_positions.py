"""Positions on Spark, against plain Python: many cases in one DataFrame, and once through a stream."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pytest
from pyspark.sql import DataFrame, SparkSession

from live.pipelines.passes import OutputRecord, ReportTuple, by_edge, output_of
from milepost.incidents.engine import CELLS
from milepost.model.instants import Instant
from milepost.model.places import Place
from milepost.pipelines.archive.schema import REPORT_ROW
from milepost.pipelines.hazards import CLOCK_AHEAD_S_MAX
from milepost.pipelines.positions import LAST_TOPIC, STAYS_TOPIC, place_records, plans, slot_records, slots
from milepost.pipelines.records import LOG_ROW
from milepost.pipelines.settings import PipelineSettings
from milepost.wire.incidents import cell_from_json
from parts import ROOT
from unit.pipelines.hazards_oracle import Sighting, expected_cells, last_of
from unit.pipelines.positions_oracle import PositionReport, Stay, handovers_between, last_places, stays
from unit.pipelines.positions_oracle import slots as slots_of

START_US = 1_900_000_800_000_000
SETTINGS = PipelineSettings()


def drawn(seed: int, count: int) -> list[PositionReport]:
    """Return reports in any order, each at an instant of its own: an edge accepts no two of an endpoint at one instant."""
    random = Random(seed)
    return [
        PositionReport(
            seen_at_us=START_US + at_us,
            edge=random.choice(["north/e1", "north/e2"]),
            latitude=random.choice([52.5, -33.9, 0.0, 89.9999]) + random.uniform(0, 1e-4),
            longitude=random.choice([13.4, 179.9999, -180.0]) + random.uniform(0, 1e-4),
            heading_deg=random.choice([None, 0.0, 22.5, 22.4999, 337.5, 359.9, random.uniform(0, 360)]),
            speed_mps=random.choice([None, 0.0, random.uniform(0, 40)]),
            endpoint=f"car-{random.randrange(20)}",
            covered=random.choice([0, 0, 1, 2]),
        )
        for at_us in random.sample(range(180_000_000), count)
    ]


def report_tuple(one: PositionReport, verdict: int = 0) -> ReportTuple:
    position = (one.latitude, one.longitude, one.heading_deg, one.speed_mps)
    return one.edge, one.endpoint, one.seen_at_us, *position, verdict, one.covered


def valid(records: Sequence[OutputRecord]) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the valid record of each key: of several, the one with the most reports."""
    return {(topic, key): value for topic, key, value in sorted(records, key=lambda record: record[2]["reports"])}


def statistics(records: Sequence[OutputRecord]) -> dict[tuple[str, str], tuple[Any, ...]]:
    """Return the speeds and holes."""
    names = ("reports", "endpoints", "speed_mps_mean", "speed_mps_min", "speed_mps_max")
    some = {key: value for key, value in valid(records).items() if key[0] != STAYS_TOPIC}
    return {key: tuple(value[name] for name in names if name in value) for key, value in some.items()}


def stays_of(records: Sequence[OutputRecord]) -> list[Stay]:
    """Return the stays, ordered as those of the oracle."""
    found = [
        Stay(
            *(one["slot"], one["edge"], one["endpoint"], one["reports"]),
            *(one["first_at_us"], spot(one["first"]), one["last_at_us"], spot(one["last"])),
        )
        for (topic, _), one in valid(records).items()
        if topic == STAYS_TOPIC
    ]
    return sorted(found, key=lambda stay: (stay.slot, stay.edge, stay.endpoint))


def spot(place: dict[str, float]) -> tuple[float, float]:
    return place["latitude"], place["longitude"]


def without_estimates(slots: dict[tuple[str, str], tuple[Any, ...]]) -> dict[tuple[str, str], tuple[Any, ...]]:
    return {key: (reports, *speeds) for key, (reports, _, *speeds) in slots.items()}


def frame_of(spark: SparkSession, position_reports: list[PositionReport]) -> DataFrame:
    refused = PositionReport(START_US, "north/e1", 52.5, 13.4, 0.0, 99.0, "implausible", 2)
    rows = [report_tuple(one) for one in position_reports] + [report_tuple(refused, verdict=177)]
    appended_at = datetime.fromtimestamp((START_US + 200_000_000) / 1e6, UTC)
    return spark.createDataFrame([(*row, number, appended_at) for number, row in enumerate(rows)], REPORT_ROW)


def slot_output(frame: DataFrame) -> list[OutputRecord]:
    found = slot_records(slots(frame, allowed_lateness_s=60.0)).collect()
    return [(row.topic, row.key, orjson.loads(row.value)) for row in found]


def test_stays_speeds_and_holes_equal_the_oracle_and_ignore_refused_reports(spark: SparkSession) -> None:
    position_reports = drawn(1, 3_000)
    output = slot_output(frame_of(spark, position_reports))
    assert stays_of(output) == stays(position_reports)
    assert without_estimates(statistics(output)) == without_estimates(slots_of(position_reports))


def test_estimates_of_endpoints_are_within_the_documented_error(spark: SparkSession) -> None:
    crowds = {52.5: 10, 52.6: 100, 52.7: 400}
    position_reports = [
        PositionReport(START_US + number, "north/e1", latitude, 13.4, 0.0, 10.0, f"car-{number % crowd}")
        for latitude, crowd in crowds.items()
        for number in range(2 * crowd)
    ]
    found = [endpoints for _, endpoints, *_ in statistics(slot_output(frame_of(spark, position_reports))).values()]
    assert sorted(found) == [pytest.approx(crowd, rel=0.15) for crowd in crowds.values()]


def test_of_reports_at_one_instant_the_stay_takes_the_same_in_any_order(spark: SparkSession) -> None:
    at_once = [PositionReport(START_US, "north/e1", 52.5 + number / 100, 13.4) for number in range(9)]
    found = [stays_of(slot_output(frame_of(spark, some)))[0] for some in (at_once, at_once[::-1])]
    assert found[0] == found[1]


def test_handovers_are_derived_from_stays_by_the_documented_query(spark: SparkSession) -> None:
    position_reports = drawn(5, 300)
    output = slot_output(frame_of(spark, position_reports))
    values = [orjson.dumps(value).decode() for topic, _, value in output if topic == STAYS_TOPIC]
    spark.read.json(spark.sparkContext.parallelize([*values, *values])).createOrReplaceTempView("stays")
    page = (ROOT / "docs" / "reference" / "positions.md").read_text()
    (query,) = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)
    assert sorted(map(tuple, spark.sql(query).collect())) == handovers_between(stays(position_reports))


def test_a_stream_produces_the_last_positions_of_the_oracle(spark: SparkSession, tmp_path: Path) -> None:
    position_reports = sorted(drawn(2, 300), key=lambda one: one.seen_at_us)
    batches = [by_edge(map(report_tuple, position_reports[first : first + 100])) for first in range(0, 300, 100)]
    records = [record for batch in output_of(plans(SETTINGS)[0], batches, spark, tmp_path) for record in batch]
    last = {key: value for topic, key, value in records if topic == LAST_TOPIC}
    found = {key: (value["seen_at_us"], value["latitude"], value.get("speed_mps")) for key, value in last.items()}
    expected = last_places(position_reports).items()
    assert found == {"/".join(key): (one.seen_at_us, one.latitude, one.speed_mps) for key, one in expected}


def test_refused_reports_are_no_last_positions(spark: SparkSession) -> None:
    (row,) = place_records(frame_of(spark, [PositionReport(START_US, "north/e1", 52.5, 13.4)])).collect()
    assert row.key == "north/e1/car-1"


def test_a_stream_produces_the_stays_speeds_and_holes_of_one_pass(spark: SparkSession, tmp_path: Path) -> None:
    position_reports = drawn(3, 300)
    batches = [by_edge(map(report_tuple, position_reports[first : first + 100])) for first in range(0, 300, 100)]
    batches_out = output_of(plans(PipelineSettings(allowed_lateness_s=600.0))[1], batches, spark, tmp_path)
    output = [record for batch in batches_out for record in batch]
    assert stays_of(output) == stays(position_reports)
    assert without_estimates(statistics(output)) == without_estimates(slots_of(position_reports))


def test_the_state_of_slots_ends_by_the_watermark(spark: SparkSession, tmp_path: Path) -> None:
    old, new = (PositionReport(START_US + at_s * 1_000_000, "north/e1", 52.5, 13.4) for at_s in (0, 1_000))
    # Spark drops late rows by the watermark of the batch before.
    batches = [by_edge([report_tuple(one)]) for one in (old, new, new, old)]
    *_, last = output_of(plans(SETTINGS)[1], batches, spark, tmp_path)
    assert last == []


def test_a_clock_that_runs_ahead_counts_in_no_slot(spark: SparkSession) -> None:
    ahead = PositionReport(START_US + 200_000_000 + (CLOCK_AHEAD_S_MAX + 1) * 1_000_000, "north/e1", 52.5, 13.4)
    assert slot_output(frame_of(spark, [ahead])) == []


def test_slots_are_aggregated_by_compiled_code_in_one_scan(spark: SparkSession) -> None:
    plan = str(slots(frame_of(spark, drawn(6, 10)), allowed_lateness_s=60.0)._jdf.queryExecution().executedPlan())
    assert plan.count("HashAggregate") == 2
    assert "ObjectHashAggregate" not in plan
    assert "SortAggregate" not in plan


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
