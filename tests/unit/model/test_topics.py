"""Topics and filters: valid topics, valid filters, and which topic matches which filter."""

import pytest

from milepost.model.reasons import Malformed, Reason
from milepost.model.topics import (
    TOPIC_BYTES_MAX,
    TOPIC_LEVELS_MAX,
    SharedFilter,
    check_filter,
    check_topic,
    filter_matches,
    maybe_shared,
)


@pytest.mark.parametrize("topic", ["a", "/", "/a", "a/", "a//b", "a b/ü", "$SYS/load", "\U0001f697", "x" * TOPIC_BYTES_MAX])
def test_ordinary_topics_can_be_published_and_subscribed(topic: str) -> None:
    check_topic(topic)
    check_filter(topic)
    assert filter_matches(topic, topic)


@pytest.mark.parametrize(
    ("topic", "reason", "at"),
    [
        ("", Reason.TOPIC_EMPTY, None),
        ("a\0b", Reason.TOPIC_CHARACTER, 1),
        ("a\nb", Reason.TOPIC_CHARACTER, 1),
        ("\x7f", Reason.TOPIC_CHARACTER, 0),
        ("ab\x9f", Reason.TOPIC_CHARACTER, 2),
        ("ü\ud800", Reason.TOPIC_CHARACTER, 1),
        ("x" * (TOPIC_BYTES_MAX + 1), Reason.TOPIC_TOO_LONG, None),
        ("ü" * (TOPIC_BYTES_MAX // 2) + "x", Reason.TOPIC_TOO_LONG, None),
        ("/" * TOPIC_LEVELS_MAX, Reason.TOPIC_TOO_DEEP, None),
    ],
)
def test_bad_text_is_refused_in_topics_and_in_filters(topic: str, reason: Reason, at: int | None) -> None:
    for check in (check_topic, check_filter):
        with pytest.raises(Malformed) as caught:
            check(topic)
        assert (caught.value.reason, caught.value.at) == (reason, at)


def test_as_many_levels_as_allowed_are_let_in() -> None:
    check_topic("/" * (TOPIC_LEVELS_MAX - 1))


@pytest.mark.parametrize(("topic", "at"), [("a/+", 2), ("a/#", 2), ("a+", 1), ("#", 0)])
def test_wildcards_cannot_be_published_to(topic: str, at: int) -> None:
    with pytest.raises(Malformed) as caught:
        check_topic(topic)
    assert (caught.value.reason, caught.value.at) == (Reason.TOPIC_CHARACTER, at)


@pytest.mark.parametrize("topic_filter", ["+", "#", "+/+", "/+", "a/+/b", "a/#", "+/#", "/#"])
def test_wildcards_that_are_whole_levels_can_be_subscribed(topic_filter: str) -> None:
    check_filter(topic_filter)


@pytest.mark.parametrize(
    ("topic_filter", "at"), [("a+", 0), ("a/b#", 2), ("a/#/b", 2), ("#/", 0), ("++", 0), ("/+#", 1), ("##", 0)]
)
def test_wildcards_inside_a_level_are_refused(topic_filter: str, at: int) -> None:
    with pytest.raises(Malformed) as caught:
        check_filter(topic_filter)
    assert (caught.value.reason, caught.value.at) == (Reason.TOPIC_WILDCARD, at)


@pytest.mark.parametrize(
    ("topic_filter", "topic", "is_passed"),
    [
        ("a/b", "a/b", True),
        ("a/b", "A/b", False),
        ("a/b", "a/b/c", False),
        ("a/b", "a", False),
        ("a", "/a", False),
        ("+", "a", True),
        ("+", "/a", False),
        ("+/+", "/a", True),
        ("/+", "/a", True),
        ("a/+", "a", False),
        ("a/+", "a/", True),
        ("a/+/c", "a/b/c", True),
        ("a/#", "a", True),
        ("a/#", "a/", True),
        ("a/#", "a/b/c", True),
        ("a/#", "ab", False),
        ("+/#", "a", True),
        ("#", "a/b", True),
        ("#", "/", True),
        ("#", "$SYS/load", False),
        ("+/load", "$SYS/load", False),
        ("$SYS/#", "$SYS/load", True),
        ("$SYS/+", "$SYS/load", True),
        ("a/#", "a/$b", True),
    ],
)
def test_topics_match_filters_as_in_the_mqtt_specification(topic_filter: str, topic: str, is_passed: bool) -> None:
    assert filter_matches(topic_filter, topic) is is_passed


def test_a_shared_filter_is_split_into_group_and_filter() -> None:
    assert maybe_shared("$share/group/a/+/#") == SharedFilter("group", "a/+/#")
    assert maybe_shared("$share/group//a") == SharedFilter("group", "/a")


@pytest.mark.parametrize("topic_filter", ["a", "share/group/a", "$shared/group/a", "a/$share/group/b"])
def test_an_ordinary_filter_is_not_shared(topic_filter: str) -> None:
    assert maybe_shared(topic_filter) is None


@pytest.mark.parametrize(
    ("topic_filter", "reason"),
    [
        ("$share/", Reason.SHARE_NAME),
        ("$share/group", Reason.SHARE_NAME),
        ("$share//a", Reason.SHARE_NAME),
        ("$share/+/a", Reason.SHARE_NAME),
        ("$share/g#/a", Reason.SHARE_NAME),
        ("$share/group/", Reason.TOPIC_EMPTY),
        ("$share/group/a/#/b", Reason.TOPIC_WILDCARD),
    ],
)
def test_a_malformed_shared_filter_is_refused(topic_filter: str, reason: Reason) -> None:
    with pytest.raises(Malformed) as caught:
        maybe_shared(topic_filter)
    assert caught.value.reason is reason
