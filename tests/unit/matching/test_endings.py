"""Endings: which rows are over, a limited number at a time, none forgotten and none too early."""

from random import Random

import pytest

from milepost.matching.matcher import Endings
from milepost.model.instants import FOREVER, Instant

STRETCH_NS = 1 << 36


def ended(endings: Endings, now: int, limit: int = 100) -> list[int]:
    """All that are over, taken away as they are found."""
    found: list[int] = []
    while over := endings.over(Instant(now), limit):
        assert len(over) <= limit
        for row in over:
            endings.take_away(row)
        found += over
    return found


@pytest.mark.parametrize("end", [0, 5, STRETCH_NS - 1, STRETCH_NS, 7 * STRETCH_NS + 3])
def test_a_row_is_over_after_its_end_and_not_at_it(end: int) -> None:
    endings = Endings(8)
    endings.put(3, Instant(end))
    assert ended(endings, end) == []
    assert ended(endings, end + 1) == [3]
    assert ended(endings, end + 1) == []


def test_what_ends_never_is_never_over() -> None:
    endings = Endings(8)
    endings.put(0, FOREVER)
    assert ended(endings, FOREVER - 1) == []
    endings.take_away(0)
    assert endings.end[0] == FOREVER


def test_rows_that_are_over_come_in_turns_of_limited_size_the_oldest_stretch_first() -> None:
    endings = Endings(64)
    for row in range(64):
        endings.put(row, Instant((row % 4) * STRETCH_NS + row))
    found = ended(endings, 10 * STRETCH_NS, limit=5)
    assert sorted(found) == list(range(64))
    assert [row % 4 for row in found] == sorted(row % 4 for row in found)


def test_a_turn_is_empty_only_if_nothing_is_over() -> None:
    endings = Endings(8)
    endings.put(0, Instant(1))
    endings.put(1, Instant(STRETCH_NS + 1))
    endings.take_away(0)
    assert endings.over(Instant(5 * STRETCH_NS), 1) == [1], "the empty stretch before does not hide what follows"


def test_in_the_stretch_of_now_only_what_has_ended_is_over() -> None:
    endings = Endings(8)
    for row, end in enumerate((10, 20, 30, 20)):
        endings.put(row, Instant(end))
    assert sorted(ended(endings, 21)) == [0, 1, 3]
    assert ended(endings, 31) == [2]


def test_a_row_that_was_taken_away_is_not_over_and_may_end_anew() -> None:
    endings = Endings(8)
    endings.put(0, Instant(10))
    endings.put(1, Instant(10))
    endings.take_away(0)
    endings.put(0, Instant(20 * STRETCH_NS))
    assert ended(endings, 30) == [1]
    assert ended(endings, 21 * STRETCH_NS) == [0]


@pytest.mark.parametrize("seed", range(3))
def test_through_a_random_life_exactly_what_has_ended_is_over(seed: int) -> None:
    random = Random(seed)
    endings, ends, now = Endings(4096), dict[int, int](), 0
    for _ in range(500):
        for _ in range(random.randrange(4)):
            row = random.randrange(100)
            if row in ends:
                endings.take_away(row)
                del ends[row]
            else:
                ends[row] = now + random.randrange(6 * STRETCH_NS)
                endings.put(row, Instant(ends[row]))
        now += random.randrange(STRETCH_NS // 2)
        over = {row for row, end in ends.items() if end < now}
        assert set(ended(endings, now, limit=3)) == over
        for row in over:
            del ends[row]
    assert ends, "some must have been left that are not over"


def test_coming_and_going_with_ever_other_ends_takes_no_more_room_than_is_in_use() -> None:
    endings = Endings(8)
    for turn in range(20):
        endings.put(0, Instant(turn * STRETCH_NS))
        endings.take_away(0)
