"""The child processes of the demo: start, wait, monitor, stop.

Invariants:
- no child outlives this process, however that ends: each is a process group that dies with its parent;
- a child that ends by itself is a fault that shows the end of its log;
- an interrupt is not lost where Python drops an exception of a signal handler: during a fork, in a destructor.
"""

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from milepost.config.errors import StartFault

STOP_S_MAX: Final = 15.0
POLL_INTERVAL_S: Final = 0.05
_LINES_SHOWN: Final = 12
_TAIL_BYTES: Final = 20_000
_PR_SET_PDEATHSIG: Final = 1
_LIBC: Final = ctypes.CDLL(None)


@dataclass(slots=True)
class Child:
    """One child process."""

    name: str
    process: "subprocess.Popen[bytes]"
    log: Path

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self.process.poll() is None

    def has_logged(self, text: str) -> bool:
        """Return whether the log contains *text*."""
        try:
            return text.encode() in self.log.read_bytes()
        except FileNotFoundError:
            return False

    def cpu_s(self) -> float:
        """Return the CPU time of its process group so far."""
        return group_cpu_s(self.process.pid)


@dataclass(slots=True)
class Children:
    """All child processes; `folder` has their logs."""

    folder: Path
    all: dict[str, Child] = field(default_factory=dict)
    is_interrupted: bool = False
    """Whether a signal requested the end."""

    def interrupt(self, *_: object) -> None:
        """Handle a signal: interrupt the current work."""
        self.is_interrupted = True
        raise KeyboardInterrupt

    def start(
        self,
        name: str,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        has_pipes: bool = False,
    ) -> Child:
        """Start a child process; with *has_pipes* it has pipes for standard input and output."""
        log = self.folder / f"{name}.log"
        pipe = subprocess.PIPE if has_pipes else None
        parent = os.getpid()

        def die_with_parent() -> None:
            _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(1)

        with log.open("ab") as output:
            process = subprocess.Popen(
                command,
                stdin=pipe or subprocess.DEVNULL,
                stdout=pipe or output,
                stderr=output,
                env=None if environment is None else dict(environment),
                start_new_session=True,
                preexec_fn=die_with_parent,  # noqa: PLW1509  # all children start before any thread
            )
        self.all[name] = Child(name, process, log)
        return self.all[name]

    def wait_until(self, condition: Callable[[], bool], fault: str, within_s: float) -> None:
        """Wait for a condition; raise `StartFault` on timeout or if a child ends."""
        until = time.monotonic() + within_s
        while not condition():
            self.check()
            if time.monotonic() > until:
                raise StartFault(f"{fault} after {within_s:g} s; see the logs of the processes in {self.folder}")
            time.sleep(POLL_INTERVAL_S)

    def check(self) -> None:
        """Raise if a child has ended or a signal requested the end."""
        if self.is_interrupted:
            raise KeyboardInterrupt
        for child in self.all.values():
            if not child.is_alive:
                status = child.process.returncode
                raise StartFault(f"{child.name} has ended with status {status}. The end of {child.log}:\n{last_lines(child.log)}")

    def stop(self) -> None:
        """Stop all children by SIGTERM, then by SIGKILL; none is left on return."""
        for child in self.all.values():
            _signal(child, signal.SIGTERM)
        until = time.monotonic() + STOP_S_MAX
        for child in self.all.values():
            with suppress(subprocess.TimeoutExpired):
                child.process.wait(max(0.0, until - time.monotonic()))
        for child in self.all.values():
            _signal(child, signal.SIGKILL)
            child.process.wait()
            for pipe in (child.process.stdin, child.process.stdout):
                if pipe is not None:
                    with suppress(OSError):
                        pipe.close()
        self.all.clear()


def last_lines(log: Path) -> str:
    """Return the last lines of a process's log."""
    try:
        text = log.read_bytes()[-_TAIL_BYTES:].decode(errors="replace")
    except FileNotFoundError:
        text = ""
    return "\n".join(text.splitlines()[-_LINES_SHOWN:]) or "(the log is empty)"


def group_cpu_s(group: int) -> float:
    """Return the CPU time used by the processes of a group."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[2]) == group:
                ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _signal(child: Child, number: signal.Signals) -> None:
    """Signal the whole process group, which includes a JVM; do nothing if the group is gone."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.process.pid, number)
