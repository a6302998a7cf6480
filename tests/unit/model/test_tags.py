"""Tags: which words may be one, and how many a message may carry."""

import pytest

from milepost.model.reasons import Malformed, Reason
from milepost.model.tags import TAG_CHARACTERS_MAX, TAGS_MAX, tag, tags


@pytest.mark.parametrize(
    "text", ["a", "i-80", "road:i80/exit.3@utah", "_", "überholverbot", "東京", "7", "x" * TAG_CHARACTERS_MAX]
)
def test_letters_digits_and_a_few_marks_make_a_tag(text: str) -> None:
    assert tag(text) == text


@pytest.mark.parametrize(
    ("text", "reason", "at"),
    [
        ("", Reason.TAG_EMPTY, None),
        ("x" * (TAG_CHARACTERS_MAX + 1), Reason.TAG_TOO_LONG, None),
        ("a b", Reason.TAG_CHARACTER, 1),
        ("!a", Reason.TAG_CHARACTER, 0),
        ("a&b", Reason.TAG_CHARACTER, 1),
        ("ab\n", Reason.TAG_CHARACTER, 2),
        ("a\ud800", Reason.TAG_CHARACTER, 1),
        ('"', Reason.TAG_CHARACTER, 0),
    ],
)
def test_other_text_is_refused_at_its_first_bad_character(text: str, reason: Reason, at: int | None) -> None:
    with pytest.raises(Malformed) as caught:
        tag(text)
    assert (caught.value.reason, caught.value.at) == (reason, at)


def test_capitals_count() -> None:
    assert tags(["Ice", "ice"]) == {"Ice", "ice"}


def test_a_repeated_tag_is_one_tag() -> None:
    assert tags(["ice"] * (TAGS_MAX + 1)) == {"ice"}


def test_as_many_tags_as_allowed_are_let_in_and_one_more_is_refused() -> None:
    names = [f"t{number}" for number in range(TAGS_MAX + 1)]
    assert len(tags(names[:-1])) == TAGS_MAX
    with pytest.raises(Malformed) as caught:
        tags(names)
    assert caught.value.reason is Reason.TOO_MANY_TAGS
