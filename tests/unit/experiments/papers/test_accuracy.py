"""Quantiles and counts of Mercury's evaluation (M31, M34), against values computed by hand."""

from math import isnan

import pytest

from milepost_experiments.papers.mercury.accuracy import (
    ConfusionCounts,
    Quantiles,
    StepFunction,
    StreamResult,
    check_stream,
    check_tracking,
    share_within,
)


def test_half_of_the_values_are_at_most_the_median() -> None:
    quantiles = Quantiles.of([5.0, 1.0, 3.0, 2.0, 4.0])
    assert (quantiles.count, quantiles.p50, quantiles.p99, quantiles.maximum) == (5, 3.0, 5.0, 5.0)


def test_of_a_hundred_values_the_last_is_the_99th_percentile() -> None:
    assert Quantiles.of(float(number) for number in range(1, 101)).p99 == 100.0
    assert Quantiles.of(float(number) for number in range(1, 201)).p99 == 199.0


def test_quantiles_of_no_values_are_nan() -> None:
    quantiles = Quantiles.of([])
    assert quantiles.count == 0
    assert isnan(quantiles.p50)
    assert isnan(share_within([], 10.0))


def test_a_value_equal_to_the_limit_is_within_it() -> None:
    assert share_within([1.0, 10.0, 10.001, 50.0], 10.0) == 0.5


def test_false_positives_cost_precision_and_false_negatives_cost_recall() -> None:
    counts = ConfusionCounts.of({"a", "b", "c", "x"}, {"a", "b", "c", "d", "e"})
    assert (counts.right, counts.wrong, counts.missed) == (3, 1, 2)
    assert (counts.precision, counts.recall) == (0.75, 0.6)


def test_counts_are_added_before_they_are_divided() -> None:
    both = ConfusionCounts(1, 0, 0) + ConfusionCounts(1, 2, 1)
    assert both.precision == 0.5
    assert both.recall == pytest.approx(2 / 3)


def test_precision_and_recall_of_nothing_are_one() -> None:
    assert (ConfusionCounts().precision, ConfusionCounts().recall) == (1.0, 1.0)


def test_a_registry_that_is_late_by_a_second_is_wrong_for_ten_instants() -> None:
    true = StepFunction((0.0, 10.0), ("a", "b"))
    registered = StepFunction((0.0, 11.0), ("a", "b"))
    found = check_tracking(true, registered, until=20.0, interval_s=0.1)
    assert found.instants == 200
    assert found.right == 190
    assert found.delays_s == (1.0,)
    assert found.never == 0


def test_a_move_unknown_to_the_registry_has_no_delay() -> None:
    true = StepFunction((0.0, 5.0, 6.0), ("a", "b", "c"))
    registered = StepFunction((0.0, 6.5), ("a", "c"))
    found = check_tracking(true, registered, until=10.0, interval_s=0.5)
    assert (found.delays_s, found.never) == ((0.5,), 1)
    assert (found.instants, found.right) == (20, 10 + 0 + 7)


def test_a_registry_that_knew_earlier_has_no_delay() -> None:
    found = check_tracking(StepFunction((0.0, 5.0), ("a", "b")), StepFunction((0.0, 4.0), ("a", "b")), until=6.0, interval_s=1.0)
    assert found.delays_s == (0.0,)
    assert (found.instants, found.right) == (6, 5)


def test_a_step_function_has_no_value_before_its_first_time() -> None:
    assert StepFunction((3.0,), ("a",)).at(2.9) is None
    assert StepFunction((3.0,), ("a",)).at(3.0) == "a"


def test_a_gap_is_a_loss_and_an_unmarked_copy_is_a_duplicate() -> None:
    stream = check_stream([(4, False), (5, False), (5, False), (7, False), (8, False)], last=9)
    assert stream == StreamResult(expected=6, lost=2, duplicated=1, marked_duplicates=0)


def test_a_marked_copy_is_not_an_unmarked_duplicate() -> None:
    assert check_stream([(1, False), (2, False), (2, True)], last=2) == StreamResult(2, 0, 0, 1)


def test_a_marked_first_delivery_is_neither_lost_nor_duplicated() -> None:
    assert check_stream([(1, False), (2, True)], last=2) == StreamResult(2, 0, 0, 0)


def test_nothing_is_expected_before_the_first_received_number() -> None:
    assert check_stream([], last=100) == StreamResult(0, 0, 0, 0)
