"""The story: a collision where it hurts, which lasts, is cleared, and happens again elsewhere.

| state | what ends it | then |
|---|---|---|
| calm | some seconds | a vehicle is stopped at a busy place: blocked |
| blocked | it has lasted long enough | the vehicle drives on: clearing |
| clearing | all incidents are over, or it takes too long | calm |
"""

from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import Final, Protocol

from milepost.model.areas import Area, Circle
from milepost.model.places import Place
from milepost.roads import Network, Placing
from milepost.simulator.collisions import Collision, maybe_choose, witnesses
from milepost.simulator.traffic import Cars

CALM_S: Final = 3
LASTS_S: Final = 30
CLEARING_S_MAX: Final = 60
APART_M: Final = 400.0
REMEMBERED: Final = 2
"""A collision is so far from so many before it."""


class Streets(Protocol):
    """What the story does to traffic."""

    def halt(self, name: str) -> bool:
        """Let somebody stop, and stay."""

    def let_go(self, name: str) -> bool:
        """Let somebody drive on."""


class Act(Enum):
    """Where the story is."""

    CALM = "calm"
    BLOCKED = "blocked"
    CLEARING = "clearing"


@dataclass(slots=True)
class Story:
    """What happens, second by second; `ends_s`: no collision begins that could not be cleared by then."""

    network: Network
    placing: Placing
    draw: Random
    ends_s: int | None
    avoided: tuple[Area, ...] = ()
    """Where no collision happens."""
    act: Act = Act.CALM
    since_s: int = 0
    collision: Collision | None = None
    past: list[Collision] = field(default_factory=list)

    def step(self, traffic: Streets, true: Cars, seen: Cars, now_s: int, *, living: int) -> list[str]:
        """One second: who reports the collision in it."""
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
