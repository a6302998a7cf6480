"""Reasons: each has one number and one sentence of advice; the text of a refusal has number, name, detail and advice."""

import pickle

import pytest

from milepost.model.reasons import Malformed, Reason, Refused


def test_no_two_reasons_share_a_number() -> None:
    assert len(Reason.__members__) == len({reason.value for reason in Reason}), "an alias would hide a duplicate number"
    assert all(100 <= reason < 1000 for reason in Reason)


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_has_one_sentence_of_advice(reason: Reason) -> None:
    assert reason.advice[0].isupper()
    assert reason.advice.endswith(".")
    assert len(reason.advice.split()) >= 3


def test_no_two_reasons_give_the_same_advice() -> None:
    assert len({reason.advice for reason in Reason}) == len(Reason)


def test_released_reason_codes_do_not_change() -> None:
    released = {100: "MALFORMED", 101: "MESSAGE_TOO_LARGE", 112: "TAG_CHARACTER", 140: "QUERY_SYNTAX", 150: "COORDINATE_RANGE"}
    released |= {154: "AREA_SELF_CROSSING", 160: "TIME_WINDOW_BACKWARDS", 180: "SUBSCRIPTIONS_FULL", 190: "SESSION_UNKNOWN"}
    assert {number: Reason(number).name for number in released} == released


@pytest.mark.parametrize("make", [Refused, Malformed])
def test_the_text_of_a_refusal_has_number_name_detail_and_advice(make: type[Refused] | type[Malformed]) -> None:
    assert (
        str(make(Reason.TAG_TOO_LONG, "'xy' has 99 characters")) == "111 TAG_TOO_LONG: 'xy' has 99 characters. Shorten the tag."
    )


@pytest.mark.parametrize("make", [Refused, Malformed])
def test_without_a_detail_the_advice_follows_the_name(make: type[Refused] | type[Malformed]) -> None:
    assert str(make(Reason.TAG_EMPTY)) == "110 TAG_EMPTY: Give the tag at least one character."


def test_malformed_gives_its_refusal_as_a_value() -> None:
    fault = Malformed(Reason.TAG_EMPTY, "here", at=3)
    assert fault.refused == Refused(Reason.TAG_EMPTY, "here")
    assert (fault.reason, fault.detail, fault.at) == (Reason.TAG_EMPTY, "here", 3)
    assert Malformed(Reason.TAG_EMPTY).at is None


def test_malformed_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="110 TAG_EMPTY"):
        raise Malformed(Reason.TAG_EMPTY)


def test_a_refused_value_can_be_pickled() -> None:
    refused = Refused(Reason.AREA_HOLE, "hole 2")
    assert pickle.loads(pickle.dumps(refused)) == refused
