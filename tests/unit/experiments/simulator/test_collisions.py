"""Collisions: where most are on their way to, away from the last ones; seen by who is near."""

from dataclasses import replace
from random import Random

import numpy as np
from milepost_experiments.demo.collision_scenario import SEEN_M, SEEN_M_MAX, Collision, maybe_choose, witnesses

from milepost.model.areas import Circle
from milepost.model.places import Place, moved
from milepost.roads import Network, Placing, Road, network_of
from milepost_experiments.simulator.traffic import Cars

HERE = Place(52.43, 13.53)
LENGTH_M = 1_000.0
APART_M = 900.0


def streets() -> Network:
    """Two streets that lead north, side by side."""
    roads = []
    for number in range(2):
        start = moved(HERE, 90.0, number * APART_M)
        end = moved(start, 0.0, LENGTH_M)
        points = [(one.latitude, one.longitude) for one in (start, end)]
        roads.append(Road(f"street-{number}", points, 13.9, 1, f"south-{number}", f"north-{number}"))
    return network_of(roads, [])


def cars(*places: tuple[int, float], speed_mps: float = 10.0) -> Cars:
    """Somebody for each street and how far along it, going north."""
    found = [moved(moved(HERE, 90.0, street * APART_M), 0.0, along_m) for street, along_m in places]
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
"""Far away, so that the busy street has no more than its part of all."""


def test_the_one_behind_whom_most_are_is_stopped() -> None:
    network, here = streets(), cars(*QUIET, *BUSY, *ELSEWHERE)
    chosen = maybe_choose(network, Placing(network), here, [], Random(1))
    assert chosen == len(QUIET) + len(BUSY) - 1


def test_nobody_is_stopped_where_it_is_to_be_avoided() -> None:
    network, here = streets(), cars(*QUIET, *BUSY, *ELSEWHERE)
    first = Place(float(here.latitudes[6]), float(here.longitudes[6]))
    chosen = maybe_choose(network, Placing(network), here, [Circle(first, 400.0)], Random(1))
    assert chosen is not None
    assert here.roads[chosen] == "street-0"


def test_nobody_is_stopped_who_stands_or_is_in_the_middle_of_a_junction() -> None:
    network = streets()
    placing = Placing(network)
    assert maybe_choose(network, placing, cars(*BUSY, *ELSEWHERE, speed_mps=0.0), [], Random(1)) is None
    there = cars(*BUSY)
    inside = replace(there, roads=(":j_0",) * len(there))
    assert maybe_choose(network, placing, inside, [], Random(1)) is None


def test_where_nearly_all_are_nobody_is_stopped() -> None:
    network = streets()
    assert maybe_choose(network, Placing(network), cars(*BUSY), [], Random(1)) is None


def test_who_is_near_reports_it_every_other_second_and_farther_away_the_longer_it_lasts() -> None:
    place = moved(HERE, 0.0, 500.0)
    collision = Collision("car-000", place, 10.0)
    near, far = (0, 500.0 - SEEN_M + 5), (0, 500.0 - SEEN_M - 20)
    seen = cars(near, far)
    at_first = {name for second in (10, 11) for name in witnesses(collision, seen, second)}
    later = [name for second in (30, 31) for name in witnesses(collision, seen, second)]
    assert at_first == {"car-000"}
    assert sorted(later) == ["car-000", "car-001"]
    assert collision.seen_m(1e6) == SEEN_M_MAX
