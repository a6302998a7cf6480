"""The corridor ahead of something that moves: its ends, its width, poles and antimeridian, and every refusal (M26)."""

from math import inf, nan, pi

import pytest

from milepost.model.areas import corridor_ahead
from milepost.model.places import EARTH_RADIUS_M, Place, bearing_deg, distance_m, moved
from milepost.model.reasons import Malformed, Reason

PLACES = [
    Place(50.1, 8.7),
    Place(-33.9, 179.9999),
    Place(0.0, -180.0),
    Place(89.9999, 12.0),
    Place(90.0, 30.0),
    Place(-90.0, 0.0),
]


def holds(place: Place, *, at: Place, heading_deg: float, ahead_m: float = 500.0, behind_m: float = 50.0) -> bool:
    broker = corridor_ahead(at, heading_deg, ahead_m=ahead_m, behind_m=behind_m, half_width_m=10.0)
    return bool(broker.contains(place.vector[None])[0])


@pytest.mark.parametrize("at", PLACES)
@pytest.mark.parametrize("heading", [0.0, 37.0, 90.0, 180.0, 271.5])
def test_a_corridor_along_a_heading_has_the_stated_lengths_and_width(at: Place, heading: float) -> None:
    # M26
    for bearing, metres, expected in [
        (heading, 0.0, True),
        (heading, 509.9, True),
        (heading, 510.1, False),
        (heading + 180, 59.9, True),
        (heading + 180, 60.1, False),
        (heading + 90, 9.9, True),
        (heading + 90, 10.1, False),
        (heading - 90, 9.9, True),
        (heading - 90, 10.1, False),
    ]:
        assert holds(moved(at, bearing, metres), at=at, heading_deg=heading) == expected, (bearing, metres)


@pytest.mark.parametrize("at", PLACES)
def test_a_corridor_with_no_length_behind_or_ahead_starts_at_the_place(at: Place) -> None:
    assert distance_m(corridor_ahead(at, 45.0, ahead_m=800.0, behind_m=0.0, half_width_m=5.0).path[0], at) < 1e-6
    assert distance_m(corridor_ahead(at, 45.0, ahead_m=0.0, behind_m=800.0, half_width_m=5.0).path[-1], at) < 1e-6


def test_long_corridor_follows_the_great_circle_through_the_place() -> None:
    at = Place(60.0, 170.0)
    broker = corridor_ahead(at, 80.0, ahead_m=4e6, behind_m=3e6, half_width_m=100.0)
    ways = [moved(at, 80.0, metres) for metres in range(0, 4_000_001, 500_000)]
    assert all(broker.contains(way.vector[None])[0] for way in ways)
    back, front = broker.path
    assert distance_m(back, front) == pytest.approx(7e6, abs=0.001)
    assert bearing_deg(at, front) == pytest.approx(80.0)
    assert bearing_deg(at, back) == pytest.approx(260.0)


@pytest.mark.parametrize("heading", [-1.0, 360.0, nan, inf])
def test_an_invalid_heading_is_refused(heading: float) -> None:
    with pytest.raises(Malformed) as caught:
        corridor_ahead(PLACES[0], heading, ahead_m=100.0, behind_m=0.0, half_width_m=5.0)
    assert caught.value.reason is Reason.HEADING_RANGE


@pytest.mark.parametrize(
    ("ahead", "behind", "half_width"),
    [
        (0.0, 0.0, 5.0),
        (-1.0, 10.0, 5.0),
        (10.0, -1.0, 5.0),
        (nan, 10.0, 5.0),
        (10.0, inf, 5.0),
        (pi * EARTH_RADIUS_M, 0.0, 5.0),
        (1.5e7, 1.5e7, 5.0),
        (10.0, 10.0, 0.0),
    ],
)
def test_invalid_lengths_of_a_corridor_are_refused(ahead: float, behind: float, half_width: float) -> None:
    with pytest.raises(Malformed) as caught:
        corridor_ahead(PLACES[0], 0.0, ahead_m=ahead, behind_m=behind, half_width_m=half_width)
    assert caught.value.reason is Reason.AREA_RADIUS
