"""Comparison with the papers' own results: Mercury's (M31) and DPSMD's (D14)."""

from typing import Any

from milepost.config.site_settings import LogType
from milepost_experiments.papers.dpsmd import evaluation as dpsmd
from milepost_experiments.papers.run import machine_notes


def cell(path: str, subscribers: int, publishers: int, mean_ms: float) -> dict[str, Any]:
    return {"path": path, "subscribers": subscribers, "publishers": publishers, "times": {"mean_ms": mean_ms}}


def test_the_ratio_is_the_paper_s_mean_over_ours_at_the_largest_size_only() -> None:
    cells = [cell("edges-embedded", 5, 10, 1.0), cell("edges-embedded", 20, 100, 4.3)]
    moves = {"series": {"a": {"moves": 200, "lost": 1, "duplicated": 0}, "b": {"moves": 100, "lost": 0, "duplicated": 2}}}
    table = dpsmd.compare_with_paper({"cells": cells}, moves, LogType.EMBEDDED).tables[0]
    assert [row[1:3] for row in table.rows] == [
        ("across edges, embedded: 4.30 ms", "5.0"),
        ("across edges 1.00 ms (10 to 5), 4.30 ms (100 to 20)", "-"),
        ("300 moves: 1 lost, 2 duplicated", "-"),
    ]


def test_a_busy_machine_is_noted() -> None:
    assert machine_notes(0.2) == ()
    assert "load average 3.5" in machine_notes(3.5)[0]
