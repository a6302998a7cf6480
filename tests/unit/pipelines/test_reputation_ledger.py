import pytest

from milepost.pipelines.reputation.evidence import BASE_COUNTS, MINUTE_US, MINUTES, WEIGHTS, EvidenceKind
from milepost.pipelines.reputation.ledger import EvidenceLedger, score_of

FALSE = {EvidenceKind.MOVES: 60.0, EvidenceKind.STANDS_STILL: 60.0}
HONEST = {EvidenceKind.REPORTS: 60.0, EvidenceKind.MOVES: 60.0}

Evidence = list[tuple[int, str, EvidenceKind, float]]


def of(minute: int, counts: dict[EvidenceKind, float], endpoint: str = "car") -> Evidence:
    return [(minute, endpoint, kind, count) for kind, count in counts.items()]


def test_an_endpoint_without_evidence_has_full_score_and_no_record() -> None:
    assert score_of(HONEST) == (1.0, ())
    assert EvidenceLedger().take(of(1, HONEST)) == []


def test_a_score_has_its_reasons_the_worst_first() -> None:
    score, reasons = score_of({**HONEST, EvidenceKind.STANDS_STILL: 60.0, EvidenceKind.SUDDEN_STOP: 1.0})
    assert score < 0.1
    assert reasons == ((EvidenceKind.STANDS_STILL, 60), (EvidenceKind.SUDDEN_STOP, 1))


@pytest.mark.parametrize("kind", [EvidenceKind.SUDDEN_STOP, EvidenceKind.DRIVEN_THROUGH])
def test_a_crash_or_a_parked_car_alone_excludes_no_endpoint(kind: EvidenceKind) -> None:
    assert score_of({**HONEST, kind: 1_000.0})[0] > 0.5


def test_a_sudden_stop_that_others_drive_through_is_distrusted() -> None:
    assert score_of({**HONEST, EvidenceKind.SUDDEN_STOP: 1.0, EvidenceKind.DRIVEN_THROUGH: 1.0})[0] < 0.5


def test_confirmed_events_offset_contradicted_ones() -> None:
    assert score_of({EvidenceKind.CONTRADICTED: 1.0, EvidenceKind.CONFIRMED: 1.0}) == (1.0, ())
    assert score_of({EvidenceKind.CONTRADICTED: 3.0, EvidenceKind.CONFIRMED: 1.0})[0] < 0.5


def test_few_moves_are_too_little_evidence() -> None:
    assert score_of({EvidenceKind.MOVES: 3.0, EvidenceKind.MISFIT: 2.0}) == (1.0, ())


def test_every_kind_of_evidence_has_a_weight_below_one() -> None:
    assert set(WEIGHTS) == set(EvidenceKind) - BASE_COUNTS
    assert all(0 < weight.max_penalty < 1 and weight.low < weight.high for weight in WEIGHTS.values())


def test_an_endpoint_that_behaves_again_regains_its_score() -> None:
    ledger = EvidenceLedger()
    scores = ledger.take(of(1, FALSE))
    assert [one.score for one in scores] == [0.1]
    for minute in range(2, 2 + MINUTES):
        scores += ledger.take(of(minute, HONEST))
    assert [one.score for one in scores] == sorted(one.score for one in scores)
    assert scores[-1].score == 1.0
    assert scores[-1].at_us <= (2 + MINUTES) * MINUTE_US
    assert ledger.take(of(3 + MINUTES, HONEST)) == []


def test_an_endpoint_that_left_regains_its_score_and_is_forgotten() -> None:
    ledger = EvidenceLedger()
    ledger.take(of(1, FALSE))
    scores = [one for minute in range(2, 3 + MINUTES) for one in ledger.take(of(minute, HONEST, "other"))]
    assert [(one.endpoint, one.score) for one in scores] == [("car", 1.0)]
    assert list(ledger.evidence) == ["other"]
    assert ledger.published == {}


def test_an_unchanged_score_is_published_once() -> None:
    ledger = EvidenceLedger()
    assert [len(ledger.take(of(minute, FALSE))) for minute in (1, 2, 3)] == [1, 0, 0]


def test_a_sudden_stop_counts_until_the_endpoint_drives() -> None:
    ledger = EvidenceLedger()
    ledger.take(
        [(1, "car", EvidenceKind.SUDDEN_STOP, 1.0), (1, "car", EvidenceKind.PASSED, 2.0), (1, "car", EvidenceKind.DRIVEN, 9.0)]
    )
    doubted = [ledger.take([(minute, "car", EvidenceKind.MOVES, 59.0)]) for minute in range(2, 30)]
    assert doubted == [[]] * 28
    scores = [one for minute in range(30, 42) for one in ledger.take([(minute, "car", EvidenceKind.DRIVEN, 59.0)])]
    assert [one.score for one in scores] == [1.0]
