"""Accepted and rejected cells: late ones, old ones, future ones, and limits (M24)."""

from dataclasses import replace

import pytest

from milepost.incidents import CellDropReason, IncidentLimits, Incidents
from milepost.model.incidents import Cell, EventKind, Extent, Square
from milepost.model.instants import Instant
from unit.incidents.events import HOME, after, away, cells_of, events, incidents_from, phases_at

KIND = EventKind("Collision", "Collision", "witnesses >= 3 and reports >= 5", "Alert/Collision")


def one_cell(seconds: float, count: int = 5, place_m: float = 0.0) -> Cell:
    (cell,) = cells_of(KIND, events(count, away(place_m), seconds))
    return cell


def test_a_late_cell_counts_from_the_next_slot_on() -> None:
    incidents = Incidents([KIND])
    assert incidents.advance(after(30)) == []
    assert incidents.add(one_cell(5)) is None
    assert incidents.counts.late == 1
    assert incidents.advance(after(39)) == []
    assert phases_at(incidents.advance(after(40))) == [("raised", 40.0)]


@pytest.mark.parametrize(("seconds", "dropped"), [(10, None), (9.9, CellDropReason.TOO_OLD)])
def test_a_cell_older_than_every_later_window_is_dropped(seconds: float, dropped: CellDropReason | None) -> None:
    incidents = Incidents([KIND])
    incidents.advance(after(60))
    assert incidents.add(one_cell(seconds)) is dropped
    assert incidents.counts.dropped == ({} if dropped is None else {dropped: 1})
    assert incidents.counts.cells == (dropped is None)


@pytest.mark.parametrize(("seconds", "dropped"), [(109, None), (110, CellDropReason.TOO_FAR_AHEAD)])
def test_a_cell_too_far_ahead_is_dropped(seconds: float, dropped: CellDropReason | None) -> None:
    incidents = Incidents([KIND], limits=IncidentLimits(ahead_s_max=100))
    incidents.advance(after(0))
    assert incidents.add(one_cell(seconds)) is dropped


def test_cells_beyond_the_limit_are_dropped_and_counted_but_known_ones_are_updated() -> None:
    incidents = Incidents([KIND], limits=IncidentLimits(cells_max=2))
    assert [incidents.add(one_cell(5, place_m=300.0 * number)) for number in range(3)] == [None, None, CellDropReason.TOO_MANY]
    assert incidents.add(one_cell(5, count=7)) is None
    assert incidents.counts.cells == 2
    (raised,) = incidents.advance(after(10))
    assert raised.incident.reports >= 7


def test_a_repeated_cell_replaces_only_the_one_with_fewer_reports() -> None:
    for counts in ((2, 5), (5, 2), (5, 5)):
        incidents = Incidents([KIND])
        for count in counts:
            assert incidents.add(one_cell(5, count)) is None
        assert incidents.counts.cells == 1
        (raised,) = incidents.advance(after(10))
        assert raised.incident.reports == 5


@pytest.mark.parametrize(
    "wrong",
    [
        {"square": Square(10**7, 0)},
        {"square": Square(60_000, 10**7)},
        {"extent": Extent(0, 0, 10**6, 10**6)},
    ],
)
def test_a_cell_outside_the_grid_is_dropped(wrong: dict[str, Square | Extent]) -> None:
    cell = replace(one_cell(5), **wrong)  # type: ignore[arg-type]
    assert Incidents([KIND]).add(cell) is CellDropReason.NO_SUCH_SQUARE


@pytest.mark.parametrize("wrong", [{"first_at": after(-1)}, {"last_at": after(10)}])
def test_a_cell_whose_times_are_not_in_its_slot_is_dropped(wrong: dict[str, Instant]) -> None:
    assert Incidents([KIND]).add(replace(one_cell(5), **wrong)) is CellDropReason.NOT_IN_SLOT  # type: ignore[arg-type]


def test_an_advance_backwards_changes_nothing() -> None:
    incidents = incidents_from(KIND, events(5))
    assert phases_at(incidents.advance(after(10))) == [("raised", 10.0)]
    before = incidents.state()
    assert incidents.advance(after(-500)) == []
    assert incidents.state() == before


def test_a_year_without_events_is_one_step() -> None:
    incidents = incidents_from(KIND, events(5))
    year = 365 * 86_400.0
    assert phases_at(incidents.advance(after(year))) == [("raised", 10.0), ("cleared", 120.0)]
    assert incidents.add(one_cell(year + 1)) is None
    assert phases_at(incidents.advance(after(2 * year))) == [("raised", year + 10), ("cleared", year + 120)]


def test_after_a_restart_cells_are_read_again_as_far_back_as_the_window_of_a_bin() -> None:
    incidents = incidents_from(KIND, events(5))
    assert incidents.cells_since is None
    incidents.advance(after(100))
    assert incidents.cells_since == after(50)


def test_one_place_in_two_slots_is_two_cells() -> None:
    incidents = incidents_from(KIND, events(5) + events(5, HOME, 15))
    assert incidents.counts.cells == 2
