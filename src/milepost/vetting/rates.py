"""Rates: how much a client may send, as a bucket of tokens that fills at a steady rate."""

from math import isfinite

from milepost.model.instants import SECOND_NS, Instant
from milepost.model.reasons import Malformed, Reason, shown


class Bucket:
    """Starts with `burst` tokens, gains `rate_per_s` a second, holds `burst` at most; a rate of 0 means no limit.

    More than the bucket can ever hold, asked for at once, is given to a full bucket and owed: the rate holds over time, and one
    large read is not refused for ever.
    """

    __slots__ = ("_at", "_burst", "_rate_per_ns", "_tokens")

    def __init__(self, rate_per_s: float, burst: float) -> None:
        if not (isfinite(rate_per_s) and rate_per_s >= 0):
            raise Malformed(Reason.FIELD_RANGE, f"the rate is {shown(rate_per_s)} a second: 0 for no limit, or more")
        if rate_per_s and not (isfinite(burst) and burst > 0):
            raise Malformed(Reason.FIELD_RANGE, f"the burst is {shown(burst)}: more than 0")
        self._rate_per_ns = rate_per_s / SECOND_NS
        self._burst = self._tokens = float(burst)
        self._at = 0

    def take(self, count: float, now: Instant) -> bool:
        """Take `count` tokens; if there are not enough, take none and say so."""
        rate = self._rate_per_ns
        if not rate:
            return True
        burst, tokens = self._burst, self._tokens
        if now > self._at:
            tokens += (now - self._at) * rate
            if tokens > burst:
                tokens = burst
        self._at = now  # also backwards: a clock that was set back costs no one the time until it is where it was
        if tokens < count and tokens < burst:
            self._tokens = tokens
            return False
        self._tokens = tokens - count
        return True
