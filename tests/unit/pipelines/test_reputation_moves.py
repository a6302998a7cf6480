from random import Random

import pandas as pd
import pytest

from milepost.model.reasons import Reason
from milepost.pipelines.reputation.evidence import Limits, What
from milepost.pipelines.reputation.judges import judge_moves
from unit.pipelines.reputation_sights import MINUTE, Row, counts, driving, frame, sight, standing

LIMITS = Limits()


def judged(rows: list[Row]) -> dict[What, float]:
    return counts(judge_moves(frame(rows), MINUTE, LIMITS), "car")


def braking(second: int) -> float:
    """Eight metres a second less, every second, from the twentieth on."""
    return max(0.0, 14.0 - 8.0 * max(0, second - 20))


@pytest.mark.parametrize("rows", [driving("car"), standing("car", 0), driving("car", speed=braking)])
def test_who_drives_stands_or_brakes_hard_has_nothing_against_him(rows: list[Row]) -> None:
    assert judged(rows) == {}


def test_a_place_that_wanders_by_metres_is_no_misfit() -> None:
    random = Random(1)
    rows = [sight("car", at, 10 * at + random.uniform(-2, 2), random.uniform(-2, 2), speed=10) for at in range(60)]
    assert judged(rows) == {}


def test_speed_said_in_a_place_that_stays_is_standing_still() -> None:
    assert judged([sight("car", at, 0, 0, speed=10) for at in range(60)]) == {What.STANDS_STILL: 59}


def test_moves_that_fit_neither_speed_nor_heading_are_misfits() -> None:
    assert judged([sight("car", at, 25 * at, 0, speed=10) for at in range(60)]) == {What.MISFIT: 59}
    assert judged([sight("car", at, 10 * at, 0, speed=10, heading=180) for at in range(60)]) == {What.MISFIT: 59}


def test_a_stop_that_no_brakes_make_is_sudden() -> None:
    rows = driving("car", speed=13, seconds=range(30)) + standing("car", 13 * 30, seconds=range(30, 60))
    assert judged(rows) == {What.SUDDEN_STOP: 1}


def test_refusals_count_by_what_they_are_for() -> None:
    refused = [(Reason.MOVE_TELEPORT, 3), (Reason.CLOCK_BEHIND, 2), (Reason.RATE_TOO_HIGH, 4)]
    rows = [sight("car", at, 0, 0, verdict=reason) for reason, count in refused for at in range(count)]
    assert judged(rows) == {What.IMPOSSIBLE_MOVE: 3, What.REFUSED: 2}


def test_more_reports_than_anyone_needs_are_a_flood_refused_or_not() -> None:
    rows = [sight("car", at / 20, at / 2, 0, speed=10, verdict=Reason.RATE_TOO_HIGH if at % 2 else 0) for at in range(1200)]
    assert judged(rows)[What.FLOOD] == 1200 - LIMITS.reports_max


def test_what_is_not_known_is_not_held_against_anybody() -> None:
    rows: list[Row] = [(*sight("car", at, 60 * at, 0)[:4], None, None, 0, None) for at in range(60)]
    assert judged(rows) == {}


def test_the_first_move_of_a_minute_counts_by_its_lead_and_what_was_before_does_not() -> None:
    before = [sight("car", at, 0, 500 * at, speed=10) for at in (-3, -2)]
    rows = [*before, sight("car", -1, 300, 0, speed=10), sight("car", 0, 0, 0, speed=10), sight("car", 1, 10, 0, speed=10)]
    assert judged(rows) == {What.MISFIT: 1}


def test_reports_of_two_endpoints_are_never_one_move() -> None:
    rows = driving("car") + driving("other", north_m=5_000)
    evidence = judge_moves(frame(rows), MINUTE, LIMITS)
    assert counts(evidence, "car") == counts(evidence, "other") == {}


def test_the_order_of_rows_does_not_matter() -> None:
    rows = driving("car", speed=braking) + [sight("liar", at, 40 * at % 7, 0, speed=10) for at in range(60)]
    mixed = Random(2).sample(rows, len(rows))
    pd.testing.assert_frame_equal(judge_moves(frame(rows), MINUTE, LIMITS), judge_moves(frame(mixed), MINUTE, LIMITS))
