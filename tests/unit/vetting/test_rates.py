"""Rate limits: no sender exceeds its rate for long (M27)."""

from math import inf, nan

import numpy as np
import pytest
from numpy.typing import NDArray

from milepost.model.instants import SECOND_NS, Instant
from milepost.model.reasons import Malformed, Reason
from milepost.vetting import Bucket, Buckets, PrefixBuckets

NOON = Instant(1_893_499_200 * SECOND_NS)


def after(seconds: float) -> Instant:
    return Instant(NOON + round(seconds * SECOND_NS))


def test_a_burst_is_granted_and_then_the_rate_applies() -> None:
    bucket = Bucket(10, 5)
    assert [bucket.take(1, NOON) for _ in range(6)] == [True] * 5 + [False]
    assert not bucket.take(1, after(0.05))
    assert bucket.take(1, after(0.1001))
    assert not bucket.take(1, after(0.1002))


def test_a_refused_request_costs_nothing() -> None:
    bucket = Bucket(10, 5)
    assert bucket.take(3, NOON)
    assert not bucket.take(3, NOON)
    assert bucket.take(2, NOON)


def test_a_bucket_accumulates_no_more_than_the_burst() -> None:
    bucket = Bucket(10, 5)
    bucket.take(5, NOON)
    assert [bucket.take(1, after(3600)) for _ in range(6)] == [True] * 5 + [False]


def test_a_request_larger_than_the_burst_is_granted_to_a_full_bucket_and_owed() -> None:
    bucket = Bucket(10, 5)
    assert bucket.take(25, NOON)
    assert not bucket.take(1, after(2))
    assert bucket.take(1, after(2.2))
    assert not bucket.take(25, after(2.3))


@pytest.mark.parametrize("count", [1, 7, 30])
def test_over_time_no_more_than_rate_and_burst_passes(count: int) -> None:
    bucket = Bucket(10, 20)
    passed = sum(count for step in range(10_000) if bucket.take(count, after(step / 100)))
    assert 10 * 100 - count <= passed <= 10 * 100 + 20 + count


def test_a_rate_of_zero_means_no_limit() -> None:
    bucket = Bucket(0, 0)
    assert all(bucket.take(10**9, NOON) for _ in range(3))


def test_setting_the_clock_back_causes_no_wait() -> None:
    bucket = Bucket(10, 5)
    bucket.take(5, NOON)
    assert not bucket.take(1, after(-3600))
    assert bucket.take(1, after(-3599.5))


@pytest.mark.parametrize(("rate", "burst"), [(-1, 5), (nan, 5), (inf, 5), (1, 0), (1, -1), (1, nan), (1, inf)])
def test_an_invalid_rate_is_refused(rate: float, burst: float) -> None:
    for make in (Bucket, buckets, lambda rate, burst: PrefixBuckets(rate, burst, prefixes_max=9)):
        with pytest.raises(Malformed) as caught:
            make(rate, burst)
        assert caught.value.reason is Reason.FIELD_RANGE


def buckets(rate_per_s: float, burst: float) -> Buckets:
    return Buckets(rate_per_s, burst, spent=np.zeros(10), at=np.zeros(10, np.int64))


def rows(*numbers: int) -> NDArray[np.int32]:
    return np.array(numbers, np.int32)


@pytest.mark.parametrize("now", [Instant(0), NOON])
def test_a_row_of_zeros_is_a_full_bucket_at_any_time(now: Instant) -> None:
    many = buckets(10, 2)
    assert [many.take(rows(3, 4), now).tolist() for _ in range(3)] == [[True, True], [True, True], [False, False]]


def test_an_endpoint_repeated_in_a_batch_is_charged_in_order() -> None:
    many = buckets(10, 2)
    assert many.take(rows(5, 1, 5, 5, 1), NOON).tolist() == [True, True, True, False, True]
    assert many.take(rows(1, 5, 2), after(0.1001)).tolist() == [True, True, True]
    assert many.take(rows(1, 5, 2), after(0.1001)).tolist() == [False, False, True]


def test_a_share_lowers_rate_and_burst_of_its_endpoint_only() -> None:
    # M27
    many = buckets(10, 10)
    share = np.array([0.2] * 12 + [1.0] * 12)
    both = rows(*[1] * 12, *[2] * 12)
    assert many.take(both, NOON, share=share).tolist() == [True] * 2 + [False] * 10 + [True] * 10 + [False] * 2
    assert many.take(both, after(0.5001), share=share).sum() == 1 + 5


def test_a_share_below_one_token_still_grants_one_eventually() -> None:
    many = buckets(10, 10)
    share = np.array([0.01])
    given = [step for step in range(0, 301, 5) if many.take(rows(1), after(step / 10), share=share)[0]]
    assert given == [0, 100, 200, 300]


def test_an_endpoint_whose_share_falls_waits_for_one_token_only() -> None:
    many = buckets(10, 1000)
    assert many.take(rows(*[1] * 1000), NOON).all()
    assert not many.take(rows(1), after(0.9), share=np.array([0.1]))[0]
    assert many.take(rows(1), after(1.1), share=np.array([0.1]))[0]


def test_buckets_without_a_rate_grant_everything() -> None:
    assert buckets(0, 0).take(rows(*[1] * 1000), NOON).all()


def test_setting_the_clock_back_causes_no_wait_in_many_buckets() -> None:
    many = buckets(10, 5)
    many.take(rows(*[1] * 5), NOON)
    assert not many.take(rows(1), after(-3600))[0]
    assert many.take(rows(1), after(-3599.5))[0]


def test_each_prefix_has_a_bucket_of_its_own() -> None:
    prefixes = PrefixBuckets(10, 2, prefixes_max=9)
    assert [prefixes.take(b"a", 1, NOON) for _ in range(3)] == [True, True, False]
    assert prefixes.take(b"b", 2, NOON)
    assert not prefixes.take(b"b", 1, NOON)
    assert prefixes.take(b"a", 1, after(0.1001))


def test_the_prefix_table_is_bounded_and_evicts_the_least_recently_used() -> None:
    prefixes = PrefixBuckets(1, 1, prefixes_max=3)
    for name in (b"a", b"b", b"c"):
        assert prefixes.take(name, 1, NOON)
    assert not prefixes.take(b"a", 1, NOON)
    assert prefixes.take(b"d", 1, NOON)
    assert len(prefixes) == 3
    assert not prefixes.take(b"a", 1, NOON), "a was used again, so b was evicted instead"
    assert prefixes.take(b"b", 1, NOON)


def test_flushing_the_prefix_table_gains_little() -> None:
    prefixes = PrefixBuckets(1, 10, prefixes_max=100)
    passed = 0
    for other in range(1000):
        passed += prefixes.take(b"loud", 1, NOON)
        prefixes.take(other.to_bytes(7, "big"), 1, NOON)
    assert passed == 10


def test_without_a_rate_no_prefix_is_stored() -> None:
    prefixes = PrefixBuckets(0, 0, prefixes_max=1)
    assert all(prefixes.take(bytes([number]), 10**9, NOON) for number in range(5))
    assert len(prefixes) == 0
