"""Rounds: several reports of one endpoint in a batch are checked in order, one round after another."""

import numpy as np
import pytest

from milepost.vetting import in_rounds


@pytest.mark.parametrize(
    ("numbers", "rounds"),
    [
        ([4, 2, 9], [[0, 1, 2]]),
        ([4, 2, 4], [[0, 1], [2]]),
        ([7, 7, 1, 7, 1], [[0, 2], [1, 4], [3]]),
        ([5, 5, 5], [[0], [1], [2]]),
        ([5], [[0]]),
        ([], [[]]),
    ],
)
def test_a_round_has_each_endpoint_once_and_rounds_preserve_the_order(numbers: list[int], rounds: list[list[int]]) -> None:
    assert [rows.tolist() for rows in in_rounds(np.array(numbers, np.int32))] == rounds
