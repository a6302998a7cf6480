"""Shares and counts of Mercury's evaluation (M31, M34), with numbers worked out by hand."""

from math import isnan

import pytest
from milepost_experiments.papers.mercury.accuracy import Heard, Hits, Spread, Steps, heard_stream, share_within, tracked


def test_half_of_the_times_are_at_most_the_median_and_the_rest_lie_above() -> None:
    spread = Spread.of([5.0, 1.0, 3.0, 2.0, 4.0])
    assert (spread.count, spread.p50, spread.p99, spread.most) == (5, 3.0, 5.0, 5.0)


def test_of_a_hundred_times_the_last_is_the_99th_percentile() -> None:
    assert Spread.of(float(number) for number in range(1, 101)).p99 == 100.0
    assert Spread.of(float(number) for number in range(1, 201)).p99 == 199.0


def test_no_times_have_no_spread() -> None:
    spread = Spread.of([])
    assert spread.count == 0
    assert isnan(spread.p50)
    assert isnan(share_within([], 10.0))


def test_what_takes_just_the_budget_is_within_it() -> None:
    assert share_within([1.0, 10.0, 10.001, 50.0], 10.0) == 0.5


def test_who_is_found_wrongly_costs_precision_and_who_is_missed_costs_recall() -> None:
    hits = Hits.of({"a", "b", "c", "x"}, {"a", "b", "c", "d", "e"})
    assert (hits.right, hits.wrong, hits.missed) == (3, 1, 2)
    assert (hits.precision, hits.recall) == (0.75, 0.6)


def test_questions_are_added_up_before_they_are_divided() -> None:
    both = Hits(1, 0, 0) + Hits(1, 2, 1)
    assert both.precision == 0.5
    assert both.recall == pytest.approx(2 / 3)


def test_where_nobody_is_and_nobody_is_found_all_is_right() -> None:
    assert (Hits().precision, Hits().recall) == (1.0, 1.0)


def test_a_register_that_is_late_by_a_second_is_wrong_for_ten_instants() -> None:
    true = Steps((0.0, 10.0), ("a", "b"))
    told = Steps((0.0, 11.0), ("a", "b"))
    found = tracked(true, told, until=20.0, each_s=0.1)
    assert found.instants == 200
    assert found.right == 190
    assert found.delays_s == (1.0,)
    assert found.never == 0


def test_a_move_that_the_register_never_heard_of_has_no_time() -> None:
    true = Steps((0.0, 5.0, 6.0), ("a", "b", "c"))
    told = Steps((0.0, 6.5), ("a", "c"))
    found = tracked(true, told, until=10.0, each_s=0.5)
    assert (found.delays_s, found.never) == ((0.5,), 1)
    assert (found.instants, found.right) == (20, 10 + 0 + 7)


def test_a_register_that_knew_before_took_no_time() -> None:
    found = tracked(Steps((0.0, 5.0), ("a", "b")), Steps((0.0, 4.0), ("a", "b")), until=6.0, each_s=1.0)
    assert found.delays_s == (0.0,)
    assert (found.instants, found.right) == (6, 5)


def test_nothing_is_known_before_the_first_word() -> None:
    assert Steps((3.0,), ("a",)).at(2.9) is None
    assert Steps((3.0,), ("a",)).at(3.0) == "a"


def test_a_gap_is_lost_and_a_second_copy_is_doubled() -> None:
    heard = heard_stream([(4, False), (5, False), (5, False), (7, False), (8, False)], last=9)
    assert heard == Heard(expected=6, lost=2, doubled=1, repeated=0)


def test_a_copy_that_is_marked_as_one_is_not_doubled() -> None:
    assert heard_stream([(1, False), (2, False), (2, True)], last=2) == Heard(2, 0, 0, 1)


def test_a_first_delivery_that_is_marked_is_neither_lost_nor_doubled() -> None:
    assert heard_stream([(1, False), (2, True)], last=2) == Heard(2, 0, 0, 0)


def test_who_heard_nothing_expected_nothing() -> None:
    assert heard_stream([], last=100) == Heard(0, 0, 0, 0)
