"""Run the checks and the tests of a tier, and print a table of the results: `python scripts/check.py [fast | full | long]`.

    fast   the checks, then unit, house and property tests with few examples
    full   the checks, then every test without the marker `long`
    long   every test with the marker `long`

Everything runs, also after a failure; the exit status is 1 if anything failed. A live test that failed beside others runs
once more, alone, and is named (docs/decisions/0003). The last line is for machines.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain, count
from pathlib import Path

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / ".cache" / "results"
BIN = Path(sys.executable).parent

CHECKS = {
    "ruff check": [BIN / "ruff", "check", "--quiet"],
    "ruff format": [BIN / "ruff", "format", "--check", "--quiet"],
    "mypy": [BIN / "mypy", "--no-error-summary"],
    "import layers": [BIN / "lint-imports", "--no-logo"],
}
FAST = (("tests/unit",), ("tests/house", "tests/property"))
GROUPS = (
    ("tests/live/federation", "tests/live/handlers"),
    ("tests/live/pipelines",),
    ("tests/live/client", "tests/live/runtime", "tests/docs"),
    ("tests/live/mqtt", "tests/live/attacks"),
    ("tests/live/eventlog", "tests/live/storage", "tests/live/papers"),
    ("tests/live/udp",),
    ("tests/live/dashboard", "tests/live/demo"),
    ("tests/simulation",),
    ("tests/unit", "tests/house", "tests/conformance", "tests/fuzz"),
    ("tests/property",),
)
"""All folders with tests (tests/house checks it), one pytest per group. Two run at a time: one takes groups from the front, the
other from the back, so that groups that wait for processes run beside groups that compute."""
MARKS = {"fast": "not long", "full": "not long", "long": "long"}
"""Marker expression of each tier (tests/plugins/tiers.py)."""
LIVE = "tests/live/"
AGAIN_MAX = 5
"""Maximum failed live tests that run again; more are not the effect of a busy machine."""
SLOW_SHOWN = 10
NUMBERS = count(1)
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
    """The results of one pytest, or of all."""

    rows: list[Row] = field(default_factory=list)
    skips: list[tuple[str, str]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    late: list[str] = field(default_factory=list)
    """Tests that passed at the second try."""
    slow: list[tuple[float, str]] = field(default_factory=list)
    """The slowest tests, with their duration in seconds."""
    advice: list[str] = field(default_factory=list)

    def total(self) -> Row:
        names = ("passed", "failed", "skipped", "xfailed", "seconds")
        return Row("all", **{name: sum(getattr(row, name) for row in self.rows) for name in names})


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    arguments.add_argument("tier", nargs="?", choices=MARKS, default="full")
    tier: str = arguments.parse_args().tier
    outcome = Outcome()
    for name, command in CHECKS.items() if tier != "long" else ():
        outcome.rows.append(run_check(name, [str(part) for part in command], outcome.advice))
    run_tests(tier, outcome)
    run_again(outcome, tier)
    print(table(outcome))
    return 1 if outcome.total().failed else 0


def run_check(name: str, command: list[str], advice: list[str]) -> Row:
    """Run one tool; print its output only if it fails."""
    print(f"{name} ...", flush=True)
    started = time.monotonic()
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    is_good = done.returncode == 0
    if not is_good:
        print(done.stdout, flush=True)
        if name in HELP:
            advice.append(f"{name}: {HELP[name]}")
    return Row(name, passed=int(is_good), failed=int(not is_good), seconds=time.monotonic() - started)


def run_tests(tier: str, outcome: Outcome) -> None:
    """Run pytest over all groups, two at a time, and add a row for each folder of tests."""
    groups = deque(FAST if tier == "fast" else GROUPS)
    shutil.rmtree(RESULTS, ignore_errors=True)
    RESULTS.mkdir(parents=True)
    takes = [groups.popleft, groups.pop]
    with ThreadPoolExecutor(len(takes)) as pool:
        try:
            lists = list(pool.map(lambda take: list(run_groups(take, tier)), takes))
        except KeyboardInterrupt:  # running tests get the signal, too; no others are started
            groups.clear()
            raise
    for results in sorted(chain.from_iterable(lists), key=lambda one: one.rows[0].name if one.rows else ""):
        outcome.rows += results.rows
        outcome.skips += results.skips
        outcome.failures += results.failures
        outcome.slow += results.slow


def run_again(outcome: Outcome, tier: str) -> None:
    """Run failed live tests again, alone: a second failure counts, a pass is reported."""
    again = [test for test in outcome.failures if test.startswith(LIVE)]
    if not 0 < len(again) <= AGAIN_MAX:
        return
    results = run_pytest(again, tier)
    for row in outcome.rows:
        passed = sum(one.passed for one in results.rows if one.name == row.name)
        row.passed, row.failed = row.passed + passed, row.failed - passed
        row.seconds += sum(one.seconds for one in results.rows if one.name == row.name)
    if results.rows and not any(row.name.startswith("pytest itself") for row in results.rows):
        outcome.late = [test for test in again if test not in results.failures]
        outcome.failures = [test for test in outcome.failures if test not in outcome.late]


def run_groups(take: Callable[[], tuple[str, ...]], tier: str) -> Iterator[Outcome]:
    """Run one group after the other, until none is left."""
    while True:
        try:
            group = take()
        except IndexError:
            return
        folders = [folder for folder in group if (ROOT / folder).is_dir()]
        if folders:
            yield run_pytest(folders, tier)


def run_pytest(what: list[str], tier: str) -> Outcome:
    """Run one pytest over folders or tests; its output is printed if it failed."""
    name = " ".join(what)
    path = RESULTS / f"{next(NUMBERS)}.json"
    command = [sys.executable, "-m", "pytest", "-q", "-m", MARKS[tier], f"--results={path}", *what]
    print(f"pytest {name}, {tier} ...", flush=True)
    started = time.monotonic()
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "MILEPOST_TEST_PROFILE": tier},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    results = read_results(path)
    rows = results.rows
    is_good = done.returncode in (0, NO_TESTS_COLLECTED)
    if not is_good and not any(row.failed for row in rows):
        rows.append(Row(f"pytest itself (exit {done.returncode})", failed=1))  # a broken plugin or option: no test to blame
    if done.stdout and not is_good:
        print(done.stdout, flush=True)
    counts = f"{sum(row.passed for row in rows)} passed, {sum(row.failed for row in rows)} failed"
    print(f"pytest {name}: {counts} in {time.monotonic() - started:.0f} s", flush=True)
    return results


def read_results(path: Path) -> Outcome:
    """Return the results that `tests/plugins/results.py` wrote; empty if pytest failed before."""
    if not path.exists():
        return Outcome()
    found = json.loads(path.read_text())
    rows = [Row(folder, **counts) for folder, counts in sorted(found["folders"].items())]
    skips = [(skip["test"], skip["reason"]) for skip in found["skips"]]
    return Outcome(rows, skips, found["failures"], slow=[(seconds, test) for seconds, test in found["slow"]])


def table(outcome: Outcome) -> str:
    """Return the table, the failures, each skip with its reason and remedy, and the closing line."""
    total = outcome.total()
    width = max(len(row.name) for row in [*outcome.rows, Row("what ran")])
    rule = "-" * (width + 42)
    lines = ["", f"{'what ran':<{width}} {'passed':>9} {'failed':>9} {'skipped':>9} {'seconds':>10}", rule]
    for row in [*outcome.rows, total]:
        if row is total:
            lines.append(rule)
        lines.append(f"{row.name:<{width}} {row.passed:>9} {row.failed:>9} {row.skipped:>9} {row.seconds:>10.1f}")
    lines += ["", *(f"{seconds:>6.1f} s {test}" for seconds, test in sorted(outcome.slow, reverse=True)[:SLOW_SHOWN])]
    lines += [""] if outcome.failures or outcome.late else []
    lines += [f"FAILED {test}" for test in outcome.failures]
    lines += [f"passed at the second try, alone: {test}" for test in outcome.late]
    lines += skip_lines(outcome.skips)
    lines += [f"to fix {one}" for one in outcome.advice]
    closing = f"{total.passed} passed, {total.failed} failed, {total.skipped} skipped"
    more = {"xfailed": total.xfailed, "at the second try": len(outcome.late)}
    return "\n".join([*lines, "", ", ".join([closing, *(f"{number} {what}" for what, number in more.items() if number)])])


def skip_lines(skips: list[tuple[str, str]]) -> list[str]:
    """Return each skip with its reason, and the command that installs what the test needs."""
    lines = []
    for test, reason in skips:
        why, _, fix = reason.partition(FIX_MARK)
        lines += [f"skipped {test}: {why}", f"        to run it: {fix or 'the test names no command'}"]
    return ["", *lines] if lines else []


if __name__ == "__main__":
    sys.exit(main())
