"""Reaches: whose area holds a place, for areas of every size and shape, fixed or around their owners."""

from math import pi

import numpy as np
import pytest

from milepost.matching.points import PointIndex
from milepost.matching.reaches import CLASSES, SMALLEST_M, Reaches
from milepost.model.areas import Area, Around, Box, Circle, Corridor, Polygon, Union
from milepost.model.areas.circle import RADIUS_M_MAX
from milepost.model.places import EARTH_RADIUS_M, Place

HERE = Place(50.0, 7.0)
METRE_DEG = 180 / pi / EARTH_RADIUS_M
CORNERS = (Place(49.0, 6.0), Place(49.0, 8.0), Place(51.0, 8.0), Place(51.0, 6.0), Place(49.0, 6.0))
HOLE = (Place(49.9, 6.9), Place(49.9, 7.1), Place(50.1, 7.1), Place(50.1, 6.9), Place(49.9, 6.9))
SHAPES: list[Area] = [
    Box(49.0, 6.0, 51.0, 8.0),
    Polygon(CORNERS),
    Corridor((Place(50.0, 6.0), Place(50.0, 8.0)), 5_000.0),
    Union((Circle(HERE, 100.0), Circle(Place(-50.0, 7.0), 100.0))),
    Box(-90.0, -180.0, 90.0, 180.0),
]


def made() -> tuple[Reaches, PointIndex]:
    endpoints = PointIndex(50)
    return Reaches(200, 50, endpoints), endpoints


def found(reaches: Reaches, place: Place) -> list[int]:
    """The rows that hold a place, by place; each once, and asking them all gives the same."""
    rows = reaches.rows_over(place)
    assert len(set(rows.tolist())) == rows.size
    return sorted(rows[reaches.holds(rows, place)].tolist())


def north(place: Place, metres: float) -> Place:
    return Place(place.latitude + metres * METRE_DEG, place.longitude)


def test_circles_of_every_size_are_found_where_they_hold_the_place() -> None:
    reaches, _ = made()
    radii = [0.05, 1.0, 63.0, 64.0, 65.0, 255.9, 256.0, 256.1, 5e3, 4e5, 7e6, 1.9e7]
    for row, radius_m in enumerate(radii):
        reaches.put(row, 0, Circle(HERE, radius_m))
    assert found(reaches, HERE) == list(range(len(radii)))
    for metres in (0.5, 30.0, 64.5, 200.0, 256.05, 1e3, 1e5, 3e6):
        assert found(reaches, north(HERE, metres)) == [row for row, radius_m in enumerate(radii) if radius_m >= metres]


@pytest.mark.parametrize("power", range(CLASSES))
def test_at_the_border_between_two_classes_of_size_no_rim_is_lost(power: int) -> None:
    reaches, _ = made()
    border_m = SMALLEST_M * 4.0**power
    radii = [radius_m for radius_m in (border_m * 0.999, border_m, border_m * 1.001) if radius_m < RADIUS_M_MAX]
    for row, radius_m in enumerate(radii):
        reaches.put(row, 0, Circle(Place(-60.0, 7.0), radius_m))
    for row, radius_m in enumerate(radii):
        if radius_m < 1.6e7:
            assert found(reaches, north(Place(-60.0, 7.0), radius_m * 0.99999)) == list(range(row, len(radii)))
    assert found(reaches, Place(-60.0, 7.0)) == list(range(len(radii)))


def test_areas_as_large_as_the_earth_are_found_from_everywhere() -> None:
    reaches, endpoints = made()
    reaches.put(0, 0, Circle(HERE, RADIUS_M_MAX * (1 - 1e-9)))
    reaches.put(1, 1, Around(RADIUS_M_MAX * (1 - 1e-9)))
    reaches.put(2, 0, Box(-90.0, -180.0, 90.0, 180.0))
    endpoints.move([1], [50.0], [7.0])
    for place in (HERE, Place(90.0, 0.0), Place(-90.0, 0.0), Place(0.0, 180.0), Place(-49.9, -172.9)):
        assert found(reaches, place) == [0, 1, 2]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: type(shape).__name__)
@pytest.mark.parametrize("place", [HERE, Place(50.9, 7.9), Place(-50.0, 7.0), Place(48.9, 7.0), Place(50.0, -173.0)])
def test_any_other_shape_is_asked_itself(shape: Area, place: Place) -> None:
    reaches, _ = made()
    reaches.put(0, 0, Circle(HERE, 1e6))
    reaches.put(3, 0, shape)
    is_inside = bool(shape.contains(place.vector.reshape(1, 3))[0])
    assert (3 in found(reaches, place)) is is_inside


