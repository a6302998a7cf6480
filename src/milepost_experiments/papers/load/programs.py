"""Load generators in C: built on first use, controlled by lines of text, with answers in JSON. None outlives this process."""

import contextlib
import json
import os
import select
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from milepost.config.errors import StartFault

SOURCES: Final = Path(__file__).parent / "c"
CORES: Final = sorted(os.sched_getaffinity(0))
LOAD_CORE, BROKER_CORE = CORES[0], CORES[-1]
ANSWER_S_MAX: Final = 60.0

_NICENESS: Final = -15
_STOP_S_MAX: Final = 5.0
_SLACK_S: Final = 30.0
_COMPILER: Final = ("gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-std=gnu11", "-D_GNU_SOURCE", f"-I{SOURCES}")


class LoadFailed(Exception):
    """A measurement failed; the text is the reason, in one line."""


def cache_folder() -> Path:
    """Return the folder of compiled programs and of the files of runs."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(base, "milepost", "papers")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def build_program(name: str, parts: Sequence[Path]) -> Path:
    """Return the path of a program; compile it if a source is newer."""
    target = cache_folder() / name
    newest = max(path.stat().st_mtime for folder in {part.parent for part in parts} | {SOURCES} for path in folder.iterdir())
    if target.exists() and target.stat().st_mtime > newest:
        return target
    if shutil.which(_COMPILER[0]) is None:
        raise StartFault(
            "no C compiler for the load generators: install gcc and OpenSSL's headers (Debian: gcc libc6-dev libssl-dev)"
        )
    new_target = target.with_suffix(f".{os.getpid()}")
    done = subprocess.run(
        [*_COMPILER, "-o", str(new_target), *map(str, parts), "-lssl", "-lcrypto"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise StartFault(f"{name} cannot be compiled: are OpenSSL's headers installed (libssl-dev)? {done.stderr.strip()[-500:]}")
    new_target.rename(target)
    return target


def federation_load() -> Path:
    """Return the program that publishes, subscribes and roams over MQTT."""
    names = ("federation_load.c", "latency.c", "roaming.c", "connection.c")
    return build_program("federation-load", [SOURCES / name for name in names])


def udp_source() -> Path:
    """Return the program that sends reports in open sessions."""
    return build_program("udp-source", [SOURCES / name for name in ("udp_source.c", "udp.c", "encryption.c")])


def pin_command(command: list[str], core: int) -> list[str]:
    """Return the command pinned to one core, killed when its parent ends."""
    return ["setpriv", "--pdeathsig", "KILL", "taskset", "-c", str(core), *command]


def raise_priority(pid: int) -> None:
    """Raise the priority of a process, a session leader, where permitted: brokers and generators alike."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, pid, _NICENESS)
        Path(f"/proc/{pid}/autogroup").write_text(str(_NICENESS))


class Program:
    """A running generator; killed at the end of the block."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            bufsize=1,
            start_new_session=True,
        )
        raise_priority(self._process.pid)

    def __enter__(self) -> "Program":
        return self

    def read_answer(self, seconds: float = 0.0) -> dict[str, Any]:
        """Return its next line, expected in about *seconds*."""
        assert self._process.stdout
        assert self._process.stderr
        if not select.select([self._process.stdout], [], [], max(seconds + _SLACK_S, ANSWER_S_MAX))[0]:
            raise LoadFailed("the load generator does not answer")
        line = self._process.stdout.readline()
        if not line:
            raise LoadFailed(self._process.stderr.read().strip().removeprefix("load: ") or "the load generator has ended")
        found: dict[str, Any] = json.loads(line)
        return found

    def request(self, *arguments: object) -> dict[str, Any]:
        """Send a command and return the answer."""
        assert self._process.stdin
        with contextlib.suppress(BrokenPipeError):  # `read_answer` raises with the reason
            self._process.stdin.write(" ".join(map(str, arguments)) + "\n")
            self._process.stdin.flush()
        return self.read_answer()

    def stop(self) -> None:
        """Close its input, so that it disconnects its clients and ends."""
        assert self._process.stdin
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_STOP_S_MAX)
        self.end()

    def end(self) -> None:
        """Kill it."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert pipe
            with contextlib.suppress(BrokenPipeError):
                pipe.close()

    def __exit__(self, *_: object) -> None:
        self.end()


@contextlib.contextmanager
def running_load(*arguments: object) -> Iterator[Program]:
    """Run the MQTT generator in one of its modes for the block, not pinned to a core; it is ready."""
    load = Program(["setpriv", "--pdeathsig", "KILL", str(federation_load()), *map(str, arguments)])
    try:
        if not load.read_answer().get("ready"):
            raise LoadFailed("the load generator is not ready")
        yield load
    finally:
        load.stop()


def start_report_source(port: int, seconds: float, sessions: Path, *arguments: object) -> Program:
    """Start the source of reports for *seconds*, round-robin over the sessions in a file (`endpoints.write_sessions`)."""
    return Program(pin_command([str(word) for word in (udp_source(), port, seconds, sessions, *arguments)], LOAD_CORE))


@dataclass(frozen=True, slots=True)
class LatencyStatistics:
    """Statistics of one kind of time, in milliseconds."""

    count: int
    mean_ms: float
    p50_ms: float
    p99_ms: float
    max_ms: float

    @classmethod
    def of(cls, answer: dict[str, Any]) -> "LatencyStatistics":
        """Return the times in the generator's answer."""
        return cls(answer["count"], *(answer[f"{name}_us"] / 1e3 for name in ("mean", "p50", "p99", "max")))

    def __str__(self) -> str:
        return " / ".join(three_digits(value) for value in (self.mean_ms, self.p50_ms, self.p99_ms, self.max_ms))


def three_digits(value: float) -> str:
    """Return a number with three significant digits."""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
