"""Roads against plain oracles: a search by hand, a look at every segment, everybody asked one by one (M26)."""

from heapq import heappop, heappush
from itertools import pairwise
from math import cos, hypot, inf, isnan, radians
from random import Random

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from milepost.matching import Limits, Matcher
from milepost.model.areas import Area, Circle, Corridor, Going, Stretch, Upstream, touches
from milepost.model.areas.upstream import HEADING_OFF_DEG_MAX, MOVING_MPS_MIN
from milepost.model.places import EARTH_RADIUS_M, Place, bearing_deg, distance_m, moved, vectors
from milepost.roads import NOT_ON_A_ROAD, Network, Placing, Reach, Road, Spot, maybe_upstream, network_of
from strategies import shapes, upstreams

HERE = Place(50.0, 7.0)
seeds = st.integers(0, 2**32 - 1)


def town(random: Random) -> Network:
    """Some junctions, streets of one or two ways between them, and all turns but a few."""
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
    return network_of(roads, turns)


def seconds_by_hand(network: Network, spot: Spot) -> dict[int, float]:
    """How long it takes from the end of each road to a spot, by the definition: no road of the network is left out."""
    done: dict[int, float] = {}
    waiting = [(0.0, spot.road)]
    while waiting:
        left_s, road = heappop(waiting)
        if road in done:
            continue
        done[road] = left_s
        drive_m = spot.offset_m if road == spot.road else float(network.lengths_m[road])
        for before in range(len(network)):  # junctions of these towns are points: there is nothing to cross
            if road in network.ways_on(before):
                heappush(waiting, (left_s + drive_m / float(network.speeds_mps[road]), before))
    return done


@given(seeds, st.floats(5, 300))
@example(758, 156.0)  # a place half a metre before a hairpin bend
def test_m26_every_road_within_the_limit_has_the_seconds_left_that_a_search_by_hand_finds(seed: int, limit_s: float) -> None:
    random = Random(seed)
    network = town(random)
    road = random.randrange(len(network))
    spot = Spot(road, random.uniform(1.0, float(network.lengths_m[road])))
    area = maybe_upstream(network, [spot], Reach(seconds=limit_s, lead_s=0.0, share_min=0.0))
    assert area is not None
    ends = seconds_by_hand(network, spot)
    told = {(stretch.path[-1], round(stretch.end_s * 10)) for stretch in area.stretches}
    parts = [Upstream((stretch,)) for stretch in area.stretches]
    for number in range(len(network)):
        if number == spot.road or ends.get(number, inf) >= limit_s - 1:
            continue
        last = network.at(number, inf)
        assert any((last, round(ends[number] * 10) + off) in told for off in (-1, 0, 1))
        length_m, speed_mps = float(network.lengths_m[number]), float(network.speeds_mps[number])
        within_m = min(length_m, (limit_s - ends[number]) * speed_mps)
        for share in (0.01, 0.9):
            seconds = _nearest_stretch_s(parts, network, number, length_m - within_m * share)
            assert seconds <= ends[number] + within_m * share / speed_mps + 0.3


def _nearest_stretch_s(parts: list[Upstream], network: Network, road: int, offset_m: float) -> float:
    """The seconds left at a place of a road, by the stretches that run through it, the best of them."""
    place = network.at(road, offset_m)
    points = vectors([place.latitude], [place.longitude])
    here = Going(np.array([_bearing_deg_at(network, road, offset_m)]), np.array([20.0]))
    found = [float(part.seconds_to_reach(points, here)[0]) for part in parts]
    return min(number for number in found if not isnan(number))


def _bearing_deg_at(network: Network, road: int, offset_m: float) -> float:
    """The bearing of the segment that holds a place: a line to a place beyond a hairpin bend would point to neither side."""
    first, end = int(network.first[road]), int(network.first[road + 1])
    rows = [row for row in range(first, end - 1) if network.along_m[row] <= offset_m]
    return bearing_deg(*network.places_of(road)[rows[-1] - first : rows[-1] - first + 2])


