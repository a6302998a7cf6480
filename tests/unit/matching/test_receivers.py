"""Receivers: each owner once, with all its rows."""

import numpy as np
import pytest

from milepost.matching.matcher import NO_RECEIVERS, MatchedReceivers, group_by_owner


def grouped(rows: list[int], owners: list[int]) -> MatchedReceivers:
    scratch = np.full(20, -1, np.int32)
    return group_by_owner(np.array(rows, np.int32), np.array(owners, np.int32), scratch)


def as_dict(receivers: MatchedReceivers) -> dict[int, list[int]]:
    return {int(owner): receivers.rows_of(index).tolist() for index, owner in enumerate(receivers.owners)}


@pytest.mark.parametrize(
    ("rows", "owners", "expected"),
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
def test_every_owner_occurs_once_with_all_its_rows(rows: list[int], owners: list[int], expected: dict[int, list[int]]) -> None:
    receivers = grouped(rows, owners)
    assert as_dict(receivers) == expected
    assert len(receivers) == len(expected)
    assert sorted(receivers.rows.tolist()) == sorted(rows)


def test_leftovers_of_an_earlier_message_in_the_scratch_are_harmless() -> None:
    scratch = np.zeros(20, np.int32)
    for _ in range(2):
        receivers = group_by_owner(np.array([4, 5, 6], np.int32), np.array([1, 2, 1], np.int32), scratch)
        assert as_dict(receivers) == {1: [4, 6], 2: [5]}


def test_maximum_is_the_greatest_value_among_the_rows_of_each_receiver() -> None:
    receivers = grouped([10, 11, 12, 13], [7, 3, 3, 7])
    values = np.array([{10: 0, 11: 2, 12: 1, 13: 1}[row] for row in receivers.rows.tolist()], np.uint8)
    assert dict(zip(receivers.owners.tolist(), receivers.maximum(values).tolist(), strict=True)) == {7: 1, 3: 2}


def test_the_maximum_of_single_rows_is_their_value() -> None:
    receivers = grouped([10, 11], [7, 3])
    assert receivers.maximum(np.array([2, 1], np.uint8)).tolist() == [2, 1]


def test_no_rows_have_no_receivers() -> None:
    assert len(NO_RECEIVERS) == NO_RECEIVERS.rows.size == 0
    assert NO_RECEIVERS.maximum(np.empty(0, np.uint8)).size == 0
