"""Incidents from cells equal those of the oracle, in any order and with any repetition of cells (M23, M24)."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import event, example, given
from hypothesis import strategies as st

from milepost.incidents import Incidents, maybe_alert
from milepost.model.addresses import ToArea, ToNotified
from milepost.model.areas import Circle
from milepost.model.endpoints import service_source
from milepost.model.incidents import Bin, Cell, EventKind, Grid, IncidentChange, IncidentPhase, Square
from milepost.model.incidents.grid import units_between
from milepost.model.incidents.witnesses import WitnessHash, witness_hash
from milepost.model.instants import Instant
from milepost.model.places import Place, distance_m
from milepost.wire.incidents import state_from_json, state_to_json
from strategies import places
from unit.incidents.events import HOME, NOON, Event, after, away, cell_of, cells_of
from unit.incidents.incident_oracle import IncidentOracle, OracleBin, bins_at


def is_small_or_seven(of: list[float]) -> bool:
    return bool(of) and ((max(of) <= 3 and sum(of) <= 9) or min(of) == 7)


RULES: tuple[tuple[str, Callable[[OracleBin], bool]], ...] = (
    ("weight >= 2", lambda one: one.weight() >= 2),
    ("witnesses >= 2 and reports >= 3", lambda one: len(one.witnesses()) >= 2 and len(one.found) >= 3),
    ("reports >= 1", lambda one: True),
    ("mean_v > 5 or not count_v != 1", lambda one: bool(of := one.values("v")) and (sum(of) / len(of) > 5 or len(of) == 1)),
    ("not (max_v > 3) and sum_v <= 9 or min_v == 7", lambda one: is_small_or_seven(one.values("v"))),
    ("radius_m < 120 and reports > 1", lambda one: one.radius_m(50.0) < 120 and len(one.found) > 1),
)
KINDS = [
    (EventKind("Test", "t", text, "Alert/t", slots=slots, clear_after_s=clear, margin_m=margin, valid_s=60), is_hot)
    for text, is_hot in RULES
    for slots, clear, margin in ((1, 0, 0), (3, 20, 100), (6, 60, 200))
]
CENTRES = (HOME, Place(0.0, 0.0), Place(-17.0, 180.0), Place(64.1, -21.9), Place(-33.87, 151.2))
LAST_S = 200.0

values = st.integers(0, 20).map(float)
offsets = st.sampled_from([-700.0, -320.0, -150.0, -40.0, 0.0, 40.0, 150.0, 320.0, 700.0]) | st.floats(-900, 900)
witnesses = st.sampled_from([f"car-{number}" for number in range(6)])
weightings: st.SearchStrategy[dict[WitnessHash, float]] = st.just({}) | st.dictionaries(
    witnesses.map(witness_hash), st.sampled_from([0.0, 0.25, 0.5, 0.9]), max_size=4
)


@st.composite
def many_events(draw: st.DrawFn) -> list[Event]:
    """Draw events at a few places and in a few slots, so that cells and bins have several of them."""
    centre = draw(st.sampled_from(CENTRES))
    spots = [away(north, east, centre) for north, east in draw(st.lists(st.tuples(offsets, offsets), min_size=1, max_size=8))]
    starts = draw(st.lists(st.integers(0, int(LAST_S) // 10 - 1), min_size=1, max_size=8))
    one = st.builds(
        lambda who, spot, start, seconds, value: Event(
            who, spot, after(10 * start + seconds), {} if value is None else {"v": value}
        ),
        witnesses,
        st.sampled_from(spots),
        st.sampled_from(starts),
        st.sampled_from([0.0, 0.5, 3.0, 9.75]),
        st.none() | values,
    )
    return draw(st.lists(one, max_size=50))


def all_changes(incidents: Incidents, until_s: float = 2 * LAST_S) -> list[IncidentChange]:
    return incidents.advance(after(until_s))


def changes_in_slots(kind: EventKind, changes: list[IncidentChange]) -> list[tuple[str, str, int]]:
    return [(one.phase.value, one.incident.id, one.at // kind.interval_ns - 1) for one in changes]


def incidents_with(kind: EventKind, cells: list[Cell], weights: dict[WitnessHash, float]) -> Incidents:
    incidents = Incidents([kind], weights=weights)
    for cell in cells:
        assert incidents.add(cell) is None
    return incidents


HOT_ONCE_THE_OLDER_SLOT_HAS_LEFT = [Event("car-0", HOME, after(10), {"v": 0.0}), Event("car-0", HOME, after(0), {"v": 4.0})]


@given(st.sampled_from(KINDS), many_events(), weightings)
@example(KINDS[13], HOT_ONCE_THE_OLDER_SLOT_HAS_LEFT, {})
def test_incidents_equal_those_of_the_oracle(
    rules: tuple[EventKind, Callable[[OracleBin], bool]], found: list[Event], weights: dict[WitnessHash, float]
) -> None:
    # M24
    kind, is_hot = rules
    changes = all_changes(incidents_with(kind, cells_of(kind, found), weights))
    assert changes_in_slots(kind, changes) == IncidentOracle(kind, is_hot, weights).run(found)
    for change in changes:
        event(change.phase.value)


@given(st.sampled_from(KINDS), many_events(), weightings)
def test_bins_equal_those_of_the_oracle(
    rules: tuple[EventKind, Callable[[OracleBin], bool]], found: list[Event], weights: dict[WitnessHash, float]
) -> None:
    # M23
    kind, is_hot = rules
    incidents = incidents_with(kind, cells_of(kind, found), weights)
    now = after(100)
    slot = now // kind.interval_ns
    (conditions,) = incidents.around(Circle(found[0].place if found else HOME, 20_000.0), now)
    plain = bins_at(kind, found, slot, weights)
    if not plain:
        assert conditions.bin is None
        return
    hottest = min(plain, key=lambda one: (not is_hot(one), one.rank()))
    assert conditions.bin is not None
    assert conditions.is_hot == is_hot(hottest)
    assert is_same(conditions.bin, hottest, kind)


def is_same(one: Bin, plain: OracleBin, kind: EventKind) -> bool:
    seen_at = [event.seen_at for event in plain.found]
    counts = plain.square, len(plain.found), len(plain.witnesses()), min(seen_at), max(seen_at)
    return (
        (one.square, one.reports, one.witnesses, one.first_at, one.last_at) == counts
        and one.weight == pytest.approx(plain.weight())
        and distance_m(one.centre, plain.centre()) < 0.012  # cells have whole units of a ten-millionth of a degree
        and one.radius_m == pytest.approx(plain.radius_m(kind.radius_m_min))
    )


@given(st.sampled_from(KINDS), many_events(), weightings, st.data())
def test_order_and_repetition_of_cells_do_not_matter(
    rules: tuple[EventKind, object], found: list[Event], weights: dict[WitnessHash, float], data: st.DataObject
) -> None:
    kind = rules[0]
    cells = cells_of(kind, found)
    again = data.draw(st.lists(st.sampled_from(cells), max_size=10)) if cells else []
    shuffled = data.draw(st.permutations([*cells, *again]))
    assert all_changes(incidents_with(kind, shuffled, weights)) == all_changes(incidents_with(kind, cells, weights))


@given(st.sampled_from(KINDS), many_events(), st.data())
def test_repeated_cells_with_more_reports_count_once_in_any_order(
    rules: tuple[EventKind, object], found: list[Event], data: st.DataObject
) -> None:
    kind = rules[0]
    parts = []
    for cell in cells_of(kind, found):
        some = [one for one in found if cells_of(kind, [one])[0].key == cell.key]
        ends = data.draw(st.sets(st.integers(1, len(some)))) | {len(some)}
        parts += [cell_of(kind, cell.key, some[:end]) for end in ends]
    shuffled = data.draw(st.permutations(parts))
    assert all_changes(incidents_with(kind, shuffled, {})) == all_changes(incidents_with(kind, cells_of(kind, found), {}))


@given(st.sampled_from(KINDS), many_events(), st.lists(st.floats(0, 2 * LAST_S), max_size=8))
def test_the_step_of_advance_does_not_matter(rules: tuple[EventKind, object], found: list[Event], stops: list[float]) -> None:
    kind = rules[0]
    cells = sorted(cells_of(kind, found), key=lambda cell: cell.slot)
    incidents = Incidents([kind])
    changes = []
    for stop in [*sorted(stops), 2 * LAST_S]:
        while cells and cells[0].slot * kind.interval_ns < after(stop):
            assert incidents.add(cells.pop(0)) is None
        changes += incidents.advance(after(stop))
    assert incidents.counts.late == 0
    assert changes == all_changes(incidents_with(kind, cells_of(kind, found), {}))


@given(st.sampled_from(KINDS), many_events(), st.floats(0, LAST_S))
def test_after_a_restart_the_results_are_the_same(rules: tuple[EventKind, object], found: list[Event], stop: float) -> None:
    kind = rules[0]
    whole = incidents_with(kind, cells_of(kind, found), {})
    whole.advance(after(stop))
    since = whole.cells_since
    assert since is not None
    restarted = Incidents([kind], state=state_from_json(state_to_json(whole.state())))
    for cell in cells_of(kind, found):
        if cell.slot * kind.interval_ns >= since:
            assert restarted.add(cell) is None
    assert all_changes(restarted) == all_changes(whole)


@given(st.sampled_from(KINDS), many_events())
def test_an_incident_keeps_its_id_until_cleared_and_all_notified_endpoints_get_the_all_clear(
    rules: tuple[EventKind, object], found: list[Event]
) -> None:
    kind = rules[0]
    changes = all_changes(incidents_with(kind, cells_of(kind, found), {}))
    for name in {change.incident.id for change in changes}:
        life = [change for change in changes if change.incident.id == name]
        phases = [change.phase for change in life]
        assert phases[0] is IncidentPhase.RAISED
        assert phases[-1] is IncidentPhase.CLEARED
        assert not {IncidentPhase.RAISED, IncidentPhase.CLEARED} & set(phases[1:-1])
        assert all(one.at < other.at for one, other in pairwise(life))
        *told, last = [maybe_alert(change, kind, service_source("hub")) for change in life]
        assert all(alert is not None and isinstance(alert.address, ToArea) and alert.address.incident == name for alert in told)
        assert last is not None
        assert last.address == ToNotified((name,))
    alerts = [maybe_alert(change, kind, service_source("hub")) for change in changes]
    assert len({alert.id for alert in alerts if alert}) == len(changes)


@given(places, st.sampled_from([10.0, 150.0, 300.0, 50_000.0]))
def test_a_place_is_in_its_square_and_comes_back_from_its_units(place: Place, side_m: float) -> None:
    grid = Grid(side_m)
    square, north, east = grid.locate(place)
    assert grid.holds(square, north, east)
    back = grid.place(grid.south(square) + north, grid.west(square) + east)
    assert distance_m(back, place) < 0.03


@given(st.lists(places, min_size=1, max_size=50), st.sampled_from([10.0, 150.0, 300.0, 50_000.0]))
def test_the_grid_is_the_same_in_numpy_bit_by_bit(some: list[Place], side_m: float) -> None:
    grid = Grid(side_m)
    up = ((np.array([place.latitude for place in some]) + 90) * 1e7).astype(np.int64)
    over = ((np.array([place.longitude for place in some]) + 180) * 1e7).astype(np.int64) % 3_600_000_000
    height = int(side_m * 89.932)
    rows = np.minimum(up // height, -(-1_800_000_000 // height) - 1)
    middle = (2 * rows + 1) * height / 2e7 - 90
    narrower = (32400 - 4 * middle * middle) / (32400 + middle * middle)
    columns = np.maximum(1, (3_600_000_000 // height * narrower).astype(np.int64))
    found = zip(rows.tolist(), (over * columns // 3_600_000_000).tolist(), strict=True)
    assert [Square(*one) for one in found] == [grid.locate(place).square for place in some]


@given(st.floats(-85, 85), st.floats(-180, 180), st.floats(0, 360, exclude_max=True), st.sampled_from([150.0, 1000.0]))
def test_reports_closer_than_half_the_join_distance_are_in_one_bin(
    latitude: float, longitude: float, bearing: float, side_m: float
) -> None:
    grid, here = Grid(side_m), Place(latitude, longitude)
    there = away(0.45 * side_m * np.cos(np.radians(bearing)), 0.45 * side_m * np.sin(np.radians(bearing)), here)
    assert grid.locate(there).square in grid.block(grid.locate(here).square)


@given(places, st.sampled_from([150.0, 50_000.0]))
def test_a_block_is_three_rows_of_three_that_follow_each_other(place: Place, side_m: float) -> None:
    grid = Grid(side_m)
    square = grid.locate(place).square
    block = grid.block(square)
    assert square in block
    assert len(set(block)) == len(block) <= 9
    for row in {near.row for near in block}:
        columns = [near.column for near in block if near.row == row]
        assert len(columns) == min(3, grid.columns(row))
        assert all((after - before) % grid.columns(row) == 1 for before, after in pairwise(columns))


@given(st.integers(0, 3_599_999_999), st.integers(-1_000_000, 1_000_000))
def test_units_are_counted_the_shorter_way_round(west: int, further: int) -> None:
    assert units_between(west, (west + further) % 3_600_000_000) == further


def test_noon_begins_a_slot_of_every_kind() -> None:
    assert all(Instant(NOON) % kind.interval_ns == 0 for kind, _ in KINDS)
