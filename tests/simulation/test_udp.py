"""Endpoints and edge over a bad network, seed by seed: what is promised is kept (`town`)."""

from random import Random

import pytest

from effort import seeds
from milepost.model.instants import SECOND_NS
from simulation.network import FINE, Weather
from simulation.town import Town

SEEDS = range(100)

FAILED_ONCE: list[int] = []
"""Seeds beyond those above that have found a fault: run for good."""

CLOCK_REASONS = {"CLOCK_AHEAD", "CLOCK_BEHIND", "EXPIRED"}
HOUR_NS = 3_600 * SECOND_NS


def weather(random: Random) -> Weather:
    slow_s = random.choice([0.02, 0.1, 0.6])
    return Weather(random.choice([0.0, 0.05, 0.15, 0.3]), random.choice([0.0, 0.1, 0.3]), (0.005, slow_s))


def disturb(town: Town, random: Random, *, may_restart: bool) -> None:
    """Something happens."""
    car = random.choice(town.cars)
    match random.randrange(12):
        case 0 | 1 | 2 | 3 | 4:
            car.publish(is_to_all=random.random() < 0.3)
        case 5:
            for _ in range(8):
                car.publish(is_to_all=False)
        case 6:
            car.rebind()
        case 7:
            town.network.weather = weather(random)
        case 8:
            address = car.address
            town.network.cut_off.add(address)
            town.network.after(random.uniform(0.5, 12), lambda: town.network.cut_off.discard(address))
        case 9:
            car.clock_off_ns += random.randrange(SECOND_NS // 2)
        case 10 if may_restart:
            town.server.start()
        case 11 if may_restart:
            town.server.clock_off_ns = random.choice([0, -5 * HOUR_NS, HOUR_NS])


@pytest.mark.parametrize("seed", seeds(SEEDS, FAILED_ONCE, block=100))
def test_what_is_promised_is_kept_over_a_bad_network(seed: int) -> None:
    random = Random(seed)
    town = Town(seed, is_sealed=seed % 2 == 0)
    may_restart = seed % 4 < 2
    town.network.weather = weather(random)
    for _ in range(16):
        town.run(random.uniform(0.1, 1.6))
        disturb(town, random, may_restart=may_restart)
        town.check_promises()
    town.network.weather = FINE
    town.network.cut_off.clear()
    town.server.clock_off_ns = 0
    town.run(24)
    town.check_at_rest()
    refused = {reason for car in town.cars for _, reason in car.refused}
    assert refused <= (CLOCK_REASONS if may_restart else set())


@pytest.mark.parametrize("is_sealed", [True, False], ids=["sealed", "plain"])
@pytest.mark.parametrize("seed", range(5))
def test_after_a_restart_sessions_are_back_within_two_reporting_intervals(seed: int, is_sealed: bool) -> None:
    town = Town(seed, is_sealed=is_sealed)
    assert town.run_until(town.all_have_sessions, 2) is not None
    town.run(6 + Random(seed).random())
    town.server.start()
    took_s = town.run_until(town.all_have_sessions, 2)
    assert took_s is not None
    for car in town.cars:
        car.publish(is_to_all=False)
    town.run(20)
    town.check_at_rest()
    assert all(sum(car.shown.values()) == len(town.cars) for car in town.cars), "they have again what they subscribed to"


def test_the_same_seed_gives_the_same_run() -> None:
    def carried() -> tuple[int, int]:
        town = Town(7)
        town.network.weather = Weather(0.2, 0.2, (0.01, 0.5))
        for car in town.cars:
            car.publish(is_to_all=True)
        town.run(10)
        return town.network.carried, town.server.edge.udp.bytes_received

    assert carried() == carried()
