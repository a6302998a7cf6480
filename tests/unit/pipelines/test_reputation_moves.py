from random import Random

import pandas as pd
import pytest

from milepost.model.reasons import Reason
from milepost.pipelines.reputation.detectors import check_moves
from milepost.pipelines.reputation.evidence import EvidenceKind, EvidenceThresholds
from unit.pipelines.reputation_sightings import MINUTE, Row, counts, driving, frame, sighting, standing

THRESHOLDS = EvidenceThresholds()


def evidence_of(rows: list[Row]) -> dict[EvidenceKind, float]:
    return counts(check_moves(frame(rows), MINUTE, THRESHOLDS), "car")


def braking(second: int) -> float:
    """Decelerate by 8 m/s each second, from the twentieth on."""
    return max(0.0, 14.0 - 8.0 * max(0, second - 20))


@pytest.mark.parametrize("rows", [driving("car"), standing("car", 0), driving("car", speed=braking)])
def test_driving_standing_and_hard_braking_are_no_evidence(rows: list[Row]) -> None:
    assert evidence_of(rows) == {}


def test_position_noise_of_metres_is_no_misfit() -> None:
    random = Random(1)
    rows = [sighting("car", at, 10 * at + random.uniform(-2, 2), random.uniform(-2, 2), speed=10) for at in range(60)]
    assert evidence_of(rows) == {}


def test_reported_speed_without_movement_is_standing_still() -> None:
    assert evidence_of([sighting("car", at, 0, 0, speed=10) for at in range(60)]) == {EvidenceKind.STANDS_STILL: 59}


def test_moves_that_fit_neither_speed_nor_heading_are_misfits() -> None:
    assert evidence_of([sighting("car", at, 25 * at, 0, speed=10) for at in range(60)]) == {EvidenceKind.MISFIT: 59}
    assert evidence_of([sighting("car", at, 10 * at, 0, speed=10, heading=180) for at in range(60)]) == {EvidenceKind.MISFIT: 59}


def test_a_stop_faster_than_brakes_allow_is_sudden() -> None:
    rows = driving("car", speed=13, seconds=range(30)) + standing("car", 13 * 30, seconds=range(30, 60))
    assert evidence_of(rows) == {EvidenceKind.SUDDEN_STOP: 1}


def test_refusals_count_by_their_reason() -> None:
    refused = [(Reason.MOVE_TELEPORT, 3), (Reason.CLOCK_BEHIND, 2), (Reason.RATE_TOO_HIGH, 4)]
    rows = [sighting("car", at, 0, 0, verdict=reason) for reason, count in refused for at in range(count)]
    assert evidence_of(rows) == {EvidenceKind.IMPOSSIBLE_MOVE: 3, EvidenceKind.REFUSED: 2}


def test_reports_above_the_maximum_are_a_flood_refused_or_not() -> None:
    rows = [sighting("car", at / 20, at / 2, 0, speed=10, verdict=Reason.RATE_TOO_HIGH if at % 2 else 0) for at in range(1200)]
    assert evidence_of(rows)[EvidenceKind.FLOOD] == 1200 - THRESHOLDS.reports_max


def test_unknown_speed_and_heading_are_no_evidence() -> None:
    rows: list[Row] = [(*sighting("car", at, 60 * at, 0)[:4], None, None, 0, None) for at in range(60)]
    assert evidence_of(rows) == {}


def test_the_first_move_of_a_minute_counts_and_earlier_moves_do_not() -> None:
    before = [sighting("car", at, 0, 500 * at, speed=10) for at in (-3, -2)]
    rows = [
        *before,
        sighting("car", -1, 300, 0, speed=10),
        sighting("car", 0, 0, 0, speed=10),
        sighting("car", 1, 10, 0, speed=10),
    ]
    assert evidence_of(rows) == {EvidenceKind.MISFIT: 1}


def test_reports_of_two_endpoints_are_never_one_move() -> None:
    rows = driving("car") + driving("other", north_m=5_000)
    evidence = check_moves(frame(rows), MINUTE, THRESHOLDS)
    assert counts(evidence, "car") == counts(evidence, "other") == {}


def test_the_order_of_rows_does_not_matter() -> None:
    rows = driving("car", speed=braking) + [sighting("attacker", at, 40 * at % 7, 0, speed=10) for at in range(60)]
    mixed = Random(2).sample(rows, len(rows))
    pd.testing.assert_frame_equal(check_moves(frame(rows), MINUTE, THRESHOLDS), check_moves(frame(mixed), MINUTE, THRESHOLDS))
