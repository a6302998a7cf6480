"""The scenario of the demo: a collision at a busy place, which lasts, is cleared, and happens again elsewhere.

| state | ends when | next |
|---|---|---|
| calm | some seconds have passed | blocked: a vehicle is stopped at a busy place |
| blocked | it has lasted long enough | clearing: the vehicle drives on |
| clearing | all incidents are over, or it takes too long | calm |

Vehicles near the collision report it again and again while it lasts. The queue behind it grows, and so does the distance from
which it is seen.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import Final, Protocol

import numpy as np

from milepost.model.areas import Area, Circle, Motion, contains_moving
from milepost.model.places import Place, vectors
from milepost.roads import MapMatcher, RoadNetwork, UpstreamExtent, find_upstream_area
from milepost_experiments.simulator.traffic import Cars

CALM_S: Final = 3
BLOCKED_S: Final = 30
CLEARING_S_MAX: Final = 60
REMEMBERED: Final = 2
SPACING_M: Final = 400.0
"""Minimum distance of a collision from the `REMEMBERED` ones before it."""
CANDIDATES: Final = 40
BEHIND_S: Final = 20.0
"""A place is as busy as the number of vehicles within this many seconds of driving upstream of it."""
BEHIND_SHARE_MAX: Final = 0.15
SIGHT_M: Final = 90.0
SIGHT_GROWTH_MPS: Final = 3.0
SIGHT_M_MAX: Final = 140.0
REPORT_INTERVAL_S: Final = 2
"""Interval between reports of one witness, in seconds."""
_FAST_MPS: Final = 4.0


@dataclass(frozen=True, slots=True)
class Collision:
    """A vehicle that stands in the way of others."""

    car: str
    place: Place
    began_s: float

    def sight_m(self, now_s: float) -> float:
        """Return the distance from which it is seen."""
        return min(SIGHT_M_MAX, SIGHT_M + SIGHT_GROWTH_MPS * (now_s - self.began_s))


def find_vehicle_to_stop(
    network: RoadNetwork, map_matcher: MapMatcher, cars: Cars, avoided: Sequence[Area], rng: Random
) -> int | None:
    """Return the index of the vehicle to stop: of some that drive outside the avoided areas, the one with most behind it.

    At most a share of all vehicles may be behind it, because an alert to nearly all of them would show nothing.
    """
    points, motion = vectors(cars.latitudes, cars.longitudes), Motion(cars.headings_deg, cars.speeds_mps)
    is_free = (cars.speeds_mps > _FAST_MPS) & np.array([not road.startswith(":") for road in cars.roads], bool)
    for zone in avoided:
        is_free &= ~zone.contains(points)
    free = np.flatnonzero(is_free).tolist()
    found, most = None, 0
    for at in rng.sample(free, min(CANDIDATES, len(free))):
        place = Place(float(cars.latitudes[at]), float(cars.longitudes[at]))
        area = find_upstream_area(network, map_matcher.positions_near(place), UpstreamExtent(seconds=BEHIND_S))
        behind = 0 if area is None else int(contains_moving(area, points, motion).sum())
        if most < behind <= BEHIND_SHARE_MAX * len(cars):
            found, most = at, behind
    return found


def witnesses(collision: Collision, seen: Cars, now_s: int) -> list[str]:
    """Return the vehicles that report it in this second: each that sees it, every `REPORT_INTERVAL_S`, not all at once."""
    near = Circle(collision.place, collision.sight_m(now_s)).contains(vectors(seen.latitudes, seen.longitudes))
    return [seen.names[at] for at in np.flatnonzero(near).tolist() if (now_s + at) % REPORT_INTERVAL_S == 0]


class TrafficControl(Protocol):
    """The traffic, as far as the scenario changes it."""

    def halt(self, name: str) -> bool:
        """Stop a vehicle; return whether it stands."""

    def release(self, name: str) -> bool:
        """Let a vehicle drive on; return whether it does."""


class ScenarioState(Enum):
    """The state of the scenario."""

    CALM = "calm"
    BLOCKED = "blocked"
    CLEARING = "clearing"


@dataclass(slots=True)
class CollisionScenario:
    """The state machine, stepped every second; no collision begins that could not be cleared by `ends_s`."""

    network: RoadNetwork
    map_matcher: MapMatcher
    rng: Random
    ends_s: int | None
    avoided: tuple[Area, ...] = ()
    """Areas without collisions."""
    state: ScenarioState = ScenarioState.CALM
    since_s: int = 0
    collision: Collision | None = None
    past_collisions: list[Collision] = field(default_factory=list)

    def step(self, traffic: TrafficControl, true: Cars, seen: Cars, now_s: int, *, active_incidents: int) -> list[str]:
        """Take one second; return the vehicles that report the collision in it."""
        passed = now_s - self.since_s
        match self.state:
            case ScenarioState.CALM if passed >= CALM_S and self._has_time(now_s):
                self._begin(traffic, true, now_s)
            case ScenarioState.BLOCKED if passed >= BLOCKED_S or not self._is_vehicle_present(true):
                assert self.collision is not None
                traffic.release(self.collision.car)
                self._enter_state(ScenarioState.CLEARING, now_s)
            case ScenarioState.CLEARING if passed > CALM_S and (not active_incidents or passed >= CLEARING_S_MAX):
                self._enter_state(ScenarioState.CALM, now_s)
        if self.state is not ScenarioState.BLOCKED or self.collision is None:
            return []
        return witnesses(self.collision, seen, now_s)

    def _begin(self, traffic: TrafficControl, true: Cars, now_s: int) -> None:
        near_past_collisions: list[Area] = [Circle(one.place, SPACING_M) for one in self.past_collisions[-REMEMBERED:]]
        at = find_vehicle_to_stop(self.network, self.map_matcher, true, [*near_past_collisions, *self.avoided], self.rng)
        if at is None or not traffic.halt(true.names[at]):
            return
        place = Place(float(true.latitudes[at]), float(true.longitudes[at]))
        self.collision = Collision(true.names[at], place, float(now_s))
        self.past_collisions.append(self.collision)
        self._enter_state(ScenarioState.BLOCKED, now_s)

    def _has_time(self, now_s: int) -> bool:
        return self.ends_s is None or not self.past_collisions or now_s + BLOCKED_S + CALM_S <= self.ends_s

    def _is_vehicle_present(self, true: Cars) -> bool:
        return self.collision is not None and self.collision.car in true.names

    def _enter_state(self, state: ScenarioState, now_s: int) -> None:
        self.state, self.since_s = state, now_s
