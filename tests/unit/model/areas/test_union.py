"""Unions: any of the parts, and the limits."""

import numpy as np
import pytest

from milepost.model.areas import UNION_DEPTH_MAX, UNION_PARTS_MAX, UNION_POINTS_MAX, Area, Box, Circle, Corridor, Polygon, Union
from milepost.model.places import Place, vectors
from milepost.model.reasons import Malformed, Reason

CIRCLE = Circle(Place(50.0, 10.0), 1000.0)
BOX = Box(-1.0, 179.0, 1.0, -179.0)


def refusal(*parts: Area) -> Malformed:
    with pytest.raises(Malformed) as caught:
        Union(parts)
    return caught.value


def test_a_union_contains_what_any_of_its_parts_contains() -> None:
    union = Union((CIRCLE, Union((BOX, CIRCLE))))
    assert union.contains(vectors([50.0, 0.0, 0.0, 50.1], [10.0, 180.0, 178.0, 10.0])).tolist() == [True, True, False, False]


def test_boxes_are_those_of_the_parts() -> None:
    assert Union((CIRCLE, BOX)).boxes == CIRCLE.boxes + BOX.boxes


def test_a_polygon_split_at_the_antimeridian_has_no_gap() -> None:
    def strip(west: float, east: float) -> Polygon:
        corners = [Place(*corner) for corner in ((-20.0, west), (-20.0, east), (-10.0, east), (-10.0, west))]
        return Polygon((*corners, corners[0]))

    union = Union((strip(175.0, 180.0), strip(-180.0, -175.0)))
    points = vectors([-15.0] * 6, [176.0, 179.999999, -179.999999, -176.0, 174.0, -174.0])
    assert union.contains(points).tolist() == [True] * 4 + [False] * 2


def test_cap_of_two_caps_is_the_smallest() -> None:
    one, other = Circle(Place(0.0, 0.0), 100_000.0), Circle(Place(0.0, 10.0), 500_000.0)
    across_m = 100_000 + 500_000 + np.radians(10) * 6_371_008.8
    assert Union((one, other)).cap.radius_m == pytest.approx(across_m / 2, rel=0.01)


def test_cap_of_opposite_parts_is_the_whole_globe_or_near_it() -> None:
    union = Union((Circle(Place(0.0, 0.0), 1000.0), Circle(Place(0.0, 180.0), 1000.0)))
    points = vectors([0.0, 0.0], [0.0, 180.0])
    assert (points @ union.cap.centre >= np.cos(union.cap.angle_rad)).all()


def test_an_empty_union_is_refused() -> None:
    assert refusal().reason is Reason.AREA_EMPTY


def test_parts_are_counted_through_all_levels() -> None:
    half = Union((CIRCLE,) * (UNION_PARTS_MAX // 2))
    assert Union((half, half)).size.parts == UNION_PARTS_MAX
    assert refusal(half, half, CIRCLE).reason is Reason.AREA_TOO_COMPLEX
    assert refusal(*(CIRCLE,) * (UNION_PARTS_MAX + 1)).reason is Reason.AREA_TOO_COMPLEX


def test_points_are_counted_through_all_parts() -> None:
    broker = Corridor(tuple(Place(0.0, number / 100) for number in range(1000)), 10.0)
    assert Union((broker,) * 5).size.points == UNION_POINTS_MAX
    assert refusal(*(broker,) * 5, CIRCLE).reason is Reason.AREA_TOO_COMPLEX


def test_unions_within_unions_end_at_the_stated_level() -> None:
    union = Union((CIRCLE,))
    for _ in range(UNION_DEPTH_MAX - 1):
        union = Union((union,))
    assert union.size.depth == UNION_DEPTH_MAX
    assert refusal(union).reason is Reason.AREA_TOO_COMPLEX
