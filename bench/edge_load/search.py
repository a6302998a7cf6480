"""The highest rate a broker holds: raised until it no longer does, then narrowed down.

A rate is held when every message reached every taker and 99 of 100 deliveries took less than 10 ms, counted from when the message
was due to be sent. A rate that was missed is tried once more, unless it was missed by far. A step in which the generator was late
although it had little to do (another job had the core) does not count and is tried again, a few times.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from bench.edge_load.generator import Step
from bench.harness import QUICK

P99_US_MAX = 10_000.0
DISTURBED_US = 3_000.0
BUSY_MAX = 0.9
TRIES_MAX = 2
DISTURBED_TRIES_MAX = 3
RAMP_STEPS_MAX = 10
RATE_MIN = 10.0
SEARCH_S_MAX = 7.0 if QUICK else 20.0

Offer = Callable[[float], Step | None]
"""Offers a rate; nothing when the broker broke down under it."""


@dataclass(frozen=True, slots=True)
class Held:
    """A rate of messages that was held, and the step that showed it."""

    offered: float
    step: Step


def highest(offer: Offer, start: float, *, narrowings: int, growth: float = 2.0, known: Held | None = None) -> Held | None:
    """The highest rate found; never less than what is known."""
    best, rate, deadline = known, start, time.monotonic() + SEARCH_S_MAX
    for _ in range(RAMP_STEPS_MAX):
        held = try_rate(offer, rate)
        if held is None and best is None and rate / 4 >= RATE_MIN:
            rate /= 4
            continue
        if held is None:
            break
        best, rate = held, rate * growth
    for _ in range(narrowings):
        if best is None or best is known or time.monotonic() > deadline:
            break
        middle = math.sqrt(best.offered * rate)
        held = try_rate(offer, middle)
        if held is None:
            rate = middle
        else:
            best = held
    return best


def try_rate(offer: Offer, rate: float) -> Held | None:
    """Whether the rate is held, at the second try if need be."""
    failures = 0
    for _ in range(DISTURBED_TRIES_MAX):
        step = offer(rate)
        if step is None:
            return None
        if step.is_whole and not step.is_hopeless and step.p99_us < P99_US_MAX:
            return Held(rate, step)
        failures += 0 if is_disturbed(step) else TRIES_MAX if step.is_hopeless else 1
        if failures >= TRIES_MAX:
            break
    return None


def is_disturbed(step: Step) -> bool:
    """Whether the generator was late through no fault of its own."""
    return step.late_p99_us > DISTURBED_US and step.busy < BUSY_MAX
