"""Cells: impossible aggregates are refused, and of two with one key one is the later (M23)."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from milepost.model.incidents import TALLIES_MAX, Cell, Extent, Square, Tally
from milepost.model.incidents.witnesses import THETA_MAX, WITNESSES_MAX, Witnesses, WitnessHash, witnesses_of
from milepost.model.instants import Instant
from milepost.model.reasons import Malformed, Reason

A, AB, AC, ABC = map(witnesses_of, ("a", "ab", "ac", "abc"))
CELL = Cell("Collision", 7, Square(3, 4), 3, AB, 30, 60, Extent(5, 10, 20, 30), Instant(70), Instant(79))


@pytest.mark.parametrize(
    "changes",
    [
        {"reports": 0, "north_sum": 0, "east_sum": 0},
        {"reports": 2**53},
        {"witnesses": witnesses_of("abcd")},
        {"square": Square(-1, 4)},
        {"square": Square(3, -1)},
        {"extent": Extent(-1, 10, 20, 30)},
        {"extent": Extent(21, 10, 20, 30)},
        {"extent": Extent(5, 31, 20, 30)},
        {"north_sum": 14},
        {"north_sum": 61},
        {"east_sum": 29},
        {"east_sum": 91},
        {"last_at": Instant(69)},
        {"tallies": {"": Tally(1, 1, 1, 1)}},
        {"tallies": {"x" * 65: Tally(1, 1, 1, 1)}},
        {"tallies": {"x": Tally(0, 0, 0, 0)}},
        {"tallies": {"x": Tally(4, 4, 1, 1)}},
        {"tallies": {"x": Tally(2, 5, 3, 4)}},
        {"tallies": {"x": Tally(2, 9, 3, 4)}},
    ],
)
def test_aggregates_that_no_reports_can_have_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(Malformed) as raised:
        replace(CELL, **changes)
    assert raised.value.reason is Reason.FIELD_RANGE


def test_witnesses_are_counted_exactly_until_not_all_are_listed() -> None:
    many: dict[str, Any] = {"reports": 1_000, "north_sum": 10_000, "east_sum": 20_000}
    for count in (1, 2, WITNESSES_MAX):
        listed = witnesses_of(f"car-{number}" for number in range(count))
        assert replace(CELL, **many, witnesses=listed).witness_count == count
    some = replace(CELL, **many, witnesses=witnesses_of(f"car-{number}" for number in range(500)))
    assert 300 < some.witness_count < 800
    assert len(some.witnesses.hashes) == WITNESSES_MAX


def test_no_more_witnesses_than_reports_are_counted() -> None:
    """Endpoints can choose ids with small hashes, which look like the smallest of very many."""
    small = Witnesses(frozenset(map(WitnessHash, range(1, WITNESSES_MAX + 1))), WITNESSES_MAX + 1)
    assert replace(CELL, reports=100, north_sum=1_000, east_sum=2_000, witnesses=small).witness_count == 100


@pytest.mark.parametrize(
    ("hashes", "theta"),
    [
        ([], THETA_MAX),
        (range(1, WITNESSES_MAX + 2), THETA_MAX),
        ([0, 1], THETA_MAX),
        ([THETA_MAX], THETA_MAX),
        ([1, 2], 1_000),
        (range(1, WITNESSES_MAX + 1), WITNESSES_MAX),
        ([1], THETA_MAX + 1),
    ],
)
def test_sketches_that_no_witnesses_can_have_are_refused(hashes: Iterable[int], theta: int) -> None:
    with pytest.raises(Malformed) as raised:
        Witnesses(frozenset(map(WitnessHash, hashes)), theta)
    assert raised.value.reason is Reason.FIELD_RANGE


def test_of_two_cells_with_other_witnesses_exactly_one_is_later() -> None:
    one, other = replace(CELL, witnesses=AB), replace(CELL, witnesses=AC)
    assert one.is_after(other) != other.is_after(one)


def test_no_more_tallies_than_the_limit() -> None:
    tallies = {f"f{number}": Tally(1, 1, 1, 1) for number in range(TALLIES_MAX + 1)}
    with pytest.raises(Malformed) as raised:
        replace(CELL, tallies=tallies)
    assert raised.value.reason is Reason.TOO_MANY_FIELDS


def test_times_before_1970_are_refused() -> None:
    with pytest.raises(Malformed) as raised:
        replace(CELL, first_at=Instant(-1))
    assert raised.value.reason is Reason.TIME_RANGE


@pytest.mark.parametrize(
    "other",
    [
        {"reports": 4, "north_sum": 40, "east_sum": 80},
        {"witnesses": ABC},
        {"north_sum": 31},
        {"east_sum": 61},
        {"extent": Extent(5, 10, 20, 31)},
        {"first_at": Instant(69)},
        {"last_at": Instant(80)},
        {"tallies": {"x": Tally(1, 1, 1, 1)}},
    ],
)
def test_of_two_different_cells_exactly_one_is_later(other: dict[str, Any]) -> None:
    later = replace(CELL, **other)
    assert later.is_after(CELL)
    assert not CELL.is_after(later)
    assert not later.is_after(later)


def test_a_cell_with_more_reports_is_later() -> None:
    more = replace(CELL, reports=4, witnesses=A, north_sum=40, east_sum=80, last_at=Instant(75))
    assert more.is_after(CELL)
    assert not CELL.is_after(more)
