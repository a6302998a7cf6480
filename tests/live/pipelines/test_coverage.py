"""The proof of coverage lists all endpoints inside, with the time of receipt, or why there was none."""

import json
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import SparkSession

from live.pipelines.archives import NOON_US, Row, append_batch, delivery, frame_of, message, report
from milepost.model.areas import Circle, Stretch, Upstream
from milepost.model.places import Place, moved
from milepost.model.reasons import Reason
from milepost.pipelines.archive.schema import DELIVERIES, MESSAGES, REPORTS
from milepost.pipelines.coverage import DeliveryOutcome, NoCoverageProof, prove_coverage, within
from milepost.wire.geojson import area_to_geojson

HOME: Final = Place(40.7608, -111.891)
AREA: Final = Circle(HOME, 500.0)
SECOND: Final = 1_000_000
ADDRESS: Final = json.dumps({"to": "area", "area": area_to_geojson(AREA)})


def at(east_m: float) -> tuple[float, float]:
    place = moved(HOME, 90.0, east_m)
    return place.latitude, place.longitude


def seen(endpoint: str, seconds: float, east_m: float = 100.0, *, verdict: int = 0, covered: int = 0) -> Row:
    at_us = NOON_US + int(seconds * SECOND)
    return report(0, at_us, endpoint=endpoint, place=at(east_m), verdict=verdict, covered=covered)


REPORTED: Final = [
    seen("acknowledging", -5),
    seen("receiving", -5),
    seen("late", -5, 3_000.0),
    seen("late", 20),
    seen("full", -1),
    seen("unsent", -1),
    seen("implausible", -2, verdict=Reason.MOVE_TELEPORT),
    seen("uncovered", -2, covered=2),
    seen("elsewhere", -2, covered=1),
    seen("unrecorded", -2),
    seen("left", -50),
    seen("left", -10, 20_000.0),
    seen("silent", -70),
    seen("outside", 1, 600.0),
    seen("too late", 61),
]
DELIVERED: Final = [
    delivery(0, NOON_US + 10_000, "acknowledging", "matched"),
    delivery(1, NOON_US + 12_000, "acknowledging", "sent"),
    delivery(2, NOON_US + 40_000, "acknowledging", "acknowledged"),
    delivery(3, NOON_US + 10_000, "receiving", "dropped", reason=Reason.QUEUE_FULL),
    delivery(4, NOON_US + 500_000, "receiving", "sent"),
    delivery(5, NOON_US + 10_000, "full", "matched"),
    delivery(6, NOON_US + 20_000, "full", "dropped", reason=Reason.QUEUE_FULL),
    delivery(7, NOON_US + 10_000, "unsent", "matched"),
    delivery(8, NOON_US + 10_000, "outside", "sent"),
    delivery(9, NOON_US + 10_000, "unrecorded", "sent", number=2),
]
EXPECTED: Final = {
    "elsewhere": (DeliveryOutcome.MISSED, None, "connected to north/edge-1, which does not cover the place"),
    "full": (DeliveryOutcome.DROPPED, None, "dropped by north/edge-1: QUEUE_FULL"),
    "implausible": (DeliveryOutcome.MISSED, None, "its reports were refused: MOVE_TELEPORT"),
    "late": (DeliveryOutcome.MISSED, None, "entered 20.0 s after publication"),
    "uncovered": (DeliveryOutcome.MISSED, None, "no edge covers the place"),
    "unrecorded": (DeliveryOutcome.MISSED, None, "north/edge-1 has no record of it"),
    "unsent": (DeliveryOutcome.MATCHED, None, "matched by north/edge-1, without a record of sending"),
    "acknowledging": (DeliveryOutcome.ACKNOWLEDGED, 12_000, ""),
    "receiving": (DeliveryOutcome.SENT, 500_000, ""),
    "outside": (DeliveryOutcome.SENT, 10_000, "outside the area, by its own reports"),
}


