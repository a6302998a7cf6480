"""Areas that touch and areas that do not: rims, holes, poles, the antimeridian, the far side; each decided by a centimetre."""

from math import atan, cos, degrees, pi, radians, tan

import pytest

from milepost.model.areas import Area, Box, Circle, Corridor, Polygon, Ring, Union, touches
from milepost.model.places import EARTH_RADIUS_M, Place, bearing_deg, distance_m, moved

CENTIMETRE_DEG = degrees(0.01 / EARTH_RADIUS_M)
WHOLE_EARTH = Box(-90.0, -180.0, 90.0, 180.0)
MIDDLES = [Place(50.0, 8.0), Place(-5.0, 180.0), Place(89.9, 12.0), Place(-90.0, 0.0)]


def ring(middle: Place, radius_m: float, corners: int = 8) -> Ring:
    found = [moved(middle, 360 * number / corners, radius_m) for number in range(corners)]
    return (*found, found[0])


def both_ways(one: Area, other: Area) -> bool:
    assert touches(one, other) == touches(other, one)
    return touches(one, other)


@pytest.mark.parametrize("middle", MIDDLES)
@pytest.mark.parametrize("apart_m", [0.5, 70.0, 4e5, 1.2e7])
def test_circles_touch_from_where_their_radii_add_up_to_the_distance(middle: Place, apart_m: float) -> None:
    other = moved(middle, 77.0, apart_m)
    one = Circle(middle, 0.3 * apart_m)
    assert both_ways(one, Circle(other, 0.7 * apart_m + 0.01))
    assert both_ways(one, Circle(other, 0.7 * apart_m))
    assert not both_ways(one, Circle(other, 0.7 * apart_m - 0.01))


@pytest.mark.parametrize("middle", MIDDLES)
def test_an_area_in_a_hole_does_not_touch_until_it_reaches_the_edge_of_the_hole(middle: Place) -> None:
    frame = Polygon(ring(middle, 9000.0), (ring(middle, 5000.0),))
    corner = ring(middle, 5000.0)[0]
    inner = moved(corner, bearing_deg(corner, middle), 100.0)
    assert not both_ways(frame, Circle(middle, 0.5))
    assert not both_ways(frame, Polygon(ring(middle, 4999.99)))
    assert both_ways(frame, Polygon(ring(middle, 5000.01)))
    assert not both_ways(frame, Polygon(ring(middle, 4000.0), (ring(middle, 2000.0),)))
    assert not both_ways(frame, Corridor((middle, inner), 30.0))
    assert both_ways(frame, Corridor((middle, inner), 100.01))


def test_box_in_a_hole_does_not_touch() -> None:
    middle = Place(50.0, 180.0)
    frame = Polygon(ring(middle, 9000.0), (ring(middle, 5000.0),))
    assert not both_ways(frame, Box(49.99, 179.99, 50.01, -179.99))
    assert both_ways(frame, Box(49.99, 179.9, 50.01, -179.99))


@pytest.mark.parametrize("middle", MIDDLES)
def test_an_area_inside_another_touches_it_though_no_boundaries_meet(middle: Place) -> None:
    large: list[Area] = [
        Circle(middle, 9000.0),
        Polygon(ring(middle, 9000.0)),
        Corridor((middle, moved(middle, 9.0, 50.0)), 9000.0),
    ]
    small: list[Area] = [Circle(middle, 5.0), Polygon(ring(middle, 5.0)), Corridor((middle, moved(middle, 9.0, 5.0)), 1.0)]
    assert all(both_ways(one, other) for one in (*large, WHOLE_EARTH) for other in small)
    assert not any(both_ways(one, other) for one in large for other in [Circle(moved(middle, 5.0, 9100.0), 40.0)])