@given(seeds)
def test_m26_nothing_is_in_the_area_from_where_the_spot_is_not_reached(seed: int) -> None:
    random = Random(seed)
    network = town(random)
    road = random.randrange(len(network))
    spot = Spot(road, float(network.lengths_m[road]))
    area = maybe_upstream(network, [spot], Reach(seconds=100_000, share_min=0.0))
    assert area is not None
    ends = seconds_by_hand(network, spot)
    assert len(area.stretches) <= len(ends)
    starts = {_point(network, number) for number in ends}
    assert {(stretch.path[0].latitude, stretch.path[0].longitude) for stretch in area.stretches} <= starts


def _point(network: Network, road: int) -> tuple[float, float]:
    first = int(network.first[road])
    return float(network.latitudes[first]), float(network.longitudes[first])


@given(seeds)
def test_m26_reports_are_placed_on_the_segment_that_looking_at_all_of_them_finds(seed: int) -> None:
    random = Random(seed)
    network = town(random)
    places = [moved(HERE, random.uniform(0, 360), random.uniform(0, 900)) for _ in range(40)]
    placed = Placing(network, within_m=50.0).place([one.latitude for one in places], [one.longitude for one in places])
    for number, place in enumerate(places):
        nearest_m = min(_distance_m(network, road, place) for road in range(len(network)))
        if nearest_m > 50.5:
            assert placed.roads[number] == NOT_ON_A_ROAD
            assert isnan(placed.offsets_m[number])
        elif nearest_m < 49.5:
            assert placed.distances_m[number] == pytest.approx(nearest_m, abs=0.05)
            road = int(placed.roads[number])
            assert _distance_m(network, road, place) == pytest.approx(nearest_m, abs=0.05)
            assert distance_m(network.at(road, float(placed.offsets_m[number])), place) == pytest.approx(nearest_m, abs=0.2)


def _distance_m(network: Network, road: int, place: Place) -> float:
    """The least distance to a segment of the road, one after the other, on a plane around the place."""
    found = inf
    for row in range(int(network.first[road]), int(network.first[road + 1]) - 1):
        (x, y), (end_x, end_y) = (_metres_from(place, network, at) for at in (row, row + 1))
        over, up = end_x - x, end_y - y
        share = min(1.0, max(0.0, -(x * over + y * up) / (over * over + up * up)))
        found = min(found, hypot(x + share * over, y + share * up))
    return found


def _metres_from(place: Place, network: Network, row: int) -> tuple[float, float]:
    north = radians(float(network.latitudes[row]) - place.latitude) * EARTH_RADIUS_M
    return radians(float(network.longitudes[row]) - place.longitude) * EARTH_RADIUS_M * cos(radians(place.latitude)), north


@given(upstreams, seeds)
def test_m26_the_index_finds_those_inside_that_asking_each_finds(area: Upstream, seed: int) -> None:
    random = Random(seed)
    matcher = Matcher(Limits(16, 300, 16))
    places = [_near(area, random) for _ in range(60)]
    matcher.move(range(60), [place.latitude for place in places], [place.longitude for place in places])
    inside = {number for number, place in enumerate(places) if area.contains(place.vector[None])[0]}
    assert set(matcher.who_is_in(area).tolist()) == inside


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
def test_m26_who_is_on_a_stretch_is_what_distance_and_bearing_of_each_segment_say(area: Upstream, seed: int) -> None:
    random = Random(seed)
    for _ in range(3):
        place, heading, speed = _near(area, random), random.uniform(0, 360), random.choice((0.0, 1.9, 2.0, 20.0))
        verdicts = {_is_along(stretch, place, heading, speed, slack) for stretch in area.stretches for slack in (-1e-3, 1e-3)}
        found = area.holds(place.vector[None], Going(np.array([heading]), np.array([speed])))[0]
        assert found in verdicts
        if verdicts == {True, False}:  # some stretches say yes for certain, or a rim is too near to tell
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
    """On a plane around the start: right to a millimetre for the short segments of these areas."""
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
