"""The area index: subscriptions whose area contains a place, of every size and shape, fixed or around their owners."""

from math import pi

import numpy as np
import pytest

from milepost.matching.area_index import CLASSES, SMALLEST_M, AreaIndex
from milepost.matching.points import PointIndex
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


def new_index() -> tuple[AreaIndex, PointIndex]:
    endpoints = PointIndex(50)
    return AreaIndex(200, 50, endpoints), endpoints


def found(areas: AreaIndex, place: Place) -> list[int]:
    """Return the rows whose area contains a place by lookup; an exhaustive test must give the same."""
    rows = areas.candidates_near(place)
    assert len(set(rows.tolist())) == rows.size
    return sorted(rows[areas.contains(rows, place)].tolist())


def north(place: Place, metres: float) -> Place:
    return Place(place.latitude + metres * METRE_DEG, place.longitude)


def test_circles_of_every_size_are_found_where_they_contain_the_place() -> None:
    areas, _ = new_index()
    radii = [0.05, 1.0, 63.0, 64.0, 65.0, 255.9, 256.0, 256.1, 5e3, 4e5, 7e6, 1.9e7]
    for row, radius_m in enumerate(radii):
        areas.add(row, 0, Circle(HERE, radius_m))
    assert found(areas, HERE) == list(range(len(radii)))
    for metres in (0.5, 30.0, 64.5, 200.0, 256.05, 1e3, 1e5, 3e6):
        assert found(areas, north(HERE, metres)) == [row for row, radius_m in enumerate(radii) if radius_m >= metres]


@pytest.mark.parametrize("power", range(CLASSES))
def test_circles_at_the_border_of_two_size_classes_are_found(power: int) -> None:
    areas, _ = new_index()
    border_m = SMALLEST_M * 4.0**power
    radii = [radius_m for radius_m in (border_m * 0.999, border_m, border_m * 1.001) if radius_m < RADIUS_M_MAX]
    for row, radius_m in enumerate(radii):
        areas.add(row, 0, Circle(Place(-60.0, 7.0), radius_m))
    for row, radius_m in enumerate(radii):
        if radius_m < 1.6e7:
            assert found(areas, north(Place(-60.0, 7.0), radius_m * 0.99999)) == list(range(row, len(radii)))
    assert found(areas, Place(-60.0, 7.0)) == list(range(len(radii)))


def test_areas_as_large_as_the_earth_are_found_from_everywhere() -> None:
    areas, endpoints = new_index()
    areas.add(0, 0, Circle(HERE, RADIUS_M_MAX * (1 - 1e-9)))
    areas.add(1, 1, Around(RADIUS_M_MAX * (1 - 1e-9)))
    areas.add(2, 0, Box(-90.0, -180.0, 90.0, 180.0))
    endpoints.move([1], [50.0], [7.0])
    for place in (HERE, Place(90.0, 0.0), Place(-90.0, 0.0), Place(0.0, 180.0), Place(-49.9, -172.9)):
        assert found(areas, place) == [0, 1, 2]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: type(shape).__name__)
@pytest.mark.parametrize("place", [HERE, Place(50.9, 7.9), Place(-50.0, 7.0), Place(48.9, 7.0), Place(50.0, -173.0)])
def test_other_shapes_are_tested_individually(shape: Area, place: Place) -> None:
    areas, _ = new_index()
    areas.add(0, 0, Circle(HERE, 1e6))
    areas.add(3, 0, shape)
    is_inside = bool(shape.contains(place.vector.reshape(1, 3))[0])
    assert (3 in found(areas, place)) is is_inside


def test_a_place_in_the_cap_of_a_shape_but_outside_it_is_not_contained() -> None:
    areas, _ = new_index()
    areas.add(0, 0, Polygon(CORNERS, (HOLE,)))
    assert 0 in areas.candidates_near(HERE).tolist(), "the centre of the hole is the centre of the cap"
    assert found(areas, HERE) == []
    assert found(areas, Place(50.5, 7.0)) == [0]


