"""Which areas touch, against distances found by walking along one area and measuring to the other with other formulas (M15)."""

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from math import pi

import numpy as np
from hypothesis import assume, event, given
from hypothesis import strategies as st

from milepost.model.areas import Area, Box, Circle, Corridor, Polygon, Union, Upstream, touches
from milepost.model.places import EARTH_RADIUS_M, Place, Vectors, moved, vectors
from milepost.model.reasons import Malformed
from strategies import areas

CENTIMETRE_RAD = 0.01 / EARTH_RADIUS_M

latitudes = st.floats(-90, 90) | st.sampled_from([-90.0, -89.9999, 0.0, 89.9999, 90.0])
longitudes = st.floats(-180, 180) | st.sampled_from([-180.0, -90.0, 0.0, 90.0, 180.0])
places = st.builds(Place, latitudes, longitudes)
sizes_m = st.sampled_from([50.0, 5e3, 5e5, 3e6])
seeds = st.integers(0, 2**32 - 1)
bearings = st.floats(0, 360) | st.sampled_from([0.0, 90.0, 180.0, 270.0])


# Shapes of a size, anywhere on the globe.


@st.composite
def paths(draw: st.DrawFn, centre: Place, size_m: float) -> tuple[Place, ...]:
    steps = draw(st.lists(st.tuples(bearings, st.floats(0.1, 1)), min_size=1, max_size=5))
    found = [centre]
    for bearing, share in steps:
        found.append(moved(found[-1], bearing, share * size_m))
    return tuple(found)


@st.composite
def polygons(draw: st.DrawFn, centre: Place, size_m: float) -> Polygon:
    """A star, or a frame around a hole that has room for others."""
    count = draw(st.integers(3, 10))
    shares = draw(st.lists(st.floats(0.6, 1), min_size=count, max_size=count))
    turn = draw(bearings)
    corners = [moved(centre, turn + 360 * number / count, share * size_m) for number, share in enumerate(shares)]
    hole = [moved(centre, turn + 90 * number, 0.28 * size_m) for number in range(4)]
    try:
        return Polygon((*corners, corners[0]), ((*hole, hole[0]),) if draw(st.booleans()) and count > 3 else ())
    except Malformed:
        assume(False)
        raise


@st.composite
def boxes(draw: st.DrawFn, centre: Place, size_m: float) -> Box:
    size_deg = np.degrees(size_m / EARTH_RADIUS_M)
    low, high, west, east = draw(st.tuples(*[st.floats(0, 1)] * 4))
    south, north = max(-90.0, centre.latitude - low * size_deg), min(90.0, centre.latitude + high * size_deg)
    wider = 1 / max(1e-9, np.cos(np.radians(centre.latitude)))
    west_deg, east_deg = -min(180.0, west * size_deg * wider), min(180.0, east * size_deg * wider)
    assume(south < north and east_deg - west_deg > 1e-9)
    if east_deg - west_deg > 359:
        return Box(south, -180.0, north, 180.0)
    return Box(south, wrapped(centre.longitude + west_deg), north, wrapped(centre.longitude + east_deg))


def wrapped(longitude: float) -> float:
    return longitude - 360 if longitude > 180 else longitude + 360 if longitude < -180 else longitude


@st.composite
def shapes(draw: st.DrawFn, centre: Place, size_m: float) -> Area:
    match draw(st.integers(0, 8)):
        case 8:
            return Circle(centre, draw(st.floats(0.01, 1)) * size_m)
        case 0 | 1:
            return Corridor(draw(paths(centre, size_m)), draw(st.floats(0.01, 1)) * size_m)
        case 2 | 3 | 4:
            return draw(polygons(centre, size_m))
        case _:
            return draw(boxes(centre, size_m))


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Area, Area]:
    """Return two shapes near enough that they may or may not touch; the second may be much smaller."""
    centre, size_m = draw(places), draw(sizes_m)
    other = moved(centre, draw(bearings), draw(st.floats(0, 2.2) | st.just(0.0)) * size_m)
    return draw(shapes(centre, size_m)), draw(shapes(other, size_m * draw(st.sampled_from([1.0, 0.3, 0.01]))))


@st.composite
def paths_and_others(draw: st.DrawFn) -> tuple[tuple[Place, ...], Area]:
    """A place, a path or a ring, and mostly off it a shape."""
    centre, size_m = draw(places), draw(sizes_m)
    path = draw(paths(centre, size_m) | polygons(centre, size_m).map(lambda polygon: polygon.outer) | st.just((centre,)))
    apart = draw(st.floats(0.5, 4)) * size_m
    return path, draw(shapes(moved(centre, draw(bearings), apart), size_m))


