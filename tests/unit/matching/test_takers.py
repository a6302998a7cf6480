"""Takers: each owner once, with all its rows."""

import numpy as np
import pytest

from milepost.matching.matcher import NOBODY, Takers, group


def grouped(rows: list[int], owners: list[int]) -> Takers:
    scratch = np.full(20, -1, np.int32)
    return group(np.array(rows, np.int32), np.array(owners, np.int32), scratch)


def told(takers: Takers) -> dict[int, list[int]]:
    return {int(owner): takers.rows_of(index).tolist() for index, owner in enumerate(takers.owners)}


@pytest.mark.parametrize(
    ("rows", "owners", "wanted"),
    [
        ([], [], {}),
        ([5], [3], {3: [5]}),
        ([5, 6], [3, 4], {3: [5], 4: [6]}),
        ([5, 6], [3, 3], {3: [5, 6]}),
        ([12, 4, 8, 5], [7, 3, 3, 9], {7: [12], 3: [4, 8], 9: [5]}),
        ([1, 2, 3, 4, 5], [9, 0, 9, 0, 9], {0: [2, 4], 9: [1, 3, 5]}),
        ([0, 1], [19, 0], {19: [0], 0: [1]}),
    ],
)
def test_every_owner_is_there_once_with_all_its_rows(rows: list[int], owners: list[int], wanted: dict[int, list[int]]) -> None:
    takers = grouped(rows, owners)
    assert told(takers) == wanted
    assert len(takers) == len(wanted)
    assert sorted(takers.rows.tolist()) == sorted(rows)


def test_what_an_earlier_message_left_in_the_scratch_does_no_harm() -> None:
    scratch = np.zeros(20, np.int32)
    for _ in range(2):
        takers = group(np.array([4, 5, 6], np.int32), np.array([1, 2, 1], np.int32), scratch)
        assert told(takers) == {1: [4, 6], 2: [5]}


def test_most_is_the_greatest_value_among_the_rows_of_each() -> None:
    takers = grouped([10, 11, 12, 13], [7, 3, 3, 7])
    values = np.array([{10: 0, 11: 2, 12: 1, 13: 1}[row] for row in takers.rows.tolist()], np.uint8)
    assert dict(zip(takers.owners.tolist(), takers.most(values).tolist(), strict=True)) == {7: 1, 3: 2}


def test_most_of_single_rows_are_the_values_themselves() -> None:
    takers = grouped([10, 11], [7, 3])
    assert takers.most(np.array([2, 1], np.uint8)).tolist() == [2, 1]


def test_nobody_takes_nothing() -> None:
    assert len(NOBODY) == NOBODY.rows.size == 0
    assert NOBODY.most(np.empty(0, np.uint8)).size == 0
