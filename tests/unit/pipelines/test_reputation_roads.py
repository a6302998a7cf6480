from milepost.pipelines.reputation.detectors import VISITORS_MAX, check_roads, learn_roads, roads_from_bytes, roads_to_bytes
from milepost.pipelines.reputation.evidence import EvidenceKind, EvidenceThresholds
from unit.pipelines.reputation_sightings import MINUTE, Row, driving, found_of, frame, later

THRESHOLDS = EvidenceThresholds()
TOWN = [row for number in range(6) for row in driving(f"car-{number}", east_m=-15.0 * number)]
KNOWN = learn_roads(roads_from_bytes(None), frame(TOWN), MINUTE, THRESHOLDS)


def evidence_of(rows: list[Row], name: str) -> dict[EvidenceKind, float]:
    return found_of(check_roads(KNOWN, frame(later(rows, 60)), MINUTE + 1, THRESHOLDS), name)


def test_an_endpoint_that_drives_where_others_do_is_on_known_roads() -> None:
    assert set(evidence_of(TOWN, "car-3")) == {EvidenceKind.PLACES}


def test_an_endpoint_that_drives_where_no_other_does_is_off_known_roads() -> None:
    found = evidence_of(TOWN + driving("attacker", north_m=80), "attacker")
    assert found[EvidenceKind.OFF_KNOWN_ROADS] == found[EvidenceKind.PLACES] > 40


def test_one_or_two_endpoints_do_not_make_a_known_road() -> None:
    two = driving("attacker", north_m=80) + driving("friend", north_m=80)
    roads = learn_roads(KNOWN, frame(later(two, 60)), MINUTE + 1, THRESHOLDS)
    rows = later(TOWN + driving("attacker", north_m=80), 120)
    assert found_of(check_roads(roads, frame(rows), MINUTE + 2, THRESHOLDS), "attacker")[EvidenceKind.OFF_KNOWN_ROADS] > 40


def test_without_known_roads_there_is_no_evidence() -> None:
    assert check_roads(roads_from_bytes(None), frame(TOWN), MINUTE, THRESHOLDS) == []


def test_frequent_reports_give_no_more_weight() -> None:
    loud = [row for number in range(20) for row in driving("loud", east_m=number / 2, seconds=range(60))]
    assert evidence_of(TOWN + loud + driving("attacker", north_m=80), "attacker")[EvidenceKind.OFF_KNOWN_ROADS] > 40


def test_known_roads_are_bounded_and_forgotten_when_unused() -> None:
    crowd = [row for number in range(3 * VISITORS_MAX) for row in driving(f"bus-{number}")]
    roads = learn_roads(KNOWN, frame(crowd), MINUTE, THRESHOLDS)
    assert roads.groupby(["east", "north"]).size().max() == VISITORS_MAX
    hour = round(60 * THRESHOLDS.road_hours)
    after = learn_roads(roads, frame(later(driving("car", north_m=500), 60 * hour)), MINUTE + hour, THRESHOLDS)
    assert set(after["minute"]) == {MINUTE + hour}


def test_known_roads_survive_a_round_trip() -> None:
    assert roads_from_bytes(roads_to_bytes(KNOWN)).to_dict("list") == KNOWN.to_dict("list")
