"""Retry and back-off: how long to wait before the next attempt, and when to stop trying.

Invariants:
- pure: no clock and no randomness; the jitter is an argument, so the same arguments give the same wait;
- every wait is at most `limit_s`, and at least `1 - spread` of what it would be without jitter.
"""

from dataclasses import dataclass
from typing import Final

from milepost.model.instants import SECOND_NS

_EXPONENT_MAX: Final = 64
"""Higher powers change nothing: every wait is at its limit long before."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Exponential back-off: `first_s`, then `factor` times as long after each failure, up to `limit_s`."""

    first_s: float
    limit_s: float
    factor: float = 2.0
    spread: float = 0.0
    """The fraction of a wait that jitter may take off, so that clients do not all reconnect in the same instant."""
    retries_max: int | None = None
    """Retries in a row before giving up; None: no limit."""

    def wait_s(self, failures: int, jitter: float = 0.0) -> float:
        """Return the wait after *failures* earlier waits; *jitter* in 0..1 takes off up to `spread` of it."""
        longest_s = min(self.limit_s, self.first_s * self.factor ** min(failures, _EXPONENT_MAX))
        return longest_s * (1.0 - self.spread * jitter)

    def wait_ns(self, failures: int, jitter: float = 0.0) -> int:
        """Return `wait_s` in nanoseconds."""
        return round(self.wait_s(failures, jitter) * SECOND_NS)

    def is_exhausted(self, failures: int) -> bool:
        """Return whether no retry is left after *failures*."""
        return self.retries_max is not None and failures >= self.retries_max


class Retry:
    """The failures in a row of one operation, under a policy."""

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy
        self.failures = 0

    def next_wait_s(self, jitter: float = 0.0) -> float | None:
        """Count a failure and return the wait before the next attempt; None: give up."""
        if self._policy.is_exhausted(self.failures):
            return None
        wait_s = self._policy.wait_s(self.failures, jitter)
        self.failures += 1
        return wait_s

    def reset(self) -> None:
        """Start anew after a success."""
        self.failures = 0