def test_a_proof_lists_every_endpoint_once_with_outcome_and_explanation(spark: SparkSession, tmp_path: Path) -> None:
    warned = message(0, number=1, address=ADDRESS, valid_until_us=NOON_US + 60 * SECOND)
    append_batch(spark, tmp_path, MESSAGES, [warned, message(1, number=1, source="car-2"), message(2, number=2)])
    append_batch(spark, tmp_path, REPORTS, [(*row[:-2], offset, row[-1]) for offset, row in enumerate(REPORTED)])
    append_batch(spark, tmp_path, DELIVERIES, DELIVERED)
    found = prove_coverage(spark, tmp_path, "1", source="car-1")
    outcomes = {
        one.endpoint: (one.outcome, None if one.received_us is None else one.received_us - NOON_US, one.explanation(NOON_US))
        for one in found.proofs
    }
    assert outcomes == EXPECTED
    assert [one.endpoint for one in found.proofs] == list(EXPECTED)
    assert found.summary == "9 endpoints inside: 2 received it, 7 did not; 1 others in delivery records"
    page = found.page()
    assert page.count('class="good"><circle') == 2
    assert page.count('class="bad"><circle') == 7
    with pytest.raises(NoCoverageProof, match="car-1, car-2: choose one with --source"):
        prove_coverage(spark, tmp_path, "1")
    with pytest.raises(NoCoverageProof, match="not addressed to an area"):
        prove_coverage(spark, tmp_path, "2")
    with pytest.raises(NoCoverageProof, match="no message 3"):
        prove_coverage(spark, tmp_path, "3")


def test_endpoints_that_enter_after_a_newer_message_replaced_it_are_not_in_the_proof(spark: SparkSession, tmp_path: Path) -> None:
    area = area_to_geojson(AREA)
    about = json.dumps({"to": "area", "area": area, "incident": "jam-1"})
    other = json.dumps({"to": "area", "area": area, "incident": "jam-2"})
    all_clear = json.dumps({"to": "notified", "incidents": ["jam-1"]})
    until = NOON_US + 600 * SECOND
    published = [(0, 1, about), (5, 2, other), (30, 3, about), (60, 4, all_clear)]
    rows = [
        message(offset, NOON_US + seconds * SECOND, number=number, address=address, valid_until_us=until)
        for offset, (seconds, number, address) in enumerate(published)
    ]
    append_batch(spark, tmp_path, MESSAGES, rows)
    seen_at = [seen("first", -5), seen("second", 20), seen("third", 45), seen("fourth", 90)]
    append_batch(spark, tmp_path, REPORTS, [(*row[:-2], offset, row[-1]) for offset, row in enumerate(seen_at)])
    append_batch(spark, tmp_path, DELIVERIES, [delivery(0, NOON_US + 10_000, "first", "sent")])
    inside = {
        number: {one.endpoint for one in prove_coverage(spark, tmp_path, number).proofs if one.was_inside} for number in "123"
    }
    assert inside["1"] == {"first", "second"}
    assert inside["2"] == {"first", "second", "third", "fourth"}
    assert "fourth" not in inside["3"]
    assert "third" in inside["3"]


def test_places_in_an_area_across_the_antimeridian_are_found(spark: SparkSession) -> None:
    area = Circle(Place(-17.0, 179.999), 5_000.0)
    rows = [report(n, place=(-17.0, longitude)) for n, longitude in enumerate((179.99, 180.0, -180.0, -179.99, 179.9, -179.9))]
    assert sorted(row.offset for row in within(frame_of(spark, REPORTS, rows), area).collect()) == [0, 1, 2, 3]


def test_endpoints_in_the_other_direction_are_not_in_an_upstream_area(spark: SparkSession) -> None:
    west, east = Place(40.0, 10.0), Place(40.0, 10.01)
    rows = frame_of(spark, REPORTS, [report(n, place=(40.0, 10.005), speed_mps=speed) for n, speed in enumerate((10.0, 0.0))])
    for path, offsets in (((west, east), [0, 1]), ((east, west), [1])):  # all report that they head east
        area = Upstream.of((Stretch(path, half_width_m=10.0, start_s=85.0, end_s=0.0, start_m=850.0, end_m=0.0),))
        assert sorted(row.offset for row in within(rows, area).collect()) == offsets
