"""Waits between attempts: growth, limit, jitter, giving up."""

import pytest

from milepost.model.instants import SECOND_NS
from milepost.model.retry import Retry, RetryPolicy

POLICY = RetryPolicy(first_s=0.5, limit_s=5.0)


def test_waits_grow_by_the_factor_up_to_the_limit() -> None:
    assert [POLICY.wait_s(failures) for failures in range(6)] == [0.5, 1.0, 2.0, 4.0, 5.0, 5.0]
    assert [RetryPolicy(0.1, 1.0, factor=10).wait_s(failures) for failures in range(3)] == [0.1, 1.0, 1.0]


def test_a_policy_without_end_stays_at_its_limit() -> None:
    assert POLICY.wait_s(10**9) == 5.0
    assert not POLICY.is_exhausted(10**9)


@pytest.mark.parametrize(("jitter", "wait_s"), [(0.0, 4.0), (0.5, 3.0), (1.0, 2.0)])
def test_jitter_takes_off_no_more_than_the_spread(jitter: float, wait_s: float) -> None:
    assert RetryPolicy(4.0, 4.0, spread=0.5).wait_s(0, jitter) == wait_s


def test_without_a_spread_jitter_changes_nothing() -> None:
    assert POLICY.wait_s(1, 1.0) == POLICY.wait_s(1)


def test_nanoseconds_are_the_same_wait() -> None:
    assert POLICY.wait_ns(2) == 2 * SECOND_NS


def test_a_retry_counts_its_failures_and_a_reset_starts_over() -> None:
    retry = Retry(POLICY)
    assert [retry.next_wait_s() for _ in range(3)] == [0.5, 1.0, 2.0]
    assert retry.failures == 3
    retry.reset()
    assert retry.next_wait_s() == 0.5


def test_a_retry_gives_up_after_its_last_attempt_and_may_begin_again() -> None:
    retry = Retry(RetryPolicy(0.1, 1.0, factor=10, retries_max=2))
    assert [retry.next_wait_s() for _ in range(4)] == [0.1, 1.0, None, None]
    retry.reset()
    assert retry.next_wait_s() == 0.1


def test_a_policy_of_no_retries_gives_up_at_once() -> None:
    assert Retry(RetryPolicy(1.0, 1.0, retries_max=0)).next_wait_s() is None
