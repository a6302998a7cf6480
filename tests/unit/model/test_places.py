"""Places: validity, unit vectors, distances, bearings, and the place at a distance and bearing."""

from math import inf, nan, pi
from typing import Any

import numpy as np
import pytest

from milepost.model.places import EARTH_RADIUS_M, Place, bearing_deg, check_coordinates, distance_m, moved, vectors
from milepost.model.reasons import Malformed, Reason

NANOMETRES = 4e-9 / EARTH_RADIUS_M


@pytest.mark.parametrize(("latitude", "longitude"), [(90.0, 180.0), (-90.0, -180.0), (0.0, 0.0), (-0.0, 7), (45, -45)])
def test_every_latitude_and_longitude_up_to_the_ends_is_a_place(latitude: float, longitude: float) -> None:
    place = Place(latitude, longitude)
    assert (place.latitude, place.longitude) == (latitude, longitude)


@pytest.mark.parametrize("bad", [nan, inf, -inf, 1e300, 10**400, -(10**400), True, "50", None, 1j, np.float32(50)])
def test_an_invalid_coordinate_is_refused_by_name(bad: Any) -> None:
    with pytest.raises(Malformed, match="latitude is") as caught:
        Place(bad, 0.0)
    assert caught.value.reason is Reason.COORDINATE_RANGE
    with pytest.raises(Malformed, match="longitude is") as caught:
        Place(0.0, bad)
    assert caught.value.reason is Reason.COORDINATE_RANGE


@pytest.mark.parametrize(("latitude", "longitude"), [(-111.891, 40.7608), (151.2, -33.87), (-180, 90)])
def test_a_latitude_that_would_be_a_longitude_suggests_that_they_are_swapped(latitude: float, longitude: float) -> None:
    with pytest.raises(Malformed, match=r"latitude is .*: are latitude and longitude swapped\?"):
        Place(latitude, longitude)


@pytest.mark.parametrize(("latitude", "longitude"), [(200.0, 0.0), (95.0, 95.0), (0.0, 181.0), (nan, 10.0)])
def test_coordinates_that_are_out_of_range_in_either_order_suggest_nothing(latitude: float, longitude: float) -> None:
    with pytest.raises(Malformed) as caught:
        Place(latitude, longitude)
    assert "swapped" not in str(caught.value)


@pytest.mark.parametrize(("latitude", "longitude"), [(90.00000000000001, 0.0), (-91, 0), (0.0, 180.00000000000003), (0, -181)])
def test_coordinates_out_of_range_are_refused(latitude: float, longitude: float) -> None:
    with pytest.raises(Malformed):
        check_coordinates(latitude, longitude)


@pytest.mark.parametrize(
    ("latitude", "longitude", "vector"),
    [
        (0.0, 0.0, (1, 0, 0)),
        (0.0, 90.0, (0, 1, 0)),
        (0.0, -90.0, (0, -1, 0)),
        (0.0, 180.0, (-1, 0, 0)),
        (0.0, -180.0, (-1, 0, 0)),
        (90.0, 123.0, (0, 0, 1)),
        (-90.0, -77.0, (0, 0, -1)),
        (45.0, 0.0, (0.5**0.5, 0, 0.5**0.5)),
        (30.0, 60.0, (0.75**0.5 / 2, 0.75, 0.5)),
    ],
)
def test_axes_point_to_the_equator_and_the_north_pole(
    latitude: float, longitude: float, vector: tuple[float, float, float]
) -> None:
    assert np.abs(Place(latitude, longitude).vector - np.array(vector)).max() < NANOMETRES


def test_vectors_are_those_of_sine_and_cosine_and_have_length_one() -> None:
    random = np.random.default_rng(3)
    latitudes = np.append(random.uniform(-90, 90, 1000), [90.0, -90.0, 89.9999999, 0.0])
    longitudes = np.append(random.uniform(-180, 180, 1000), [180.0, -180.0, 179.9999999, 1e-9])
    up, along = np.radians(latitudes), np.radians(longitudes)
    expected = np.column_stack((np.cos(up) * np.cos(along), np.cos(up) * np.sin(along), np.sin(up)))
    found = vectors(latitudes, longitudes)
    assert np.abs(found - expected).max() < NANOMETRES
    assert np.abs(np.linalg.norm(found, axis=1) - 1).max() < NANOMETRES


