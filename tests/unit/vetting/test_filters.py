import pytest

from milepost.model.topics import are_covering, covers, levels_of, maybe_overlap, text_of


@pytest.mark.parametrize(
    ("outer", "inner", "expected"),
    [
        ("#", "#", True),
        ("#", "+/#", True),
        ("+/#", "#", True),
        ("#", "a/+", True),
        ("#", "$a", False),
        ("+", "$a", False),
        ("$a/#", "$a/b", True),
        ("a/#", "a", True),
        ("a/#", "a/#", True),
        ("a/+/#", "a/#", False),
        ("a/+", "a/#", False),
        ("a/+", "a/b", True),
        ("a/b", "a/+", False),
        ("+", "#", False),
        ("a/b", "a", False),
        ("a", "a/b", False),
        ("+/+", "/", True),
    ],
)
def test_one_filter_covers_another(outer: str, inner: str, expected: bool) -> None:
    assert covers(levels_of(outer), levels_of(inner)) is expected


@pytest.mark.parametrize(
    ("one", "other", "common"),
    [
        ("a/#", "a", "a"),
        ("a/#", "+/b/#", "a/b/#"),
        ("+/b", "a/+", "a/b"),
        ("#", "a/+/#", "a/+/#"),
        ("#", "+", "+"),
        ("#", "+/#", "#"),
        ("a/+", "a", None),
        ("a/b/#", "a", None),
        ("+", "$a", None),
        ("#", "$a/#", None),
        ("$a/#", "$a/+", "$a/+"),
        ("a", "b", None),
    ],
)
def test_the_overlap_of_two_filters_is_a_filter(one: str, other: str, common: str | None) -> None:
    for first, second in ((one, other), (other, one)):
        found = maybe_overlap(levels_of(first), levels_of(second))
        assert (None if found is None else text_of(found)) == common


def test_several_filters_together_cover_every_depth_of_one() -> None:
    assert are_covering([levels_of("a"), levels_of("a/+/#")], levels_of("a/#"))
    assert are_covering([levels_of("+"), levels_of("+/+"), levels_of("+/+/+/#")], levels_of("#"))
    assert not are_covering([levels_of("a"), levels_of("a/+"), levels_of("a/+/+")], levels_of("a/#"))
    assert not are_covering([levels_of("a"), levels_of("a/+/+/#")], levels_of("a/#"))
    assert not are_covering([], levels_of("a/#"))
