"""Boxes: both poles, the antimeridian, the rim and every refusal."""

import numpy as np
import pytest

from milepost.model.areas import Box
from milepost.model.places import vectors
from milepost.model.reasons import Malformed, Reason


def holds(box: Box, latitude: float, longitude: float) -> bool:
    return bool(box.contains(vectors([latitude], [longitude]))[0])


def test_a_box_contains_its_middle_and_not_its_surroundings() -> None:
    box = Box(50.0, 10.0, 51.0, 12.0)
    around = vectors([50.5, 49.9, 51.1, 50.5, 50.5, -50.5, 50.5], [11.0, 11.0, 11.0, 9.9, 12.1, 11.0, -169.0])
    assert box.contains(around).tolist() == [True, False, False, False, False, False, False]


@pytest.mark.parametrize("latitude", [50.1, 50.55, 50.9])
@pytest.mark.parametrize("longitude", [-170.3, 177.7])
def test_the_boundary_is_inside(latitude: float, longitude: float) -> None:
    assert holds(Box(latitude, longitude, latitude + 0.1, longitude + 0.1), latitude, longitude)
    assert holds(Box(latitude - 0.1, longitude - 0.1, latitude, longitude), latitude, longitude)


def test_west_above_east_lies_across_the_antimeridian() -> None:
    box = Box(-20.0, 175.0, -10.0, -175.0)
    assert box.contains(vectors([-15.0] * 6, [176.0, 180.0, -180.0, -176.0, 174.0, 0.0])).tolist() == [True] * 4 + [False] * 2
    assert box.width_deg == 10


def test_antimeridian_has_two_names_and_is_the_rim_by_both() -> None:
    for box in (Box(0.0, 170.0, 10.0, 180.0), Box(0.0, -180.0, 10.0, -170.0)):
        assert box.contains(vectors([5.0, 5.0], [180.0, -180.0])).all()


def test_a_box_wider_than_half_the_globe_excludes_only_the_rest() -> None:
    box = Box(-10.0, -100.0, 10.0, 150.0)
    assert box.contains(vectors([0.0] * 5, [-100.0, 0.0, 149.0, 151.0, -101.0])).tolist() == [True, True, True, False, False]


def test_all_longitudes_are_from_minus_180_to_180() -> None:
    box = Box(-10.0, -180.0, 10.0, 180.0)
    assert box.contains(vectors([9.0] * 361, range(-180, 181))).all()
    assert not holds(box, 10.1, 0.0)


@pytest.mark.parametrize("longitude", [-180.0, -77.0, 0.0, 5.0, 123.0])
def test_pole_is_inside_by_its_latitude_alone(longitude: float) -> None:
    assert holds(Box(80.0, 0.0, 90.0, 10.0), 90.0, longitude)
    assert holds(Box(-90.0, 0.0, -80.0, 10.0), -90.0, longitude)
    assert not holds(Box(80.0, 0.0, 89.0, 10.0), 90.0, longitude)


def test_boxes_contain_a_pole_whatever_its_longitude_without_growing_around_the_parallel() -> None:
    body, lid = Box(80.0, 0.0, 90.0, 10.0).boxes
    assert lid.north == 90
    assert (lid.west, lid.east) == (-180, 180)
    assert lid.south > 89.999
    assert body.west == pytest.approx(0, abs=1e-6)
    assert body.east == pytest.approx(10)


def test_a_narrow_box_does_not_contain_the_meridian_behind_the_pole() -> None:
    box = Box(10.0, 20.0, 20.0, 20.0 + 1e-14)
    assert holds(box, 15.0, 20.0)
    assert not holds(box, 15.0, -160.0)


def test_box_of_one_thousandth_degree_has_one_box_hardly_larger() -> None:
    (bounds,) = Box(50.0, 179.9995, 50.001, -179.9995).boxes
    assert bounds == pytest.approx((50.0, 179.9995, 50.001, -179.9995), abs=1e-6)
    assert bounds.south < 50
    assert bounds.west < 179.9995
    assert bounds.north > 50.001
    assert bounds.east > -179.9995


@pytest.mark.parametrize(
    ("box", "angle_deg"),
    [
        (Box(-1.0, 10.0, 1.0, 12.0), 2**0.5),
        (Box(60.0, -180.0, 90.0, 180.0), 30.0),
        (Box(-90.0, -180.0, -75.0, 180.0), 15.0),
        (Box(60.0, 0.0, 80.0, 170.0), 30.0),
        (Box(-90.0, -180.0, 90.0, 180.0), 180.0),
    ],
)
def test_cap_is_the_smallest_within_two_percent(box: Box, angle_deg: float) -> None:
    assert np.degrees(box.cap.angle_rad) == pytest.approx(angle_deg, rel=0.02)


@pytest.mark.parametrize(
    "edges",
    [
        (10.0, 0.0, 10.0, 1.0),
        (11.0, 0.0, 10.0, 1.0),
        (0.0, 5.0, 1.0, 5.0),
        (0.0, 180.0, 1.0, -180.0),
        (0.0, -180.0, 1.0, -180.0),
    ],
)
def test_box_without_height_or_width_is_refused(edges: tuple[float, float, float, float]) -> None:
    with pytest.raises(Malformed) as caught:
        Box(*edges)
    assert caught.value.reason is Reason.AREA_EMPTY


@pytest.mark.parametrize(
    "edges", [(-91.0, 0.0, 0.0, 1.0), (0.0, 0.0, 91.0, 1.0), (0.0, -181.0, 1.0, 0.0), (0.0, 0.0, 1.0, float("nan"))]
)
def test_box_off_the_globe_is_refused(edges: tuple[float, float, float, float]) -> None:
    with pytest.raises(Malformed) as caught:
        Box(*edges)
    assert caught.value.reason is Reason.COORDINATE_RANGE


def test_equal_boxes_are_equal_and_hash_alike() -> None:
    assert Box(0.0, 1.0, 2.0, 3.0) == Box(0, 1, 2, 3)
    assert hash(Box(0.0, 1.0, 2.0, 3.0)) == hash(Box(0, 1, 2, 3))
    assert Box(0.0, 1.0, 2.0, 3.0) != Box(0.0, 1.0, 2.0, 3.5)
