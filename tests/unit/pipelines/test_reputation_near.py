from collections.abc import Iterator
from random import Random

import pytest

from milepost.pipelines.reputation.evidence import Limits, What
from milepost.pipelines.reputation.judges import judge_events
from milepost.pipelines.reputation.nearby import judge_near
from unit.pipelines.reputation_sights import MINUTE, Row, driving, event, found_of, frame, later, standing

LIMITS = Limits()


def near(rows: list[Row], name: str) -> dict[What, float]:
    return found_of(judge_near(frame(rows), MINUTE, LIMITS), name)


def speeding_up(second: int) -> float:
    return 2.0 + 0.2 * second


def cars(count: int, speed: float = 10.0) -> Iterator[Row]:
    for number in range(count):
        yield from driving(f"car-{number}", east_m=-30.0 * number, speed=speed)


def test_who_stands_where_others_drive_is_driven_through_by_each_of_them_once() -> None:
    rows = [*standing("ghost", 200), *cars(3)]
    assert near(rows, "ghost") == {What.DRIVEN_THROUGH: 3}
    assert near(rows, "car-0") == {}


def test_who_stands_in_the_next_lane_is_not_driven_through() -> None:
    assert near([*standing("car", 200, north_m=3.2), *cars(3)], "car") == {}


def test_two_that_move_in_one_place_overlap_and_both_are_named() -> None:
    rows = driving("car") + driving("ghost", north_m=0.5)
    assert near(rows, "car") == near(rows, "ghost") == {What.OVERLAP: 60}


def test_a_moment_in_one_place_is_no_overlap() -> None:
    slow, fast = driving("slow", speed=8.0), driving("fast", east_m=-120, speed=12.0)
    assert near(slow + fast, "slow") == {}


@pytest.mark.parametrize(("ghosts", "expected"), [(1, 1), (3, 3)])
def test_who_moves_as_others_do_at_every_change_of_speed_is_in_step_with_each(ghosts: int, expected: int) -> None:
    rows = driving("car", speed=speeding_up)
    for number in range(1, ghosts + 1):
        rows += driving(f"ghost-{number}", east_m=15.0 * number, north_m=8.0, speed=speeding_up)
    assert near(rows, "car") == {What.IN_STEP: expected}


def test_who_follows_at_one_speed_or_at_a_gap_that_grows_is_not_in_step() -> None:
    steady = driving("car") + driving("next", east_m=-20)
    assert near(steady, "car") == {}
    follower = driving("next", east_m=-20, speed=lambda second: speeding_up(max(0, second - 2)))
    assert near(driving("car", speed=speeding_up) + follower, "car") == {}


def test_changes_of_speed_that_only_one_of_two_was_there_for_say_nothing() -> None:
    first = driving("car", speed=lambda second: 10.0 + max(0, -second) / 3, seconds=range(-30, 40))
    there = next(row for row in first if row[1] % 60_000_000 == 0)
    rows = driving("next", north_m=5, speed=lambda second: 10.0 + max(0, second - 39), seconds=range(60))
    shift = there[3] - rows[0][3]
    assert near(first + [(*row[:3], row[3] + shift, *row[4:]) for row in rows], "car") == {}


def test_the_later_user_of_a_trace_replays_it_and_the_first_does_not() -> None:
    trace = driving("car", seconds=range(40))
    rows = trace + later(trace, 12, "ghost")
    assert near(rows, "ghost") == {What.REPLAY: 40}
    assert near(rows, "car") == {}


def test_the_order_of_rows_does_not_matter() -> None:
    rows = [*standing("ghost", 200), *cars(4), *driving("twin", north_m=0.5), *driving("slow", speed=speeding_up)]
    mixed = Random(3).sample(rows, len(rows))
    assert judge_near(frame(rows), MINUTE, LIMITS) == judge_near(frame(mixed), MINUTE, LIMITS)


def judged(rows: list[Row]) -> list[tuple[What, str, float]]:
    return list(judge_events(frame(rows), MINUTE, LIMITS))


def test_an_event_past_which_others_drive_in_silence_is_contradicted() -> None:
    assert judged([event("liar", 5, 150, 0), *cars(2)]) == [(What.CONTRADICTED, "liar", 1.0)]


def test_an_event_that_more_report_than_pass_in_silence_is_confirmed_for_each() -> None:
    reported = [event("car-0", 5, 150, 0), event("car-1", 7, 160, 0), event("car-2", 8, 150, 5)]
    assert judged([*reported, *cars(5)]) == [(What.CONFIRMED, f"car-{number}", 1.0) for number in range(3)]


def test_an_event_that_nobody_passes_is_neither() -> None:
    assert judged([event("car", 5, 150, 400), *cars(4)]) == []
    assert judged([event("car", 5, 150, 0), *cars(4, speed=3.0)]) == []


def test_other_kinds_do_not_confirm() -> None:
    assert judged([event("liar", 5, 150, 0), event("car-1", 7, 150, 0, "Congestion"), *cars(3)])[0][0] is What.CONTRADICTED


def test_an_event_is_judged_in_one_minute_only() -> None:
    rows = [event("liar", 45, 450, 0), *cars(3, speed=10.0)]
    assert judged(rows) == []
    more = rows + driving("late", east_m=-200, seconds=range(60, 119))
    assert list(judge_events(frame(more), MINUTE + 1, LIMITS)) == [(What.CONTRADICTED, "liar", 1.0)]
