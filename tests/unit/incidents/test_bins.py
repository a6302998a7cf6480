"""Bins: the aggregates that predicates can use (M23, M24)."""

from dataclasses import replace
from itertools import permutations

import pytest

from milepost.incidents.bins import totals_of
from milepost.model.areas import Circle
from milepost.model.incidents import EventKind
from milepost.model.incidents.witnesses import THETA_MAX, witness_hash
from unit.incidents.events import HOME, Event, after, away, cells_of, events, incidents_from

KIND = EventKind("Collision", "Collision", "reports >= 1", "Alert/Collision")


def is_hot(predicate: str, found: list[Event]) -> bool:
    return bool(incidents_from(replace(KIND, predicate=predicate), found).advance(after(10)))


def with_speeds(*speeds: float) -> list[Event]:
    return [Event(f"car-{number}", HOME, after(1), {"speed_mps": speed}) for number, speed in enumerate(speeds)]


@pytest.mark.parametrize(
    "predicate",
    [
        "mean_speed_mps == 4 and min_speed_mps == 1.5 and max_speed_mps == 8",
        "sum_speed_mps == 12 and count_speed_mps == 3 and reports == 3",
        "count_other == 0 and not sum_other >= 0 and not sum_other < 0",
    ],
)
def test_payload_aggregates_are_over_all_reports_that_have_the_field(predicate: str) -> None:
    assert is_hot(predicate, with_speeds(1.5, 8.0, 2.5))
    assert not is_hot(f"not ({predicate})", with_speeds(1.5, 8.0, 2.5))


def test_payload_aggregates_are_over_all_squares_of_a_bin() -> None:
    apart = [*with_speeds(2.0), *(replace(event, place=away(120)) for event in with_speeds(4.0))]
    assert is_hot("mean_speed_mps == 3 and reports == 2", apart)


def test_aggregates_are_over_all_slots_that_a_bin_looks_back_to() -> None:
    slow, fast = (replace(event, seen_at=after(seconds)) for event, seconds in zip(with_speeds(2.0, 4.0), (3, 14), strict=True))
    kind = replace(KIND, predicate="mean_speed_mps == 3 and reports == 2 and witnesses == 2 and age_s == 17")
    assert [change.at for change in incidents_from(kind, [slow, fast]).advance(after(30))] == [after(20)]
    (found,) = incidents_from(kind, [slow, fast]).around(Circle(HOME, 10.0), after(20))
    assert found.bin is not None
    assert (found.bin.first_at, found.bin.last_at) == (after(3), after(14))


def test_square_totals_do_not_depend_on_the_order_of_cells() -> None:
    found = with_speeds(2.0, 4.0, 6.0) + events(70, HOME, 14) + events(3, away(20), 25)
    cells = cells_of(KIND, found)
    assert len(cells) == 3
    totals = [totals_of(KIND.grid, some) for some in permutations(cells)]
    assert all(one == totals[0] for one in totals)


def test_age_is_the_time_since_the_first_report() -> None:
    found = [*events(1, HOME, 2.5), *events(1, HOME, 9)]
    assert is_hot("age_s == 7.5", found)


def test_radius_is_in_metres() -> None:
    found = [*events(1), *events(1, away(140))]
    assert is_hot("radius_m > 69 and radius_m < 71", found)
    assert is_hot("radius_m == 50", events(3))


def test_witnesses_of_a_bin_are_counted_exactly_while_each_cell_lists_all_of_its_own() -> None:
    apart = events(64, HOME, 1) + [replace(one, endpoint=f"other-{one.endpoint}", place=away(110)) for one in events(64)]
    assert is_hot("witnesses == 128 and weight == 128", apart)


def test_witnesses_that_are_not_listed_are_estimated() -> None:
    def twice(count: int) -> list[Event]:
        return events(count, HOME, 1) + events(count, away(110), 1)

    assert is_hot("witnesses > 600 and witnesses < 1600 and weight > 600 and weight < 1600", twice(1_000))
    assert is_hot("witnesses > 64 and witnesses <= 130", events(65, HOME, 1) + events(65, away(110), 1))
    later = incidents_from(replace(KIND, predicate="witnesses > 64"), events(1, HOME, 1) + events(100, HOME, 11))
    assert [change.at for change in later.advance(after(20))] == [after(20)]


def test_witnesses_are_at_least_the_listed_ones_and_at_most_the_reports() -> None:
    for count in (65, 66, 70, 80):
        (cell,) = cells_of(KIND, events(count))
        assert is_hot(f"witnesses >= 64 and witnesses <= {count} and reports == {count}", events(count))
        assert cell.witnesses.theta < THETA_MAX


def test_witnesses_that_are_not_listed_have_the_average_weight_of_the_listed_ones() -> None:
    halves = {witness_hash(f"car-{number}"): 0.5 for number in range(100)}
    kind = replace(KIND, predicate="weight > 0")
    (change,) = incidents_from(kind, events(100), weights=halves).advance(after(10))
    assert change.incident.weight == change.incident.witnesses / 2 > 32
