"""Reputation: a low score lowers the rate limit, but never to zero (M27)."""

import pytest

from milepost.model.endpoints import EndpointId
from milepost.model.reasons import Malformed, Reason
from milepost.vetting import Reputations
from milepost.vetting.reputation import SCORES_BYTES_MAX, SCORES_MAX, SHARE_MIN


def test_the_share_is_the_score_but_never_zero() -> None:
    scores = Reputations.read('{"truck-7": 0.2, "good": 1, "bad": 0, "Zoë": 0.5}'.encode())
    shares = [scores.share_of(EndpointId(name)) for name in ("truck-7", "good", "bad", "Zoë")]
    assert shares == [0.2, 1.0, SHARE_MIN, 0.5]
    assert len(scores) == 4


def test_an_endpoint_without_a_score_has_the_full_share() -> None:
    assert Reputations().share_of(EndpointId("new")) == 1.0
    assert Reputations.read(b"{}").share_of(EndpointId("new")) == 1.0


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", Reason.MALFORMED),
        (b"{", Reason.MALFORMED),
        (b'{"a": NaN}', Reason.MALFORMED),
        (b"\xff", Reason.MALFORMED),
        (b"[]", Reason.FIELD_TYPE),
        (b"null", Reason.FIELD_TYPE),
        (b'{"a": "1"}', Reason.FIELD_TYPE),
        (b'{"a": true}', Reason.FIELD_TYPE),
        (b'{"a": null}', Reason.FIELD_TYPE),
        (b'{"a": 0.5, "b": 1.01}', Reason.FIELD_RANGE),
        (b'{"a": -0.1}', Reason.FIELD_RANGE),
        (b'{"a": 1e400}', Reason.MALFORMED),
    ],
)
def test_an_invalid_score_table_is_refused(content: bytes, reason: Reason) -> None:
    with pytest.raises(Malformed) as caught:
        Reputations.read(content)
    assert caught.value.reason is reason
    assert len(caught.value.detail) < 200


def test_the_score_table_is_limited() -> None:
    with pytest.raises(Malformed) as caught:
        Reputations.read(bytes(SCORES_BYTES_MAX + 1))
    assert caught.value.reason is Reason.MESSAGE_TOO_LARGE
    full = b",".join(b'"%d":1' % number for number in range(SCORES_MAX))
    assert len(Reputations.read(b"{" + full + b"}")) == SCORES_MAX
    with pytest.raises(Malformed) as caught:
        Reputations.read(b"{" + full + b',"x":1}')
    assert caught.value.reason is Reason.TOO_MANY_FIELDS
