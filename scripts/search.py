"""Search for failing examples and seeds for some minutes: `python scripts/search.py MINUTES [SEED]`.

Two searches run side by side: property tests, file by file, with examples drawn from a seed, and simulations, block by block,
over seeds that no test has. Each failure prints a line that repeats it; .cache/search/failures.txt keeps them. A failure becomes
an `@example` of its test, or a seed among those that failed once.
"""

import argparse
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from random import SystemRandom
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
FAILURES = ROOT / ".cache" / "search" / "failures.txt"
BLOCK = 100
"""Distance between two blocks of seeds: no test uses more at a time."""
FAILED = "FAILED "


class Try(NamedTuple):
    """One run of pytest, and how to repeat it."""

    name: str
    options: tuple[str, ...]
    environment: dict[str, str]

    @property
    def repeated_by(self) -> str:
        """The command that repeats a failed test, without its name."""
        words = [f"{key}={value}" for key, value in {"MILEPOST_TEST_PROFILE": "search", **self.environment}.items()]
        return " ".join([*words, ".venv/bin/python -m pytest", *self.options])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("minutes", type=float)
    parser.add_argument("seed", type=int, nargs="?", default=SystemRandom().randrange(10**8))
    typed = parser.parse_args()
    ends_at = time.monotonic() + typed.minutes * 60
    print(f"searching for {typed.minutes:g} minutes from seed {typed.seed}", flush=True)
    found: list[str] = []
    searches = [
        threading.Thread(target=run, args=(tries, ends_at, found)) for tries in (properties(typed.seed), simulations(typed.seed))
    ]
    for search in searches:
        search.start()
    for search in searches:
        search.join()
    print("\n".join(["", *found, f"{len(found)} failures; seed {typed.seed}, {typed.minutes:g} minutes"]))
    return 1 if found else 0


def properties(seed: int) -> Iterator[Try]:
    """Yield every file of property tests repeatedly, each time with other examples."""
    for number in count(seed):
        for path in sorted((ROOT / "tests" / "property").glob("test_*.py")):
            yield Try(f"tests/property/{path.name}", (f"--hypothesis-seed={number}",), {})


def simulations(seed: int) -> Iterator[Try]:
    """Yield every file of simulations repeatedly, each time with other seeds."""
    for number in count(seed):
        for path in sorted((ROOT / "tests" / "simulation").glob("test_*.py")):
            yield Try(f"tests/simulation/{path.name}", (), {"MILEPOST_TEST_SEEDS": str(number * BLOCK)})


def run(tries: Iterator[Try], ends_at: float, found: list[str]) -> None:
    """Run one after the other until the time is over; the last one is stopped then."""
    for one in tries:
        started = time.monotonic()
        if started >= ends_at:
            return
        command = [sys.executable, "-m", "pytest", "-q", "--tb=short", "--timeout=0", *one.options, one.name]
        environment = {**os.environ, "MILEPOST_TEST_PROFILE": "search", **one.environment}
        try:
            done = subprocess.run(
                command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=ends_at - started
            )
        except subprocess.TimeoutExpired:
            print(f"{one.name}: stopped: the time is over", flush=True)
            return
        lines = [f"{one.repeated_by} '{test}'" for test in failed_tests(done.stdout)]
        if done.returncode and not lines:
            lines = [f"{one.repeated_by} {one.name}"]
        print(f"{one.name} {' '.join([*one.options, *one.environment.values()])}: {last_line(done.stdout)}", flush=True)
        if lines:
            print(done.stdout, *lines, sep="\n", flush=True)
            keep(lines)
            found += lines


def failed_tests(output: str) -> list[str]:
    """Return the failed tests in the summary of pytest."""
    return [line.removeprefix(FAILED).split(" - ")[0] for line in output.splitlines() if line.startswith(FAILED)]


def last_line(output: str) -> str:
    """Return the last line of pytest, with the numbers of passed and failed tests."""
    return output.strip().splitlines()[-1] if output.strip() else "no output"


def keep(lines: list[str]) -> None:
    """Append failures to the file of all searches."""
    FAILURES.parent.mkdir(parents=True, exist_ok=True)
    with FAILURES.open("a") as file:
        file.writelines(f"{line}\n" for line in lines)


if __name__ == "__main__":
    sys.exit(main())
