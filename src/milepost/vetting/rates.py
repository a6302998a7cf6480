"""Rates: how much may be sent, as buckets of tokens that fill at a steady rate: of one client, of many endpoints, of prefixes.

What must hold:
- a bucket begins full, gains `rate_per_s` tokens a second and holds `burst` at most; a rate of 0 means no limit;
- a bucket remembers what was spent of it and not yet made good: where nothing is written yet, it is full;
- what is refused costs nothing. More than a bucket can ever hold, asked for at once, is given to a full one and owed: the rate
  holds over time, and nobody is refused for ever;
- a clock that was set back costs no one the time until it is where it was.
"""

from collections import OrderedDict
from math import isfinite

import numpy as np
from numpy.typing import NDArray

from milepost.model.instants import SECOND_NS, Instant
from milepost.model.places import Flags
from milepost.model.reasons import Malformed, Reason, shown
from milepost.vetting.repeats import Numbers, maybe_ranks

Floats = NDArray[np.float64]


class Bucket:
    """One bucket, from which any number of tokens is taken at once."""

    __slots__ = ("_at", "_burst", "_rate_per_ns", "_spent")

    def __init__(self, rate_per_s: float, burst: float) -> None:
        _check_rate(rate_per_s, burst)
        self._rate_per_ns = rate_per_s / SECOND_NS
        self._burst = burst
        self._spent = 0.0
        self._at = 0

    def take(self, count: float, now: Instant) -> bool:
        """Take `count` tokens; if there are not enough, take none and say so."""
        rate = self._rate_per_ns
        if not rate:
            return True
        spent = self._spent
        if spent and now > self._at:
            spent -= (now - self._at) * rate
            if spent < 0.0:
                spent = 0.0
        self._at = now
        if spent and spent + count > self._burst:
            self._spent = spent
            return False
        self._spent = spent + count
        return True


class Buckets:
    """A bucket for each endpoint, in two columns that the caller has: a row of zeros is a full bucket."""

    __slots__ = ("_at", "_burst", "_rate_per_ns", "_spent")

    def __init__(self, rate_per_s: float, burst: float, *, spent: Floats, at: NDArray[np.int64]) -> None:
        _check_rate(rate_per_s, burst)
        self._rate_per_ns = rate_per_s / SECOND_NS
        self._burst = burst
        self._spent = spent
        self._at = at

    def take(self, numbers: Numbers, now: Instant, *, share: Floats | None = None) -> Flags:
        """Take a token for each number, in their order, and say who got one; `share` (above 0, 1 at most) lowers rate and burst.

        Whose share falls finds its bucket empty at worst: it waits for one token, not for all that it was once given.
        """
        if not self._rate_per_ns:
            return np.ones(numbers.size, np.bool_)
        burst: float | Floats = self._burst
        rate: float | Floats = self._rate_per_ns
        spent = self._spent[numbers]
        if share is not None:
            burst, rate = burst * share, rate * share
            spent = np.minimum(spent, np.maximum(burst, 1.0))
        spent = np.maximum(spent - np.maximum(now - self._at[numbers], 0) * rate, 0.0)
        after, are_full, ranks = spent + 1.0, spent == 0.0, maybe_ranks(numbers)
        if ranks is not None:
            after += ranks
            are_full &= ranks == 0
        are_given: Flags = (after <= burst) | are_full
        self._at[numbers] = now
        self._spent[numbers] = spent
        self._spent[numbers[are_given]] = after[are_given]  # where a number comes twice, its last one stays
        return are_given


class PrefixBuckets:
    """A bucket for each prefix of addresses that was heard of lately, `prefixes_max` at most; the longest unheard is forgotten.

    To be forgotten is to begin anew with a full bucket, so nobody suffers from it. Who commands more prefixes than the table
    holds can empty it, but gains one burst of one prefix for each `prefixes_max` things sent from others; and such a one has a
    full bucket in each of them anyway. Against that there is no help by prefix, only the limit of the edge as a whole. To turn
    newcomers away instead when the table is full would let the same attacker shut everybody out.
    """

    __slots__ = ("_buckets", "_burst", "_prefixes_max", "_rate_per_s")

    def __init__(self, rate_per_s: float, burst: float, *, prefixes_max: int) -> None:
        _check_rate(rate_per_s, burst)
        assert prefixes_max > 0, "a table for nobody"
        self._rate_per_s = rate_per_s
        self._burst = burst
        self._prefixes_max = prefixes_max
        self._buckets: OrderedDict[bytes, Bucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, prefix: bytes, count: float, now: Instant) -> bool:
        """Take `count` tokens of a prefix (the first 3 bytes of an IPv4 address, 7 of IPv6); if there are not enough, none."""
        if not self._rate_per_s:
            return True
        buckets = self._buckets
        bucket = buckets.get(prefix)
        if bucket is None:
            if len(buckets) == self._prefixes_max:
                buckets.popitem(last=False)
            bucket = buckets[prefix] = Bucket(self._rate_per_s, self._burst)
        else:
            buckets.move_to_end(prefix)
        return bucket.take(count, now)


def _check_rate(rate_per_s: float, burst: float) -> None:
    if not (isfinite(rate_per_s) and rate_per_s >= 0):
        raise Malformed(Reason.FIELD_RANGE, f"the rate is {shown(rate_per_s)} a second: 0 for no limit, or more")
    if rate_per_s and not (isfinite(burst) and burst > 0):
        raise Malformed(Reason.FIELD_RANGE, f"the burst is {shown(burst)}: more than 0")
