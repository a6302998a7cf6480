"""The scenario: a collision begins, lasts, is cleared and happens again elsewhere; never if it could not be cleared in time."""

from dataclasses import dataclass, field
from random import Random

import numpy as np

from milepost.model.places import distance_m
from milepost.roads import MapMatcher
from milepost_experiments.demo.collision_scenario import BLOCKED_S, CALM_S, CLEARING_S_MAX, CollisionScenario, ScenarioState
from milepost_experiments.simulator.traffic import Cars
from unit.roads.small_networks import degrees, small_network

STREETS = range(10)
SPACING_M = 500.0
NETWORK = small_network(
    {name: (400.0 * (at % 2), SPACING_M * (at // 2)) for at, name in enumerate("abcdefghijklmnopqrst")},
    *(f"{'abcdefghijklmnopqrst'[2 * at]}>{'abcdefghijklmnopqrst'[2 * at + 1]}" for at in STREETS),
)
"""Streets side by side, each far from the others."""
PLACES = [(40.0 * number, SPACING_M * street) for street in STREETS for number in range(10)]


@dataclass
class RecordingTraffic:
    """Records the vehicles that were halted and released."""

    halted: list[str] = field(default_factory=list)
    released: list[str] = field(default_factory=list)

    def halt(self, name: str) -> bool:
        self.halted.append(name)
        return True

    def release(self, name: str) -> bool:
        self.released.append(name)
        return True


def cars() -> Cars:
    places = np.array([degrees(*one) for one in PLACES])
    count = len(PLACES)
    names = tuple(f"car-{number:03}" for number in range(count))
    return Cars(names, places[:, 0], places[:, 1], np.full(count, 90.0), np.full(count, 10.0), ("ab",) * count)


def run(
    scenario: CollisionScenario, streets: RecordingTraffic, seconds: range, *, active_incidents: int = 0
) -> list[ScenarioState]:
    states = []
    for second in seconds:
        scenario.step(streets, cars(), cars(), second, active_incidents=active_incidents)
        states.append(scenario.state)
    return states


def make_scenario(ends_s: int | None = None) -> CollisionScenario:
    return CollisionScenario(NETWORK, MapMatcher(NETWORK), Random(3), ends_s)


def test_collisions_follow_each_other_at_different_places() -> None:
    scenario, streets = make_scenario(), RecordingTraffic()
    states = run(scenario, streets, range(200))
    assert states[CALM_S] is ScenarioState.BLOCKED
    assert states[CALM_S + BLOCKED_S] is ScenarioState.CLEARING
    assert len(scenario.past_collisions) >= 4
    assert streets.released == streets.halted[: len(streets.released)]
    first, second = scenario.past_collisions[0].place, scenario.past_collisions[1].place
    assert distance_m(first, second) > 400


def test_calm_returns_only_when_all_incidents_are_over_or_after_a_timeout() -> None:
    scenario, streets = make_scenario(), RecordingTraffic()
    run(scenario, streets, range(CALM_S + BLOCKED_S + 1))
    since = CALM_S + BLOCKED_S + 1
    assert set(run(scenario, streets, range(since, since + CLEARING_S_MAX - 1), active_incidents=1)) == {ScenarioState.CLEARING}
    assert run(scenario, streets, range(since + CLEARING_S_MAX, since + CLEARING_S_MAX + 1), active_incidents=1) == [
        ScenarioState.CALM
    ]


def test_no_second_collision_begins_that_would_not_end_in_time() -> None:
    scenario, streets = make_scenario(ends_s=60), RecordingTraffic()
    run(scenario, streets, range(60))
    assert len(scenario.past_collisions) == 1


def test_vehicles_nearby_report_only_while_the_collision_lasts() -> None:
    scenario, streets = make_scenario(), RecordingTraffic()
    reporters = [scenario.step(streets, cars(), cars(), second, active_incidents=0) for second in range(CALM_S + BLOCKED_S + 1)]
    assert not any(reporters[:CALM_S])
    assert all(reporters[CALM_S:-1])
    assert reporters[-1] == []
