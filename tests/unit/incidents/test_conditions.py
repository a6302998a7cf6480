"""The conditions in an area (M25)."""

from dataclasses import replace

import pytest

from milepost.incidents import Incidents
from milepost.incidents.tracker import CONDITIONS_MAX
from milepost.model.areas import Area, Box, Circle, Corridor, Union
from milepost.model.incidents import EVENT_KINDS, EventKind, Tally
from milepost.model.places import Place
from milepost.model.reasons import Malformed, Reason
from unit.incidents.events import HOME, Event, after, away, cells_of, events, incidents_from

KIND = EventKind("Collision", "Collision", "witnesses >= 3 and reports >= 5", "Alert/Collision")


def test_m25_an_answer_has_the_incidents_and_the_hottest_bin_that_touch_the_area() -> None:
    incidents = incidents_from(KIND, events(5) + events(2, away(100)) + events(9, away(20_000)))
    (raised,) = [change.incident for change in incidents.advance(after(10)) if change.incident.witnesses < 9]
    (found,) = incidents.around(Circle(HOME, 1000.0), after(12))
    assert found.incidents == (raised,)
    assert found.is_hot
    assert found.bin is not None
    assert (found.bin.reports, found.bin.witnesses) == (7, 5)


@pytest.mark.parametrize(("away_m", "radius_m"), [(5000.0, 1000.0), (700.0, 640.0), (155.0, 100.0)])
def test_m25_without_reports_the_answer_is_empty(away_m: float, radius_m: float) -> None:
    incidents = incidents_from(KIND, events(5))
    incidents.advance(after(10))
    (found,) = incidents.around(Circle(away(away_m), radius_m), after(12))
    assert (found.incidents, found.bin, found.is_hot) == ((), None, False)


def test_m25_a_bin_that_is_not_hot_is_in_the_answer_too() -> None:
    (found,) = incidents_from(KIND, events(4)).around(Circle(HOME, 10.0), after(5))
    assert found.bin is not None
    assert (found.bin.reports, found.is_hot) == (4, False)


def test_m25_a_hot_bin_goes_before_a_greater_one_that_is_not() -> None:
    kind = replace(KIND, predicate="mean_ice > 5")
    icy = [replace(event, fields={"ice": 9.0}) for event in events(1, away(1000))]
    incidents = incidents_from(kind, events(9) + icy)
    (found,) = incidents.around(Circle(HOME, 2000.0), after(5))
    assert found.is_hot
    assert found.bin is not None
    assert found.bin.tallies == {"ice": Tally(1, 9000, 9000, 9000)}


def test_m25_an_area_smaller_than_a_bin_finds_the_bin_it_lies_in() -> None:
    found = [Event(f"car-{number}", away(100.0 * (number % 2), 100.0 * (number // 2)), after(1)) for number in range(4)]
    (conditions,) = incidents_from(KIND, found).around(Circle(away(50, 50), 1.0), after(5))
    assert conditions.bin is not None
    assert conditions.bin.reports == 4


def test_m25_reports_of_the_slot_that_has_not_ended_count_and_those_too_old_do_not() -> None:
    incidents = incidents_from(KIND, events(5, HOME, 1))
    for now, reports in ((2, 5), (59, 5), (61, None)):
        (found,) = incidents.around(Circle(HOME, 100.0), after(now))
        assert (found.bin.reports if found.bin else None) == reports


def test_m25_a_question_changes_nothing() -> None:
    incidents, others = incidents_from(KIND, events(5)), incidents_from(KIND, events(5))
    incidents.around(Circle(HOME, 100.0), after(500))
    assert incidents.advance(after(1000)) == others.advance(after(1000))


def test_m25_every_kind_answers_in_its_own_name() -> None:
    incidents = Incidents(EVENT_KINDS)
    for kind in EVENT_KINDS:
        for cell in cells_of(kind, events(1)):
            assert incidents.add(cell) is None
    found = incidents.around(Circle(HOME, 100.0), after(1))
    assert [one.kind for one in found] == [kind.name for kind in EVENT_KINDS]
    assert [one.is_hot for one in found] == [kind.name == "Emergency" for kind in EVENT_KINDS]
    assert all(one.bin is not None and one.bin.reports == 1 for one in found)


@pytest.mark.parametrize(
    "area",
    [
        Box(40.75, -111.9, 40.77, -111.88),
        Corridor((away(-5000), away(5000)), 60.0),
        Union((Circle(Place(0.0, 0.0), 10.0), Circle(away(0, 300), 300.0))),
        Circle(Place(-40.0, 68.0), 20_000_000.0),
    ],
)
def test_m25_areas_of_all_shapes_can_be_queried(area: Area) -> None:
    incidents = incidents_from(KIND, events(5))
    incidents.advance(after(10))
    (found,) = incidents.around(area, after(12))
    assert len(found.incidents) == 1
    assert found.bin is not None


def test_m25_a_wide_minimum_radius_reaches_an_area_far_off() -> None:
    kind = replace(KIND, radius_m_min=5000.0)
    (found,) = incidents_from(kind, events(1)).around(Circle(away(5500), 600.0), after(5))
    assert found.bin is not None


def test_a_question_about_too_many_places_is_refused_and_a_smaller_one_is_answered() -> None:
    far = [Event("car", away(1_000.0 * number), after(1.0)) for number in range(CONDITIONS_MAX + 1)]
    incidents = incidents_from(KIND, far)
    with pytest.raises(Malformed) as caught:
        incidents.around(Circle(HOME, 2_000_000.0), after(5))
    assert caught.value.reason is Reason.AREA_TOO_LARGE
    (found,) = incidents.around(Circle(HOME, 5_000.0), after(5))
    assert found.bin is not None
