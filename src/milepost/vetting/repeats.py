"""Repeats: what to do when one batch holds several things of the same endpoint, which must be judged one after another."""

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int32]
"""Numbers of endpoints, one for each thing in a batch."""


def maybe_ranks(numbers: Numbers) -> NDArray[np.intp] | None:
    """How often each number came before in the batch; nothing if none came twice, which is quick to see."""
    ordered = np.sort(numbers)
    if not np.count_nonzero(ordered[1:] == ordered[:-1]):
        return None
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    is_first = np.concatenate(([True], ordered[1:] != ordered[:-1]))
    starts = np.flatnonzero(is_first)
    ranks = np.empty(numbers.size, np.intp)
    ranks[order] = np.arange(numbers.size) - starts[np.cumsum(is_first) - 1]
    return ranks


def in_rounds(numbers: Numbers) -> list[NDArray[np.intp]]:
    """The rows of a batch in rounds: each has an endpoint once at most, and what came first is in an earlier round.

    There are as many rounds as the busiest endpoint has rows. Limit its rate first, or one that floods makes a batch as slow as
    its rows one by one.
    """
    ranks = maybe_ranks(numbers)
    if ranks is None:
        return [np.arange(numbers.size)]
    return np.split(np.argsort(ranks, kind="stable"), np.cumsum(np.bincount(ranks))[:-1])
