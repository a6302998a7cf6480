"""Lists: short lists of numbers in one array, whose rooms are used again and never overlap."""

from random import Random

import numpy as np
import pytest

from milepost.matching.columns import NO_LIST, Lists


def filled(lists: Lists, numbers: list[int]) -> int:
    which = lists.new()
    append_all(lists, which, numbers)
    return which


def append_all(lists: Lists, which: int, numbers: list[int]) -> None:
    for number in numbers:
        lists.append(which, number)


def of(*which: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.array(which, np.int32)


def test_a_list_holds_what_was_appended_and_says_where() -> None:
    lists = Lists(4, 64)
    which = lists.new()
    assert [lists.append(which, number) for number in (7, 5, 7, 9, 1)] == [0, 1, 2, 3, 4]
    assert lists.view(which).tolist() == [7, 5, 7, 9, 1]
    assert lists.length(which) == 5


def test_a_new_list_is_empty_and_never_no_list() -> None:
    lists = Lists(4, 64)
    made = [lists.new() for _ in range(4)]
    assert NO_LIST not in made
    assert len(set(made)) == 4
    assert [lists.length(which) for which in made] == [0] * 4
    assert lists.view(made[0]).size == lists.length(NO_LIST) == 0


def test_the_last_number_fills_the_gap_of_one_that_is_removed() -> None:
    lists = Lists(4, 64)
    which = filled(lists, [10, 20, 30, 40])
    assert lists.remove(which, 1) == 40
    assert lists.view(which).tolist() == [10, 40, 30]
    assert lists.remove(which, 2) == -1, "nothing moves when the last goes"
    assert lists.view(which).tolist() == [10, 40]


def test_a_list_that_was_emptied_keeps_its_name_and_can_be_filled_again() -> None:
    lists = Lists(4, 64)
    which = filled(lists, [1, 2, 3])
    other = filled(lists, [9])
    for _ in range(3):
        lists.remove(which, 0)
    assert lists.length(which) == 0
    assert lists.append(which, 4) == 0
    assert (lists.view(which).tolist(), lists.view(other).tolist()) == ([4], [9])


def test_a_list_that_grows_does_not_write_over_its_neighbours() -> None:
    lists = Lists(8, 1000)
    made = [lists.new() for _ in range(8)]
    for number in range(100):
        for which in made:
            lists.append(which, 1000 * which + number)
    assert [lists.view(which).tolist() for which in made] == [[1000 * which + n for n in range(100)] for which in made]


def test_a_room_that_a_list_leaves_is_given_to_the_next() -> None:
    lists = Lists(4, 8)
    for turn in range(100):
        which = filled(lists, [turn] * 8)
        assert lists.view(which).tolist() == [turn] * 8
        for _ in range(8):
            lists.remove(which, 0)
        lists.drop(which)


def test_many_lists_are_gathered_one_after_the_other() -> None:
    lists = Lists(4, 64)
    one, two, empty = filled(lists, [1, 2, 3]), filled(lists, [4]), lists.new()
    assert lists.gather(of(two, NO_LIST, one, empty)).tolist() == [4, 1, 2, 3]
    assert lists.gather(of(one, one)).tolist() == [1, 2, 3, 1, 2, 3]
    assert lists.gather(of()).tolist() == lists.gather(of(NO_LIST)).tolist() == []


def test_what_was_gathered_does_not_change_with_the_lists() -> None:
    lists = Lists(4, 64)
    one = filled(lists, [1, 2, 3])
    gathered = lists.gather(of(one))
    lists.remove(one, 0)
    assert gathered.tolist() == [1, 2, 3]


def test_the_total_counts_without_gathering() -> None:
    lists = Lists(4, 64)
    one, two = filled(lists, [1, 2, 3]), filled(lists, [4])
    assert lists.total(of(one, two, NO_LIST)) == 4
    assert lists.total(of()) == 0


def test_a_name_that_was_dropped_is_given_out_again_and_means_an_empty_list() -> None:
    lists = Lists(1, 64)
    which = filled(lists, [1])
    lists.remove(which, 0)
    lists.drop(which)
    assert lists.new() == which
    assert lists.length(which) == 0


def test_only_an_empty_list_is_dropped() -> None:
    lists = Lists(1, 64)
    which = filled(lists, [1])
    with pytest.raises(AssertionError, match="only empty lists"):
        lists.drop(which)


def test_one_list_too_many_is_our_own_mistake() -> None:
    lists = Lists(2, 64)
    lists.new()
    lists.new()
    with pytest.raises(AssertionError, match="all 2 lists are taken"):
        lists.new()


def test_a_list_that_shrinks_gives_its_room_back() -> None:
    lists = Lists(64, 64)
    stragglers: list[int] = []
    for _ in range(64):  # each time a list that takes all there is, of which one number stays
        which = filled(lists, list(range(64 - len(stragglers))))
        while lists.length(which) > 1:
            lists.remove(which, 0)
        stragglers.append(which)
    assert all(lists.length(which) == 1 for which in stragglers)


@pytest.mark.parametrize("seed", range(4))
def test_lists_stay_those_of_python_through_a_random_life(seed: int) -> None:
    random = Random(seed)
    lists, plain = Lists(20, 2000), dict[int, list[int]]()
    for turn in range(3000):
        if len(plain) < 20 and random.random() < 0.05:
            which = lists.new()
            assert which not in plain
            plain[which] = []
        elif plain:
            which = random.choice(list(plain))
            kept = plain[which]
            if not kept and random.random() < 0.5:
                lists.drop(which)
                del plain[which]
            elif kept and (len(kept) > 90 or random.random() < 0.48):
                position = random.randrange(len(kept))
                moved = lists.remove(which, position)
                last = kept.pop()
                assert moved == (-1 if position == len(kept) else last)
                if position < len(kept):
                    kept[position] = last
            else:
                assert lists.append(which, turn) == len(kept)
                kept.append(turn)
    assert sum(map(len, plain.values())) > 100, "something must have been left to compare"
    assert {which: lists.view(which).tolist() for which in plain} == plain
    assert lists.gather(of(*plain)).tolist() == [number for kept in plain.values() for number in kept]


def test_as_many_numbers_as_promised_find_room_whatever_sizes_there_were_before() -> None:
    lists = Lists(64, 64)
    for size in (64, 1, 2, 4, 8, 16):
        made = [filled(lists, [1] * size) for _ in range(64 // size)]
        for which in made:
            while lists.length(which):
                lists.remove(which, 0)
            lists.drop(which)
