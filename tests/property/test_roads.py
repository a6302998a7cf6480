"""Roads against simple oracles: a reference search, every segment, every endpoint (M26)."""

from heapq import heappop, heappush
from itertools import pairwise
from math import cos, hypot, inf, isnan, radians
from random import Random

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from milepost.matching import Matcher, MatcherLimits
from milepost.model.areas import Area, Circle, Corridor, Motion, Stretch, Upstream, touches
from milepost.model.areas.upstream import HEADING_OFF_DEG_MAX, MOVING_MPS_MIN
from milepost.model.places import EARTH_RADIUS_M, Place, bearing_deg, distance_m, moved, vectors
from milepost.roads import (
    OFF_ROAD,
    MapMatcher,
    Road,
    RoadNetwork,
    RoadPosition,
    UpstreamExtent,
    build_network,
    find_upstream_area,
)
from strategies import shapes, upstreams

HERE = Place(50.0, 7.0)
seeds = st.integers(0, 2**32 - 1)


def town(random: Random) -> RoadNetwork:
    """Return a network of some junctions, one-way and two-way streets between them, and all turns but a few."""
    count = random.randint(3, 12)
    corners = [moved(HERE, random.uniform(0, 360), random.uniform(0, 800)) for _ in range(count)]
    roads = list[Road]()
    for _ in range(random.randint(3, 30)):
        start, end = random.sample(range(count), 2)
        if distance_m(corners[start], corners[end]) < 30:
            continue
        bend = moved(corners[start], random.uniform(0, 360), random.uniform(5, 100))
        points = [(place.latitude, place.longitude) for place in (corners[start], bend, corners[end])]
        speed_mps, lanes = random.choice((5.0, 10.0, 30.0)), random.randint(1, 3)
        roads.append(Road(f"{len(roads)}", points, speed_mps, lanes, str(start), str(end)))
        if random.random() < 0.5:
            roads.append(Road(f"{len(roads)}", points[::-1], speed_mps, lanes, str(end), str(start)))
    if not roads:
        roads = [Road("0", [(HERE.latitude, HERE.longitude), (HERE.latitude, HERE.longitude + 0.01)], 10.0, 1, "0", "1")]
    turns = [
        (one, other)
        for one, road in enumerate(roads)
        for other, into in enumerate(roads)
        if road.to_junction == into.from_junction and random.random() < 0.9
    ]
    return build_network(roads, turns)


def reference_seconds(network: RoadNetwork, position: RoadPosition) -> dict[int, float]:
    """Return the travel time from the end of each road to a position, by the definition, over all roads."""
    done: dict[int, float] = {}
    waiting = [(0.0, position.road)]
    while waiting:
        left_s, road = heappop(waiting)
        if road in done:
            continue
        done[road] = left_s
        drive_m = position.offset_m if road == position.road else float(network.lengths_m[road])
        for before in range(len(network)):  # junctions of these networks are points, without a distance across
            if road in network.successors(before):
                heappush(waiting, (left_s + drive_m / float(network.speeds_mps[road]), before))
    return done


@given(seeds, st.floats(5, 300))
@example(758, 156.0)  # a place half a metre before a hairpin bend
def test_m26_every_road_within_the_limit_has_the_remaining_time_of_a_reference_search(seed: int, limit_s: float) -> None:
    random = Random(seed)
    network = town(random)
    road = random.randrange(len(network))
    position = RoadPosition(road, random.uniform(1.0, float(network.lengths_m[road])))
    area = find_upstream_area(network, [position], UpstreamExtent(seconds=limit_s, lead_s=0.0, share_min=0.0))
    assert area is not None
    ends = reference_seconds(network, position)
    told = {(stretch.path[-1], round(stretch.end_s * 10)) for stretch in area.stretches}
    parts = [Upstream.of((stretch,)) for stretch in area.stretches]
    for number in range(len(network)):
        if number == position.road or ends.get(number, inf) >= limit_s - 1:
            continue
        last = network.at(number, inf)
        assert any((last, round(ends[number] * 10) + off) in told for off in (-1, 0, 1))
        length_m, speed_mps = float(network.lengths_m[number]), float(network.speeds_mps[number])
        within_m = min(length_m, (limit_s - ends[number]) * speed_mps)
        for share in (0.01, 0.9):
            seconds = _nearest_stretch_s(parts, network, number, length_m - within_m * share)
            assert seconds <= ends[number] + within_m * share / speed_mps + 0.3


