"""Metrics from Spark's progress of batches, and their sums."""

import json
from typing import Any

from milepost.pipelines.progress import Progress, Totals, progress_from_json

BATCH: dict[str, Any] = {
    "batchId": 11,
    "batchDuration": 475,
    "numInputRows": 24,
    "processedRowsPerSecond": 50.5,
    "stateOperators": [
        {"numRowsTotal": 7, "memoryUsedBytes": 100, "numRowsDroppedByWatermark": 2},
        {"numRowsTotal": 1, "memoryUsedBytes": 10, "numRowsDroppedByWatermark": 0},
    ],
    "sources": [{"endOffset": {"north.reports": {"0": 2676}}}],
}


def read(**changed: Any) -> Progress:
    return progress_from_json(json.dumps(BATCH | changed), prefix="north.")


def test_state_and_late_rows_are_summed_over_all_operators() -> None:
    assert read() == Progress(11, 24, 50.5, 0.475, 8, 110, 2, {"reports": 2676})


def test_positions_are_read_from_both_logs() -> None:
    assert read(sources=[{"endOffset": {"reports": 5, "deliveries": 0}}]).positions == {"reports": 5, "deliveries": 0}


def test_of_several_sources_the_highest_offset_counts() -> None:
    sources = [{"endOffset": {"reports": 5}}, {"endOffset": {"reports": 9}}, {"endOffset": None}]
    assert read(sources=sources).positions == {"reports": 9}


def test_a_query_without_input_has_metrics() -> None:
    assert progress_from_json('{"batchId": 0}', prefix="") == Progress(0, 0, 0.0, 0.0, 0, 0, 0, {})


def batch(number: int, late_rows: int) -> Progress:
    return Progress(number, 10, 1.0, 0.1, 0, 0, late_rows)


def test_every_batch_is_in_the_sums_once_however_many_finish_between_two_ticks() -> None:
    totals = Totals()
    totals.add([batch(4, 1)])
    totals.add([batch(4, 1), batch(5, 2), batch(6, 0), batch(7, 4)])
    totals.add([batch(6, 0), batch(7, 4)])
    assert (totals.batch, totals.rows, totals.late_rows, totals.batches_missed) == (7, 40, 7, 0)


def test_batches_that_spark_has_forgotten_are_counted_as_missed() -> None:
    totals = Totals()
    totals.add([batch(4, 1)])
    totals.add([batch(8, 2)])
    assert (totals.late_rows, totals.batches_missed) == (3, 3)
