"""The results in README.md are those of the last full runs, and each names the command that repeats it."""

import re
from typing import Final

import pytest

from docs.pages import ROOT

ROW: Final = re.compile(r"^\| ([^|]+) \| ([^|]+) \| \[`make ([\w-]+)`\]\((bench/results/\w+\.md)\) \|$", re.MULTILINE)
ROWS: Final = ROW.findall((ROOT / "README.md").read_text())
VERSION: Final = re.compile(r"Mosquitto \d\.\d")
FIGURE: Final = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?")


def figures_of(result: str) -> list[str]:
    """Return the measured numbers in a result, without versions of programs and percentiles."""
    return FIGURE.findall(VERSION.sub("", result))


def test_there_are_headline_results() -> None:
    assert len(ROWS) >= 6


@pytest.mark.parametrize(("work", "result", "target", "path"), ROWS, ids=[row[0] for row in ROWS])
def test_a_headline_result_is_that_of_the_last_run(work: str, result: str, target: str, path: str) -> None:
    measured = (ROOT / path).read_text()
    figures = figures_of(result)
    assert figures, work
    assert [figure for figure in figures if f"| {figure} |" not in measured] == []
    assert f"`make {target}`" in measured


def test_a_figure_is_distinguished_from_a_version_and_a_percentile() -> None:
    assert figures_of("3,813,573 deliveries/s; Mosquitto 2.1: 167,067") == ["3,813,573", "167,067"]
    assert figures_of("0.876 ms median, 1.48 ms at p99") == ["0.876", "1.48"]
    assert figures_of("45,994/s; Mosquitto 2.1, in memory: 109,211/s") == ["45,994", "109,211"]
