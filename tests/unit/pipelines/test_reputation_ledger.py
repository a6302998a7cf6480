import pytest

from milepost.pipelines.reputation.evidence import MINUTE_US, MINUTES, WEIGHTS, What
from milepost.pipelines.reputation.ledger import Ledger, judged

LIES = {What.MOVES: 60.0, What.STANDS_STILL: 60.0}
HONEST = {What.REPORTS: 60.0, What.MOVES: 60.0}

Evidence = list[tuple[int, str, What, float]]


def of(minute: int, counts: dict[What, float], endpoint: str = "car") -> Evidence:
    return [(minute, endpoint, what, count) for what, count in counts.items()]


def test_who_has_nothing_against_him_is_believed_and_not_spoken_of() -> None:
    assert judged(HONEST) == (1.0, ())
    assert Ledger().take(of(1, HONEST)) == []


def test_a_score_comes_with_what_it_is_for_the_worst_first() -> None:
    score, reasons = judged({**HONEST, What.STANDS_STILL: 60.0, What.SUDDEN_STOP: 1.0})
    assert score < 0.1
    assert reasons == ((What.STANDS_STILL, 60), (What.SUDDEN_STOP, 1))


@pytest.mark.parametrize("what", [What.SUDDEN_STOP, What.DRIVEN_THROUGH])
def test_a_crash_or_a_parked_car_alone_shuts_nobody_out(what: What) -> None:
    assert judged({**HONEST, what: 1_000.0})[0] > 0.5


def test_a_sudden_stop_in_a_place_that_others_drive_through_is_not_believed() -> None:
    assert judged({**HONEST, What.SUDDEN_STOP: 1.0, What.DRIVEN_THROUGH: 1.0})[0] < 0.5


def test_events_that_others_confirm_make_up_for_one_that_was_contradicted() -> None:
    assert judged({What.CONTRADICTED: 1.0, What.CONFIRMED: 1.0}) == (1.0, ())
    assert judged({What.CONTRADICTED: 3.0, What.CONFIRMED: 1.0})[0] < 0.5


def test_a_share_of_little_is_no_habit() -> None:
    assert judged({What.MOVES: 3.0, What.MISFIT: 2.0}) == (1.0, ())


def test_every_finding_has_a_weight_that_leaves_something() -> None:
    charges = [what for what in What if what not in (What.REPORTS, What.MOVES, What.PLACES, What.CONFIRMED)]
    assert set(WEIGHTS) == set(charges)
    assert all(0 < weight.most < 1 and weight.low < weight.high for weight in WEIGHTS.values())


def test_who_behaves_again_is_believed_again_after_the_minutes_that_count() -> None:
    ledger = Ledger()
    said = ledger.take(of(1, LIES))
    assert [one.score for one in said] == [0.1]
    for minute in range(2, 2 + MINUTES):
        said += ledger.take(of(minute, HONEST))
    assert [one.score for one in said] == sorted(one.score for one in said)
    assert said[-1].score == 1.0
    assert said[-1].at_us <= (2 + MINUTES) * MINUTE_US
    assert ledger.take(of(3 + MINUTES, HONEST)) == []


def test_who_has_left_is_believed_again_as_others_go_on_and_is_then_forgotten() -> None:
    ledger = Ledger()
    ledger.take(of(1, LIES))
    said = [one for minute in range(2, 3 + MINUTES) for one in ledger.take(of(minute, HONEST, "other"))]
    assert [(one.endpoint, one.score) for one in said] == [("car", 1.0)]
    assert list(ledger.pages) == ["other"]
    assert ledger.told == {}


def test_an_endpoint_that_goes_on_is_told_of_once() -> None:
    ledger = Ledger()
    assert [len(ledger.take(of(minute, LIES))) for minute in (1, 2, 3)] == [1, 0, 0]