@pytest.mark.parametrize("start", [Place(50.0, 8.0), Place(60.0, 179.9), Place(89.99, 0.0), Place(-89.9999, 30.0)])
@pytest.mark.parametrize("length_m", [2.0, 3000.0, 2e6])
def test_a_corner_touches_an_edge_exact_to_a_centimetre(start: Place, length_m: float) -> None:
    end, third = moved(start, 100.0, length_m), moved(start, 160.0, length_m)
    triangle = Polygon((start, end, third, start))
    foot = moved(start, bearing_deg(start, end), 0.4 * length_m)
    outward = bearing_deg(foot, end) - 90
    for inward_m, expected in ((0.01, True), (-0.01, False)):
        tip = moved(foot, outward + 180, inward_m)
        far = [moved(foot, outward + aside, length_m) for aside in (-20, 20)]
        assert both_ways(triangle, Polygon((tip, *far, tip))) == expected
        assert both_ways(Corridor((start, end), 0.0001), Polygon((tip, *far, tip))) == expected


def test_polygons_that_cross_touch_though_neither_holds_a_corner_of_the_other() -> None:
    upright = Polygon((Place(-5, -1), Place(-5, 1), Place(5, 1), Place(5, -1), Place(-5, -1)))
    across = Polygon((Place(-1, -5), Place(-1, 5), Place(1, 5), Place(1, -5), Place(-1, -5)))
    assert both_ways(upright, across)


def test_edges_that_pass_each_other_at_antipodes_do_not_touch() -> None:
    here = Corridor((Place(-80.0, 0.0), Place(80.0, 0.0)), 1.0)
    there = Corridor((Place(10.0, 100.0), Place(-10.0, -100.0)), 1.0)
    assert not both_ways(here, there)
    assert both_ways(here, Corridor((Place(10.0, -80.0), Place(-10.0, 80.0)), 1.0))


def test_long_paths_that_pass_each_other_at_antipodes_do_not_touch_though_an_end_lies_beside() -> None:
    equator = Corridor((Place(0.0, -10.0), Place(0.0, 150.0)), 1.0)
    quarter_m = 50 * pi / 180 * EARTH_RADIUS_M
    slanting = [moved(Place(0.0, 180.0), bearing, quarter_m) for bearing in (60.0, 240.0)]
    assert not both_ways(equator, Corridor(tuple(slanting), 1.0))
    assert not both_ways(equator, Corridor(tuple(reversed(slanting)), 1.0))


@pytest.mark.parametrize("bearing", [0.0, 33.0, 90.0, 211.7])
def test_paths_on_one_line_touch_only_where_one_begins_before_the_other_ends(bearing: float) -> None:
    for number in range(40):
        start = Place(-60.0 + 3.1 * number, -170.0 + 8.7 * number)
        end = moved(start, bearing, 1e6)
        onward = (bearing_deg(end, start) + 180) % 360
        after = [Corridor((moved(end, onward, gap_m), moved(end, onward, 8e5)), 0.001) for gap_m in (0.02, 100.0, 5e5)]
        assert not any(both_ways(Corridor((start, end), 0.001), one) for one in after)
        before = Corridor((moved(end, onward, -100.0), moved(end, onward, 8e5)), 0.001)
        assert both_ways(Corridor((start, end), 0.001), before)


@pytest.mark.parametrize("latitude", [10.0, 60.0, 89.0])
@pytest.mark.parametrize("longitude", [5.0, 180.0])
def test_an_edge_bulges_over_the_parallel_of_a_box_between_its_ends(latitude: float, longitude: float) -> None:
    half_deg = 8.0
    ends = (longitude - half_deg, (longitude + half_deg + 180) % 360 - 180)
    box = Box(latitude, (longitude - 12) if longitude < 170 else 168.0, min(90.0, latitude + 5), ends[1] + 4)
    for over_deg, expected in ((CENTIMETRE_DEG, True), (-CENTIMETRE_DEG, False)):
        low = degrees(atan(tan(radians(latitude + over_deg)) * cos(radians(half_deg))))
        west, east = Place(low, ends[0]), Place(low, ends[1])
        assert low < latitude
        assert both_ways(box, Corridor((west, east), 0.0001)) == expected
        assert both_ways(box, Polygon((west, Place(low - 3, ends[0]), Place(low - 3, ends[1]), east, west))) == expected


