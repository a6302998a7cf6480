"""Starting processes that share a folder, and hearing what they say."""

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

from milepost.model.durability import Durability
from parts import ROOT

PATIENCE_S = 20.0


class Process:
    """A process at work, and all it has said."""

    def __init__(self, popen: subprocess.Popen[str]) -> None:
        self.popen = popen
        self.said: list[str] = []
        self._thread = threading.Thread(target=self._hear)
        self._thread.start()

    def wait_for(self, condition: Callable[[list[str]], bool]) -> None:
        wait_until(lambda: condition(self.said))

    def go(self) -> None:
        self.wait_for(lambda said: said == ["ready"])
        assert self.popen.stdin is not None
        self.popen.stdin.write("\n")
        self.popen.stdin.flush()

    def kill(self) -> None:
        self.popen.kill()
        self.popen.wait()
        self._thread.join()

    def _hear(self) -> None:
        assert self.popen.stdout is not None
        for line in self.popen.stdout:
            self.said.append(line.strip())


@contextmanager
def running(
    folder: Path, *words: str, level: Durability = Durability.PROCESS_CRASH, under: tuple[str, ...] = ()
) -> Iterator[Process]:
    """The process at work; it is killed in the end, if it still is."""
    command = [*under, sys.executable, "-m", "live.eventlog.embedded_process", str(folder), level.value, *words]
    environment = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'tests'}", "PYTHONDONTWRITEBYTECODE": "1"}
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as popen:
        process = Process(popen)
        try:
            yield process
        finally:
            process.kill()


def wait_until(condition: Callable[[], bool]) -> None:
    give_up_at = monotonic() + PATIENCE_S
    while not condition():
        assert monotonic() < give_up_at, "it never became true"
        sleep(0.002)
