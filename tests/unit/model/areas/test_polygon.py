"""Polygons: poles, the antimeridian, holes, and every refusal."""

from math import cos, pi, sin
from time import perf_counter

import numpy as np
import pytest

from milepost.model.areas import POLYGON_POINTS_MAX, Polygon, Ring
from milepost.model.places import EARTH_RADIUS_M, Place, vectors
from milepost.model.reasons import Malformed, Reason


def ring(*corners: tuple[float, float]) -> Ring:
    places = tuple(Place(latitude, longitude) for latitude, longitude in corners)
    return (*places, places[0])


def square(south: float, west: float, north: float, east: float) -> Ring:
    return ring((south, west), (south, east), (north, east), (north, west))


def around(count: int, *, latitude: float = 50.0, longitude: float = 10.0, size_deg: float = 0.5) -> Ring:
    turns = [2 * pi * number / count for number in range(count)]
    return ring(*((latitude + size_deg * sin(turn), longitude + size_deg * cos(turn)) for turn in turns))


def refusal(outer: Ring, *holes: Ring) -> Malformed:
    with pytest.raises(Malformed) as caught:
        Polygon(outer, holes)
    return caught.value


def holds(polygon: Polygon, latitude: float, longitude: float) -> bool:
    return bool(polygon.contains(vectors([latitude], [longitude]))[0])


UNIT = square(0.0, 0.0, 1.0, 1.0)


@pytest.mark.parametrize("outer", [UNIT, UNIT[::-1]], ids=["one way", "the other way"])
def test_inside_is_the_smaller_side_whichever_way_the_ring_is_drawn(outer: Ring) -> None:
    points = vectors([0.5, -0.5, 0.5, -0.5, 90.0], [0.5, 0.5, 1.5, -179.5, 0.0])
    assert Polygon(outer).contains(points).tolist() == [True, False, False, False, False]


def test_antipodes_of_the_inside_are_outside() -> None:
    assert not Polygon(UNIT).contains(-vectors([0.5, 0.9], [0.5, 0.1])).any()


def test_edges_are_great_circles_not_parallels() -> None:
    polygon = Polygon(square(50.0, 0.0, 51.0, 40.0))
    assert not holds(polygon, 50.5, 20.0), "the arc between two places at 50 north passes north of 50.5 in its middle"
    assert holds(polygon, 52.0, 20.0)


def test_a_ring_around_a_pole_contains_it_and_all_longitudes() -> None:
    for sign in (1, -1):
        polygon = Polygon(ring(*((sign * 80.0, longitude) for longitude in range(-180, 180, 30))))
        assert polygon.contains(vectors([sign * 90.0] * 4, [0.0, 90.0, 180.0, -45.0])).all()
        assert not polygon.contains(vectors([sign * 79.0, -sign * 90.0], [0.0, 0.0])).any()
        (bounds,) = polygon.boxes
        assert (bounds.west, bounds.east) == (-180, 180)
        assert (bounds.north if sign > 0 else bounds.south) == sign * 90


def test_a_pole_may_be_a_corner_or_on_an_edge() -> None:
    corner = Polygon(ring((80.0, 0.0), (80.0, 90.0), (90.0, 0.0)))
    assert corner.contains(vectors([89.0, 89.0], [45.0, -45.0])).tolist() == [True, False]
    across = Polygon(ring((80.0, 0.0), (70.0, 90.0), (80.0, 180.0)))
    assert across.contains(vectors([85.0, 85.0], [90.0, -90.0])).tolist() == [True, False]
    for polygon in (corner, across):
        assert polygon.boxes[0].north == 90


def test_ring_across_the_antimeridian_is_a_ring_like_any_other() -> None:
    polygon = Polygon(square(-20.0, 175.0, -10.0, -175.0))
    assert polygon.contains(vectors([-15.0] * 5, [176.0, 180.0, -180.0, -176.0, 170.0])).tolist() == [True] * 4 + [False]
    (bounds,) = polygon.boxes
    assert (bounds.west, bounds.east) == pytest.approx((175, -175), abs=1e-6)


def test_box_reaches_as_far_north_as_the_arc_does() -> None:
    (bounds,) = Polygon(square(49.0, 0.0, 50.0, 60.0)).boxes
    assert bounds.north == pytest.approx(np.degrees(np.arctan(np.tan(np.radians(50)) / np.cos(np.radians(30)))), abs=1e-6)


def test_a_spiral_around_the_pole_that_does_not_contain_it_has_all_longitudes() -> None:
    turns = range(-180, 541, 15)
    inner = [(70 + (turn + 180) / 60, (turn + 180) % 360 - 180) for turn in turns]
    outer = [(latitude - 3, longitude) for latitude, longitude in inner]
    polygon = Polygon(ring(*inner, *reversed(outer)))
    assert not holds(polygon, 90.0, 0.0)
    assert holds(polygon, inner[20][0] - 1, inner[20][1])
    assert (polygon.boxes[0].west, polygon.boxes[0].east) == (-180, 180)