# Distances by other formulas: someone walks along one area and measures chords to the nearest that the other has to offer.

Walk = Callable[[Vectors], Vectors]
"""The places at given fractions of the way."""


def line(start: Vectors, end: Vectors) -> Walk:
    """The straight way between two places less than half around the Earth apart."""
    half = np.arctan2(np.linalg.norm(start - end), np.linalg.norm(start + end))
    onward = end - start + start * (2 * np.sin(half) ** 2)
    onward /= max(1e-300, np.linalg.norm(onward))
    return lambda shares: np.outer(np.cos(2 * half * shares), start) + np.outer(np.sin(2 * half * shares), onward)


def lines_of(area: Area) -> list[tuple[Vectors, Vectors]]:
    """Both ends of each straight line that the middle or the rim of an area is made of; the sides of a box halved."""
    match area:
        case Circle():
            return [(area.centre.vector, area.centre.vector)]
        case Corridor():
            return [(one.vector, other.vector) for one, other in pairwise(area.path)]
        case Polygon():
            return [(one.vector, other.vector) for ring in (area.outer, *area.holes) for one, other in pairwise(ring)]
        case Box():
            middle = (area.south + area.north) / 2
            corners = [
                (Place(south, side).vector, Place(north, side).vector)
                for side in (area.west, area.east)
                for south, north in ((area.south, middle), (middle, area.north))
            ]
            return [] if area.width_deg == 360 else corners
        case Union():
            raise AssertionError("unions are walked part by part")
        case Upstream():
            return [(one.vector, other.vector) for stretch in area.stretches for one, other in pairwise(stretch.path)]


def walks_of(area: Area) -> list[Walk]:
    walks = [line(*ends) for ends in lines_of(area)]
    if isinstance(area, Box):
        walks += [partial(along_parallel, area, latitude) for latitude in (area.south, area.north)]
    return walks


def along_parallel(box: Box, latitude: float, shares: Vectors) -> Vectors:
    return vectors([latitude] * len(shares), box.west + shares * box.width_deg)


def reach_rad(area: Area) -> float:
    metres = area.radius_m if isinstance(area, Circle) else area.half_width_m if isinstance(area, Corridor) else 0.0
    return metres / EARTH_RADIUS_M


def distances(points: Vectors, area: Area) -> Vectors:
    """From each point to the middle of a circle, the path of a corridor, or all of a box or polygon."""
    found = np.full(len(points), pi)
    for start, end in lines_of(area):
        found = np.minimum(found, to_line(points, start, end))
    if isinstance(area, Box):
        for latitude in (area.south, area.north):
            found = np.minimum(found, to_parallel(points, area, latitude))
    if isinstance(area, Box | Polygon):
        found[area.contains(points)] = 0
    return found


def to_line(points: Vectors, start: Vectors, end: Vectors) -> Vectors:
    full, onward = 2 * np.arcsin(np.linalg.norm(start - end) / 2), line(start, end)
    ahead = points @ (end - start * (start @ end)) / max(1e-300, np.sin(full))
    share = np.clip(np.arctan2(ahead, points @ start) / max(1e-300, full), 0, 1)
    return np.minimum(chord_rad(points, onward(share)), np.minimum(chord_rad(points, start), chord_rad(points, end)))


def to_parallel(points: Vectors, box: Box, latitude: float) -> Vectors:
    east_of_west = np.degrees(np.arctan2(points[:, 1], points[:, 0])) - box.west
    shares = np.clip(east_of_west % 360 / box.width_deg, 0, 1)
    west, east = (chord_rad(points, along_parallel(box, latitude, np.array([share]))) for share in (0.0, 1.0))
    return np.minimum(chord_rad(points, along_parallel(box, latitude, shares)), np.minimum(west, east))


def chord_rad(ones: Vectors, others: Vectors) -> Vectors:
    angles: Vectors = 2 * np.arcsin(np.clip(np.linalg.norm(ones - others, axis=1) / 2, 0, 1))
    return angles


