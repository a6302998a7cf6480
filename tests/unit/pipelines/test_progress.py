"""Metrics from Spark's progress of a batch."""

import json
from typing import Any

from milepost.pipelines.runner import Progress, progress_from_json

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
