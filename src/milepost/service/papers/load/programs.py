"""Programs in C that make load: built where they are first needed, asked line by line, answering in JSON; none outlives us."""

import contextlib
import json
import os
import select
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from milepost.service.faults import StartFault

SOURCES: Final = Path(__file__).parent / "c"
CORES: Final = sorted(os.sched_getaffinity(0))
LOAD_CORE, BROKER_CORE = CORES[0], CORES[-1]
ANSWER_S_MAX: Final = 60.0

_NICENESS: Final = -15
_STOP_S_MAX: Final = 5.0
_SLACK_S: Final = 30.0
_COMPILER: Final = ("gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-std=gnu11", "-D_GNU_SOURCE", f"-I{SOURCES}")


class LoadFailed(Exception):
    """What was to be measured could not be: why, in one line."""


def cache_folder() -> Path:
    """Where programs are kept from one run to the next, and runs have their files."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(base, "milepost", "papers")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def built(name: str, parts: Sequence[Path]) -> Path:
    """The program, compiled if one of the sources is newer."""
    target = cache_folder() / name
    newest = max(path.stat().st_mtime for folder in {part.parent for part in parts} | {SOURCES} for path in folder.iterdir())
    if target.exists() and target.stat().st_mtime > newest:
        return target
    if shutil.which(_COMPILER[0]) is None:
        raise StartFault(
            "the load is made by programs in C: install gcc and OpenSSL's headers (Debian: gcc libc6-dev libssl-dev)"
        )
    fresh = target.with_suffix(f".{os.getpid()}")
    done = subprocess.run(
        [*_COMPILER, "-o", str(fresh), *map(str, parts), "-lssl", "-lcrypto"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise StartFault(f"{name} cannot be compiled: are OpenSSL's headers there (libssl-dev)? {done.stderr.strip()[-500:]}")
    fresh.rename(target)
    return target


def hub_load() -> Path:
    """The program that publishes, subscribes and roams over MQTT."""
    return built("hub-load", [SOURCES / name for name in ("hub.c", "spread.c", "roam.c", "link.c")])


def udp_source() -> Path:
    """The program that sends reports in sessions that are open."""
    return built("udp-source", [SOURCES / name for name in ("udp_source.c", "udp.c", "seals.c")])


def pinned(command: list[str], core: int) -> list[str]:
    """The command on one core, gone when we are gone."""
    return ["setpriv", "--pdeathsig", "KILL", "taskset", "-c", str(core), *command]


def put_ahead(pid: int) -> None:
    """Let the process, leader of a session, go before other jobs where that is allowed: brokers and generators alike."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, pid, _NICENESS)
        Path(f"/proc/{pid}/autogroup").write_text(str(_NICENESS))


class Program:
    """One of them, running; ended when the block ends."""

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
        put_ahead(self._process.pid)

    def __enter__(self) -> "Program":
        return self

    def answer(self, seconds: float = 0.0) -> dict[str, Any]:
        """Its next line, which comes in about so many seconds."""
        assert self._process.stdout
        assert self._process.stderr
        if not select.select([self._process.stdout], [], [], max(seconds + _SLACK_S, ANSWER_S_MAX))[0]:
            raise LoadFailed("the generator does not answer")
        line = self._process.stdout.readline()
        if not line:
            raise LoadFailed(self._process.stderr.read().strip().removeprefix("load: ") or "the generator died")
        found: dict[str, Any] = json.loads(line)
        return found

    def ask(self, *words: object) -> dict[str, Any]:
        """Have it do something, and hear what came of it."""
        assert self._process.stdin
        with contextlib.suppress(BrokenPipeError):  # why, its last words say
            self._process.stdin.write(" ".join(map(str, words)) + "\n")
            self._process.stdin.flush()
        return self.answer()

    def stop(self) -> None:
        """Let its clients go; it ends when nobody talks to it any more."""
        assert self._process.stdin
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_STOP_S_MAX)
        self.end()

    def end(self) -> None:
        """End it without asking."""
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
def loading(*words: object) -> Iterator[Program]:
    """The generator of MQTT in one of its modes, on whichever core is free; ready, stopped after."""
    load = Program(["setpriv", "--pdeathsig", "KILL", str(hub_load()), *map(str, words)])
    try:
        if not load.answer().get("ready"):
            raise LoadFailed("the generator is not ready")
        yield load
    finally:
        load.stop()


def source(port: int, seconds: float, sessions: Path, *words: object) -> Program:
    """Reports of the sessions in a file (`endpoints.write_sessions`), in turn, for so long."""
    return Program(pinned([str(word) for word in (udp_source(), port, seconds, sessions, *words)], LOAD_CORE))
