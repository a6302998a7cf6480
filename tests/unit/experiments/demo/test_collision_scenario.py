"""The story: a collision begins, lasts, is cleared and happens again elsewhere; never when it could not be cleared in time."""

from dataclasses import dataclass, field
from random import Random

import numpy as np
from milepost_experiments.demo.collision_scenario import CALM_S, CLEARING_S_MAX, LASTS_S, Act, Story

from milepost.model.places import distance_m
from milepost.roads import Placing
from milepost_experiments.simulator.traffic import Cars
from unit.roads.drawn import degrees, drawn

STREETS = range(10)
APART_M = 500.0
NETWORK = drawn(
    {name: (400.0 * (at % 2), APART_M * (at // 2)) for at, name in enumerate("abcdefghijklmnopqrst")},
    *(f"{'abcdefghijklmnopqrst'[2 * at]}>{'abcdefghijklmnopqrst'[2 * at + 1]}" for at in STREETS),
)
"""Streets side by side, each far from the others."""
PLACES = [(40.0 * number, APART_M * street) for street in STREETS for number in range(10)]


@dataclass
class Streets:
    """Who was halted, and let go."""

    halted: list[str] = field(default_factory=list)
    freed: list[str] = field(default_factory=list)

    def halt(self, name: str) -> bool:
        self.halted.append(name)
        return True

    def let_go(self, name: str) -> bool:
        self.freed.append(name)
        return True


def cars() -> Cars:
    places = np.array([degrees(*one) for one in PLACES])
    count = len(PLACES)
    names = tuple(f"car-{number:03}" for number in range(count))
    return Cars(names, places[:, 0], places[:, 1], np.full(count, 90.0), np.full(count, 10.0), ("ab",) * count)


def told(story: Story, streets: Streets, seconds: range, *, living: int = 0) -> list[Act]:
    acts = []
    for second in seconds:
        story.step(streets, cars(), cars(), second, living=living)
        acts.append(story.act)
    return acts


def a_story(ends_s: int | None = None) -> Story:
    return Story(NETWORK, Placing(NETWORK), Random(3), ends_s)


def test_one_collision_after_the_other_each_elsewhere() -> None:
    story, streets = a_story(), Streets()
    acts = told(story, streets, range(200))
    assert acts[CALM_S] is Act.BLOCKED
    assert acts[CALM_S + LASTS_S] is Act.CLEARING
    assert len(story.past) >= 4
    assert streets.freed == streets.halted[: len(streets.freed)]
    first, second = story.past[0].place, story.past[1].place
    assert distance_m(first, second) > 400


def test_it_is_calm_again_only_when_all_is_over_or_takes_too_long() -> None:
    story, streets = a_story(), Streets()
    told(story, streets, range(CALM_S + LASTS_S + 1))
    since = CALM_S + LASTS_S + 1
    assert set(told(story, streets, range(since, since + CLEARING_S_MAX - 1), living=1)) == {Act.CLEARING}
    assert told(story, streets, range(since + CLEARING_S_MAX, since + CLEARING_S_MAX + 1), living=1) == [Act.CALM]


def test_no_second_collision_begins_that_would_not_end_in_time() -> None:
    story, streets = a_story(ends_s=60), Streets()
    told(story, streets, range(60))
    assert len(story.past) == 1


def test_who_is_near_reports_while_it_lasts_and_nobody_before_and_after() -> None:
    story, streets = a_story(), Streets()
    seen = [story.step(streets, cars(), cars(), second, living=0) for second in range(CALM_S + LASTS_S + 1)]
    assert not any(seen[:CALM_S])
    assert all(seen[CALM_S:-1])
    assert seen[-1] == []
