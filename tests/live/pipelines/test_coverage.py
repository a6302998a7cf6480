"""The proof of coverage names everybody who was inside, who got the message and when, and why others did not."""

import json
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import SparkSession

from live.pipelines.archives import NOON_US, Row, delivery, frame_of, keep, message, report
from milepost.model.areas import Circle, Stretch, Upstream
from milepost.model.places import Place, moved
from milepost.model.reasons import Reason
from milepost.pipelines.archive.schema import DELIVERIES, MESSAGES, REPORTS
from milepost.pipelines.coverage import NoProof, Outcome, covered, within
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
    seen("thanked", -5),
    seen("told", -5),
    seen("late", -5, 3_000.0),
    seen("late", 20),
    seen("full", -1),
    seen("half", -1),
    seen("liar", -2, verdict=Reason.MOVE_TELEPORT),
    seen("lonely", -2, covered=2),
    seen("abroad", -2, covered=1),
    seen("unlucky", -2),
    seen("left", -50),
    seen("left", -10, 20_000.0),
    seen("silent", -70),
    seen("outside", 1, 600.0),
    seen("too late", 61),
]
DELIVERED: Final = [
    delivery(0, NOON_US + 10_000, "thanked", "matched"),
    delivery(1, NOON_US + 12_000, "thanked", "sent"),
    delivery(2, NOON_US + 40_000, "thanked", "acknowledged"),
    delivery(3, NOON_US + 10_000, "told", "dropped", reason=Reason.QUEUE_FULL),
    delivery(4, NOON_US + 500_000, "told", "sent"),
    delivery(5, NOON_US + 10_000, "full", "matched"),
    delivery(6, NOON_US + 20_000, "full", "dropped", reason=Reason.QUEUE_FULL),
    delivery(7, NOON_US + 10_000, "half", "matched"),
    delivery(8, NOON_US + 10_000, "outside", "sent"),
    delivery(9, NOON_US + 10_000, "unlucky", "sent", number=2),
]
EXPECTED: Final = {
    "abroad": (Outcome.MISSED, None, "was connected to north/edge-1, which does not cover the place"),
    "full": (Outcome.DROPPED, None, "dropped by north/edge-1: QUEUE_FULL"),
    "half": (Outcome.MATCHED, None, "matched by north/edge-1, but nothing says that it was sent"),
    "late": (Outcome.MISSED, None, "came in 20.0 s after it was said"),
    "liar": (Outcome.MISSED, None, "its reports were refused: MOVE_TELEPORT"),
    "lonely": (Outcome.MISSED, None, "no edge covers the place"),
    "unlucky": (Outcome.MISSED, None, "north/edge-1 has no record of it"),
    "thanked": (Outcome.ACKNOWLEDGED, 12_000, ""),
    "told": (Outcome.SENT, 500_000, ""),
    "outside": (Outcome.SENT, 10_000, "was not inside by its own reports"),
}


def test_a_proof_has_everybody_once_with_what_became_of_the_message_and_why(spark: SparkSession, tmp_path: Path) -> None:
    warned = message(0, number=1, address=ADDRESS, valid_until_us=NOON_US + 60 * SECOND)
    keep(spark, tmp_path, MESSAGES, [warned, message(1, number=1, source="car-2"), message(2, number=2)])
    keep(spark, tmp_path, REPORTS, [(*row[:-2], offset, row[-1]) for offset, row in enumerate(REPORTED)])
    keep(spark, tmp_path, DELIVERIES, DELIVERED)
    found = covered(spark, tmp_path, "1", source="car-1")
    told = {
        one.endpoint: (one.outcome, None if one.got_us is None else one.got_us - NOON_US, one.why(NOON_US))
        for one in found.proofs
    }
    assert told == EXPECTED
    assert [one.endpoint for one in found.proofs] == list(EXPECTED)
    assert found.counts == "9 were inside: 2 got it, 7 did not; 1 others are known to edges"
    page = found.page()
    assert page.count('class="good"><circle') == 2
    assert page.count('class="bad"><circle') == 7
    with pytest.raises(NoProof, match="car-1, car-2: say --source"):
        covered(spark, tmp_path, "1")
    with pytest.raises(NoProof, match="not addressed to an area"):
        covered(spark, tmp_path, "2")
    with pytest.raises(NoProof, match="no message 3"):
        covered(spark, tmp_path, "3")


def test_who_came_in_after_something_newer_had_taken_its_place_is_not_asked_about(spark: SparkSession, tmp_path: Path) -> None:
    area = area_to_geojson(AREA)
    about = json.dumps({"to": "area", "area": area, "incident": "jam-1"})
    other = json.dumps({"to": "area", "area": area, "incident": "jam-2"})
    over = json.dumps({"to": "told", "incidents": ["jam-1"]})
    until = NOON_US + 600 * SECOND
    said = [(0, 1, about), (5, 2, other), (30, 3, about), (60, 4, over)]
    rows = [
        message(offset, NOON_US + seconds * SECOND, number=number, address=address, valid_until_us=until)
        for offset, (seconds, number, address) in enumerate(said)
    ]
    keep(spark, tmp_path, MESSAGES, rows)
    seen_at = [seen("first", -5), seen("second", 20), seen("third", 45), seen("fourth", 90)]
    keep(spark, tmp_path, REPORTS, [(*row[:-2], offset, row[-1]) for offset, row in enumerate(seen_at)])
    keep(spark, tmp_path, DELIVERIES, [delivery(0, NOON_US + 10_000, "first", "sent")])
    inside = {number: {one.endpoint for one in covered(spark, tmp_path, number).proofs if one.was_inside} for number in "123"}
    assert inside["1"] == {"first", "second"}
    assert inside["2"] == {"first", "second", "third", "fourth"}
    assert "fourth" not in inside["3"]
    assert "third" in inside["3"]


def test_what_lies_in_an_area_across_the_antimeridian_is_found(spark: SparkSession) -> None:
    area = Circle(Place(-17.0, 179.999), 5_000.0)
    rows = [report(n, place=(-17.0, longitude)) for n, longitude in enumerate((179.99, 180.0, -180.0, -179.99, 179.9, -179.9))]
    assert sorted(row.offset for row in within(frame_of(spark, REPORTS, rows), area).collect()) == [0, 1, 2, 3]


def test_who_goes_the_other_way_was_not_in_an_area_upstream(spark: SparkSession) -> None:
    west, east = Place(40.0, 10.0), Place(40.0, 10.01)
    rows = frame_of(spark, REPORTS, [report(n, place=(40.0, 10.005), speed_mps=speed) for n, speed in enumerate((10.0, 0.0))])
    for path, offsets in (((west, east), [0, 1]), ((east, west), [1])):  # all report that they head east
        area = Upstream((Stretch(path, half_width_m=10.0, start_s=85.0, end_s=0.0, start_m=850.0, end_m=0.0),))
        assert sorted(row.offset for row in within(rows, area).collect()) == offsets
