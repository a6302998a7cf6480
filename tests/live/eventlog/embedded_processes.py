"""Processes that share the folder of a log, and their output."""

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

from milepost.model.durability import Durability
from parts import ROOT

TIMEOUT_S = 20.0


class Process:
    """A running process and its output so far."""

    def __init__(self, popen: subprocess.Popen[str]) -> None:
        self.popen = popen
        self.output: list[str] = []
        self._thread = threading.Thread(target=self._read_output)
        self._thread.start()

    def wait_for(self, condition: Callable[[list[str]], bool]) -> None:
        wait_until(lambda: condition(self.output))

    def resume(self) -> None:
        self.wait_for(lambda output: output == ["ready"])
        assert self.popen.stdin is not None
        self.popen.stdin.write("\n")
        self.popen.stdin.flush()

    def kill(self) -> None:
        self.popen.kill()
        self.popen.wait()
        self._thread.join()

    def _read_output(self) -> None:
        assert self.popen.stdout is not None
        for line in self.popen.stdout:
            self.output.append(line.strip())


@contextmanager
def running(
    folder: Path, *arguments: str, level: Durability = Durability.PROCESS_CRASH, under: tuple[str, ...] = ()
) -> Iterator[Process]:
    """Run a process; it is killed in the end."""
    command = [*under, sys.executable, "-m", "live.eventlog.embedded_process", str(folder), level.value, *arguments]
    environment = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'tests'}", "PYTHONDONTWRITEBYTECODE": "1"}
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as popen:
        process = Process(popen)
        try:
            yield process
        finally:
            process.kill()


def wait_until(condition: Callable[[], bool]) -> None:
    give_up_at = monotonic() + TIMEOUT_S
    while not condition():
        assert monotonic() < give_up_at, "the condition did not become true"
        sleep(0.002)
