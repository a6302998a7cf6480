"""The life cycle of incidents: raised, moved, grown, lasting, cleared, under one id for hot bins that touch (M23, M24)."""

from dataclasses import replace

import pytest

from milepost.incidents import CellDropReason, IncidentLimits, Incidents
from milepost.incidents.tracker import circle_around
from milepost.model.areas import Circle
from milepost.model.incidents import EventKind, IncidentPhase, Square
from milepost.model.incidents.witnesses import witness_hash
from milepost.model.places import Place, distance_m
from unit.incidents.events import HOME, NOON, Event, after, away, cells_of, events, incidents_from, phases_at

KIND = EventKind("Collision", "Collision", "witnesses >= 3 and reports >= 5", "Alert/Collision", valid_s=600)
SIDE_M = KIND.side_m


def middle_of(north: int = 0, east: int = 0) -> Place:
    """Return the middle of a square, given in squares from home's."""
    grid = KIND.grid
    row, column = grid.locate(HOME).square
    square = Square(row + north, column + east)
    width = grid.west(Square(square.row, square.column + 1)) - grid.west(square)
    return grid.place(grid.south(square) + grid.height / 2, grid.west(square) + width / 2)


def test_m24_nothing_is_raised_before_the_slot_ends() -> None:
    incidents = incidents_from(KIND, events(5))
    assert incidents.advance(after(9.999)) == []
    assert phases_at(incidents.advance(after(10))) == [("raised", 10.0)]


def test_m24_too_few_witnesses_or_reports_raise_nothing() -> None:
    assert incidents_from(KIND, events(20, witnesses=2)).advance(after(300)) == []
    assert incidents_from(KIND, events(4, witnesses=4)).advance(after(300)) == []


def test_twenty_reports_of_one_endpoint_are_one_witness() -> None:
    incidents = incidents_from(KIND, events(20, witnesses=1) + events(2, middle_of(), 2))
    assert incidents.advance(after(300)) == []


def test_reports_of_the_last_slots_are_summed() -> None:
    found = [Event(f"car-{number}", HOME, after(10 * number)) for number in range(5)]
    assert phases_at(incidents_from(KIND, found).advance(after(55))) == [("raised", 50.0)]
    spread = [Event(f"car-{number}", HOME, after(20 * number)) for number in range(5)]
    assert incidents_from(KIND, spread).advance(after(600)) == []


def test_m24_an_incident_is_raised_when_the_reports_against_it_have_left_the_window() -> None:
    kind = replace(KIND, predicate="reports >= 3 and mean_speed_mps < 4", slots=3)
    flowing = [Event(f"car-{number}", HOME, after(1), {"speed_mps": 30.0}) for number in range(3)]
    jammed = [Event(f"car-{number}", HOME, after(11), {"speed_mps": 1.0}) for number in range(3, 6)]
    assert phases_at(incidents_from(kind, flowing + jammed).advance(after(60)))[0] == ("raised", 40.0)


def test_an_incident_is_cleared_when_it_was_not_hot_for_the_configured_time() -> None:
    incidents = incidents_from(KIND, events(5))
    # The last slot whose window has the reports ends at 60 s.
    assert phases_at(incidents.advance(after(119.9))) == [("raised", 10.0)]
    assert len(incidents.active) == 1
    assert phases_at(incidents.advance(after(120))) == [("cleared", 120.0)]
    assert not incidents.active
    assert incidents.counts.cells == 0


def test_m23_centre_and_radius_are_the_mean_of_the_reports_and_half_the_diagonal_of_their_box() -> None:
    corners = [away(0, 0, middle_of()), away(200, 0, middle_of()), away(0, 60, middle_of()), away(200, 60, middle_of())]
    found = [Event(f"car-{number}", place, NOON) for number, place in enumerate([*corners, corners[0]])]
    (raised,) = incidents_from(KIND, found).advance(after(10))
    assert distance_m(raised.incident.centre, away(80, 24, middle_of())) < 0.2
    assert raised.incident.radius_m == pytest.approx((200**2 + 60**2) ** 0.5 / 2, abs=0.1)


def test_the_radius_is_never_under_the_minimum() -> None:
    (raised,) = incidents_from(KIND, events(5)).advance(after(10))
    assert raised.incident.radius_m == KIND.radius_m_min
    assert raised.incident.alert_area == Circle(raised.incident.centre, KIND.radius_m_min + KIND.margin_m)