def test_both_names_of_the_antimeridian_and_all_names_of_a_pole_are_one_place() -> None:
    assert distance_m(Place(12.0, 180.0), Place(12.0, -180.0)) < 1e-8
    assert distance_m(Place(90.0, -180.0), Place(90.0, 33.0)) < 1e-8


@pytest.mark.parametrize(
    ("one", "other", "metres"),
    [
        (Place(0.0, 0.0), Place(0.0, 90.0), pi / 2 * EARTH_RADIUS_M),
        (Place(0.0, 0.0), Place(0.0, 180.0), pi * EARTH_RADIUS_M),
        (Place(90.0, 0.0), Place(-90.0, 0.0), pi * EARTH_RADIUS_M),
        (Place(10.0, 179.5), Place(10.0, 179.5), 0.0),
        (Place(0.0, 179.5), Place(0.0, -179.5), pi / 180 * EARTH_RADIUS_M),
        (Place(50.0, 7.0), Place(50.0 + 1e-7, 7.0), 1e-7 * pi / 180 * EARTH_RADIUS_M),
    ],
)
def test_distances_are_along_the_sphere_from_centimetres_to_antipodes(one: Place, other: Place, metres: float) -> None:
    assert distance_m(one, other) == pytest.approx(metres, rel=1e-6, abs=1e-8)
    assert distance_m(other, one) == pytest.approx(metres, rel=1e-6, abs=1e-8)


def turn_deg(one: float, other: float) -> float:
    return abs((one - other + 180) % 360 - 180)


STARTS = [
    Place(50.0, 8.0),
    Place(-60.0, 179.99999),
    Place(3.0, -180.0),
    Place(89.99999, 77.0),
    Place(90.0, 30.0),
    Place(-90.0, -5.0),
]


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("bearing", [0.0, 45.0, 133.3, 270.0, 359.9])
@pytest.mark.parametrize("metres", [0.5, 1500.0, 9e6, 1.9e7])
def test_moved_gives_the_place_at_the_given_distance_and_bearing(start: Place, bearing: float, metres: float) -> None:
    reached = moved(start, bearing, metres)
    assert distance_m(start, reached) == pytest.approx(metres, abs=1e-6)
    assert turn_deg(bearing, bearing_deg(start, reached)) < 1e-5
    halfway = moved(start, bearing, metres / 2)
    assert distance_m(moved(halfway, bearing_deg(halfway, reached), metres / 2), reached) < 1e-3


@pytest.mark.parametrize(
    ("start", "bearing", "degrees_away", "reached"),
    [
        (Place(0.0, 0.0), 0.0, 30.0, Place(30.0, 0.0)),
        (Place(0.0, 0.0), 90.0, 30.0, Place(0.0, 30.0)),
        (Place(0.0, 170.0), 90.0, 30.0, Place(0.0, -160.0)),
        (Place(0.0, -170.0), 270.0, 30.0, Place(0.0, 160.0)),
        (Place(80.0, 20.0), 0.0, 30.0, Place(70.0, -160.0)),
        (Place(-80.0, 20.0), 180.0, 30.0, Place(-70.0, -160.0)),
        (Place(90.0, 20.0), 180.0, 30.0, Place(60.0, 20.0)),
        (Place(90.0, 20.0), 90.0, 30.0, Place(60.0, 110.0)),
        (Place(-90.0, 20.0), 0.0, 30.0, Place(-60.0, 20.0)),
        (Place(45.0, 0.0), 0.0, 45.0, Place(90.0, 0.0)),
    ],
)
def test_moved_works_over_the_pole_and_across_the_antimeridian(
    start: Place, bearing: float, degrees_away: float, reached: Place
) -> None:
    metres = degrees_away * pi / 180 * EARTH_RADIUS_M
    assert distance_m(moved(start, bearing, metres), reached) < 1e-6
    assert turn_deg(bearing, bearing_deg(start, reached)) < 1e-9


def test_bearings_are_those_of_the_compass_and_stay_below_360() -> None:
    start = Place(10.0, 10.0)
    around = [Place(11.0, 10.0), Place(10.0, 11.0), Place(9.0, 10.0), Place(10.0, 9.0)]
    assert [round(bearing_deg(start, place) / 90) % 4 for place in around] == [0, 1, 2, 3]
    for longitude in np.linspace(9.0, 11.0, 401):
        for nudge in (0.0, -1e-15, 1e-15):
            assert 0 <= bearing_deg(Place(10.0, float(longitude)), Place(40.0, float(longitude) + nudge)) < 360
