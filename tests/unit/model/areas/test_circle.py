"""Circles: exact to the centimetre where they are small, over poles and antimeridian, and every refusal."""

from math import inf, nan, pi
from typing import Any

import numpy as np
import pytest

from milepost.model.areas import Around, Circle
from milepost.model.areas.circle import RADIUS_M_MAX, SMALL_RAD, check_distance, chord_squared
from milepost.model.places import EARTH_RADIUS_M, Place, Vectors, vectors
from milepost.model.reasons import Malformed, Reason

METRE_DEG = 180 / pi / EARTH_RADIUS_M
CENTRES = [Place(40.123, -111.7), Place(0.0, 0.0), Place(89.99999, 33.0), Place(-17.3, 180.0), Place(-45.6, 0.001)]


def north_of(place: Place, metres: float) -> Vectors:
    return vectors([place.latitude - metres * METRE_DEG], [place.longitude])


def holds(circle: Circle, point: Vectors) -> bool:
    return bool(circle.contains(point)[0])


@pytest.mark.parametrize("centre", CENTRES)
@pytest.mark.parametrize("radius_m", [1e-9, 0.01, 0.05, 1.0, 126.0, 128.0, 1e4, 1e7, 2e7])
def test_a_circle_contains_its_centre_however_small_it_is(centre: Place, radius_m: float) -> None:
    assert holds(Circle(centre, radius_m), centre.vector.reshape(1, 3))


@pytest.mark.parametrize("centre", CENTRES)
@pytest.mark.parametrize("radius_m", [0.05, 1.0, 20.0, 126.0])
def test_a_small_circle_reaches_its_radius_and_not_a_few_millimetres_further(centre: Place, radius_m: float) -> None:
    circle = Circle(centre, radius_m)
    assert holds(circle, north_of(centre, radius_m - 1e-6))
    assert not holds(circle, north_of(centre, radius_m + 1e-6))


def test_a_circle_of_a_metre_does_not_reach_a_metre_and_four_millimetres() -> None:
    centre = Place(40.0, -111.0)
    assert not holds(Circle(centre, 1.0), north_of(centre, 1.004))


@pytest.mark.parametrize("radius_m", [130.0, 5_000.0, 1e6])
def test_a_large_circle_is_exact_to_a_millimetre(radius_m: float) -> None:
    centre = Place(10.0, 20.0)
    assert holds(Circle(centre, radius_m), north_of(centre, radius_m - 1e-3))
    assert not holds(Circle(centre, radius_m), north_of(centre, radius_m + 1e-3))


def test_small_and_large_circles_agree_at_the_threshold_between_the_two_methods() -> None:
    centre = Place(52.0, 13.0)
    border_m = SMALL_RAD * EARTH_RADIUS_M
    points = np.vstack([north_of(centre, metres) for metres in np.linspace(border_m - 1, border_m + 1, 200)])
    below, above = Circle(centre, border_m * (1 - 1e-12)), Circle(centre, border_m * (1 + 1e-12))
    assert below.contains(points).sum() == above.contains(points).sum()
    assert below.contains(points).sum() == 100


def test_many_points_are_tested_at_once_and_no_points_are_valid_input() -> None:
    circle = Circle(Place(0.0, 0.0), 100.0)
    assert circle.contains(vectors([0.0, 1.0, 0.0001], [0.0, 0.0, 0.0])).tolist() == [True, False, True]
    assert circle.contains(np.empty((0, 3))).tolist() == []


def test_a_circle_goes_across_the_antimeridian_and_over_the_pole() -> None:
    across = Circle(Place(0.0, 179.999), 500.0)
    assert across.contains(vectors([0.0, 0.0], [-179.999, 179.99])).tolist() == [True, False]
    polar = Circle(Place(89.99, 0.0), 3_000.0)
    assert polar.contains(vectors([89.99, 89.9], [180.0, 180.0])).tolist() == [True, False]


def test_a_circle_up_to_the_antipode_contains_everything_else() -> None:
    nearly_all = Circle(Place(0.0, 0.0), RADIUS_M_MAX - 10.0)
    assert nearly_all.contains(vectors([90.0, -90.0, 0.0, 0.0], [0.0, 0.0, 179.0, 180.0])).tolist() == [True, True, True, False]


@pytest.mark.parametrize("radius_m", [0.05, 50.0, 4_000.0, 3e6])
@pytest.mark.parametrize("centre", CENTRES)
def test_the_boxes_cover_the_circle(centre: Place, radius_m: float) -> None:
    random = np.random.default_rng(5)
    spread = 2 * radius_m * METRE_DEG
    latitudes = np.clip(centre.latitude + random.uniform(-spread, spread, 500), -90, 90)
    longitudes = (centre.longitude + random.uniform(-spread, spread, 500) + 180) % 360 - 180
    circle = Circle(centre, radius_m)
    inside = circle.contains(vectors(latitudes, longitudes))
    assert inside.any()
    for latitude, longitude in zip(latitudes[inside], longitudes[inside], strict=True):
        assert any(
            box.south <= latitude <= box.north
            and (box.west <= longitude <= box.east if box.west <= box.east else longitude >= box.west or longitude <= box.east)
            for box in circle.boxes
        )


@pytest.mark.parametrize("bad", [0, 0.0, -1.0, nan, inf, -inf, 10**400, RADIUS_M_MAX, True, "5", None])
@pytest.mark.parametrize(
    "make", [lambda radius: Circle(Place(0.0, 0.0), radius), Around, lambda width: check_distance("w", width)]
)
def test_an_invalid_radius_is_refused(bad: Any, make: Any) -> None:
    with pytest.raises(Malformed) as caught:
        make(bad)
    assert caught.value.reason is Reason.AREA_RADIUS


def test_around_is_a_circle_wherever_its_owner_is() -> None:
    assert Around(500).at(Place(1.0, 2.0)) == Circle(Place(1.0, 2.0), 500)


def test_the_chord_of_an_angle_grows_up_to_the_diameter() -> None:
    assert chord_squared(pi / 2) == pytest.approx(2)
    assert chord_squared(pi) == chord_squared(4.0) == pytest.approx(4)
    assert chord_squared(1e-9) == pytest.approx(1e-18)