def test_of_touching_hot_bins_the_one_with_most_witnesses_raises() -> None:
    found = events(5, middle_of()) + events(7, middle_of(east=2))
    (raised,) = incidents_from(KIND, found).advance(after(10))
    assert raised.incident.centre == incidents_from(KIND, events(7, middle_of(east=2))).advance(after(10))[0].incident.centre
    assert (raised.incident.witnesses, raised.incident.reports) == (7, 7)
    assert len(raised.incident.squares) == 2


def test_of_equal_witnesses_the_one_with_most_reports_raises() -> None:
    found = events(5, middle_of(), witnesses=5) + events(6, middle_of(east=2), witnesses=5)
    (raised,) = incidents_from(KIND, found).advance(after(10))
    assert distance_m(raised.incident.centre, middle_of(east=2)) < 0.2


def test_of_equal_bins_the_lowest_square_raises() -> None:
    found = events(5, middle_of(east=2)) + events(5, middle_of())
    (raised,) = incidents_from(KIND, found).advance(after(10))
    assert distance_m(raised.incident.centre, middle_of()) < 0.2


def test_the_id_names_the_square_of_the_first_report_whichever_bin_leads() -> None:
    found = [*events(5, middle_of(), 2.0), *events(7, middle_of(east=2), 3.0), Event("car-9", middle_of(east=3), after(1))]
    (raised,) = incidents_from(KIND, found).advance(after(10))
    row, column = KIND.grid.locate(middle_of(east=3)).square
    assert raised.incident.id == f"Collision-{NOON // KIND.interval_ns}-{row}-{column}"


def test_two_groups_that_count_the_same_first_report_have_two_ids() -> None:
    first, further = events(3, middle_of(east=2), 1.0), events(3, middle_of(east=3), 2.0)
    found = [*events(9, middle_of(), 2.0), *first, *further, *events(8, middle_of(east=5), 2.0)]
    changes = incidents_from(KIND, found).advance(after(10))
    assert [len(change.incident.squares) for change in changes] == [2, 2]
    assert len({change.incident.id for change in changes}) == 2


def test_hot_bins_that_do_not_touch_are_two_incidents() -> None:
    found = events(5, middle_of()) + events(5, middle_of(east=4))
    changes = incidents_from(KIND, found).advance(after(10))
    assert phases_at(changes) == [("raised", 10.0)] * 2
    assert len({change.incident.id for change in changes}) == 2


def test_a_chain_that_falls_away_from_one_place_belongs_to_it() -> None:
    found = [event for step in range(4) for event in events(9 - step, middle_of(east=2 * step))]
    (raised,) = incidents_from(KIND, found).advance(after(10))
    assert raised.incident.witnesses == 9
    assert raised.incident.radius_m == pytest.approx(6 * SIDE_M + KIND.radius_m_min, rel=0.03)


def test_two_worst_places_of_one_chain_are_two_incidents() -> None:
    found = [event for step, count in enumerate((9, 6, 5, 8)) for event in events(count, middle_of(east=2 * step))]
    changes = incidents_from(KIND, found).advance(after(10))
    assert [(change.incident.witnesses, len(change.incident.squares)) for change in changes] == [(9, 2), (8, 2)]


def test_an_incident_that_moves_on_keeps_its_id() -> None:
    found = [event for step in range(12) for event in events(5, middle_of(north=step), 10 * step + 1)]
    changes = incidents_from(replace(KIND, slots=2), found).advance(after(1000))
    assert {change.incident.id for change in changes} == {changes[0].incident.id}
    assert changes[0].phase is IncidentPhase.RAISED
    assert {change.phase for change in changes[1:-1]} <= {IncidentPhase.MOVED, IncidentPhase.GROWN}
    assert changes[-1].phase is IncidentPhase.CLEARED


def test_growth_beyond_the_notified_circle_is_announced_and_less_is_not() -> None:
    grown = events(5, middle_of()) + events(5, middle_of(east=2), 12)
    assert phases_at(incidents_from(KIND, grown).advance(after(20))) == [("raised", 10.0), ("grown", 20.0)]
    hardly = events(5, middle_of()) + events(5, away(0, 60, middle_of()), 12)
    assert phases_at(incidents_from(KIND, hardly).advance(after(20))) == [("raised", 10.0)]


def test_a_lasting_incident_is_announced_again_at_half_its_validity() -> None:
    found = [event for step in range(60) for event in events(5, HOME, 10 * step)]
    changes = incidents_from(replace(KIND, valid_s=200), found).advance(after(1000))
    assert phases_at(changes)[:4] == [("raised", 10.0), ("lasting", 110.0), ("lasting", 210.0), ("lasting", 310.0)]
    assert len({change.incident.id for change in changes}) == 1


