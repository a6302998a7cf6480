"""Rates: token buckets, for one client, for many endpoints and for address prefixes.

Invariants:
- a bucket begins full, gains `rate_per_s` tokens a second and holds `burst` at most; a rate of 0 means no limit;
- a bucket stores the tokens that were spent and not yet refilled: all zeros is a full bucket;
- a refused request costs nothing. A request for more than a bucket can ever hold is granted to a full one and owed: the rate
  holds over time, and no request is refused for ever;
- after a clock was set back, no client has to wait until it has caught up.
"""

from collections import OrderedDict
from math import isfinite
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from milepost.model.instants import SECOND_NS, Instant
from milepost.model.places import Flags
from milepost.model.reasons import Malformed, Reason, shown
from milepost.vetting.reports import Numbers, maybe_ranks

Floats = NDArray[np.float64]


class Bucket:
    """One bucket, from which any number of tokens can be taken at once."""

    __slots__ = ("_at", "_burst", "_rate_per_ns", "_spent")

    def __init__(self, rate_per_s: float, burst: float) -> None:
        _check_rate(rate_per_s, burst)
        self._rate_per_ns = rate_per_s / SECOND_NS
        self._burst = burst
        self._spent = 0.0
        self._at = 0

    def take(self, count: float, now: Instant) -> bool:
        """Take `count` tokens and return True; take none and return False if there are too few."""
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


class RateLimits(NamedTuple):
    """Rate limits of one session; a rate of 0 is unlimited. Each listener has its own."""

    messages_per_s: float
    messages_burst: float
    bytes_per_s: float = 0.0
    bytes_burst: float = 0.0
    subscribes_per_s: float | None = None
    """None: subscriptions are charged as messages are."""
    subscribes_burst: float = 0.0
    is_deferred: bool = False
    """The listener charges in batches afterwards (`AdmissionControl.charge`); otherwise publications are charged one by one."""


UNLIMITED: Final = RateLimits(0.0, 0.0)


class RateMeter:
    """The token buckets of one session, each made when it is first used: most sessions only subscribe, once."""

    __slots__ = ("_byte_debt", "_bytes", "_limits", "_message_debt", "_messages", "_subscribes")

    def __init__(self, limits: RateLimits) -> None:
        self._limits = limits
        self._messages: Bucket | None = None
        self._bytes: Bucket | None = None
        self._subscribes: Bucket | None = None
        self._message_debt = 0.0
        self._byte_debt = 0.0

    def take(self, messages: float, now: Instant) -> bool:
        """Take tokens for messages that are about to be admitted; take none if there are too few."""
        if self._messages is None:
            self._messages = Bucket(self._limits.messages_per_s, self._limits.messages_burst)
        return self._messages.take(messages, now)

    def take_subscription(self, count: float, now: Instant) -> bool:
        """Take tokens for subscriptions that are about to be made; take none if there are too few."""
        if self._limits.subscribes_per_s is None:
            return self.take(count, now)
        if self._subscribes is None:
            self._subscribes = Bucket(self._limits.subscribes_per_s, self._limits.subscribes_burst)
        return self._subscribes.take(count, now)

    def charge(self, messages: float, octets: float, now: Instant) -> bool:
        """Charge messages that were already admitted; tokens that the buckets lack stay owed. Return whether nothing is owed."""
        self._message_debt += messages
        self._byte_debt += octets
        if self._bytes is None:
            self._bytes = Bucket(self._limits.bytes_per_s, self._limits.bytes_burst)
        if self.take(self._message_debt, now):
            self._message_debt = 0.0
        if self._bytes.take(self._byte_debt, now):
            self._byte_debt = 0.0
        return not (self._message_debt or self._byte_debt)


class Buckets:
    """A bucket for each endpoint, in two columns of the caller: a row of zeros is a full bucket."""

    __slots__ = ("_at", "_burst", "_rate_per_ns", "_spent")

    def __init__(self, rate_per_s: float, burst: float, *, spent: Floats, at: NDArray[np.int64]) -> None:
        _check_rate(rate_per_s, burst)
        self._rate_per_ns = rate_per_s / SECOND_NS
        self._burst = burst
        self._spent = spent
        self._at = at

    def take(self, numbers: Numbers, now: Instant, *, share: Floats | None = None) -> Flags:
        """Take a token for each number, in order; return which got one. `share` (above 0, 1 at most) lowers rate and burst.

        An endpoint whose share falls finds its bucket empty at worst: it waits for one token, not for all that it had spent.
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
        are_granted: Flags = (after <= burst) | are_full
        self._at[numbers] = now
        self._spent[numbers] = spent
        self._spent[numbers[are_granted]] = after[are_granted]  # for a repeated number the last value stays
        return are_granted


class PrefixBuckets:
    """A bucket for each address prefix seen lately, `prefixes_max` at most; the least recently used is evicted.

    An evicted prefix begins anew with a full bucket, so eviction harms no client. An attacker with more prefixes than the table
    holds can flush it, but gains only one burst of one prefix for each `prefixes_max` requests sent from others, and has a full
    bucket in each of them anyway. Limits by prefix do not help against that, only the limit of the edge as a whole. Refusing new
    prefixes when the table is full would let the same attacker lock all other clients out.
    """

    __slots__ = ("_buckets", "_burst", "_prefixes_max", "_rate_per_s")

    def __init__(self, rate_per_s: float, burst: float, *, prefixes_max: int) -> None:
        _check_rate(rate_per_s, burst)
        assert prefixes_max > 0, "the table has at least one entry"
        self._rate_per_s = rate_per_s
        self._burst = burst
        self._prefixes_max = prefixes_max
        self._buckets: OrderedDict[bytes, Bucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, prefix: bytes, count: float, now: Instant) -> bool:
        """Take `count` tokens of a prefix (the first 3 bytes of an IPv4 address, 7 of IPv6); take none if there are too few."""
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
        raise Malformed(Reason.FIELD_RANGE, f"the rate is {shown(rate_per_s)} per second, not 0 (no limit) or more")
    if rate_per_s and not (isfinite(burst) and burst > 0):
        raise Malformed(Reason.FIELD_RANGE, f"the burst is {shown(burst)}, not above 0")
