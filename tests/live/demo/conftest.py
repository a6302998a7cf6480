"""The demo as a separate process, and the processes left when it has ended."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from uuid import uuid4

import pytest

from parts import ROOT, need

PAGE: Final = ROOT / "src" / "milepost" / "dashboard" / "_built" / "index.html"
MARK: Final = "MILEPOST_DEMO_TEST"
WAIT_S: Final = 300.0
EXIT_S_MAX: Final = 30.0


class Demo:
    """One run; its processes are identified by a mark in their environment, which children inherit."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.out, self._output, self._mark = folder / "out", folder / "output", f"{MARK}={uuid4().hex}"
        name, _, value = self._mark.partition("=")
        command = [sys.executable, "-m", "milepost", "demo", "--out", str(self.out), *arguments]
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(
                command, cwd=folder, stdout=output, stderr=output, stdin=subprocess.DEVNULL, env={**os.environ, name: value}
            )

    @property
    def output(self) -> str:
        return self._output.read_text()

    def wait_until_printed(self, pattern: str) -> None:
        """Wait until the output matches a regular expression."""
        until = time.monotonic() + WAIT_S
        while not re.search(pattern, self.output):
            assert self.process.poll() is None, self.output
            assert time.monotonic() < until, self.output
            time.sleep(0.05)

    def wait(self) -> int:
        """Wait until it has ended; return its exit status."""
        return self.process.wait(WAIT_S)

    def interrupt(self) -> int:
        """Press Ctrl-C."""
        self.process.send_signal(signal.SIGINT)
        return self.wait()

    def remaining(self) -> list[str]:
        """Return the commands of its processes that are still there after a grace period."""
        until = time.monotonic() + EXIT_S_MAX
        while found := self.running():
            if time.monotonic() > until:
                break
            time.sleep(0.1)
        return list(found.values())

    def running(self) -> dict[int, str]:
        """Return the commands of its processes, by process id."""
        found = {}
        for path in Path("/proc").glob("[0-9]*"):
            try:
                if self._mark.encode() in (path / "environ").read_bytes().split(b"\0"):
                    found[int(path.name)] = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode()[:200]
            except OSError:  # it has ended, or belongs to another user
                continue
        return found

    def end(self) -> None:
        """Kill all its processes, whatever the result of the test."""
        for pid in [self.process.pid, *self.running()]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait()


@pytest.fixture
def demos(tmp_path: Path) -> Iterator[list[Demo]]:
    """A list for the demos of a test, which are killed at its end."""
    need("java", debian="openjdk-17-jre-headless")
    if not PAGE.exists():
        pytest.skip("the page of the map is not built; fix: make page")
    started: list[Demo] = []
    yield started
    for demo in started:
        demo.end()