def test_a_place_hot_again_before_the_all_clear_is_the_same_incident() -> None:
    found = events(5) + events(5, HOME, 111)
    assert phases_at(incidents_from(KIND, found).advance(after(1000))) == [("raised", 10.0), ("cleared", 230.0)]
    found = events(5) + events(5, HOME, 121)
    changes = incidents_from(KIND, found).advance(after(1000))
    assert phases_at(changes) == [("raised", 10.0), ("cleared", 120.0), ("raised", 130.0), ("cleared", 240.0)]
    assert len({change.incident.id for change in changes}) == 2


def test_two_incidents_that_become_one_are_both_cleared_only_when_neither_place_is_hot() -> None:
    kind = replace(KIND, slots=1, clear_after_s=20)
    apart = events(5, middle_of()) + events(5, middle_of(east=4))
    joined = [
        event for step in (1, 2, 3, 4, 5) for east in (0, 2, 4) for event in events(5 + east, middle_of(east=east), 10 * step)
    ]
    changes = incidents_from(kind, apart + joined).advance(after(1000))
    assert phases_at(changes)[:2] == [("raised", 10.0)] * 2
    assert [at for phase, at in phases_at(changes) if phase == "cleared"] == [80.0, 80.0]
    assert "raised" not in [phase for phase, _ in phases_at(changes)[2:]]


def test_witnesses_of_low_reputation_count_for_less() -> None:
    kind = replace(KIND, predicate="weight >= 3")
    doubtful = {witness_hash(f"car-{number}"): 0.5 for number in range(5)}
    assert incidents_from(kind, events(5), weights=doubtful).advance(after(10)) == []
    (raised,) = incidents_from(kind, events(6), weights=doubtful).advance(after(10))
    assert (raised.incident.witnesses, raised.incident.weight) == (6, 3.5)


def test_reputations_may_change_during_an_incident() -> None:
    incidents = incidents_from(replace(KIND, predicate="weight >= 3"), events(5))
    incidents.weights = {witness_hash("car-0"): 0.0, witness_hash("car-1"): 0.0, witness_hash("car-2"): 0.0}
    assert incidents.advance(after(10)) == []
    incidents.weights = {}
    assert phases_at(incidents.advance(after(20))) == [("raised", 20.0)]


def test_beyond_the_limit_the_greatest_incidents_are_raised() -> None:
    found = [event for step in range(3) for event in events(5 + step, middle_of(east=5 * step))]
    incidents = incidents_from(KIND, found, limits=IncidentLimits(incidents_max=2))
    changes = incidents.advance(after(10))
    assert [change.incident.witnesses for change in changes] == [7, 6]
    assert incidents.counts.beyond_limit == 1


def test_a_witness_is_one_in_all_squares_of_a_bin() -> None:
    found = events(5, middle_of(), witnesses=2) + events(5, middle_of(east=1), witnesses=2)
    assert incidents_from(KIND, found).advance(after(300)) == []


def test_circles_around_circles() -> None:
    small, large = Circle(HOME, 100.0), Circle(away(0, 50), 500.0)
    assert circle_around(small, large) == large
    assert circle_around(large, small) == large
    apart = Circle(away(0, 1000), 300.0)
    both = circle_around(small, apart)
    assert both.radius_m == pytest.approx(700.0, abs=0.1)
    assert distance_m(both.centre, away(0, 600)) < 0.1


def test_two_kinds_are_independent_and_their_changes_are_in_order_of_time() -> None:
    fast = replace(KIND, name="Fast", interval_s=5.0)
    incidents = Incidents([KIND, fast])
    for kind in (KIND, fast):
        for cell in cells_of(kind, events(5)):
            assert incidents.add(cell) is None
    changes = incidents.advance(after(10))
    assert [(change.incident.kind, *when) for change, when in zip(changes, phases_at(changes), strict=True)] == [
        ("Fast", "raised", 5.0),
        ("Collision", "raised", 10.0),
    ]
    with pytest.raises(ValueError, match="one name"):
        Incidents([KIND, KIND])


def test_a_cell_of_an_unknown_kind_is_counted() -> None:
    incidents = Incidents([KIND])
    (cell,) = cells_of(replace(KIND, name="Other"), events(1))
    assert incidents.add(cell) is CellDropReason.KIND_UNKNOWN
    assert incidents.counts.dropped == {CellDropReason.KIND_UNKNOWN: 1}
