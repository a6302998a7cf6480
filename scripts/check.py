"""Run the checks and the tests, then say in one table what ran: `python scripts/check.py [--fast]`.

Everything runs, also after a failure; the exit status is 1 if anything failed. The last line is for machines.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / ".cache" / "results.json"
BIN = Path(sys.executable).parent

CHECKS = {
    "ruff check": [BIN / "ruff", "check", "--quiet"],
    "ruff format": [BIN / "ruff", "format", "--check", "--quiet"],
    "mypy": [BIN / "mypy", "--no-error-summary"],
    "import layers": [BIN / "lint-imports", "--no-logo"],
}
FAST_FOLDERS = ("tests/unit", "tests/house", "tests/property")
NO_TESTS_COLLECTED = 5
FIX_MARK = "; fix: "
HELP = {
    "ruff check": ".venv/bin/ruff check --fix",
    "ruff format": ".venv/bin/ruff format",
}


@dataclass
class Row:
    """One line of the table."""

    name: str
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    xfailed: int = 0
    seconds: float = 0.0


@dataclass
class Outcome:
    """What the table is drawn from."""

    rows: list[Row] = field(default_factory=list)
    skips: list[tuple[str, str]] = field(default_factory=list)
    advice: list[str] = field(default_factory=list)

    def total(self) -> Row:
        names = ("passed", "failed", "skipped", "xfailed", "seconds")
        return Row("all", **{name: sum(getattr(row, name) for row in self.rows) for name in names})


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    arguments.add_argument("--fast", action="store_true", help="unit, house and property tests only, few examples each")
    fast: bool = arguments.parse_args().fast
    outcome = Outcome()
    for name, command in CHECKS.items():
        outcome.rows.append(run_check(name, [str(part) for part in command], outcome.advice))
    run_tests(fast, outcome)
    print(table(outcome))
    return 1 if outcome.total().failed else 0


def run_check(name: str, command: list[str], advice: list[str]) -> Row:
    """Run one tool; what it prints is shown only if it complains."""
    print(f"{name} ...", flush=True)
    started = time.monotonic()
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    is_good = done.returncode == 0
    if not is_good:
        print(done.stdout, flush=True)
        if name in HELP:
            advice.append(f"{name}: {HELP[name]}")
    return Row(name, passed=int(is_good), failed=int(not is_good), seconds=time.monotonic() - started)


def run_tests(fast: bool, outcome: Outcome) -> None:
    """Run pytest and add a row for each folder of tests."""
    profile = "fast" if fast else "full"
    folders = [folder for folder in FAST_FOLDERS if (ROOT / folder).is_dir()] if fast else []
    RESULTS.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", f"--results={RESULTS}", *folders]
    print(f"pytest {' '.join(folders) or 'tests'}, profile {profile} ...", flush=True)
    code = subprocess.run(command, cwd=ROOT, env={**os.environ, "MILEPOST_TEST_PROFILE": profile}, check=False).returncode
    rows, skips = read_results()
    if code not in (0, NO_TESTS_COLLECTED) and not any(row.failed for row in rows):
        rows.append(Row(f"pytest itself (exit {code})", failed=1))  # a broken plugin or option, an interrupt: no test to blame
    outcome.rows += rows
    outcome.skips += skips


def read_results() -> tuple[list[Row], list[tuple[str, str]]]:
    """The rows and skips that `tests/plugins/results.py` left behind; nothing if pytest did not get that far."""
    if not RESULTS.exists():
        return [], []
    found = json.loads(RESULTS.read_text())
    rows = [Row(folder, **counts) for folder, counts in sorted(found["folders"].items())]
    return rows, [(skip["test"], skip["reason"]) for skip in found["skips"]]


def table(outcome: Outcome) -> str:
    """The table, each skip with its reason and cure, and the closing line."""
    total = outcome.total()
    width = max(len(row.name) for row in [*outcome.rows, Row("what ran")])
    rule = "-" * (width + 42)
    lines = ["", f"{'what ran':<{width}} {'passed':>9} {'failed':>9} {'skipped':>9} {'seconds':>10}", rule]
    for row in [*outcome.rows, total]:
        if row is total:
            lines.append(rule)
        lines.append(f"{row.name:<{width}} {row.passed:>9} {row.failed:>9} {row.skipped:>9} {row.seconds:>10.1f}")
    lines += skip_lines(outcome.skips)
    lines += [f"to mend {one}" for one in outcome.advice]
    closing = f"{total.passed} passed, {total.failed} failed, {total.skipped} skipped"
    return "\n".join([*lines, "", closing + (f", {total.xfailed} xfailed" if total.xfailed else "")])


def skip_lines(skips: list[tuple[str, str]]) -> list[str]:
    """Each skip, why, and the command that would make it run."""
    lines = []
    for test, reason in skips:
        why, _, fix = reason.partition(FIX_MARK)
        lines += [f"skipped {test}: {why}", f"        to run it: {fix or 'the test names no command'}"]
    return ["", *lines] if lines else []


if __name__ == "__main__":
    sys.exit(main())
