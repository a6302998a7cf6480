"""Time windows and instants: both ends inclusive, each may be open, and nothing before 1970 or after 2262 (T3, T7)."""

from typing import Any

import pytest

from milepost.model.instants import BEGINNING, FOREVER, Instant, check_instant
from milepost.model.reasons import Malformed, Reason
from milepost.model.time_windows import ALWAYS, TimeWindow


@pytest.mark.parametrize(("instant", "is_held"), [(9, False), (10, True), (15, True), (20, True), (21, False)])
def test_a_time_window_includes_both_ends(instant: int, is_held: bool) -> None:
    assert TimeWindow(Instant(10), Instant(20)).holds(Instant(instant)) is is_held


def test_a_time_window_may_be_a_single_instant() -> None:
    assert TimeWindow(Instant(10), Instant(10)).holds(Instant(10))


@pytest.mark.parametrize("instant", [0, 1, FOREVER])
def test_always_includes_every_instant_and_never_ends(instant: int) -> None:
    assert ALWAYS.holds(Instant(instant))
    assert not ALWAYS.is_over(Instant(instant))


@pytest.mark.parametrize(("now", "is_over"), [(5, False), (20, False), (21, True)])
def test_a_time_window_is_over_only_after_its_end(now: int, is_over: bool) -> None:
    assert TimeWindow(Instant(10), Instant(20)).is_over(Instant(now)) is is_over


def test_a_time_window_that_ends_before_it_starts_is_refused() -> None:
    with pytest.raises(Malformed, match="1 ns before it starts") as caught:
        TimeWindow(Instant(10), Instant(9))
    assert caught.value.reason is Reason.TIME_WINDOW_BACKWARDS


@pytest.mark.parametrize(
    ("start", "end"),
    [
        (-1, 5),
        (0, -1),
        (BEGINNING, BEGINNING),
        (BEGINNING - 1, 5),
        (0, FOREVER + 1),
        (FOREVER, FOREVER),
        (float(BEGINNING), 5),
        (1.0, 5),
        (0, 5.0),
        (True, 5),
        (None, 5),
        ("1", 5),
    ],
)
def test_invalid_ends_of_a_time_window_are_refused(start: Any, end: Any) -> None:
    with pytest.raises(Malformed) as caught:
        TimeWindow(start, end)
    assert caught.value.reason is Reason.TIME_RANGE


@pytest.mark.parametrize("value", [0, 1, FOREVER - 1])
@pytest.mark.parametrize("may_be_forever", [False, True])
def test_integers_from_1970_to_2262_are_instants(value: int, may_be_forever: bool) -> None:
    check_instant("seen_at", value, may_be_forever=may_be_forever)


def test_forever_is_an_instant_only_where_that_is_allowed() -> None:
    check_instant("valid_until", FOREVER, may_be_forever=True)
    with pytest.raises(Malformed, match="seen_at is 9223372036854775807 ns") as caught:
        check_instant("seen_at", FOREVER)
    assert caught.value.reason is Reason.TIME_RANGE


@pytest.mark.parametrize("value", [-1, BEGINNING, FOREVER + 1, 10**400, 1.0, True, None])
@pytest.mark.parametrize("may_be_forever", [False, True])
def test_the_refusal_of_a_bad_instant_names_the_field(value: Any, may_be_forever: bool) -> None:
    with pytest.raises(Malformed, match="seen_at is") as caught:
        check_instant("seen_at", value, may_be_forever=may_be_forever)
    assert caught.value.reason is Reason.TIME_RANGE
