"""Tags: valid texts, and how many a message may have."""

from typing import Any
from unicodedata import category

import pytest

from milepost.model.queries import holds, parse_query
from milepost.model.reasons import Malformed, Reason
from milepost.model.tags import TAG_CHARACTERS_MAX, TAGS_MAX, check_tags, tag, tags


@pytest.mark.parametrize(
    "text", ["a", "i-80", "road:i80/exit.3@utah", "_", "überholverbot", "東京", "7", "x" * TAG_CHARACTERS_MAX, "²"]
)
def test_letters_digits_and_a_few_marks_make_a_tag(text: str) -> None:
    assert tag(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "हिन्दी",  # vowel signs and a virama
        "ที่นี่",
        "עִבְרִית",  # points
        "தமிழ்",
        "e\u0301",  # a letter and an accent of its own
    ],
)
def test_combining_marks_of_any_script_are_part_of_a_tag(text: str) -> None:
    assert any(category(character).startswith("M") for character in text), "the sample must have one"
    assert tag(text) == text
    assert tags([text, "a"]) == {text, "a"}


@pytest.mark.parametrize("text", ["हिन्दी", "தமிழ்", "e\u0301"])
def test_a_tag_with_combining_marks_can_be_used_in_a_query(text: str) -> None:
    query = parse_query(f"{text} & !cleared")
    assert holds(query, "any", frozenset([text]))
    assert not holds(query, "any", frozenset([text[:-1]]))
    assert parse_query(str(query)) == query


def test_equal_looking_tags_of_different_letters_are_different() -> None:
    assert tag("é") != tag("e\u0301")


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
        ("हि न्दी", Reason.TAG_CHARACTER, 2),
        ("東京\u3000", Reason.TAG_CHARACTER, 2),
        ("a→b", Reason.TAG_CHARACTER, 1),
        ("é\x85", Reason.TAG_CHARACTER, 1),
        ("ü\0", Reason.TAG_CHARACTER, 1),
    ],
)
def test_other_text_is_refused_at_its_first_bad_character(text: str, reason: Reason, at: int | None) -> None:
    with pytest.raises(Malformed) as caught:
        tag(text)
    assert (caught.value.reason, caught.value.at) == (reason, at)


@pytest.mark.parametrize("value", [None, 7, b"a", ["a"]])
def test_a_tag_that_is_not_a_string_is_refused(value: Any) -> None:
    with pytest.raises(Malformed) as caught:
        tag(value)
    assert caught.value.reason is Reason.TAG_EMPTY


def test_one_invalid_tag_makes_the_set_invalid() -> None:
    for check in (tags, check_tags):
        with pytest.raises(Malformed) as caught:
            check(frozenset(["a", "b c"]))
        assert caught.value.reason is Reason.TAG_CHARACTER


def test_a_set_of_too_many_tags_is_refused_by_every_constructor() -> None:
    check_tags({f"t{number}" for number in range(TAGS_MAX)})
    with pytest.raises(Malformed, match=f"{TAGS_MAX + 1} tags") as caught:
        check_tags({f"t{number}" for number in range(TAGS_MAX + 1)})
    assert caught.value.reason is Reason.TOO_MANY_TAGS


def test_tags_are_case_sensitive() -> None:
    assert tags(["Ice", "ice"]) == {"Ice", "ice"}


def test_a_repeated_tag_is_one_tag() -> None:
    assert tags(["ice"] * (TAGS_MAX + 1)) == {"ice"}


def test_as_many_tags_as_allowed_are_let_in_and_one_more_is_refused() -> None:
    names = [f"t{number}" for number in range(TAGS_MAX + 1)]
    assert len(tags(names[:-1])) == TAGS_MAX
    with pytest.raises(Malformed) as caught:
        tags(names)
    assert caught.value.reason is Reason.TOO_MANY_TAGS
