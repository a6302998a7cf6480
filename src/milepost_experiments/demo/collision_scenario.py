"""The story of the demo: a collision at a busy place, which lasts, is cleared, and happens again elsewhere.

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

from milepost.model.areas import Area, Circle, Going, holds_going
from milepost.model.places import Place, vectors
from milepost.roads import Network, Placing, Reach, maybe_upstream
from milepost_experiments.simulator.traffic import Cars

CALM_S: Final = 3
LASTS_S: Final = 30
CLEARING_S_MAX: Final = 60
REMEMBERED: Final = 2
APART_M: Final = 400.0
"""Minimum distance of a collision from the `REMEMBERED` ones before it."""
CANDIDATES: Final = 40
BEHIND_S: Final = 20.0
"""A place is as busy as the number of vehicles within this many seconds of driving upstream of it."""
BEHIND_SHARE_MAX: Final = 0.15
SEEN_M: Final = 90.0
SPREADS_MPS: Final = 3.0
SEEN_M_MAX: Final = 140.0
AGAIN_S: Final = 2
"""Interval between reports of one witness, in seconds."""
_FAST_MPS: Final = 4.0


@dataclass(frozen=True, slots=True)
class Collision:
    """A vehicle that stands in the way of others."""

    car: str
    place: Place
    began_s: float

    def seen_m(self, now_s: float) -> float:
        """Return the distance from which it is seen."""
        return min(SEEN_M_MAX, SEEN_M + SPREADS_MPS * (now_s - self.began_s))


def maybe_choose(network: Network, placing: Placing, cars: Cars, avoided: Sequence[Area], draw: Random) -> int | None:
    """Return the index of the vehicle to stop: of some that drive outside the avoided areas, the one with most behind it.

    At most a share of all vehicles may be behind it, because an alert to nearly all of them would show nothing.
    """
    points, going = vectors(cars.latitudes, cars.longitudes), Going(cars.headings_deg, cars.speeds_mps)
    is_free = (cars.speeds_mps > _FAST_MPS) & np.array([not road.startswith(":") for road in cars.roads], bool)
    for where in avoided:
        is_free &= ~where.contains(points)
    free = np.flatnonzero(is_free).tolist()
    found, most = None, 0
    for at in draw.sample(free, min(CANDIDATES, len(free))):
        place = Place(float(cars.latitudes[at]), float(cars.longitudes[at]))
        area = maybe_upstream(network, placing.spots_at(place), Reach(seconds=BEHIND_S))
        behind = 0 if area is None else int(holds_going(area, points, going).sum())
        if most < behind <= BEHIND_SHARE_MAX * len(cars):
            found, most = at, behind
    return found


def witnesses(collision: Collision, seen: Cars, now_s: int) -> list[str]:
    """Return the vehicles that report it in this second: each that sees it, every `AGAIN_S` seconds, not all at once."""
    near = Circle(collision.place, collision.seen_m(now_s)).contains(vectors(seen.latitudes, seen.longitudes))
    return [seen.names[at] for at in np.flatnonzero(near).tolist() if (now_s + at) % AGAIN_S == 0]


class Streets(Protocol):
    """The traffic, as far as the story changes it."""

    def halt(self, name: str) -> bool:
        """Stop a vehicle; return whether it stands."""

    def let_go(self, name: str) -> bool:
        """Let a vehicle drive on; return whether it does."""


class Act(Enum):
    """The state of the story."""

    CALM = "calm"
    BLOCKED = "blocked"
    CLEARING = "clearing"


@dataclass(slots=True)
class Story:
    """The state machine, stepped every second; no collision begins that could not be cleared by `ends_s`."""

    network: Network
    placing: Placing
    draw: Random
    ends_s: int | None
    avoided: tuple[Area, ...] = ()
    """Areas without collisions."""
    act: Act = Act.CALM
    since_s: int = 0
    collision: Collision | None = None
    past: list[Collision] = field(default_factory=list)

    def step(self, traffic: Streets, true: Cars, seen: Cars, now_s: int, *, living: int) -> list[str]:
        """Take one second; return the vehicles that report the collision in it."""
        passed = now_s - self.since_s
        match self.act:
            case Act.CALM if passed >= CALM_S and self._has_time(now_s):
                self._begin(traffic, true, now_s)
            case Act.BLOCKED if passed >= LASTS_S or not self._stands(true):
                assert self.collision is not None
                traffic.let_go(self.collision.car)
                self._turn(Act.CLEARING, now_s)
            case Act.CLEARING if passed > CALM_S and (not living or passed >= CLEARING_S_MAX):
                self._turn(Act.CALM, now_s)
        if self.act is not Act.BLOCKED or self.collision is None:
            return []
        return witnesses(self.collision, seen, now_s)

    def _begin(self, traffic: Streets, true: Cars, now_s: int) -> None:
        past: list[Area] = [Circle(one.place, APART_M) for one in self.past[-REMEMBERED:]]
        at = maybe_choose(self.network, self.placing, true, [*past, *self.avoided], self.draw)
        if at is None or not traffic.halt(true.names[at]):
            return
        place = Place(float(true.latitudes[at]), float(true.longitudes[at]))
        self.collision = Collision(true.names[at], place, float(now_s))
        self.past.append(self.collision)
        self._turn(Act.BLOCKED, now_s)

    def _has_time(self, now_s: int) -> bool:
        return self.ends_s is None or not self.past or now_s + LASTS_S + CALM_S <= self.ends_s

    def _stands(self, true: Cars) -> bool:
        return self.collision is not None and self.collision.car in true.names

    def _turn(self, act: Act, now_s: int) -> None:
        self.act, self.since_s = act, now_s
