"""Cells: impossible aggregates are refused, and of two with one key one is the later (M23)."""

from dataclasses import replace
from typing import Any

import pytest

from milepost.model.endpoints import EndpointId
from milepost.model.incidents import TALLIES_MAX, Cell, Extent, Square, Tally
from milepost.model.instants import Instant
from milepost.model.reasons import Malformed, Reason

A, B, C = map(EndpointId, "abc")
CELL = Cell("Collision", 7, Square(3, 4), 3, frozenset({A, B}), 2, 30, 60, Extent(5, 10, 20, 30), Instant(70), Instant(79))


@pytest.mark.parametrize(
    "changes",
    [
        {"reports": 0, "north_sum": 0, "east_sum": 0},
        {"reports": 2**53},
        {"witness_count": 0, "witnesses": frozenset()},
        {"witness_count": 4, "witnesses": frozenset(map(EndpointId, "abcd"))},
        {"witness_count": 3},
        {"witnesses": frozenset({A})},
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


def test_of_many_witnesses_the_first_by_name_are_listed() -> None:
    names = frozenset(EndpointId(f"car-{number:03}") for number in range(64))
    many: dict[str, Any] = {"reports": 100, "north_sum": 1000, "east_sum": 2000}
    assert replace(CELL, **many, witnesses=names, witness_count=100).witness_count == 100
    with pytest.raises(Malformed):
        replace(CELL, **many, witnesses=names | {A}, witness_count=65)


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
        {"witnesses": frozenset({A, C})},
        {"witnesses": frozenset({A, B, C}), "witness_count": 3},
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
    more = replace(CELL, reports=4, witnesses=frozenset({A}), witness_count=1, north_sum=40, east_sum=80, last_at=Instant(75))
    assert more.is_after(CELL)
    assert not CELL.is_after(more)
