"""UDP endpoints and an edge over a lossy network, seed by seed: the guarantees hold (`udp_fleet`)."""

from random import Random

import pytest

from effort import seeds
from milepost.model.instants import SECOND_NS
from simulation.network import PERFECT, NetworkConditions
from simulation.udp_fleet import UdpFleet

SEEDS = range(100)

FAILED_ONCE: list[int] = []
"""Further seeds that have found a fault; they are always run."""

CLOCK_REASONS = {"CLOCK_AHEAD", "CLOCK_BEHIND", "EXPIRED"}
HOUR_NS = 3_600 * SECOND_NS


def conditions(random: Random) -> NetworkConditions:
    slow_s = random.choice([0.02, 0.1, 0.6])
    return NetworkConditions(random.choice([0.0, 0.05, 0.15, 0.3]), random.choice([0.0, 0.1, 0.3]), (0.005, slow_s))


def disturb(udp_fleet: UdpFleet, random: Random, *, may_restart: bool) -> None:
    """Run one random event."""
    car = random.choice(udp_fleet.cars)
    match random.randrange(12):
        case 0 | 1 | 2 | 3 | 4:
            car.publish(is_to_all=random.random() < 0.3)
        case 5:
            for _ in range(8):
                car.publish(is_to_all=False)
        case 6:
            car.rebind()
        case 7:
            udp_fleet.network.conditions = conditions(random)
        case 8:
            address = car.address
            udp_fleet.network.cut_off.add(address)
            udp_fleet.network.after(random.uniform(0.5, 12), lambda: udp_fleet.network.cut_off.discard(address))
        case 9:
            car.clock_off_ns += random.randrange(SECOND_NS // 2)
        case 10 if may_restart:
            udp_fleet.server.start()
        case 11 if may_restart:
            udp_fleet.server.clock_off_ns = random.choice([0, -5 * HOUR_NS, HOUR_NS])


@pytest.mark.parametrize("seed", seeds(SEEDS, FAILED_ONCE, block=100))
def test_guarantees_hold_over_a_lossy_network(seed: int) -> None:
    random = Random(seed)
    udp_fleet = UdpFleet(seed, is_sealed=seed % 2 == 0)
    may_restart = seed % 4 < 2
    udp_fleet.network.conditions = conditions(random)
    for _ in range(16):
        udp_fleet.run(random.uniform(0.1, 1.6))
        disturb(udp_fleet, random, may_restart=may_restart)
        udp_fleet.check_promises()
    udp_fleet.network.conditions = PERFECT
    udp_fleet.network.cut_off.clear()
    udp_fleet.server.clock_off_ns = 0
    udp_fleet.run(24)
    udp_fleet.check_at_rest()
    refused = {reason for car in udp_fleet.cars for _, reason in car.refused}
    assert refused <= (CLOCK_REASONS if may_restart else set())


@pytest.mark.parametrize("is_sealed", [True, False], ids=["sealed", "plain"])
@pytest.mark.parametrize("seed", range(5))
def test_after_a_restart_sessions_are_back_within_two_reporting_intervals(seed: int, is_sealed: bool) -> None:
    udp_fleet = UdpFleet(seed, is_sealed=is_sealed)
    assert udp_fleet.run_until(udp_fleet.all_have_sessions, 2) is not None
    udp_fleet.run(6 + Random(seed).random())
    udp_fleet.server.start()
    took_s = udp_fleet.run_until(udp_fleet.all_have_sessions, 2)
    assert took_s is not None
    for car in udp_fleet.cars:
        car.publish(is_to_all=False)
    udp_fleet.run(20)
    udp_fleet.check_at_rest()
    assert all(sum(car.delivered.values()) == len(udp_fleet.cars) for car in udp_fleet.cars), "their subscriptions are restored"


def test_the_same_seed_gives_the_same_run() -> None:
    def carried() -> tuple[int, int]:
        udp_fleet = UdpFleet(7)
        udp_fleet.network.conditions = NetworkConditions(0.2, 0.2, (0.01, 0.5))
        for car in udp_fleet.cars:
            car.publish(is_to_all=True)
        udp_fleet.run(10)
        return udp_fleet.network.carried, udp_fleet.server.edge.udp.bytes_received

    assert carried() == carried()