def test_holes_are_outside() -> None:
    polygon = Polygon(UNIT, (square(0.2, 0.2, 0.4, 0.4), square(0.6, 0.6, 0.8, 0.8)))
    points = vectors([0.3, 0.7, 0.5, 0.1, 0.3], [0.3, 0.7, 0.5, 0.1, 0.7])
    assert polygon.contains(points).tolist() == [False, False, True, True, True]


def test_points_level_with_corners_and_edges_but_far_away_are_outside() -> None:
    polygon = Polygon(ring((0.0, 0.0), (0.0, 1.0), (0.0, 2.0), (1.0, 1.5), (0.5, 1.0), (1.0, 0.5)))
    longitudes = np.linspace(2.001, 80, 500)
    assert not polygon.contains(vectors(np.zeros(500), longitudes)).any()
    assert not polygon.contains(vectors(np.zeros(500), -longitudes)).any()


def test_a_polygon_of_a_few_centimetres_separates_inside_from_outside() -> None:
    polygon = Polygon(square(50.0, 10.0, 50.000001, 10.000001))
    assert polygon.contains(vectors([50.0000005, 50.0000015], [10.0000005, 10.0000005])).tolist() == [True, False]


def test_no_points_give_no_answers() -> None:
    assert Polygon(UNIT).contains(np.empty((0, 3))).shape == (0,)


def test_results_do_not_depend_on_how_many_points_are_tested_at_once() -> None:
    polygon = Polygon(around(300))
    points = vectors(np.random.default_rng(1).uniform(49.4, 50.6, 5000), np.random.default_rng(2).uniform(9.4, 10.6, 5000))
    together = polygon.contains(points)
    assert 0 < together.sum() < 5000
    assert together.tolist() == [bool(polygon.contains(point[None])[0]) for point in points]


def test_cap_is_the_smallest() -> None:
    polygon = Polygon(ring((0.0, -3.0), (0.5, 0.0), (0.0, 3.0), (-0.5, 0.0)))
    assert np.degrees(polygon.cap.angle_rad) == pytest.approx(3, rel=1e-6)
    assert np.degrees(Polygon(around(100, latitude=0)).cap.angle_rad) == pytest.approx(0.5, rel=1e-3)


def test_ring_of_too_few_points_is_refused() -> None:
    for places in ((), UNIT[:1], (UNIT[0], UNIT[1], UNIT[0])):
        assert refusal(places).reason is Reason.AREA_RING


def test_an_open_ring_is_refused_and_not_closed_silently() -> None:
    error = refusal(UNIT[:-1])
    assert error.reason is Reason.AREA_RING
    assert "ends at latitude 1.0 longitude 0.0" in error.detail


@pytest.mark.parametrize(
    "outer",
    [
        ring((0.0, 0.0), (0.0, 1.0), (0.0, 1.0), (1.0, 1.0)),
        ring((0.0, 180.0), (0.0, -180.0), (1.0, 179.0)),
        ring((80.0, 0.0), (90.0, 0.0), (90.0, 50.0), (80.0, 50.0)),
    ],
    ids=["repeated", "the antimeridian by both names", "a pole by two longitudes"],
)
def test_the_same_place_twice_in_a_row_is_refused(outer: Ring) -> None:
    error = refusal(outer)
    assert error.reason is Reason.AREA_RING
    assert "repeats a place" in error.detail


def test_antipodal_neighbours_are_refused() -> None:
    error = refusal(ring((0.0, 0.0), (0.0, 180.0), (50.0, 90.0)))
    assert error.reason is Reason.AREA_RING
    assert "antipodes" in error.detail


def test_crossing_edges_are_named() -> None:
    error = refusal(ring((0.0, 0.0), (1.0, 1.0), (1.0, 0.0), (0.0, 1.0)))
    assert error.reason is Reason.AREA_SELF_CROSSING
    assert "edges 0 and 2 of the outer ring" in error.detail


