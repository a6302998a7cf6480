"""Run series of kills, fuzzing and outages for hours, and append the results: `python scripts/soak.py HOURS [SEED]`.

Each row of `SERIES` is an existing test with a greater amount and a seed of its own. All rows run, one after the other, then
all again with the next seed, until the time is over. bench/results/soak.md has a line for each run, with the command that
repeats it.
"""

import argparse
import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "bench" / "results" / "soak.md"
HEAD = """# Soak runs

`make soak HOURS=8` appends to this table: every run of a series with its result, and the command that repeats it.

| when (UTC) | commit | series | command | result | minutes |
|---|---|---|---|---|--:|
"""


class Series(NamedTuple):
    """A test, whose amounts the profile `soak` sets (tests/effort.py)."""

    name: str
    test: str
    seed: str = ""
    """The environment variable that has its seed, if it takes one."""


SERIES = (
    Series("edge killed 200 times", "tests/live/mqtt/test_crash.py", "CRASH_SEED"),
    Series("edges, hub and Kafka killed", "tests/live/federation/test_deaths.py", "HUB_SEED"),
    Series("Kafka away for ten minutes", "tests/live/federation/test_kafka.py"),
    Series("handlers killed", "tests/live/handlers/test_kill.py"),
    Series("embedded log killed", "tests/live/eventlog/test_embedded_kill.py"),
    Series("all pipelines killed 50 times", "tests/live/pipelines/test_kills.py", "PIPELINE_SEED"),
    Series("pipeline and incident engine killed", "tests/live/pipelines/test_recovery.py", "PIPELINE_SEED"),
    Series("positions for thirty minutes", "tests/live/pipelines/test_positions_memory.py"),
    Series("five million MQTT packets", "tests/live/mqtt/test_fuzz.py", "FUZZ_SEED"),
    Series("five million datagrams", "tests/live/udp/test_forgery.py", "FUZZ_SEED"),
    Series("five million inputs of decoders", "tests/fuzz/test_decoders.py", "FUZZ_SEED"),
    Series("simulations", "tests/simulation", "MILEPOST_TEST_SEEDS"),
)
TIMEOUT_S = 3 * 3_600


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    arguments.add_argument("hours", type=float)
    arguments.add_argument("seed", type=int, nargs="?", default=int(time.time()) // 60)
    told = arguments.parse_args()
    ends_at = time.monotonic() + told.hours * 3_600
    if not RESULTS.exists():
        RESULTS.write_text(HEAD)
    failed, seed = 0, told.seed
    while time.monotonic() < ends_at:
        for series in SERIES:
            if time.monotonic() < ends_at:
                failed += not run(series, seed)
        seed += 1
    return 1 if failed else 0


def run(series: Series, seed: int) -> bool:
    """Run one series and append its line; return whether it passed."""
    environment = {"MILEPOST_TEST_PROFILE": "soak", **({series.seed: str(seed)} if series.seed else {})}
    shown = " ".join([*(f"{key}={value}" for key, value in environment.items()), "pytest", series.test])
    print(f"{series.name}: {shown} ...", flush=True)
    started = time.monotonic()
    command = [sys.executable, "-m", "pytest", "-q", "--tb=short", f"--timeout={TIMEOUT_S}", series.test]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    result = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else f"exit {done.returncode}"
    if done.returncode:
        print(done.stdout, done.stderr, sep="\n", flush=True)
    print(f"{series.name}: {result}", flush=True)
    minutes = (time.monotonic() - started) / 60
    with RESULTS.open("a") as file:
        file.write(
            f"| {datetime.now(UTC):%Y-%m-%d %H:%M} | {commit()} | {series.name} | `{shown}` | {result} | {minutes:.1f} |\n"
        )
    return done.returncode == 0


def commit() -> str:
    """Return the commit that is tested, if this is a clone."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
