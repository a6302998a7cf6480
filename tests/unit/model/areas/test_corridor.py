"""Corridors: width, ends, poles, the antimeridian, boxes, and every refusal."""

import numpy as np
import pytest

from milepost.model.areas import CORRIDOR_BOXES_MAX, CORRIDOR_POINTS_MAX, Bounds, Corridor
from milepost.model.places import EARTH_RADIUS_M, Place, vectors
from milepost.model.reasons import Malformed, Reason

DEGREE_M = EARTH_RADIUS_M * np.pi / 180


def along(*places: tuple[float, float]) -> tuple[Place, ...]:
    return tuple(Place(latitude, longitude) for latitude, longitude in places)


def holds(broker: Corridor, latitude: float, longitude: float) -> bool:
    return bool(broker.contains(vectors([latitude], [longitude]))[0])


def refusal(path: tuple[Place, ...], half_width_m: float = 10.0) -> Malformed:
    with pytest.raises(Malformed) as caught:
        Corridor(path, half_width_m)
    return caught.value


EQUATOR = Corridor(along((0.0, 0.0), (0.0, 10.0)), DEGREE_M)


def test_a_corridor_has_its_stated_width_on_both_sides() -> None:
    inside, outside = 1 - 1e-9, 1 + 1e-9
    latitudes = [inside, -inside, outside, -outside]
    assert EQUATOR.contains(vectors(latitudes, [5.0] * 4)).tolist() == [True, True, False, False]


def test_ends_are_round() -> None:
    assert holds(EQUATOR, 0.0, -0.999)
    assert not holds(EQUATOR, 0.0, -1.001)
    assert holds(EQUATOR, 0.7, 10.7)
    assert not holds(EQUATOR, 0.72, 10.72)


def test_far_side_of_the_great_circle_is_outside() -> None:
    assert not holds(EQUATOR, 0.0, -170.0)
    assert not holds(EQUATOR, 0.0, 90.0)


def test_bend_is_inside_on_both_of_its_sides() -> None:
    broker = Corridor(along((0.0, 0.0), (0.0, 1.0), (1.0, 1.0)), 0.1 * DEGREE_M)
    assert broker.contains(vectors([0.05, -0.05, 0.5, 0.5], [0.95, 1.05, 1.0, 0.5])).tolist() == [True, True, True, False]


def test_path_over_the_pole_and_across_the_antimeridian() -> None:
    over = Corridor(along((89.0, 0.0), (89.0, 180.0)), 1000.0)
    assert over.contains(vectors([90.0, 89.5, 89.5, 89.5], [33.0, 0.0, 180.0, 90.0])).tolist() == [True, True, True, False]
    assert any(box.north == 90 and (box.west, box.east) == (-180, 180) for box in over.boxes)
    across = Corridor(along((-15.0, 179.5), (-15.0, -179.5)), 5000.0)
    assert across.contains(vectors([-15.0] * 4, [180.0, -180.0, 179.9, 179.0])).tolist() == [True, True, True, False]
    assert any(box.west > box.east for box in across.boxes)


def test_a_corridor_of_a_centimetre_is_exact_to_a_millimetre() -> None:
    broker = Corridor(along((50.0, 10.0), (50.0, 10.01), (50.01, 10.01)), 0.01)
    for metres, expected in ((0.009, True), (0.011, False)):
        assert holds(broker, 50.01 + metres / DEGREE_M, 10.01) is expected
        assert holds(broker, 50.005, 10.01 + metres / DEGREE_M / np.cos(np.radians(50.005))) is expected


def test_a_half_width_above_a_quarter_of_the_globe_excludes_a_cap() -> None:
    broker = Corridor(along((0.0, -10.0), (0.0, 10.0)), 160 * DEGREE_M)
    longitudes = [100.0, 169.0, 171.0, 180.0, -171.0, -169.0]
    assert broker.contains(vectors([0.0] * 6, longitudes)).tolist() == [True, True, False, False, False, True]


def test_a_path_around_the_world_has_a_cap_that_contains_it() -> None:
    broker = Corridor(along((0.0, 0.0), (0.0, 120.0), (0.0, -120.0), (0.0, -1.0)), 1000.0)
    points = vectors([0.0] * 36, range(-180, 180, 10))
    assert broker.contains(points).all()
    assert (points @ broker.cap.centre >= np.cos(broker.cap.angle_rad)).all()


def area_m2(box: Bounds) -> float:
    width_deg = (box.east - box.west) % 360
    height = np.sin(np.radians(box.north)) - np.sin(np.radians(box.south))
    return float(np.radians(width_deg) * height * EARTH_RADIUS_M**2)


def test_long_diagonal_is_cut_so_that_its_boxes_stay_small() -> None:
    broker = Corridor(along((40.0, 0.0), (50.0, 20.0)), 2000.0)
    length_m = float(np.arccos(np.clip(np.dot(*vectors([40.0, 50.0], [0.0, 20.0])), -1, 1))) * EARTH_RADIUS_M
    assert sum(map(area_m2, broker.boxes)) < 4 * length_m * 4000.0
    assert 100 < len(broker.boxes) <= 257


def test_short_segments_have_a_box_each() -> None:
    broker = Corridor(along((50.0, 10.0), (50.001, 10.001), (50.002, 10.0)), 500.0)
    assert len(broker.boxes) == 2


def test_number_of_boxes_stays_within_the_limit() -> None:
    path = along(*((40.0, number / 1e5) for number in range(CORRIDOR_POINTS_MAX - 1)), (40.0, 60.0))
    assert CORRIDOR_POINTS_MAX + 200 < len(Corridor(path, 1.0).boxes) <= CORRIDOR_BOXES_MAX
    assert len(Corridor(along((0.0, 0.0), (0.0, 179.0)), 0.001).boxes) <= CORRIDOR_BOXES_MAX


def test_long_path_is_searched_in_all_its_stretches() -> None:
    path = along(*((50.0 + 0.001 * number, 10.0) for number in range(CORRIDOR_POINTS_MAX)))
    broker = Corridor(path, 20.0)
    latitudes = [place.latitude + 0.0005 for place in path[:-1]]
    assert broker.contains(vectors(latitudes, [10.0] * len(latitudes))).all()
    assert not broker.contains(vectors(latitudes, [10.001] * len(latitudes))).any()


def test_a_path_without_length_is_refused_as_empty() -> None:
    assert refusal(()).reason is Reason.AREA_EMPTY
    assert refusal(along((0.0, 0.0))).reason is Reason.AREA_EMPTY
    error = refusal(along((0.0, 0.0), (1.0, 1.0), (1.0, 1.0)))
    assert error.reason is Reason.AREA_EMPTY
    assert "points 1 and 2" in error.detail


def test_antipodal_neighbours_are_refused() -> None:
    error = refusal(along((10.0, 20.0), (-10.0, -160.0)))
    assert error.reason is Reason.AREA_EMPTY
    assert "antipodes" in error.detail


@pytest.mark.parametrize("half_width_m", [0.0, -1.0, float("nan"), float("inf"), 3e7, True])
def test_an_invalid_half_width_is_refused(half_width_m: float) -> None:
    assert refusal(EQUATOR.path, half_width_m).reason is Reason.AREA_RADIUS


def test_path_of_too_many_points_is_refused() -> None:
    path = along(*((0.0, number / 100) for number in range(CORRIDOR_POINTS_MAX + 1)))
    assert refusal(path).reason is Reason.AREA_TOO_COMPLEX
    Corridor(path[1:], 10.0)