def _nearest_stretch_s(parts: list[Upstream], network: RoadNetwork, road: int, offset_m: float) -> float:
    """Return the remaining seconds at a place of a road, by the best of the stretches through it."""
    place = network.at(road, offset_m)
    points = vectors([place.latitude], [place.longitude])
    here = Motion(np.array([_bearing_deg_at(network, road, offset_m)]), np.array([20.0]))
    found = [float(part.seconds_to_reach(points, here)[0]) for part in parts]
    return min(number for number in found if not isnan(number))


def _bearing_deg_at(network: RoadNetwork, road: int, offset_m: float) -> float:
    """Return the bearing of the segment that contains a place; beyond a hairpin bend a line to it would point to neither side."""
    first, end = int(network.first[road]), int(network.first[road + 1])
    rows = [row for row in range(first, end - 1) if network.along_m[row] <= offset_m]
    return bearing_deg(*network.places_of(road)[rows[-1] - first : rows[-1] - first + 2])


@given(seeds)
def test_m26_the_area_contains_no_road_that_does_not_lead_to_the_position(seed: int) -> None:
    random = Random(seed)
    network = town(random)
    road = random.randrange(len(network))
    position = RoadPosition(road, float(network.lengths_m[road]))
    area = find_upstream_area(network, [position], UpstreamExtent(seconds=100_000, share_min=0.0))
    assert area is not None
    ends = reference_seconds(network, position)
    assert len(area.stretches) <= len(ends)
    starts = {_point(network, number) for number in ends}
    assert {(stretch.path[0].latitude, stretch.path[0].longitude) for stretch in area.stretches} <= starts


def _point(network: RoadNetwork, road: int) -> tuple[float, float]:
    first = int(network.first[road])
    return float(network.latitudes[first]), float(network.longitudes[first])


@given(seeds)
def test_m26_map_matching_finds_the_segment_that_an_exhaustive_search_finds(seed: int) -> None:
    random = Random(seed)
    network = town(random)
    places = [moved(HERE, random.uniform(0, 360), random.uniform(0, 900)) for _ in range(40)]
    matched = MapMatcher(network, within_m=50.0).match([one.latitude for one in places], [one.longitude for one in places])
    for number, place in enumerate(places):
        nearest_m = min(_distance_m(network, road, place) for road in range(len(network)))
        if nearest_m > 50.5:
            assert matched.roads[number] == OFF_ROAD
            assert isnan(matched.offsets_m[number])
        elif nearest_m < 49.5:
            assert matched.distances_m[number] == pytest.approx(nearest_m, abs=0.05)
            road = int(matched.roads[number])
            assert _distance_m(network, road, place) == pytest.approx(nearest_m, abs=0.05)
            assert distance_m(network.at(road, float(matched.offsets_m[number])), place) == pytest.approx(nearest_m, abs=0.2)


def _distance_m(network: RoadNetwork, road: int, place: Place) -> float:
    """Return the least distance to a segment of the road, on a plane around the place."""
    found = inf
    for row in range(int(network.first[road]), int(network.first[road + 1]) - 1):
        (x, y), (end_x, end_y) = (_metres_from(place, network, at) for at in (row, row + 1))
        over, up = end_x - x, end_y - y
        share = min(1.0, max(0.0, -(x * over + y * up) / (over * over + up * up)))
        found = min(found, hypot(x + share * over, y + share * up))
    return found


