"""Test results as a file: `--results FILE` writes the numbers of passed, failed and skipped tests by folder, and the slow tests.

`scripts/check.py` reads it for the table at the end of `make test`; durations help to choose the quick tests (`plugins.tiers`).
"""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from plugins.no_skips import reason_of

SLOW_S = 1.0
"""Duration above which a test is listed as slow."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--results", type=Path, help="write the results by folder to this file")


def pytest_configure(config: pytest.Config) -> None:
    path: Path | None = config.getoption("--results")
    if path:
        config.pluginmanager.register(ResultsFile(path), "results-file")


class ResultsFile:
    """Counts tests by their folder below `tests/`. A test counts once: a failed teardown fails it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._outcome: dict[str, str] = {}
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._skips: dict[str, str] = {}
        self._slow: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[folder_of(report.nodeid)] += report.duration
        self._slow[report.nodeid] += report.duration
        self._record(report.nodeid, report, counts=report.when == "call")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._record(report.nodeid, report, counts=False)

    def _record(self, node: str, report: pytest.TestReport | pytest.CollectReport, *, counts: bool) -> None:
        if report.failed:
            self._outcome[node] = "failed"
        elif report.skipped and hasattr(report, "wasxfail"):
            self._outcome[node] = "xfailed"
        elif report.skipped:
            self._outcome[node] = "skipped"
            self._skips[node] = reason_of(report)
        elif counts:
            self._outcome[node] = "passed"

    def pytest_sessionfinish(self) -> None:
        folders: dict[str, dict[str, Any]] = {}
        for node, outcome in self._outcome.items():
            counts = folders.setdefault(folder_of(node), {"passed": 0, "failed": 0, "skipped": 0, "xfailed": 0})
            counts[outcome] += 1
        for folder, counts in folders.items():
            counts["seconds"] = self._seconds[folder]
        skips = [{"test": node, "reason": reason} for node, reason in self._skips.items()]
        self._path.parent.mkdir(parents=True, exist_ok=True)
        failures = [node for node, outcome in self._outcome.items() if outcome == "failed"]
        slow = sorted(((seconds, node) for node, seconds in self._slow.items() if seconds > SLOW_S), reverse=True)
        self._path.write_text(json.dumps({"folders": folders, "skips": skips, "failures": failures, "slow": slow}, indent=1))


def folder_of(node: str) -> str:
    """Return the folder of a test: `tests/unit` for tests/unit/model/test_areas.py::test_circle; `tests/live/udp` below live."""
    parts = Path(node.partition("::")[0]).parts
    return "/".join(parts[: 3 if parts[1:2] == ("live",) else 2])
