"""Reputation: whatever evidence comes, scores are scores, and neither order nor restarts matter."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from milepost.pipelines.reputation.evidence import GROUNDS, MINUTES, WEIGHTS, What
from milepost.pipelines.reputation.ledger import Ledger, judged

COUNTS = st.dictionaries(st.sampled_from(What), st.integers(1, 500).map(float), max_size=8)
EVIDENCE = st.tuples(st.integers(1, 30), st.sampled_from(["a", "b", "c"]), st.sampled_from(What), st.integers(1, 200).map(float))


@given(counts=COUNTS)
def test_a_score_is_between_nothing_and_all_and_less_only_for_a_reason(counts: dict[What, float]) -> None:
    score, reasons = judged(counts)
    assert 0.0 <= score <= 1.0
    assert (score < 1.0) <= bool(reasons)
    assert all(what in WEIGHTS and counts[what] > 0 for what, _ in reasons)


@given(counts=COUNTS, what=st.sampled_from(sorted(set(What) - GROUNDS)), more=st.integers(1, 100))
def test_more_against_somebody_never_makes_him_more_believed(counts: dict[What, float], what: What, more: int) -> None:
    worse = {**counts, what: counts.get(what, 0.0) + more}
    assert judged(worse)[0] <= judged(counts)[0]


@given(evidence=st.lists(EVIDENCE, max_size=40), mixed=st.randoms(use_true_random=False))
def test_the_order_of_evidence_does_not_matter(evidence: list[tuple[int, str, What, float]], mixed: Random) -> None:
    shuffled = list(evidence)
    mixed.shuffle(shuffled)
    assert Ledger().take(evidence) == Ledger().take(shuffled)


@given(evidence=st.lists(EVIDENCE, max_size=40))
def test_a_ledger_kept_and_read_between_minutes_says_the_same(evidence: list[tuple[int, str, What, float]]) -> None:
    at_once, kept, said = Ledger().take(evidence), None, []
    for minute in sorted({one[0] for one in evidence}):
        ledger = Ledger.from_bytes(kept)
        said += ledger.take([one for one in evidence if one[0] == minute])
        kept = ledger.to_bytes()
    assert said == at_once


@given(evidence=st.lists(EVIDENCE, max_size=40))
def test_after_minutes_without_evidence_nobody_is_left_in_doubt(evidence: list[tuple[int, str, What, float]]) -> None:
    ledger = Ledger()
    said = ledger.take([*evidence, (30 + MINUTES, "other", What.REPORTS, 1.0)])
    assert {one.endpoint: one.score for one in said} == dict.fromkeys({one.endpoint for one in said}, 1.0)
    assert list(ledger.pages) == ["other"]
