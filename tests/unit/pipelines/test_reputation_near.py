from collections.abc import Iterator
from random import Random

import pytest

from milepost.pipelines.reputation.detectors import check_events
from milepost.pipelines.reputation.evidence import EvidenceKind, EvidenceThresholds
from milepost.pipelines.reputation.nearby import check_neighbours
from unit.pipelines.reputation_sightings import MINUTE, Row, driving, event, found_of, in_one_square, later, standing

THRESHOLDS = EvidenceThresholds()


def near(rows: list[Row], name: str) -> dict[EvidenceKind, float]:
    return found_of(check_neighbours(in_one_square(rows), MINUTE, THRESHOLDS), name)


def speeding_up(second: int) -> float:
    return 2.0 + 0.2 * second


def cars(count: int, speed: float = 10.0) -> Iterator[Row]:
    for number in range(count):
        yield from driving(f"car-{number}", east_m=-30.0 * number, speed=speed)


def test_an_endpoint_standing_where_others_drive_is_driven_through_by_each_once() -> None:
    rows = [*standing("ghost", 200), *cars(3)]
    assert near(rows, "ghost") == {EvidenceKind.DRIVEN_THROUGH: 3, EvidenceKind.PASSED: 3}
    assert near(rows, "car-0") == {}


def test_an_endpoint_standing_in_the_next_lane_is_not_driven_through() -> None:
    assert near([*standing("car", 200, north_m=3.2), *cars(3)], "car") == {}


def stopping(name: str, at_s: int) -> list[Row]:
    """Build a car that drives, and from one second to the next stands."""
    driven = driving(name, seconds=range(at_s))
    return driven + standing(name, 10.0 * at_s, seconds=range(at_s, 60))


def test_after_a_sudden_stop_passers_in_the_next_lane_count_if_they_go_the_same_way() -> None:
    follower = driving("car", east_m=-50, north_m=3.2)
    assert near([*stopping("ghost", 10), *follower], "ghost") == {EvidenceKind.PASSED: 1}
    oncoming = [(*row[:4], 270.0, *row[5:]) for row in follower]
    assert near([*stopping("ghost", 10), *oncoming], "ghost") == {}
    assert near([*standing("car-2", 100), *follower], "car-2") == {}


def test_a_pass_at_the_turn_of_the_minute_counts() -> None:
    rows = [*standing("ghost", 0, seconds=range(-30, 60)), *driving("car", east_m=-295, seconds=range(-30, 30))]
    assert near(rows, "ghost") == {EvidenceKind.DRIVEN_THROUGH: 1, EvidenceKind.PASSED: 1}


def test_two_endpoints_moving_in_one_place_overlap_and_both_are_named() -> None:
    rows = driving("car") + driving("ghost", north_m=0.5)
    assert near(rows, "car") == near(rows, "ghost") == {EvidenceKind.OVERLAP: 60}


def test_a_moment_in_one_place_is_no_overlap() -> None:
    slow, fast = driving("slow", speed=8.0), driving("fast", east_m=-120, speed=12.0)
    assert near(slow + fast, "slow") == {}


@pytest.mark.parametrize(("ghosts", "expected"), [(1, 1), (3, 3)])
def test_an_endpoint_that_copies_every_change_of_speed_is_in_step(ghosts: int, expected: int) -> None:
    rows = driving("car", speed=speeding_up)
    for number in range(1, ghosts + 1):
        rows += driving(f"ghost-{number}", east_m=15.0 * number, north_m=8.0, speed=speeding_up)
    assert near(rows, "car") == {EvidenceKind.IN_STEP: expected}


def test_a_follower_at_constant_speed_or_with_a_growing_gap_is_not_in_step() -> None:
    steady = driving("car") + driving("next", east_m=-20)
    assert near(steady, "car") == {}
    follower = driving("next", east_m=-20, speed=lambda second: speeding_up(max(0, second - 2)))
    assert near(driving("car", speed=speeding_up) + follower, "car") == {}


def test_changes_of_speed_seen_for_only_one_of_two_are_no_evidence() -> None:
    first = driving("car", speed=lambda second: 10.0 + max(0, -second) / 3, seconds=range(-30, 40))
    there = next(row for row in first if row[1] % 60_000_000 == 0)
    rows = driving("next", north_m=5, speed=lambda second: 10.0 + max(0, second - 39), seconds=range(60))
    shift = there[3] - rows[0][3]
    assert near(first + [(*row[:3], row[3] + shift, *row[4:]) for row in rows], "car") == {}


def test_the_later_user_of_a_trace_replays_it_and_the_first_does_not() -> None:
    trace = driving("car", seconds=range(40))
    rows = trace + later(trace, 12, "ghost")
    assert near(rows, "ghost") == {EvidenceKind.REPLAY: 40}
    assert near(rows, "car") == {}


def test_the_order_of_rows_does_not_matter() -> None:
    rows = [*standing("ghost", 200), *cars(4), *driving("twin", north_m=0.5), *driving("slow", speed=speeding_up)]
    mixed = Random(3).sample(rows, len(rows))
    one, other = (check_neighbours(in_one_square(some), MINUTE, THRESHOLDS) for some in (rows, mixed))
    assert one.to_dict("list") == other.to_dict("list")


def evidence_of(rows: list[Row]) -> list[tuple[EvidenceKind, str, float]]:
    found = check_events(in_one_square(rows), MINUTE, THRESHOLDS)
    columns = (found[name].tolist() for name in ("evidence", "endpoint", "count"))
    return [(EvidenceKind(kind), endpoint, count) for kind, endpoint, count in zip(*columns, strict=True)]


def test_an_event_that_passing_endpoints_do_not_report_is_contradicted() -> None:
    assert evidence_of([event("attacker", 5, 150, 0), *cars(2)]) == [(EvidenceKind.CONTRADICTED, "attacker", 1.0)]


def test_a_single_passer_contradicts_by_half() -> None:
    assert evidence_of([event("attacker", 5, 150, 0), *cars(1)]) == [(EvidenceKind.CONTRADICTED, "attacker", 0.5)]


def test_an_event_that_most_passing_endpoints_report_is_confirmed_for_each() -> None:
    reported = [event("car-0", 5, 150, 0), event("car-1", 7, 160, 0), event("car-2", 8, 150, 5)]
    assert evidence_of([*reported, *cars(5)]) == [(EvidenceKind.CONFIRMED, f"car-{number}", 1.0) for number in range(3)]


def test_an_event_without_passing_endpoints_is_neither_confirmed_nor_contradicted() -> None:
    assert evidence_of([event("car", 5, 150, 400), *cars(4)]) == []
    assert evidence_of([event("car", 5, 150, 0), *cars(4, speed=3.0)]) == []


def test_other_kinds_do_not_confirm() -> None:
    assert (
        evidence_of([event("attacker", 5, 150, 0), event("car-1", 7, 150, 0, "Congestion"), *cars(3)])[0][0]
        is EvidenceKind.CONTRADICTED
    )


def test_an_event_is_checked_in_one_minute_only() -> None:
    rows = [event("attacker", 45, 450, 0), *cars(3, speed=10.0)]
    assert evidence_of(rows) == []
    more = rows + driving("late", east_m=-200, seconds=range(60, 119))
    found = check_events(in_one_square(more), MINUTE + 1, THRESHOLDS)
    assert found.to_dict("list") == {"endpoint": ["attacker"], "evidence": [EvidenceKind.CONTRADICTED], "count": [1.0]}
