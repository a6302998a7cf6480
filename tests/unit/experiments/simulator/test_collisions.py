"""Collisions: at the busiest place, away from earlier ones, and reported by vehicles nearby."""

from dataclasses import replace
from random import Random

import numpy as np

from milepost.model.areas import Circle
from milepost.model.places import Place, moved
from milepost.roads import MapMatcher, Road, RoadNetwork, build_network
from milepost_experiments.demo.collision_scenario import SIGHT_M, SIGHT_M_MAX, Collision, find_vehicle_to_stop, witnesses
from milepost_experiments.simulator.traffic import Cars

HERE = Place(52.43, 13.53)
LENGTH_M = 1_000.0
SPACING_M = 900.0


def streets() -> RoadNetwork:
    """Two streets that lead north, side by side."""
    roads = []
    for number in range(2):
        start = moved(HERE, 90.0, number * SPACING_M)
        end = moved(start, 0.0, LENGTH_M)
        points = [(one.latitude, one.longitude) for one in (start, end)]
        roads.append(Road(f"street-{number}", points, 13.9, 1, f"south-{number}", f"north-{number}"))
    return build_network(roads, [])


def cars(*places: tuple[int, float], speed_mps: float = 10.0) -> Cars:
    """Return a northbound car for each pair of street and distance along it."""
    found = [moved(moved(HERE, 90.0, street * SPACING_M), 0.0, along_m) for street, along_m in places]
    count = len(found)
    return Cars(
        tuple(f"car-{number:03}" for number in range(count)),
        np.array([one.latitude for one in found]),
        np.array([one.longitude for one in found]),
        np.zeros(count),
        np.full(count, speed_mps),
        tuple(f"street-{street}" for street, _ in places),
    )


QUIET = [(0, 100.0), (0, 900.0)]
BUSY = [(1, 500.0 + 20 * number) for number in range(5)]
ELSEWHERE = [(0, float(1_000 * number)) for number in range(2, 40)]
"""Cars far away, so that the busy street has only its permitted share of all cars."""


def test_the_vehicle_with_most_others_behind_it_is_stopped() -> None:
    network, here = streets(), cars(*QUIET, *BUSY, *ELSEWHERE)
    chosen = find_vehicle_to_stop(network, MapMatcher(network), here, [], Random(1))
    assert chosen == len(QUIET) + len(BUSY) - 1


def test_no_vehicle_is_stopped_inside_an_avoided_area() -> None:
    network, here = streets(), cars(*QUIET, *BUSY, *ELSEWHERE)
    first = Place(float(here.latitudes[6]), float(here.longitudes[6]))
    chosen = find_vehicle_to_stop(network, MapMatcher(network), here, [Circle(first, 400.0)], Random(1))
    assert chosen is not None
    assert here.roads[chosen] == "street-0"


def test_no_vehicle_is_stopped_that_stands_or_is_inside_a_junction() -> None:
    network = streets()
    map_matcher = MapMatcher(network)
    assert find_vehicle_to_stop(network, map_matcher, cars(*BUSY, *ELSEWHERE, speed_mps=0.0), [], Random(1)) is None
    there = cars(*BUSY)
    inside = replace(there, roads=(":j_0",) * len(there))
    assert find_vehicle_to_stop(network, map_matcher, inside, [], Random(1)) is None


def test_no_vehicle_is_stopped_ahead_of_nearly_all_others() -> None:
    network = streets()
    assert find_vehicle_to_stop(network, MapMatcher(network), cars(*BUSY), [], Random(1)) is None


def test_vehicles_nearby_report_every_other_second_and_from_farther_away_over_time() -> None:
    place = moved(HERE, 0.0, 500.0)
    collision = Collision("car-000", place, 10.0)
    near, far = (0, 500.0 - SIGHT_M + 5), (0, 500.0 - SIGHT_M - 20)
    seen = cars(near, far)
    at_first = {name for second in (10, 11) for name in witnesses(collision, seen, second)}
    later = [name for second in (30, 31) for name in witnesses(collision, seen, second)]
    assert at_first == {"car-000"}
    assert sorted(later) == ["car-000", "car-001"]
    assert collision.sight_m(1e6) == SIGHT_M_MAX
