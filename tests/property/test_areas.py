"""Areas against slow scalar arithmetic and against Shapely; caps and boxes contain their area."""

from itertools import pairwise
from math import acos, asin, atan2, cos, degrees, hypot, pi, radians, sin, sqrt

import numpy as np
import pytest
import shapely
from hypothesis import assume, event, given
from hypothesis import strategies as st

from milepost.model.areas import Area, Box, Circle, Corridor, Polygon, Ring, Union, Upstream
from milepost.model.places import EARTH_RADIUS_M, Place, Vectors, vectors
from milepost.model.reasons import Malformed, Reason
from strategies import upstreams

latitudes = st.floats(-90, 90) | st.sampled_from([-90.0, -89.9999, 0.0, 89.9999, 90.0])
longitudes = st.floats(-180, 180) | st.sampled_from([-180.0, -90.0, 0.0, 90.0, 180.0])
places = st.builds(Place, latitudes, longitudes)
seeds = st.integers(0, 2**32 - 1)


# Scalar arithmetic in latitude and longitude, as in textbooks of navigation.


def haversine(one: Place, other: Place) -> float:
    """The angle between two places."""
    a, b = radians(one.latitude), radians(other.latitude)
    turn = radians(other.longitude - one.longitude)
    square = sin((b - a) / 2) ** 2 + cos(a) * cos(b) * sin(turn / 2) ** 2
    return 2 * asin(min(1.0, sqrt(square)))


def bearing(one: Place, other: Place) -> float:
    """The direction from one place to the other, clockwise from north."""
    a, b = radians(one.latitude), radians(other.latitude)
    turn = radians(other.longitude - one.longitude)
    return atan2(sin(turn) * cos(b), cos(a) * sin(b) - sin(a) * cos(b) * cos(turn))


def onward(start: Place, direction: float, angle: float) -> Place:
    """The place reached from another by a direction and an angle."""
    a, east, north = radians(start.latitude), sin(direction) * sin(angle), cos(direction) * sin(angle)
    towards, up = cos(a) * cos(angle) - sin(a) * north, sin(a) * cos(angle) + cos(a) * north
    longitude = (start.longitude + degrees(atan2(east, towards)) + 180) % 360 - 180
    return Place(degrees(atan2(up, hypot(towards, east))), longitude)


def to_arc(place: Place, start: Place, end: Place) -> float:
    """The smallest of the distances to the places along an arc, narrowed down by thirds from the nearest of many."""
    length, direction = haversine(start, end), bearing(start, end)

    def distance(share: float) -> float:
        return haversine(place, onward(start, direction, share * length))

    nearest = min(range(17), key=lambda number: distance(number / 16))
    low, high = max(0.0, (nearest - 1) / 16), min(1.0, (nearest + 1) / 16)
    for _ in range(45):
        third = (high - low) / 3
        low, high = (low, high - third) if distance(low + third) < distance(high - third) else (low + third, high)
    return min(distance((low + high) / 2), haversine(place, start), haversine(place, end))


def off_track(place: Place, start: Place, end: Place) -> float:
    """The distance to the great circle through two places."""
    return abs(asin(sin(haversine(start, place)) * sin(bearing(start, place) - bearing(start, end))))


def winds_around(place: Place, ring: Ring) -> bool:
    """Return whether the direction to a point that moves along the ring turns once around."""
    directions = [bearing(place, corner) for corner in ring]
    turned = sum((after - before + pi) % (2 * pi) - pi for before, after in pairwise(directions))
    return abs(turned) > pi


# Shapes anywhere on the globe, and points where they matter.


@st.composite
def rings(draw: st.DrawFn, centre: Place, angle: float) -> Ring:
    """A star around the centre, its corners up to `angle` away and no nearer than half of it."""
    count = draw(st.integers(4, 12))
    jitter = draw(st.lists(st.floats(-0.3, 0.3), min_size=count, max_size=count))
    reaches = draw(st.lists(st.floats(0.5, 1), min_size=count, max_size=count))
    corners = [onward(centre, 2 * pi * (n + jitter[n]) / count, angle * reaches[n]) for n in range(count)]
    return (*corners, corners[0])


@st.composite
def polygons(draw: st.DrawFn, *, smallest_rad: float = 1e-5) -> Polygon:
    centre, angle = draw(places), draw(st.floats(smallest_rad, 1.4) | st.sampled_from([1e-4, 0.01]).filter(smallest_rad.__le__))
    outer = draw(rings(centre, angle))
    return Polygon(outer, (draw(rings(centre, angle / 12)),) if draw(st.booleans()) else ())


@st.composite
def corridors(draw: st.DrawFn) -> Corridor:
    step = draw(st.sampled_from([1e-5, 1e-3, 0.1, 1.0]))
    path = [draw(places)]
    for direction, share in draw(st.lists(st.tuples(st.floats(0, 2 * pi), st.floats(0.1, 1)), min_size=1, max_size=5)):
        path.append(onward(path[-1], direction, share * step))
    return Corridor(tuple(path), draw(st.floats(0.05, 2)) * step * EARTH_RADIUS_M)


