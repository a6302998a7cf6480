"""The summary of `make test`, and the shell scripts around it."""

import os
import subprocess
from itertools import chain
from pathlib import Path

import pytest

from house.rules.tree import ROOT, Plant
from plugins.results import folder_of
from scripts import check
from scripts.check import Outcome, Row, table


def test_the_table_adds_up_and_ends_with_a_machine_readable_line() -> None:
    skips = [
        ("tests/live/test_x.py::test_y", "no Java; fix: apt-get install java"),
        ("tests/live/test_z.py", "no reason to speak of"),
    ]
    rows = [Row("mypy", passed=1, seconds=2.0), Row("tests/unit", passed=5, failed=1, skipped=2, seconds=0.5)]
    slow = [(0.5, "tests/unit/test_a.py::test_b"), (12.0, "tests/live/test_x.py::test_y")]
    lines = table(Outcome(rows, skips, failures=["tests/unit/test_a.py::test_b"], slow=slow)).splitlines()
    assert lines[-1] == "6 passed, 1 failed, 2 skipped"
    assert any(line.split() == ["all", "6", "1", "2", "2.5"] for line in lines)
    assert "FAILED tests/unit/test_a.py::test_b" in lines
    assert lines.index("  12.0 s tests/live/test_x.py::test_y") < lines.index("   0.5 s tests/unit/test_a.py::test_b")
    assert "skipped tests/live/test_x.py::test_y: no Java" in lines
    assert "        to run it: apt-get install java" in lines
    assert "        to run it: the test names no command" in lines


def test_a_failing_check_counts_as_failed_and_prints_the_fix() -> None:
    advice: list[str] = []
    row = check.run_check("ruff format", ["sh", "-c", "exit 3"], advice)
    assert (row.passed, row.failed) == (0, 1)
    assert advice == ["ruff format: .venv/bin/ruff format"]
    assert check.run_check("mypy", ["true"], advice).failed == 0


def test_pytest_failing_without_a_failed_test_counts_as_failed(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    root = plant({"pyproject.toml": "[tool.pytest.ini_options]\naddopts = '--no-such-option'\n", "tests/unit/test_x.py": ""})
    monkeypatch.setattr(check, "ROOT", root)
    monkeypatch.setattr(check, "RESULTS", root / "results")
    outcome = Outcome()
    check.run_tests("fast", outcome)
    assert outcome.total().failed == 1


FAILS_ONCE = """
from pathlib import Path
from time import sleep

def test_slow(): sleep(1.1)

def test_fails_once():
    here = Path(__file__).parent / "was-here"
    was_here = here.exists()
    here.touch()
    assert was_here

def test_fails(): assert False
"""


@pytest.mark.parametrize("folder", ["tests/live/federation", "tests/unit"])
def test_only_a_live_test_is_retried_and_reported(plant: Plant, monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    plugins = {f"plugins/{name}.py": (ROOT / "tests" / "plugins" / f"{name}.py").read_text() for name in ("results", "no_skips")}
    settings = "[tool.pytest.ini_options]\naddopts = '-p plugins.results'\npythonpath = ['.']\n"
    root = plant({"pyproject.toml": settings, f"{folder}/test_x.py": FAILS_ONCE, **plugins})
    monkeypatch.setattr(check, "ROOT", root)
    monkeypatch.setattr(check, "RESULTS", root / "results")
    monkeypatch.setattr(check, "GROUPS", [(folder,)])
    outcome = Outcome()
    check.run_tests("full", outcome)
    assert [row.failed for row in outcome.rows] == [2]
    assert [test for _, test in outcome.slow] == [f"{folder}/test_x.py::test_slow"]
    check.run_again(outcome, "full")
    is_live = folder.startswith("tests/live")
    assert outcome.late == [f"{folder}/test_x.py::test_fails_once"] * is_live
    assert outcome.failures == [f"{folder}/test_x.py::{name}" for name in ("test_fails_once", "test_fails")][is_live:]
    assert [(row.passed, row.failed) for row in outcome.rows] == [(1 + is_live, 2 - is_live)]
    assert table(outcome).endswith(" failed, 0 skipped" + ", 1 at the second try" * is_live)


def test_every_test_folder_belongs_to_one_group() -> None:
    folders = {folder_of(str(path.relative_to(ROOT))) for path in (ROOT / "tests").glob("*/**/test_*.py")}
    assert sorted(chain.from_iterable(check.GROUPS)) == sorted(folders)


def test_installed_or_unrequested_parts_need_nothing(plant: Plant) -> None:
    listed = plant({"list.txt": "# a comment\nhere: base-files\n"}) / "list.txt"
    for group in ("here", "nobody"):
        done = subprocess.run([ROOT / "scripts" / "get_debian_parts", group, listed], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (0, "")


def stub_debian(plant: Plant, user: int) -> dict[str, str]:
    """Stub a Debian without packages, whose apt-get only records its arguments."""
    log = plant({"apt-calls": ""}) / "apt-calls"
    commands = {"id": f"echo {user}", "dpkg-query": "exit 1", "apt-get": f'echo "$DEBIAN_FRONTEND $*" >> {log}'}
    root = plant(
        {f"bin/{name}": f"#!/bin/bash\n{line}\n" for name, line in commands.items()} | {"list.txt": "live: one\nlive: two\n"}
    )
    for name in commands:
        (root / "bin" / name).chmod(0o755)
    return {"PATH": f"{root}/bin:{os.environ['PATH']}"}


@pytest.mark.parametrize(("user", "calls"), [(0, ["update", "install --yes --no-install-recommends one two"]), (1000, [])])
def test_missing_parts_are_installed_as_root_and_listed_for_other_users(
    plant: Plant, tmp_path: Path, user: int, calls: list[str]
) -> None:
    command = [str(ROOT / "scripts" / "get_debian_parts"), "live", str(tmp_path / "list.txt")]
    done = subprocess.run(command, env=stub_debian(plant, user), capture_output=True, text=True, check=True)
    assert (tmp_path / "apt-calls").read_text().splitlines() == [f"noninteractive {line}" for line in calls]
    assert ("sudo apt-get install --yes --no-install-recommends one two" in done.stdout) == (user != 0)


def test_every_make_target_is_described() -> None:
    lines = (ROOT / "Makefile").read_text().splitlines()
    targets = [line.removeprefix(".PHONY: ") for line in lines if line.startswith(".PHONY: ")]
    shown = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert [target for target in targets if f"make {target} " not in shown] == []
