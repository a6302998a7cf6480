"""The list pool: short lists of numbers in one array, whose blocks are reused and never overlap."""

from random import Random

import numpy as np
import pytest

from milepost.matching.columns import NO_LIST, ListPool


def new_pool(lists: ListPool, numbers: list[int]) -> int:
    which = lists.new()
    append_all(lists, which, numbers)
    return which


def append_all(lists: ListPool, which: int, numbers: list[int]) -> None:
    for number in numbers:
        lists.append(which, number)


def of(*which: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.array(which, np.int32)


def test_append_stores_a_number_and_returns_its_position() -> None:
    lists = ListPool(4, 64)
    which = lists.new()
    assert [lists.append(which, number) for number in (7, 5, 7, 9, 1)] == [0, 1, 2, 3, 4]
    assert lists.view(which).tolist() == [7, 5, 7, 9, 1]
    assert lists.length(which) == 5


def test_a_new_list_is_empty_and_never_no_list() -> None:
    lists = ListPool(4, 64)
    made = [lists.new() for _ in range(4)]
    assert NO_LIST not in made
    assert len(set(made)) == 4
    assert [lists.length(which) for which in made] == [0] * 4
    assert lists.view(made[0]).size == lists.length(NO_LIST) == 0


def test_the_last_number_fills_the_gap_of_one_that_is_removed() -> None:
    lists = ListPool(4, 64)
    which = new_pool(lists, [10, 20, 30, 40])
    assert lists.remove(which, 1) == 40
    assert lists.view(which).tolist() == [10, 40, 30]
    assert lists.remove(which, 2) == -1, "removing the last number moves nothing"
    assert lists.view(which).tolist() == [10, 40]


def test_an_emptied_list_keeps_its_id_and_can_be_filled_again() -> None:
    lists = ListPool(4, 64)
    which = new_pool(lists, [1, 2, 3])
    other = new_pool(lists, [9])
    for _ in range(3):
        lists.remove(which, 0)
    assert lists.length(which) == 0
    assert lists.append(which, 4) == 0
    assert (lists.view(which).tolist(), lists.view(other).tolist()) == ([4], [9])


def test_a_growing_list_does_not_overwrite_its_neighbours() -> None:
    lists = ListPool(8, 1000)
    made = [lists.new() for _ in range(8)]
    for number in range(100):
        for which in made:
            lists.append(which, 1000 * which + number)
    assert [lists.view(which).tolist() for which in made] == [[1000 * which + n for n in range(100)] for which in made]


def test_a_freed_block_is_reused() -> None:
    lists = ListPool(4, 8)
    for turn in range(100):
        which = new_pool(lists, [turn] * 8)
        assert lists.view(which).tolist() == [turn] * 8
        for _ in range(8):
            lists.remove(which, 0)
        lists.drop(which)


def test_many_lists_are_gathered_in_order() -> None:
    lists = ListPool(4, 64)
    one, two, empty = new_pool(lists, [1, 2, 3]), new_pool(lists, [4]), lists.new()
    assert lists.gather(of(two, NO_LIST, one, empty)).tolist() == [4, 1, 2, 3]
    assert lists.gather(of(one, one)).tolist() == [1, 2, 3, 1, 2, 3]
    assert lists.gather(of()).tolist() == lists.gather(of(NO_LIST)).tolist() == []


def test_a_gathered_result_does_not_change_with_the_lists() -> None:
    lists = ListPool(4, 64)
    one = new_pool(lists, [1, 2, 3])
    gathered = lists.gather(of(one))
    lists.remove(one, 0)
    assert gathered.tolist() == [1, 2, 3]


def test_the_total_counts_without_gathering() -> None:
    lists = ListPool(4, 64)
    one, two = new_pool(lists, [1, 2, 3]), new_pool(lists, [4])
    assert lists.total(of(one, two, NO_LIST)) == 4
    assert lists.total(of()) == 0


def test_a_dropped_id_is_reused_for_an_empty_list() -> None:
    lists = ListPool(1, 64)
    which = new_pool(lists, [1])
    lists.remove(which, 0)
    lists.drop(which)
    assert lists.new() == which
    assert lists.length(which) == 0


def test_only_an_empty_list_is_dropped() -> None:
    lists = ListPool(1, 64)
    which = new_pool(lists, [1])
    with pytest.raises(AssertionError, match="only empty lists"):
        lists.drop(which)


def test_one_list_too_many_fails_an_assertion() -> None:
    lists = ListPool(2, 64)
    lists.new()
    lists.new()
    with pytest.raises(AssertionError, match="all 2 lists are in use"):
        lists.new()


def test_a_shrinking_list_frees_its_block() -> None:
    lists = ListPool(64, 64)
    stragglers: list[int] = []
    for _ in range(64):  # each time one list takes all capacity, then shrinks to one number
        which = new_pool(lists, list(range(64 - len(stragglers))))
        while lists.length(which) > 1:
            lists.remove(which, 0)
        stragglers.append(which)
    assert all(lists.length(which) == 1 for which in stragglers)


@pytest.mark.parametrize("seed", range(4))
def test_after_random_changes_lists_equal_python_lists(seed: int) -> None:
    random = Random(seed)
    lists, expected = ListPool(20, 2000), dict[int, list[int]]()
    for turn in range(3000):
        if len(expected) < 20 and random.random() < 0.05:
            which = lists.new()
            assert which not in expected
            expected[which] = []
        elif expected:
            which = random.choice(list(expected))
            numbers = expected[which]
            if not numbers and random.random() < 0.5:
                lists.drop(which)
                del expected[which]
            elif numbers and (len(numbers) > 90 or random.random() < 0.48):
                position = random.randrange(len(numbers))
                moved = lists.remove(which, position)
                last = numbers.pop()
                assert moved == (-1 if position == len(numbers) else last)
                if position < len(numbers):
                    numbers[position] = last
            else:
                assert lists.append(which, turn) == len(numbers)
                numbers.append(turn)
    assert sum(map(len, expected.values())) > 100, "the comparison must not be empty"
    assert {which: lists.view(which).tolist() for which in expected} == expected
    assert lists.gather(of(*expected)).tolist() == [number for numbers in expected.values() for number in numbers]


def test_the_promised_number_of_elements_fits_whatever_sizes_there_were_before() -> None:
    lists = ListPool(64, 64)
    for size in (64, 1, 2, 4, 8, 16):
        made = [new_pool(lists, [1] * size) for _ in range(64 // size)]
        for which in made:
            while lists.length(which):
                lists.remove(which, 0)
            lists.drop(which)