@st.composite
def boxes(draw: st.DrawFn) -> Box:
    south, north = sorted(draw(st.tuples(latitudes, latitudes)))
    west, east = draw(st.tuples(longitudes, longitudes))
    assume(south < north and (east - west) % 360 > 1e-9)
    return Box(south, west, north, east)


circles = st.builds(Circle, places, st.floats(10, 2e7))
shapes: st.SearchStrategy[Area] = circles | boxes() | polygons() | corridors()
areas = shapes | upstreams | st.lists(shapes | upstreams, min_size=1, max_size=4).map(lambda parts: Union(tuple(parts)))


def some_points(area: Area, seed: int, count: int) -> Vectors:
    """Points in and around the cap of the area, from all over the globe, and the poles."""
    random = np.random.default_rng(seed)
    anywhere = random.normal(size=(count // 4, 3))
    near = area.cap.centre + min(2.0, 1.5 * area.cap.angle_rad) * random.normal(size=(count, 3)) / 2
    both = np.vstack([anywhere, near, [[0, 0, 1], [0, 0, -1]], area.cap.centre])
    points: Vectors = both / np.linalg.norm(both, axis=1, keepdims=True)
    return points


def place_of(point: Vectors) -> Place:
    x, y, z = point.tolist()
    return Place(degrees(atan2(z, hypot(x, y))), degrees(atan2(y, x)))


@given(circles, seeds)
def test_a_circle_agrees_with_the_haversine_formula(circle: Circle, seed: int) -> None:
    points = some_points(circle, seed, 40)
    distances_m = np.array([haversine(circle.centre, place_of(point)) for point in points]) * EARTH_RADIUS_M
    clear = np.abs(distances_m - circle.radius_m) > 0.2
    assert (circle.contains(points) == (distances_m < circle.radius_m))[clear].all()


@given(boxes(), st.lists(st.tuples(latitudes, longitudes), min_size=1, max_size=30))
def test_a_box_agrees_with_a_comparison_of_degrees(box: Box, others: list[tuple[float, float]]) -> None:
    corners = [(latitude, longitude) for latitude in (box.south, box.north) for longitude in (box.west, box.east)]
    for latitude, longitude in (*others, *corners):
        is_between = box.west <= longitude <= box.east if box.west < box.east else longitude >= box.west or longitude <= box.east
        is_same_meridian = abs(longitude) == 180 and 180 in (abs(box.west), abs(box.east))
        is_pole = abs(latitude) > 90 - 1e-9
        expected = box.south <= latitude <= box.north and (is_between or is_same_meridian or is_pole)
        margins = [abs(latitude - box.south), abs(latitude - box.north), abs(longitude - box.west), abs(longitude - box.east)]
        is_on_rim = any(0 < margin < 1e-6 for margin in margins) or 360 - max(margins[2:]) < 1e-6 or 89.999 < abs(latitude) < 90
        if expected or not is_on_rim:
            assert box.contains(vectors([latitude], [longitude])).tolist() == [expected], (latitude, longitude)


@given(polygons(), seeds)
def test_a_polygon_agrees_with_the_winding_number(polygon: Polygon, seed: int) -> None:
    points = some_points(polygon, seed, 30)
    found = polygon.contains(points)
    event("some inside" if found.any() else "none inside")
    for point, is_inside in zip(points, found, strict=True):
        place = place_of(point)
        edges = [edge for ring in (polygon.outer, *polygon.holes) for edge in pairwise(ring)]
        if point @ polygon.cap.centre <= 0:
            assert not is_inside, "the far side of the globe"
        elif min(off_track(place, start, end) for start, end in edges) > 1e-7:
            expected = winds_around(place, polygon.outer) and not any(winds_around(place, hole) for hole in polygon.holes)
            assert is_inside == expected, place


@given(corridors(), seeds)
def test_a_corridor_agrees_with_the_distance_from_its_path(broker: Corridor, seed: int) -> None:
    points = some_points(broker, seed, 25)
    found = broker.contains(points)
    for point, is_inside in zip(points, found, strict=True):
        place = place_of(point)
        angle = min(to_arc(place, start, end) for start, end in pairwise(broker.path))
        half_width_rad = broker.half_width_m / EARTH_RADIUS_M
        # Textbook formulas lose digits towards the antipodes and along the poles.
        if abs(angle - half_width_rad) > max(1e-7, 1e-6 * half_width_rad) and angle < 3:
            assert is_inside == (angle < half_width_rad), (place, angle)


@given(st.lists(shapes, min_size=1, max_size=4), seeds)
def test_a_union_agrees_with_its_parts(parts: list[Area], seed: int) -> None:
    union = Union(tuple(parts))
    points = np.vstack([some_points(part, seed, 50) for part in parts])
    expected = np.logical_or.reduce([part.contains(points) for part in parts])
    assert (union.contains(points) == expected).all()


@given(areas, seeds)
def test_cap_and_boxes_contain_every_point_of_the_area(area: Area, seed: int) -> None:
    corners = [corner for ring in rings_of(area) for corner in ring]
    extra = [vectors([corner.latitude], [corner.longitude]) for corner in corners]
    points = np.vstack([some_points(area, seed, 400), *extra])
    points = points[area.contains(points)]
    event(f"{type(area).__name__}: {'some' if len(points) else 'no'} points")
    assert (points @ area.cap.centre >= area.cap.cosine).all()
    latitude = np.degrees(np.arctan2(points[:, 2], np.hypot(points[:, 0], points[:, 1])))
    longitude = np.degrees(np.arctan2(points[:, 1], points[:, 0]))
    held = np.zeros(len(points), bool)
    for box in area.boxes:
        assert -90 <= box.south < box.north <= 90
        assert abs(box.west) <= 180
        assert abs(box.east) <= 180
        past_west, before_east = longitude >= box.west, longitude <= box.east
        between = past_west & before_east if box.west <= box.east else past_west | before_east
        held |= between & (latitude >= box.south) & (latitude <= box.north)
    assert held.all(), points[~held]


def rings_of(area: Area) -> list[Ring]:
    match area:
        case Polygon():
            return [area.outer, *area.holes]
        case Corridor():
            return [area.path]
        case Box():
            return [
                tuple(Place(latitude, longitude) for latitude in (area.south, area.north) for longitude in (area.west, area.east))
            ]
        case Circle():
            return [(area.centre,)]
        case Upstream():
            return [stretch.path for stretch in area.stretches]
        case Union():
            return [ring for part in area.parts for ring in rings_of(part)]


@given(polygons(), seeds)
def test_slices_of_a_star_share_its_points_without_loss_or_overlap(polygon: Polygon, seed: int) -> None:
    star = Polygon(polygon.outer)
    middle = place_of(star.cap.centre)
    try:
        slices = [Polygon((middle, start, end, middle)) for start, end in pairwise(star.outer)]
    except Malformed:
        assume(False)
    assume(all(winds_around_once(middle, star)))
    points = some_points(star, seed, 1000)[:-3]  # without the poles and the middle, which may be on an edge
    claims = np.sum([part.contains(points) for part in slices], axis=0)
    assert (claims == star.contains(points)).all()


def winds_around_once(middle: Place, star: Polygon) -> list[bool]:
    """Return whether each edge runs in the same direction around the middle, so that slices from there do not overlap."""
    directions = [bearing(middle, corner) for corner in star.outer]
    steps = [(after - before + pi) % (2 * pi) - pi for before, after in pairwise(directions)]
    return [step * sum(steps) > 0 for step in steps]


@st.composite
def small_tangles(draw: st.DrawFn) -> list[tuple[float, float]]:
    """Up to seven points within 2 km, as metres east and north, to be joined in the given order."""
    metres = st.integers(-100, 100).map(lambda tens: 10.0 * tens)
    return draw(st.lists(st.tuples(metres, metres), min_size=3, max_size=7, unique=True))


@given(small_tangles(), st.floats(-60, 60), st.floats(-179, 179), seeds)
def test_small_rings_are_accepted_or_refused_and_filled_as_by_shapely(
    corners: list[tuple[float, float]], latitude: float, longitude: float, seed: int
) -> None:
    flat = shapely.Polygon(corners)
    edges = [shapely.LineString(edge) for edge in pairwise([*corners, corners[0]])]
    for number, corner in enumerate(corners):
        others = [edge for which, edge in enumerate(edges) if which not in (number, (number - 1) % len(corners))]
        assume(min(shapely.Point(corner).distance(edge) for edge in others) > 1)

    def placed(east_m: float, north_m: float) -> tuple[float, float]:
        degree_m = radians(1) * EARTH_RADIUS_M
        return latitude + north_m / degree_m, longitude + east_m / degree_m / cos(radians(latitude))

    outer = tuple(Place(*placed(*corner)) for corner in (*corners, corners[0]))
    if not flat.is_valid:
        event("refused")
        with pytest.raises(Malformed) as caught:
            Polygon(outer)
        assert caught.value.reason is Reason.AREA_SELF_CROSSING
        return
    event("taken")
    polygon = Polygon(outer)
    points_m = np.random.default_rng(seed).uniform(-1100, 1100, (200, 2))
    clear = shapely.distance(flat.exterior, shapely.points(points_m)) > 1
    expected = shapely.contains_xy(flat, points_m[:, 0], points_m[:, 1])
    found = polygon.contains(vectors(*np.transpose([placed(*point) for point in points_m])))
    assert (found == expected)[clear].all()


@given(polygons(smallest_rad=1e-3))
def test_cap_of_a_polygon_rests_on_its_corners(polygon: Polygon) -> None:
    corners = [corner.vector for corner in polygon.outer]
    farthest = max(acos(max(-1.0, min(1.0, float(corner @ polygon.cap.centre)))) for corner in corners)
    assert polygon.cap.angle_rad == pytest.approx(farthest, rel=1e-4)
    between = max(haversine(one, other) for one in polygon.outer for other in polygon.outer)
    assert polygon.cap.angle_rad <= between, "a cap around places is never wider than the two farthest of them are apart"