def test_an_edge_that_dips_between_the_corners_of_a_box_touches_its_parallel_side_only() -> None:
    box = Box(40.0, 0.0, 60.0, 40.0)
    chord = Polygon((Place(60.001, 1.0), Place(60.001, 39.0), Place(75.0, 20.0), Place(60.001, 1.0)))
    assert not both_ways(box, chord), "between its ends an edge runs north of their parallel"
    assert both_ways(box, Polygon((Place(59.9999, 1.0), Place(59.9999, 39.0), Place(75.0, 20.0), Place(59.9999, 1.0))))


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (Box(0, 0, 10, 10), Box(10, 10, 20, 20), True),
        (Box(0, 0, 10, 10), Box(10, 5, 20, 20), True),
        (Box(0, 0, 10, 10), Box(10 + CENTIMETRE_DEG, 5, 20, 20), False),
        (Box(0, 0, 10, 10), Box(-5, 10 + CENTIMETRE_DEG, 5, 20), False),
        (Box(0, 170, 10, 180), Box(5, -180, 15, -170), True),
        (Box(0, 170, 10, -170), Box(2, 175, 4, 179), True),
        (Box(0, 170, 10, -170), Box(2, -169, 4, 169), False),
        (Box(80, 0, 90, 10), Box(85, 100, 90, 110), True),
        (Box(80, 0, 89.9999999, 10), Box(85, 100, 90, 110), True),
        (Box(80, 0, 89.999999, 10), Box(85, 100, 90, 110), False),
        (Box(-5, -100, 5, 100), Box(-30, 20, 30, 30), True),
        (Box(20, -180, 30, 180), Box(30, -180, 40, 180), True),
        (Box(20, -180, 30, 180), Box(30 + CENTIMETRE_DEG, -180, 40, 180), False),
        (Box(-90, 0, 90, 179), Box(-20, -170, 20, -10), False),
        (Box(-90, 0, 90, 179), Box(-20, -170, 90, -10), True),
        (Box(0, 0, 5e-324, 90), Box(-1, 179, 1, -179), False),
        (Box(0, 0, 5e-324, 90), Box(-1, 45, 1, 46), True),
        (WHOLE_EARTH, Box(1, 1, 2, 2), True),
        (WHOLE_EARTH, WHOLE_EARTH, True),
    ],
)
def test_boxes_touch_according_to_their_degrees(one: Box, other: Box, expected: bool) -> None:
    assert both_ways(one, other) == expected


@pytest.mark.parametrize("belt", [Box(19.0, -20.0, 21.0, 40.0), Box(19.0, -180.0, 21.0, 180.0), Box(-21.0, 170.0, -19.0, -120.0)])
def test_a_path_from_one_side_of_a_belt_to_the_other_crosses_it_either_way(belt: Box) -> None:
    low, high = belt.south - 9, belt.north + 9
    path = (Place(high, belt.west + 5), Place(low, belt.west + 8))
    assert both_ways(belt, Corridor(path, 1.0))
    assert both_ways(belt, Corridor(path[::-1], 1.0))
    assert not both_ways(belt, Corridor((Place(high, belt.west + 5), Place(high, belt.west + 8)), 1.0))