def gap_rad(one: Area, other: Area) -> float:
    """Return the distance of two cores: the nearest of many places along the one, then of many around that."""
    walks, shares = walks_of(one), np.linspace(0, 1, 65)
    steps = [walk(shares) for walk in walks]
    starts = np.vstack([walk(shares[:1]) for walk in walks_of(other)])
    if distances(starts, one).min() == 0:
        return 0.0
    table = distances(np.vstack(steps), other).reshape(len(walks), -1)
    best = float(table.min())
    for which, step in zip(*np.unravel_index(np.argsort(table, axis=None)[:6], table.shape), strict=True):
        low, high = shares[max(0, step - 1)], shares[min(64, step + 1)]
        for _ in range(11):
            window = np.linspace(low, high, 17)
            found = distances(walks[which](window), other)
            nearest = int(np.argmin(found))
            low, high = window[max(0, nearest - 1)], window[min(16, nearest + 1)]
            best = min(best, float(found[nearest]))
    return best


def common_place(one: Area, other: Area, seed: int) -> bool:
    """Whether one of many places in and around both is inside both."""
    random = np.random.default_rng(seed)
    spread = 1.2 * min(2.0, one.cap.angle_rad, other.cap.angle_rad)
    smaller = min((one, other), key=lambda area: area.cap.angle_rad)
    around = smaller.cap.centre + spread * random.normal(size=(300, 3)) / 2
    places = around / np.linalg.norm(around, axis=1, keepdims=True)
    return bool((one.contains(places) & other.contains(places)).any())


@given(pairs())
def test_areas_touch_exactly_where_their_distance_is_within_their_reach(pair: tuple[Area, Area]) -> None:
    one, other = pair
    over = min(gap_rad(one, other), gap_rad(other, one)) - reach_rad(one) - reach_rad(other)
    event(f"{type(one).__name__} and {type(other).__name__}: {'apart' if over > 0 else 'together'}")
    if over <= 0 or over > CENTIMETRE_RAD:
        assert touches(one, other) == (over <= 0), over * EARTH_RADIUS_M


@given(paths_and_others())
def test_a_corridor_touches_from_exactly_the_width_that_reaches_the_other(pair: tuple[tuple[Place, ...], Area]) -> None:
    path, other = pair

    def grown(width_m: float) -> Area:
        return Corridor(path, width_m) if len(path) > 1 else Circle(path[0], width_m)

    thin = grown(1.0)
    width_m = (min(gap_rad(thin, other), gap_rad(other, thin)) - reach_rad(other)) * EARTH_RADIUS_M
    event(f"{type(thin).__name__} and {type(other).__name__}: {'apart' if width_m > 0 else 'together'}")
    assert touches(grown(max(0.0, width_m) + 0.01), other)
    assert width_m < 0.02 or not touches(grown(width_m - 0.01), other), width_m


@given(areas, areas, seeds)
def test_areas_with_a_place_in_common_touch(one: Area, other: Area, seed: int) -> None:
    is_common = common_place(one, other, seed)
    event(f"in common: {is_common}")
    assert touches(one, other) or not is_common


@given(pairs(), seeds)
def test_areas_near_each_other_with_a_place_in_common_touch(pair: tuple[Area, Area], seed: int) -> None:
    is_common = common_place(*pair, seed)
    event(f"in common: {is_common}")
    assert touches(*pair) or not is_common


@given(areas | pairs().map(lambda pair: pair[0]))
def test_every_area_touches_itself(area: Area) -> None:
    assert touches(area, area)


@given(pairs() | st.tuples(areas, areas))
def test_touching_is_mutual(pair: tuple[Area, Area]) -> None:
    one, other = pair
    assert touches(one, other) == touches(other, one)


@given(pairs(), pairs())
def test_a_union_touches_what_one_of_its_parts_touches(ones: tuple[Area, Area], others: tuple[Area, Area]) -> None:
    parts = (*ones, Union(others))
    expected = any(touches(part, ones[1]) for part in (ones[0], *others))
    assert touches(Union((ones[0], Union(others))), ones[1]) == expected
    assert touches(Union(parts), Union(ones))


@given(pairs(), seeds)
def test_a_tiny_circle_touches_an_area_exactly_where_the_area_contains_its_centre(pair: tuple[Area, Area], seed: int) -> None:
    area, _ = pair
    around = area.cap.centre + area.cap.angle_rad * np.random.default_rng(seed).normal(size=(20, 3)) / 2
    places = around / np.linalg.norm(around, axis=1, keepdims=True)
    inside = area.contains(places)
    rims = distances(places, area) - reach_rad(area)
    for (x, y, z), is_inside, rim in zip(places.tolist(), inside.tolist(), rims.tolist(), strict=True):
        dot = Circle(Place(float(np.degrees(np.arctan2(z, np.hypot(x, y)))), float(np.degrees(np.arctan2(y, x)))), 0.001)
        if is_inside or rim > CENTIMETRE_RAD:
            assert touches(dot, area) == is_inside, rim