@pytest.mark.parametrize(
    "outer",
    [
        ring((0.0, 0.0), (0.0, 2.0), (1.0, 2.0), (0.0, 1.0), (1.0, 0.0)),
        ring((0.0, 0.0), (1.0, 1.0), (2.0, 0.0), (2.0, 2.0), (1.0, 1.0), (0.0, 2.0)),
        ring((0.0, 0.0), (0.0, 2.0), (0.0, 1.0), (1.0, 1.0)),
        ring((0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (2.0, 2.0), (1.0, 1.0), (0.0, 1.0)),
    ],
    ids=["corner on an edge", "the same corner twice", "doubled back", "spike"],
)
def test_ring_that_touches_itself_is_refused(outer: Ring) -> None:
    assert refusal(outer).reason is Reason.AREA_SELF_CROSSING


@pytest.mark.parametrize("first", range(5))
def test_corner_near_an_edge_touches_it_within_half_a_millimetre_and_not_at_two(first: int) -> None:
    def pinched(gap_m: float) -> Ring:
        corners = [(0.0, 0.0), (0.0, 2.0), (1.0, 2.0), (gap_m / 111_195, 1.0), (1.0, 0.0)]
        return ring(*corners[first:], *corners[:first])

    assert refusal(pinched(0.0005)).reason is Reason.AREA_SELF_CROSSING
    Polygon(pinched(0.002))


def test_crossing_between_the_last_edges_and_the_first_of_a_long_ring_is_found() -> None:
    places = list(around(400))
    places[-3], places[1] = places[1], places[-3]
    assert refusal(tuple(places)).reason is Reason.AREA_SELF_CROSSING


def test_ring_on_one_line_is_refused_as_empty() -> None:
    assert refusal(ring((0.0, 0.0), (0.0, 1.0), (0.0, 3.0))).reason is Reason.AREA_EMPTY
    assert refusal(ring((10.0, 5.0), (20.0, 5.0), (30.0, 5.0), (15.0, 5.0))).reason is Reason.AREA_EMPTY


def test_ring_that_does_not_fit_into_half_the_globe_is_refused() -> None:
    assert refusal(ring((-1.0, 0.0), (1.0, 120.0), (-1.0, -120.0), (1.0, -60.0))).reason is Reason.AREA_TOO_LARGE
    assert refusal(ring((0.0, 0.0), (0.0, 90.0), (0.0, 180.0), (0.0, -90.0), (5.0, -45.0))).reason is Reason.AREA_TOO_LARGE


def test_a_ring_just_inside_half_the_globe_is_accepted() -> None:
    polygon = Polygon(ring(*((0.01, longitude) for longitude in (0.0, 90.0, 180.0, -90.0))))
    assert polygon.contains(vectors([1.0, 90.0, -1.0, -90.0], [45.0, 0.0, 45.0, 0.0])).tolist() == [True, True, False, False]


@pytest.mark.parametrize(
    ("holes", "text"),
    [
        ((square(2.0, 2.0, 3.0, 3.0),), "hole 1 is not inside"),
        ((square(-5.0, 170.0, 5.0, 175.0),), "hole 1 is not inside"),
        ((square(0.4, 0.4, 0.6, 1.05),), "cross or touch"),
        ((square(0.0, 0.2, 0.5, 0.8),), "cross or touch"),
        ((square(0.2, 0.2, 0.6, 0.6), square(0.4, 0.4, 0.8, 0.8)), "edge 1 of hole 1 and edge"),
        ((square(0.2, 0.2, 0.8, 0.8), square(0.4, 0.4, 0.6, 0.6)), "hole 2 is inside hole 1"),
        ((square(0.4, 0.4, 0.6, 0.6), square(0.2, 0.2, 0.8, 0.8)), "hole 1 is inside hole 2"),
        ((square(0.2, 0.2, 0.4, 0.4), square(0.2, 0.2, 0.4, 0.4)), "cross or touch"),
        ((square(-1.0, -1.0, 2.0, 2.0),), "hole 1 is not inside"),
    ],
)
def test_holes_that_are_not_inside_and_apart_are_refused(holes: tuple[Ring, ...], text: str) -> None:
    error = refusal(UNIT, *holes)
    assert error.reason is Reason.AREA_HOLE
    assert text in error.detail


def test_faults_of_a_hole_name_the_hole() -> None:
    crossing = ring((0.2, 0.2), (0.4, 0.4), (0.4, 0.2), (0.2, 0.4))
    error = refusal(UNIT, square(0.6, 0.6, 0.8, 0.8), crossing)
    assert error.reason is Reason.AREA_SELF_CROSSING
    assert "edges 0 and 2 of hole 2" in error.detail
    error = refusal(UNIT, UNIT[:-1])
    assert error.reason is Reason.AREA_RING
    assert error.detail.startswith("hole 1")


def test_as_many_points_as_the_limit_are_taken_at_once_and_one_more_is_refused() -> None:
    most = around(POLYGON_POINTS_MAX - 1)
    started_s = perf_counter()
    Polygon(most)
    assert perf_counter() - started_s < 1, "about 30 ms are usual"
    assert refusal(around(POLYGON_POINTS_MAX)).reason is Reason.AREA_TOO_COMPLEX
    assert refusal(around(POLYGON_POINTS_MAX - 4), around(4, size_deg=0.1)).reason is Reason.AREA_TOO_COMPLEX


def test_comb_of_long_teeth_within_a_metre_of_each_other_is_no_crossing() -> None:
    step = np.degrees(1 / EARTH_RADIUS_M)
    teeth = [(0.01 if number % 2 else 0.0, number * step) for number in range(400)]
    polygon = Polygon(ring(*teeth, (-0.001, 399 * step), (-0.001, 0.0)))
    assert holds(polygon, -0.0005, 100 * step)
    assert holds(polygon, 0.005, 101 * step)
    assert not holds(polygon, 0.005, 102 * step)


def test_polygon_is_a_value() -> None:
    assert Polygon(UNIT) == Polygon(UNIT)
    assert hash(Polygon(UNIT)) == hash(Polygon(UNIT))
    assert Polygon(UNIT) != Polygon(UNIT, (square(0.2, 0.2, 0.4, 0.4),))
    assert eval(repr(Polygon(UNIT))) == Polygon(UNIT)