def test_an_area_around_an_owner_follows_it_and_is_empty_while_its_position_is_unknown() -> None:
    areas, endpoints = new_index()
    areas.add(5, 9, Around(500.0))
    areas.add(6, 10, Around(500.0))
    assert found(areas, HERE) == []
    assert not areas.contains(np.array([5, 6], np.int32), HERE).any()
    endpoints.move([9], [50.0], [7.0])
    assert found(areas, HERE) == [5]
    endpoints.move([9, 10], [-50.0, 50.0], [7.0, 7.001])
    assert (found(areas, HERE), found(areas, Place(-50.0, 7.0))) == ([6], [5])
    endpoints.remove([10])
    assert found(areas, HERE) == []


@pytest.mark.parametrize("radius_m", [500.0, 7e6, 1.2e7, RADIUS_M_MAX * (1 - 1e-9)])
def test_an_area_of_any_radius_around_an_unknown_position_is_empty(radius_m: float) -> None:
    areas, _ = new_index()
    areas.add(5, 9, Around(radius_m))
    for place in (HERE, Place(-50.0, -173.0), Place(0.0, 0.0)):
        assert found(areas, place) == []
        assert areas.contains(np.array([5], np.int32), place).tolist() == [False]


def test_an_owner_that_removes_and_adds_an_area_does_not_mix_with_others() -> None:
    areas, endpoints = new_index()
    endpoints.move([1, 2, 3], [50.0, -50.0, 20.0], [7.0, 7.0, 7.0])
    areas.add(0, 3, Around(100.0))
    areas.add(1, 1, Around(100.0))
    areas.remove(1)
    areas.add(2, 2, Around(100.0))
    areas.add(4, 1, Around(100.0))
    assert [found(areas, Place(latitude, 7.0)) for latitude in (50.0, -50.0, 20.0)] == [[4], [2], [0]]
    assert areas.candidates_near(Place(50.0, 7.0)).tolist() == [4]


def test_an_owner_may_have_many_areas_around_it_of_one_or_several_sizes() -> None:
    areas, endpoints = new_index()
    endpoints.move([9], [50.0], [7.0])
    for row, radius_m in enumerate((10.0, 20.0, 30.0, 5_000.0, 6_000.0)):
        areas.add(row, 9, Around(radius_m))
    assert found(areas, north(HERE, 15.0)) == [1, 2, 3, 4]
    areas.remove(1)
    areas.remove(3)
    assert found(areas, north(HERE, 5.0)) == [0, 2, 4]
    for row in (0, 2, 4):
        areas.remove(row)
    assert found(areas, HERE) == []


def test_contains_returns_a_flag_for_each_row() -> None:
    areas, endpoints = new_index()
    endpoints.move([1], [50.0], [7.0])
    areas.add(0, 0, Circle(HERE, 100.0))
    areas.add(1, 1, Around(100.0))
    areas.add(2, 2, Around(100.0))
    areas.add(3, 0, SHAPES[0])
    areas.add(4, 0, Circle(Place(0.0, 0.0), 100.0))
    assert areas.contains(np.array([4, 3, 2, 1, 0], np.int32), HERE).tolist() == [False, True, False, True, True]


def test_a_row_may_change_between_shape_circle_and_area_around_its_owner() -> None:
    areas, endpoints = new_index()
    endpoints.move([1], [-50.0], [7.0])
    for area, place in (
        (SHAPES[1], Place(50.9, 7.5)),
        (Circle(Place(20.0, 7.0), 100.0), Place(20.0, 7.0)),
        (Around(100.0), Place(-50.0, 7.0)),
        (SHAPES[3], HERE),
    ):
        areas.add(0, 1, area)
        assert found(areas, place) == [0]
        areas.remove(0)
        assert found(areas, place) == []
    assert not areas._shapes
