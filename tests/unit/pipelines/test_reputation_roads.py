import pytest

from milepost.pipelines.reputation import known_roads
from milepost.pipelines.reputation.evidence import EvidenceKind, EvidenceThresholds
from milepost.pipelines.reputation.known_roads import (
    VISITORS_MAX,
    RoadMap,
    check_map,
    check_roads,
    learn_roads,
    roads_from_bytes,
    roads_to_bytes,
)
from milepost.roads.network import Road, build_network
from unit.pipelines.reputation_sightings import MINUTE, Row, driving, found_of, in_one_square, later, place

THRESHOLDS = EvidenceThresholds()
TOWN = [row for number in range(6) for row in driving(f"car-{number}", east_m=-15.0 * number)]
KNOWN = learn_roads(roads_from_bytes(None), in_one_square(TOWN), MINUTE, THRESHOLDS)


def evidence_of(rows: list[Row], name: str) -> dict[EvidenceKind, float]:
    return found_of(check_roads(KNOWN, in_one_square(later(rows, 60)), MINUTE + 1, THRESHOLDS), name)


def test_an_endpoint_that_drives_where_others_do_is_on_known_roads() -> None:
    assert set(evidence_of(TOWN, "car-3")) == {EvidenceKind.PLACES}


def test_an_endpoint_that_drives_where_no_other_does_is_off_known_roads() -> None:
    found = evidence_of(TOWN + driving("attacker", north_m=80), "attacker")
    assert found[EvidenceKind.OFF_KNOWN_ROADS] == found[EvidenceKind.PLACES] > 40


def test_one_or_two_endpoints_do_not_make_a_known_road() -> None:
    two = driving("attacker", north_m=80) + driving("friend", north_m=80)
    roads = learn_roads(KNOWN, in_one_square(later(two, 60)), MINUTE + 1, THRESHOLDS)
    rows = later(TOWN + driving("attacker", north_m=80), 120)
    assert (
        found_of(check_roads(roads, in_one_square(rows), MINUTE + 2, THRESHOLDS), "attacker")[EvidenceKind.OFF_KNOWN_ROADS] > 40
    )


def test_without_known_roads_there_is_no_evidence() -> None:
    assert check_roads(roads_from_bytes(None), in_one_square(TOWN), MINUTE, THRESHOLDS).empty


def test_frequent_reports_give_no_more_weight() -> None:
    loud = [row for number in range(20) for row in driving("loud", east_m=number / 2, seconds=range(60))]
    assert evidence_of(TOWN + loud + driving("attacker", north_m=80), "attacker")[EvidenceKind.OFF_KNOWN_ROADS] > 40


def test_known_roads_are_bounded_and_forgotten_when_unused() -> None:
    crowd = [row for number in range(3 * VISITORS_MAX) for row in driving(f"bus-{number}")]
    roads = learn_roads(KNOWN, in_one_square(crowd), MINUTE, THRESHOLDS)
    assert roads.groupby("cell").size().max() == VISITORS_MAX
    hour = round(60 * THRESHOLDS.road_hours)
    after = learn_roads(roads, in_one_square(later(driving("car", north_m=500), 60 * hour)), MINUTE + hour, THRESHOLDS)
    assert set(after["minute"]) == {MINUTE + hour}


def test_known_roads_survive_a_round_trip() -> None:
    assert roads_from_bytes(roads_to_bytes(KNOWN)).to_dict("list") == KNOWN.to_dict("list")


def test_the_number_of_learned_squares_is_bounded_and_the_last_visited_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_roads, "LEARNED_MAX", 10)
    after = learn_roads(KNOWN, in_one_square(later(driving("car", north_m=500, seconds=range(5)), 60)), MINUTE + 1, THRESHOLDS)
    assert after["cell"].nunique() == 10
    assert {MINUTE + 1} < set(after["minute"])


def street(north_m: float) -> RoadMap:
    """Build the map of a street from west to east."""
    points = [place(-200, north_m), place(900, north_m)]
    return RoadMap.of(build_network([Road("street", points, 13.9, 1, "a", "b")], []))


@pytest.mark.parametrize(("north_m", "is_off"), [(0.0, False), (8.0, False), (40.0, True)])
def test_an_endpoint_beside_the_streets_of_the_map_is_off_it(north_m: float, *, is_off: bool) -> None:
    rows = in_one_square(TOWN + driving("car", north_m=north_m))
    found = found_of(check_map(street(0.0), rows, MINUTE, THRESHOLDS), "car")
    assert found[EvidenceKind.MAP_PLACES] > 40
    assert found.get(EvidenceKind.OFF_MAP, 0) == (found[EvidenceKind.MAP_PLACES] if is_off else 0)


def test_where_all_are_off_the_map_the_map_is_wrong_and_nothing_is_checked() -> None:
    assert check_map(street(300.0), in_one_square(TOWN), MINUTE, THRESHOLDS).empty
