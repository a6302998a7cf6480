"""Reputation through a stream: the published scores equal those of the detectors without Spark."""

from pathlib import Path
from random import Random
from typing import Any

import orjson
import pandas as pd
from pyspark.sql import SparkSession

from live.pipelines.logs import EDGE, message_of
from live.pipelines.passes import OutputRecord, by_edge, output_of
from milepost.model.incidents import Grid
from milepost.model.instants import Instant
from milepost.model.pipeline_records import REPUTATION
from milepost.model.places import Place
from milepost.model.site_records import ForwardedMessage
from milepost.pipelines.records import MESSAGES_TOPIC
from milepost.pipelines.reputation.detectors import check_endpoints, check_squares
from milepost.pipelines.reputation.evidence import LEAD_US, MINUTE_US, SIDE_M, EvidenceKind, EvidenceThresholds
from milepost.pipelines.reputation.ledger import EvidenceLedger
from milepost.pipelines.reputation.pipeline import plans
from milepost.pipelines.settings import PipelineSettings
from milepost.wire.records import reputation_from_record, to_record
from unit.pipelines.hazards_oracle import Sighting
from unit.pipelines.reputation_sightings import MINUTE, Row, driving, event, frame, sighting, standing

SETTINGS = PipelineSettings(allowed_lateness_s=5.0)
MINUTES = 3


def town() -> list[Row]:
    """Three honest cars, one that reports speed but does not move, one that stands where others drive, one false reporter."""
    seconds = range(60 * MINUTES)
    rows = [row for number in range(3) for row in driving(f"car-{number}", east_m=-25.0 * number, speed=2.5, seconds=seconds)]
    rows += [sighting("still", at, 0, 300, speed=12) for at in seconds]
    rows += standing("ghost", 200, seconds=seconds)
    rows += [row for number in range(3) for row in driving(f"bus-{number}", north_m=60, east_m=9.0 * number, seconds=seconds)]
    return rows + [event("attacker", at, 10.0 * at, 60) for at in (5, 40, 70, 90)]


def expected(rows: list[Row]) -> list[dict[str, Any]]:
    all_rows, ledger, state, scores = frame(rows), EvidenceLedger(), None, []
    all_rows["square"] = [square_of(Place(row[2], row[3])) for row in rows]
    for minute in range(MINUTE, MINUTE + MINUTES):
        is_seen = all_rows["seen_at_us"].between(minute * MINUTE_US - LEAD_US, (minute + 1) * MINUTE_US - 1)
        state, found = check_squares(state, all_rows[is_seen], minute, EvidenceThresholds())
        evidence = [check_endpoints(all_rows[is_seen], minute, EvidenceThresholds()), *([found] if len(found) else [])]
        columns = (pd.concat(evidence)[name].tolist() for name in ("minute", "endpoint", "evidence", "count"))
        scores += ledger.take(
            [(at, endpoint, EvidenceKind(kind), count) for at, endpoint, kind, count in zip(*columns, strict=True)]
        )
    reasons = ([{"evidence": str(kind), "count": count} for kind, count in one.reasons] for one in scores)
    return [
        {"type": "reputation", "endpoint": one.endpoint, "score": one.score, "at_us": one.at_us, "reasons": why}
        for one, why in zip(scores, reasons, strict=True)
    ]


def square_of(place: Place) -> int:
    row, column = Grid(SIDE_M).locate(place).square
    return (row << 32) + column


def log_rows(rows: list[Row]) -> list[dict[str, Any]]:
    reports = [("north/e1", *row[:7], 0) for row in rows if row[7] is None]
    return [*(by_edge(reports) if reports else []), *(_event_record(row) for row in rows if row[7] is not None)]


def _event_record(row: Row) -> dict[str, Any]:
    assert row[7] is not None
    message = message_of(Sighting(row[7], row[0], Place(row[2], row[3]), Instant(row[1] * 1000)))
    value = to_record(ForwardedMessage(EDGE, 1, message)).decode()
    return {"topic": MESSAGES_TOPIC, "value": value, "offset": 0, "appended_at": row[1]}


def in_order(records: list[OutputRecord]) -> list[dict[str, Any]]:
    assert {topic for topic, _, _ in records} == {REPUTATION}
    assert all(key == reputation_from_record(orjson.dumps(value)).endpoint for _, key, value in records)
    return sorted((value for _, _, value in records), key=lambda value: (value["at_us"], value["endpoint"]))


def test_a_stream_produces_the_scores_of_the_detectors_in_any_order_of_reports(spark: SparkSession, tmp_path: Path) -> None:
    rows = town()
    mixed = Random(5).sample(rows, len(rows))
    by_half = [
        [row for row in mixed if half * MINUTE_US // 2 <= row[1] - MINUTE * MINUTE_US < (half + 1) * MINUTE_US // 2]
        for half in range(2 * MINUTES)
    ]
    end = [sighting("clock", 60 * MINUTES + 150, 5_000, 5_000)]
    batches = output_of(plans(SETTINGS)[0], [log_rows(half) for half in (*by_half, end)], spark, tmp_path)
    found = in_order([record for batch in batches for record in batch])
    assert [one for one in found if one["at_us"] <= (MINUTE + MINUTES) * MINUTE_US] == expected(rows)
    assert {one["endpoint"] for one in found} == {"still", "attacker"}, orjson.dumps(found)