@pytest.mark.parametrize("box", [Box(40.0, 10.0, 41.0, 12.0), Box(-2.0, 179.0, 1.0, -179.0), Box(-89.9, -5.0, -89.8, 30.0)])
def test_a_circle_touches_each_side_of_a_box_exact_to_a_centimetre(box: Box) -> None:
    latitude, longitude = (box.south + box.north) / 2, box.west + box.width_deg / 3
    longitude = longitude - 360 if longitude > 180 else longitude
    sides = [
        (Place(box.north, longitude), 0.0),
        (Place(box.south, longitude), 180.0),
        (Place(latitude, box.west), 270.0),
        (Place(latitude, box.east), 90.0),
        (Place(box.north, box.east), 45.0),
    ]
    for place, outward in sides:
        middle = moved(place, outward, 500.0)
        assert both_ways(box, Circle(middle, 500.01)), outward
        assert not both_ways(box, Circle(middle, 499.99)), outward


def test_box_around_a_parallel_touches_what_surrounds_the_pole_within_it_only_where_they_meet() -> None:
    belt = Box(70.0, -180.0, 80.0, 180.0)
    around = distance_m(Place(90.0, 0.0), Place(80.0, 0.0))
    assert not both_ways(belt, Circle(Place(90.0, 0.0), around - 0.01))
    assert both_ways(belt, Circle(Place(90.0, 0.0), around + 0.01))
    assert not both_ways(belt, Polygon(ring(Place(90.0, 0.0), around - 0.01)))
    assert both_ways(belt, Polygon(ring(Place(90.0, 0.0), around + 0.01)))


@pytest.mark.parametrize("metres", [1.0, 30.0, 1000.0])
def test_an_edge_may_pass_a_parallel_that_is_metres_from_the_pole(metres: float) -> None:
    colatitude_deg = degrees(metres / EARTH_RADIUS_M)
    belt = Box(80.0, -180.0, 90.0 - colatitude_deg, 180.0)
    assert not both_ways(belt, Circle(Place(90.0, 0.0), metres - 0.01))
    assert both_ways(belt, Circle(Place(90.0, 0.0), metres + 0.01))
    wedge = Box(80.0, 0.0, 90.0 - colatitude_deg, 90.0)
    for share, expected in ((0.9, True), (0.6, False)):
        off = moved(Place(90.0, 45.0), 180.0, share * metres)
        crossing = Corridor((moved(off, 90.0, 3 * metres), moved(off, 270.0, 3 * metres)), 0.001)
        assert both_ways(wedge, crossing) == expected, "it leaves the circle between the meridians, or beyond them"
    away = moved(Place(90.0, -135.0), 180.0, metres)
    assert not both_ways(wedge, Corridor((away, moved(away, 0.0, 1.5 * metres)), 0.001))


def test_areas_larger_than_half_the_globe_touch_around_it() -> None:
    most = Circle(Place(0.0, 0.0), pi * EARTH_RADIUS_M - 1000.0)
    far = Place(0.0, 180.0)
    assert not both_ways(most, Circle(far, 999.99))
    assert both_ways(most, Circle(far, 1000.01))
    assert not both_ways(most, Polygon(ring(far, 999.0, 40)))
    assert both_ways(most, Polygon(ring(far, 1000.01, 40)))
    assert not both_ways(most, Box(-0.005, 179.995, 0.005, -179.995))
    assert both_ways(most, Box(-0.01, 179.99, 0.01, -179.99))
    assert both_ways(most, Circle(Place(40.0, -100.0), 1.0))
    wide = Box(-90.0, -179.0, 90.0, 179.0)
    assert both_ways(wide, most)
    assert not both_ways(wide, Circle(far, 100_000.0))
    assert both_ways(wide, Circle(far, 112_000.0))


def test_unions_touch_where_any_of_their_parts_do() -> None:
    near, far = Circle(Place(50.0, 8.0), 100.0), Box(-10.0, 100.0, -9.0, 101.0)
    alert = Corridor((Place(50.0, 8.001), Place(50.0, 8.1)), 5.0)
    assert both_ways(Union((far, near)), alert)
    assert both_ways(Union((far, Union((near,)))), Union((Circle(Place(0.0, 0.0), 1.0), alert)))
    assert not both_ways(Union((far, Circle(Place(50.0, 8.05), 100.0))), near)
