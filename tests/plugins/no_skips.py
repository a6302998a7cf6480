"""With CI=true a missing dependency is a failure: every skip, of a test or of a whole module, becomes one."""

import os
from collections.abc import Generator
from typing import TypeVar

import pytest

Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    return _failed_if_skipped(report)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    return _failed_if_skipped(report)


def _failed_if_skipped(report: Report) -> Report:
    is_expected_failure = hasattr(report, "wasxfail")
    if os.environ.get("CI") == "true" and report.skipped and not is_expected_failure:
        report.outcome = "failed"
        report.longrepr = f"skipped, which CI=true does not allow: {reason_of(report)}"
    return report


def reason_of(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Return the reason of a skip."""
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text.removeprefix("Skipped: ")
