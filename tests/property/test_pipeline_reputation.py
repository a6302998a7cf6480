"""Reputation: with any evidence, scores stay in range, and neither order nor restarts matter."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from milepost.pipelines.reputation.evidence import BASE_COUNTS, MINUTES, WEIGHTS, EvidenceKind
from milepost.pipelines.reputation.ledger import EvidenceLedger, score_of

COUNTS = st.dictionaries(st.sampled_from(EvidenceKind), st.integers(1, 500).map(float), max_size=8)
EVIDENCE = st.tuples(
    st.integers(1, 30), st.sampled_from(["a", "b", "c"]), st.sampled_from(EvidenceKind), st.integers(1, 200).map(float)
)


@given(counts=COUNTS)
def test_a_score_is_between_0_and_1_and_below_1_only_for_a_reason(counts: dict[EvidenceKind, float]) -> None:
    score, reasons = score_of(counts)
    assert 0.0 <= score <= 1.0
    assert (score < 1.0) <= bool(reasons)
    assert all(kind in WEIGHTS and counts[kind] > 0 for kind, _ in reasons)


@given(counts=COUNTS, kind=st.sampled_from(sorted(set(EvidenceKind) - BASE_COUNTS)), more=st.integers(1, 100))
def test_more_evidence_never_raises_a_score(counts: dict[EvidenceKind, float], kind: EvidenceKind, more: int) -> None:
    worse = {**counts, kind: counts.get(kind, 0.0) + more}
    assert score_of(worse)[0] <= score_of(counts)[0]


@given(evidence=st.lists(EVIDENCE, max_size=40), mixed=st.randoms(use_true_random=False))
def test_the_order_of_evidence_does_not_matter(evidence: list[tuple[int, str, EvidenceKind, float]], mixed: Random) -> None:
    shuffled = list(evidence)
    mixed.shuffle(shuffled)
    assert EvidenceLedger().take(evidence) == EvidenceLedger().take(shuffled)


@given(evidence=st.lists(EVIDENCE, max_size=40))
def test_a_ledger_stored_and_read_between_minutes_returns_the_same_scores(
    evidence: list[tuple[int, str, EvidenceKind, float]],
) -> None:
    at_once, state, scores = EvidenceLedger().take(evidence), None, []
    for minute in sorted({one[0] for one in evidence}):
        ledger = EvidenceLedger.from_bytes(state)
        scores += ledger.take([one for one in evidence if one[0] == minute])
        state = ledger.to_bytes()
    assert scores == at_once


@given(evidence=st.lists(EVIDENCE, max_size=40))
def test_after_minutes_without_evidence_all_scores_are_restored(evidence: list[tuple[int, str, EvidenceKind, float]]) -> None:
    ledger = EvidenceLedger()
    scores = ledger.take([*evidence, (30 + MINUTES, "other", EvidenceKind.REPORTS, 1.0)])
    assert {one.endpoint: one.score for one in scores} == dict.fromkeys({one.endpoint for one in scores}, 1.0)
    assert list(ledger.evidence) == ["other"]
