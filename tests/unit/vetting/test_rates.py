"""Rates: nobody sends more than his share for long (M27)."""

from math import inf, nan

import pytest

from milepost.model.instants import SECOND_NS, Instant
from milepost.model.reasons import Malformed, Reason
from milepost.vetting import Bucket

NOON = Instant(1_893_499_200 * SECOND_NS)


def after(seconds: float) -> Instant:
    return Instant(NOON + round(seconds * SECOND_NS))


def test_a_burst_is_let_in_and_then_the_rate_holds() -> None:
    bucket = Bucket(10, 5)
    assert [bucket.take(1, NOON) for _ in range(6)] == [True] * 5 + [False]
    assert not bucket.take(1, after(0.05))
    assert bucket.take(1, after(0.1001))
    assert not bucket.take(1, after(0.1002))


def test_what_is_refused_costs_nothing() -> None:
    bucket = Bucket(10, 5)
    assert bucket.take(3, NOON)
    assert not bucket.take(3, NOON)
    assert bucket.take(2, NOON)


def test_no_more_than_the_burst_is_saved_up() -> None:
    bucket = Bucket(10, 5)
    bucket.take(5, NOON)
    assert [bucket.take(1, after(3600)) for _ in range(6)] == [True] * 5 + [False]


def test_a_read_larger_than_the_burst_is_let_in_by_a_full_bucket_and_owed() -> None:
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


def test_a_rate_of_zero_is_no_limit() -> None:
    bucket = Bucket(0, 0)
    assert all(bucket.take(10**9, NOON) for _ in range(3))


def test_a_clock_set_back_costs_no_time() -> None:
    bucket = Bucket(10, 5)
    bucket.take(5, NOON)
    assert not bucket.take(1, after(-3600))
    assert bucket.take(1, after(-3599.5))


@pytest.mark.parametrize(("rate", "burst"), [(-1, 5), (nan, 5), (inf, 5), (1, 0), (1, -1), (1, nan), (1, inf)])
def test_a_rate_that_is_none_is_refused(rate: float, burst: float) -> None:
    with pytest.raises(Malformed) as caught:
        Bucket(rate, burst)
    assert caught.value.reason is Reason.FIELD_RANGE
