"""The load generator as seen from Python: built from C, pinned to a core of its own, asked line by line, answering in JSON."""

import contextlib
import json
import os
import select
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".cache"
SOURCES = Path(__file__).parent / "c"
LOAD = CACHE / "bin" / "edge-load"
RELAY = CACHE / "bin" / "edge-relay"
LOAD_PARTS = ("main.c", "link.c", "fan.c", "trips.c", "storm.c")
RELAY_PARTS = ("relay.c",)

CORES = sorted(os.sched_getaffinity(0))
LOAD_CORE, BROKER_CORE = CORES[0], CORES[-1]

ANSWER_S_MAX = 60.0
NICENESS = -15
STOP_S_MAX = 5.0


class LoadFailed(Exception):
    """The generator gave up: what it said, in one line."""


@dataclass(frozen=True, slots=True)
class Step:
    """What came of offering one rate for a while; times in microseconds, `busy` the generator's share of its core."""

    rate: float
    p50_us: float
    p99_us: float
    late_p99_us: float
    busy: float
    is_whole: bool
    is_hopeless: bool


def build() -> None:
    """Compile the generator and the relay if their sources are newer."""
    newest = max(path.stat().st_mtime for path in SOURCES.iterdir())
    LOAD.parent.mkdir(parents=True, exist_ok=True)
    for target, parts in ((LOAD, LOAD_PARTS), (RELAY, RELAY_PARTS)):
        if target.exists() and target.stat().st_mtime > newest:
            continue
        command = ["gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-std=gnu11", "-o", str(target)]
        subprocess.run([*command, *(str(SOURCES / part) for part in parts), "-lssl", "-lcrypto"], check=True)


def pinned(command: list[str], core: int) -> list[str]:
    """The command on one core, gone when we are gone."""
    return ["setpriv", "--pdeathsig", "KILL", "taskset", "-c", str(core), *command]


def put_ahead(pid: int) -> None:
    """Let the process, leader of a session, go before other jobs where that is allowed: brokers and generator alike."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, pid, NICENESS)
        Path(f"/proc/{pid}/autogroup").write_text(str(NICENESS))


class Load:
    """A running generator."""

    def __init__(self, *words: object) -> None:
        command = pinned([str(LOAD), *(str(word) for word in words)], LOAD_CORE)
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def answer(self) -> dict[str, Any]:
        """Its next line."""
        assert self._process.stdout
        assert self._process.stderr
        if not select.select([self._process.stdout], [], [], ANSWER_S_MAX)[0]:
            raise LoadFailed("the generator does not answer")
        line = self._process.stdout.readline()
        if not line:
            raise LoadFailed(self._process.stderr.read().strip().removeprefix("load: ") or "the generator died")
        found: dict[str, Any] = json.loads(line)
        return found

    def step(self, rate: float, seconds: float, warm_s: float, burst: int = 1) -> Step:
        """Offer `rate` messages a second for a while, a publisher sending `burst` of them at once."""
        assert self._process.stdin
        with contextlib.suppress(BrokenPipeError):  # why, its last words say
            self._process.stdin.write(f"{rate} {seconds} {warm_s} {burst}\n")
            self._process.stdin.flush()
        found = self.answer()
        is_even = found["fewest"] == found["most"] or found["expected"] == found["received"]
        is_whole = found["complete"] and found["received"] == found["expected"] and is_even and not found["wrong"]
        return Step(
            found["rate"], found["p50_us"], found["p99_us"], found["late_p99_us"], found["busy"], is_whole, found["hopeless"]
        )

    def stop(self) -> None:
        """Let its clients go; it ends when nobody talks to it any more."""
        assert self._process.stdin
        assert self._process.stdout
        assert self._process.stderr
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._process.stderr.close()


@contextlib.contextmanager
def loading(*words: object) -> Iterator[Load]:
    """The generator in one of its modes, stopped after."""
    load = Load(*words)
    try:
        yield load
    finally:
        load.stop()
