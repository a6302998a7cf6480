"""Scores read from the log: the last one of each endpoint counts, and an invalid one changes nothing (M27)."""

from typing import Any

import orjson
import pytest

from milepost.model.endpoints import EndpointId
from milepost.model.reasons import Malformed, Reason
from milepost.vetting import Scores, reputation

CAR = EndpointId("car-1")


def record(endpoint: str = "car-1", score: object = 0.42, **others: Any) -> bytes:
    why = [{"evidence": "impossible_move", "count": 3}]
    return orjson.dumps({"type": "reputation", "endpoint": endpoint, "score": score, "at_us": 1, "reasons": why, **others})


def test_the_last_score_of_an_endpoint_counts() -> None:
    scores = Scores()
    assert scores.take("car-1", record()) == CAR
    assert scores.take("car-1", record(score=0.1)) == CAR
    assert scores.known == {CAR: 0.1}


@pytest.mark.parametrize("value", [None, record(score=1), record(score=1.0)])
def test_a_full_score_or_deletion_removes_the_entry(value: bytes | None) -> None:
    scores = Scores()
    scores.take("car-1", record())
    assert scores.take("car-1", value) == CAR
    assert scores.known == {}


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("car-1", b"", Reason.MALFORMED),
        ("car-1", b"[]", Reason.FIELD_TYPE),
        ("car-1", b"{}", Reason.FIELD_MISSING),
        ("car-1", record(type="forwarded"), Reason.FIELD_RANGE),
        ("car-1", record(score="0.4"), Reason.FIELD_TYPE),
        ("car-1", record(score=1.5), Reason.FIELD_RANGE),
        ("car-1", record(score=-0.5), Reason.FIELD_RANGE),
        ("car-1", record(score=None), Reason.FIELD_TYPE),
        ("car-1", record(endpoint=""), Reason.ENDPOINT_ID),
        ("car-1", record(at_us="1"), Reason.FIELD_TYPE),
        ("car-1", record(reasons=[{"evidence": "x"}]), Reason.FIELD_MISSING),
        ("car-1", record(reasons={}), Reason.FIELD_TYPE),
        ("car-1", record(socre=1), Reason.FIELD_UNKNOWN),
        ("car-1", record(reasons=["x" * 10_000]), Reason.MESSAGE_TOO_LARGE),
        ("car-2", record(), Reason.FIELD_RANGE),
        ("", None, Reason.ENDPOINT_ID),
    ],
)
def test_an_invalid_score_is_refused_and_changes_nothing(key: str, value: bytes | None, reason: Reason) -> None:
    scores = Scores()
    scores.take("car-1", record())
    with pytest.raises(Malformed) as caught:
        scores.take(key, value)
    assert caught.value.reason is reason
    assert scores.known == {CAR: 0.42}


def test_the_number_of_scores_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reputation, "SCORES_MAX", 1)
    scores = Scores()
    scores.take("car-1", record())
    with pytest.raises(Malformed):
        scores.take("car-2", record("car-2"))
    scores.take("car-1", record(score=0.3))
    assert scores.known == {CAR: 0.3}
