"""`make test` runs tests of every kind, and `make test-long` the others."""

import subprocess
import sys

import pytest

from house.rules.tree import ROOT
from plugins.tiers import QUICK, TIERED_FOLDERS, is_named_by, is_quick
from scripts import check, search, soak

LIVE = sorted({path.parent.name for path in (ROOT / "tests" / "live").glob("*/test_*.py")})
FILES = sorted(f"{path.relative_to(ROOT)}" for path in (ROOT / "tests").glob("*/**/test_*.py"))


def functions_of(path: str) -> list[str]:
    """Return the test ids of a file, without parameters."""
    lines = (ROOT / path).read_text().splitlines()
    return [f"{path}::{line.split('(')[0].split()[-1]}" for line in lines if line.startswith(("def test_", "async def test_"))]


@pytest.mark.parametrize("folder", LIVE)
def test_make_test_runs_a_live_test_of_every_folder(folder: str) -> None:
    files = [name for name in FILES if name.startswith(f"tests/live/{folder}/")]
    assert [test for name in files for test in functions_of(name) if is_quick(test)]


@pytest.mark.parametrize("pattern", QUICK)
def test_every_pattern_matches_a_test(pattern: str) -> None:
    file, _, rest = pattern.partition("::")
    assert file in FILES
    if rest and "[" not in rest:
        assert [test for test in functions_of(file) if is_named_by(test, pattern)]


def test_both_tiers_together_are_all_tests() -> None:
    assert {check.MARKS["full"], check.MARKS["long"]} == {"not long", "long"}


def test_computing_tests_are_quick_and_unlisted_tests_are_long() -> None:
    assert is_quick("tests/unit/model/test_areas.py::test_x")
    assert is_quick("tests/simulation/test_udp.py::test_x[3]")
    assert not is_quick("tests/simulation/test_udp.py::test_x[33]")
    assert not any(is_quick(f"{folder}test_unheard_of.py::test_x") for folder in TIERED_FOLDERS)


def test_examples_are_fixed_except_in_a_search() -> None:
    script = "import conftest; from hypothesis import settings; s = settings(); print(s.derandomize, s.database is None)"
    for profile, expected in {"fast": "True True", "full": "True True", "long": "True True", "search": "False False"}.items():
        environment = {"PYTHONPATH": f"{ROOT / 'tests'}:{ROOT}", "MILEPOST_TEST_PROFILE": profile}
        done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == expected


def test_a_failure_is_reported_with_the_command_that_reproduces_it() -> None:
    one = next(search.simulations(7))
    assert one.repeated_by == "MILEPOST_TEST_PROFILE=search MILEPOST_TEST_SEEDS=700 .venv/bin/python -m pytest"
    assert search.failed_tests("x\nFAILED tests/a.py::test_b[3] - assert 1\n1 failed") == ["tests/a.py::test_b[3]"]


def test_series_of_a_soak_are_tests() -> None:
    assert [series.test for series in soak.SERIES if not (ROOT / series.test).exists()] == []
