"""Expiry of rows: a limited number at a time, none forgotten and none too early."""

from random import Random

import pytest

from milepost.matching.matcher import ExpiryIndex
from milepost.model.instants import FOREVER, Instant

INTERVAL_NS = 1 << 36


def remove_expired(expiries: ExpiryIndex, now: int, limit: int = 100) -> list[int]:
    """Return all expired rows, removed as they are found."""
    found: list[int] = []
    while expired := expiries.expired(Instant(now), limit):
        assert len(expired) <= limit
        for row in expired:
            expiries.remove(row)
        found += expired
    return found


@pytest.mark.parametrize("end", [0, 5, INTERVAL_NS - 1, INTERVAL_NS, 7 * INTERVAL_NS + 3])
def test_a_row_expires_after_its_end_and_not_at_it(end: int) -> None:
    expiries = ExpiryIndex(8)
    expiries.add(3, Instant(end))
    assert remove_expired(expiries, end) == []
    assert remove_expired(expiries, end + 1) == [3]
    assert remove_expired(expiries, end + 1) == []


def test_a_row_without_an_end_never_expires() -> None:
    expiries = ExpiryIndex(8)
    expiries.add(0, FOREVER)
    assert remove_expired(expiries, FOREVER - 1) == []
    expiries.remove(0)
    assert expiries.end[0] == FOREVER


def test_expired_rows_come_in_limited_batches_the_oldest_interval_first() -> None:
    expiries = ExpiryIndex(64)
    for row in range(64):
        expiries.add(row, Instant((row % 4) * INTERVAL_NS + row))
    found = remove_expired(expiries, 10 * INTERVAL_NS, limit=5)
    assert sorted(found) == list(range(64))
    assert [row % 4 for row in found] == sorted(row % 4 for row in found)


def test_a_batch_is_empty_only_if_nothing_has_expired() -> None:
    expiries = ExpiryIndex(8)
    expiries.add(0, Instant(1))
    expiries.add(1, Instant(INTERVAL_NS + 1))
    expiries.remove(0)
    assert expiries.expired(Instant(5 * INTERVAL_NS), 1) == [1], "an empty earlier interval does not hide later ones"


def test_in_the_current_interval_only_rows_that_have_ended_expire() -> None:
    expiries = ExpiryIndex(8)
    for row, end in enumerate((10, 20, 30, 20)):
        expiries.add(row, Instant(end))
    assert sorted(remove_expired(expiries, 21)) == [0, 1, 3]
    assert remove_expired(expiries, 31) == [2]


def test_a_removed_row_does_not_expire_and_may_be_added_again() -> None:
    expiries = ExpiryIndex(8)
    expiries.add(0, Instant(10))
    expiries.add(1, Instant(10))
    expiries.remove(0)
    expiries.add(0, Instant(20 * INTERVAL_NS))
    assert remove_expired(expiries, 30) == [1]
    assert remove_expired(expiries, 21 * INTERVAL_NS) == [0]


@pytest.mark.parametrize("seed", range(3))
def test_after_random_changes_exactly_the_ended_rows_expire(seed: int) -> None:
    random = Random(seed)
    expiries, ends, now = ExpiryIndex(4096), dict[int, int](), 0
    for _ in range(500):
        for _ in range(random.randrange(4)):
            row = random.randrange(100)
            if row in ends:
                expiries.remove(row)
                del ends[row]
            else:
                ends[row] = now + random.randrange(6 * INTERVAL_NS)
                expiries.add(row, Instant(ends[row]))
        now += random.randrange(INTERVAL_NS // 2)
        expired = {row for row, end in ends.items() if end < now}
        assert set(remove_expired(expiries, now, limit=3)) == expired
        for row in expired:
            del ends[row]
    assert ends, "some rows must be left that have not expired"


def test_adding_and_removing_rows_with_ever_new_ends_takes_bounded_memory() -> None:
    expiries = ExpiryIndex(8)
    for round_number in range(20):
        expiries.add(0, Instant(round_number * INTERVAL_NS))
        expiries.remove(0)
