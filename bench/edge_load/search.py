"""Search for the highest rate that a broker sustains: raised until it fails, then narrowed down.

A rate is sustained if every message reached every subscriber and 99 of 100 deliveries took less than 10 ms, counted from when the
message was due. A failed rate is tried once more, unless it failed by far. A step in which the generator was late although it had
little to do (another process had the core) does not count and is repeated a few times.
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
"""Offers a rate; `None` if the broker failed under it."""


@dataclass(frozen=True, slots=True)
class SustainedRate:
    """A rate of messages that was sustained, and the result of that step."""

    offered: float
    step: Step


def highest_rate(
    offer: Offer, start: float, *, narrowings: int, growth: float = 2.0, known: SustainedRate | None = None
) -> SustainedRate | None:
    """Return the highest sustained rate; never less than *known*."""
    best, rate, deadline = known, start, time.monotonic() + SEARCH_S_MAX
    for _ in range(RAMP_STEPS_MAX):
        sustained = try_rate(offer, rate)
        if sustained is None and best is None and rate / 4 >= RATE_MIN:
            rate /= 4
            continue
        if sustained is None:
            break
        best, rate = sustained, rate * growth
    for _ in range(narrowings):
        if best is None or best is known or time.monotonic() > deadline:
            break
        middle = math.sqrt(best.offered * rate)
        sustained = try_rate(offer, middle)
        if sustained is None:
            rate = middle
        else:
            best = sustained
    return best


def try_rate(offer: Offer, rate: float) -> SustainedRate | None:
    """Try a rate, a second time if necessary; `None` if it is not sustained."""
    failures = 0
    for _ in range(DISTURBED_TRIES_MAX):
        step = offer(rate)
        if step is None:
            return None
        if step.is_complete and not step.is_overloaded and step.p99_us < P99_US_MAX:
            return SustainedRate(rate, step)
        failures += 0 if is_disturbed(step) else TRIES_MAX if step.is_overloaded else 1
        if failures >= TRIES_MAX:
            break
    return None


def is_disturbed(step: Step) -> bool:
    """Return whether the generator was late because of other processes."""
    return step.late_p99_us > DISTURBED_US and step.busy < BUSY_MAX
