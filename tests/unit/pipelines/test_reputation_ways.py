from milepost.pipelines.reputation.evidence import Limits, What
from milepost.pipelines.reputation.judges import VISITORS_MAX, judge_ways, learnt, ways_from_bytes, ways_to_bytes
from unit.pipelines.reputation_sights import MINUTE, Row, driving, found_of, frame, later

LIMITS = Limits()
TOWN = [row for number in range(6) for row in driving(f"car-{number}", east_m=-15.0 * number)]
KNOWN = learnt(ways_from_bytes(None), frame(TOWN), MINUTE, LIMITS)


def judged(rows: list[Row], name: str) -> dict[What, float]:
    return found_of(judge_ways(KNOWN, frame(later(rows, 60)), MINUTE + 1, LIMITS), name)


def test_who_drives_where_others_do_is_on_the_ways() -> None:
    assert set(judged(TOWN, "car-3")) == {What.PLACES}


def test_who_drives_where_nobody_does_is_off_them() -> None:
    found = judged(TOWN + driving("liar", north_m=80), "liar")
    assert found[What.OFF_WAYS] == found[What.PLACES] > 40


def test_nobody_makes_a_way_for_himself_nor_with_one_friend() -> None:
    two = driving("liar", north_m=80) + driving("friend", north_m=80)
    ways = learnt(KNOWN, frame(later(two, 60)), MINUTE + 1, LIMITS)
    rows = later(TOWN + driving("liar", north_m=80), 120)
    assert found_of(judge_ways(ways, frame(rows), MINUTE + 2, LIMITS), "liar")[What.OFF_WAYS] > 40


def test_where_ways_are_not_known_nobody_is_judged_by_them() -> None:
    assert judge_ways(ways_from_bytes(None), frame(TOWN), MINUTE, LIMITS) == []


def test_reporting_more_often_is_no_more_say() -> None:
    loud = [row for number in range(20) for row in driving("loud", east_m=number / 2, seconds=range(60))]
    assert judged(TOWN + loud + driving("liar", north_m=80), "liar")[What.OFF_WAYS] > 40


def test_ways_are_bounded_and_forgotten_when_nobody_uses_them() -> None:
    crowd = [row for number in range(3 * VISITORS_MAX) for row in driving(f"bus-{number}")]
    ways = learnt(KNOWN, frame(crowd), MINUTE, LIMITS)
    assert ways.groupby(["east", "north"]).size().max() == VISITORS_MAX
    hour = round(60 * LIMITS.way_hours)
    after = learnt(ways, frame(later(driving("car", north_m=500), 60 * hour)), MINUTE + hour, LIMITS)
    assert set(after["minute"]) == {MINUTE + hour}


def test_ways_are_kept_as_they_are() -> None:
    assert ways_from_bytes(ways_to_bytes(KNOWN)).to_dict("list") == KNOWN.to_dict("list")
