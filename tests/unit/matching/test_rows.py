"""Rows by query: none, one or many rows of a query, all found and none twice."""

from random import Random

import numpy as np
import pytest

from milepost.matching.columns import RowsByQuery


def rows_of(rows: RowsByQuery, *queries: int) -> list[int]:
    """Return the rows of some queries; both methods must agree."""
    few, many = rows.of(list(queries)), rows.of_many(np.array(queries, np.int32))
    assert sorted(few.tolist()) == sorted(many.tolist())
    assert rows.total(np.array(queries, np.int32)) == few.size
    return sorted(few.tolist())


@pytest.mark.parametrize("first", [0, 7])
def test_a_query_has_none_one_or_many_rows_and_none_again(first: int) -> None:
    rows = RowsByQuery(10)
    assert rows_of(rows, 3) == []
    for row in (first, 5, 9):
        rows.add(3, row)
    assert (rows_of(rows, 3), rows.count) == (sorted([first, 5, 9]), 3)
    rows.remove(3, 5)
    rows.remove(3, first)
    assert rows_of(rows, 3) == [9]
    rows.remove(3, 9)
    assert (rows_of(rows, 3), rows.count) == ([], 0)


def test_a_result_does_not_change_with_the_next_subscription() -> None:
    rows = RowsByQuery(10)
    rows.add(0, 1)
    rows.add(0, 2)
    few, many = rows.of([0]), rows.of_many(np.array([0], np.int32))
    rows.remove(0, 1)
    rows.add(0, 3)
    assert (sorted(few.tolist()), sorted(many.tolist())) == ([1, 2], [1, 2])


@pytest.mark.parametrize("seed", range(3))
def test_after_random_changes_every_row_is_under_its_query(seed: int) -> None:
    random = Random(seed)
    rows, query_of = RowsByQuery(64), dict[int, int]()
    for _ in range(1000):
        row = random.randrange(64)
        if row in query_of:
            rows.remove(query_of.pop(row), row)
        else:
            query_of[row] = random.choice([0, 0, 1, random.randrange(64)])
            rows.add(query_of[row], row)
        queries = [*random.sample(range(64), 3), 0, 1]
        queries = list(dict.fromkeys(queries))
        assert rows_of(rows, *queries) == sorted(row for row, query in query_of.items() if query in queries)
    assert rows.count == len(query_of)