def test_what_lies_in_the_cap_around_a_shape_but_not_in_it_is_not_held() -> None:
    reaches, _ = made()
    reaches.put(0, 0, Polygon(CORNERS, (HOLE,)))
    assert 0 in reaches.rows_over(HERE).tolist(), "the middle of the hole is where the index looks"
    assert found(reaches, HERE) == []
    assert found(reaches, Place(50.5, 7.0)) == [0]


def test_around_follows_its_owner_and_holds_nothing_while_nobody_knows_where_that_is() -> None:
    reaches, endpoints = made()
    reaches.put(5, 9, Around(500.0))
    reaches.put(6, 10, Around(500.0))
    assert found(reaches, HERE) == []
    assert not reaches.holds(np.array([5, 6], np.int32), HERE).any()
    endpoints.move([9], [50.0], [7.0])
    assert found(reaches, HERE) == [5]
    endpoints.move([9, 10], [-50.0, 50.0], [7.0, 7.001])
    assert (found(reaches, HERE), found(reaches, Place(-50.0, 7.0))) == ([6], [5])
    endpoints.remove([10])
    assert found(reaches, HERE) == []


@pytest.mark.parametrize("radius_m", [500.0, 7e6, 1.2e7, RADIUS_M_MAX * (1 - 1e-9)])
def test_however_far_it_reaches_around_nowhere_holds_nothing(radius_m: float) -> None:
    reaches, _ = made()
    reaches.put(5, 9, Around(radius_m))
    for place in (HERE, Place(-50.0, -173.0), Place(0.0, 0.0)):
        assert found(reaches, place) == []
        assert reaches.holds(np.array([5], np.int32), place).tolist() == [False]


def test_an_owner_that_gave_up_its_area_and_comes_again_does_not_mix_with_others() -> None:
    reaches, endpoints = made()
    endpoints.move([1, 2, 3], [50.0, -50.0, 20.0], [7.0, 7.0, 7.0])
    reaches.put(0, 3, Around(100.0))
    reaches.put(1, 1, Around(100.0))
    reaches.take_away(1)
    reaches.put(2, 2, Around(100.0))
    reaches.put(4, 1, Around(100.0))
    assert [found(reaches, Place(latitude, 7.0)) for latitude in (50.0, -50.0, 20.0)] == [[4], [2], [0]]
    assert reaches.rows_over(Place(50.0, 7.0)).tolist() == [4]


def test_an_owner_may_have_many_areas_around_it_of_one_size_and_of_several() -> None:
    reaches, endpoints = made()
    endpoints.move([9], [50.0], [7.0])
    for row, radius_m in enumerate((10.0, 20.0, 30.0, 5_000.0, 6_000.0)):
        reaches.put(row, 9, Around(radius_m))
    assert found(reaches, north(HERE, 15.0)) == [1, 2, 3, 4]
    reaches.take_away(1)
    reaches.take_away(3)
    assert found(reaches, north(HERE, 5.0)) == [0, 2, 4]
    for row in (0, 2, 4):
        reaches.take_away(row)
    assert found(reaches, HERE) == []


def test_asking_rows_that_do_not_hold_a_place_says_so_for_each() -> None:
    reaches, endpoints = made()
    endpoints.move([1], [50.0], [7.0])
    reaches.put(0, 0, Circle(HERE, 100.0))
    reaches.put(1, 1, Around(100.0))
    reaches.put(2, 2, Around(100.0))
    reaches.put(3, 0, SHAPES[0])
    reaches.put(4, 0, Circle(Place(0.0, 0.0), 100.0))
    assert reaches.holds(np.array([4, 3, 2, 1, 0], np.int32), HERE).tolist() == [False, True, False, True, True]


def test_a_row_that_had_a_shape_may_have_a_circle_or_an_owner_next() -> None:
    reaches, endpoints = made()
    endpoints.move([1], [-50.0], [7.0])
    for area, place in (
        (SHAPES[1], Place(50.9, 7.5)),
        (Circle(Place(20.0, 7.0), 100.0), Place(20.0, 7.0)),
        (Around(100.0), Place(-50.0, 7.0)),
        (SHAPES[3], HERE),
    ):
        reaches.put(0, 1, area)
        assert found(reaches, place) == [0]
        reaches.take_away(0)
        assert found(reaches, place) == []
    assert not reaches._shapes