def _metres_from(place: Place, network: RoadNetwork, row: int) -> tuple[float, float]:
    north = radians(float(network.latitudes[row]) - place.latitude) * EARTH_RADIUS_M
    return radians(float(network.longitudes[row]) - place.longitude) * EARTH_RADIUS_M * cos(radians(place.latitude)), north


@given(upstreams, seeds)
def test_m26_the_index_finds_the_endpoints_that_an_exhaustive_check_finds(area: Upstream, seed: int) -> None:
    random = Random(seed)
    matcher = Matcher(MatcherLimits(16, 300, 16))
    places = [_near(area, random) for _ in range(60)]
    matcher.move(range(60), [place.latitude for place in places], [place.longitude for place in places])
    inside = {number for number, place in enumerate(places) if area.contains(place.vector[None])[0]}
    assert set(matcher.find_inside(area).tolist()) == inside


@given(upstreams, shapes, seeds)
def test_m26_an_upstream_touches_what_a_corridor_along_one_of_its_stretches_touches(
    area: Upstream, other: Area, seed: int
) -> None:
    corridors = [Corridor(stretch.path, stretch.half_width_m) for stretch in area.stretches]
    near = Circle(_near(area, Random(seed)), Random(seed).uniform(0.1, 50.0))
    for one in (other, near):
        expected = any(touches(corridor, one) for corridor in corridors)
        assert touches(area, one) == touches(one, area) == expected


@given(upstreams, seeds)
def test_m26_membership_of_a_stretch_follows_from_distance_and_bearing_of_each_segment(area: Upstream, seed: int) -> None:
    random = Random(seed)
    for _ in range(3):
        place, heading, speed = _near(area, random), random.uniform(0, 360), random.choice((0.0, 1.9, 2.0, 20.0))
        verdicts = {_is_along(stretch, place, heading, speed, slack) for stretch in area.stretches for slack in (-1e-3, 1e-3)}
        found = area.holds(place.vector[None], Motion(np.array([heading]), np.array([speed])))[0]
        assert found in verdicts
        if verdicts == {True, False}:  # a stretch contains it for certain, or a border is too near to tell
            certain = any(_is_along(stretch, place, heading, speed, -1e-3) for stretch in area.stretches)
            assert found or not certain


def _is_along(stretch: Stretch, place: Place, heading: float, speed: float, slack_m: float) -> bool:
    for start, end in pairwise(stretch.path):
        bearing = bearing_deg(start, end)
        away_m = _to_segment_m(start, end, place)
        off = abs((heading - bearing + 180) % 360 - 180)
        if away_m <= stretch.half_width_m + slack_m and (speed < MOVING_MPS_MIN or off <= HEADING_OFF_DEG_MAX + slack_m):
            return True
    return False


def _to_segment_m(start: Place, end: Place, place: Place) -> float:
    """Compute on a plane around the start, accurate to a millimetre for the short segments of these areas."""
    bearing, length_m = bearing_deg(start, end), distance_m(start, end)
    low, high = 0.0, 1.0
    for _ in range(40):
        one, other = low + (high - low) / 3, high - (high - low) / 3
        at_one, at_other = (distance_m(moved(start, bearing, share * length_m), place) for share in (one, other))
        low, high = (low, other) if at_one < at_other else (one, high)
    return distance_m(moved(start, bearing, low * length_m), place)


def _near(area: Upstream, random: Random) -> Place:
    stretch = random.choice(area.stretches)
    start = random.randrange(len(stretch.path) - 1)
    one, other = stretch.path[start], stretch.path[start + 1]
    on = moved(one, bearing_deg(one, other), random.uniform(-0.1, 1.1) * distance_m(one, other))
    return moved(on, random.uniform(0, 360), random.uniform(0, 2.5) * stretch.half_width_m)
