"""The demo as a process of its own, and what is left of it when it has ended."""

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
GONE_S: Final = 30.0


class Demo:
    """One run, known among all processes by a mark in its environment, which its children have from it."""

    def __init__(self, folder: Path, *typed: str) -> None:
        self.out, self._said, self._mark = folder / "out", folder / "said", f"{MARK}={uuid4().hex}"
        name, _, value = self._mark.partition("=")
        command = [sys.executable, "-m", "milepost", "demo", "--out", str(self.out), *typed]
        with self._said.open("wb") as said:
            self.process = subprocess.Popen(
                command, cwd=folder, stdout=said, stderr=said, stdin=subprocess.DEVNULL, env={**os.environ, name: value}
            )

    @property
    def said(self) -> str:
        return self._said.read_text()

    def wait_said(self, form: str) -> None:
        """Until it has written what a regular expression finds."""
        until = time.monotonic() + WAIT_S
        while not re.search(form, self.said):
            assert self.process.poll() is None, self.said
            assert time.monotonic() < until, self.said
            time.sleep(0.05)

    def wait(self) -> int:
        """Until it has ended; its status."""
        return self.process.wait(WAIT_S)

    def interrupt(self) -> int:
        """Press Ctrl-C."""
        self.process.send_signal(signal.SIGINT)
        return self.wait()

    def left(self) -> list[str]:
        """The processes that carry its mark, after they had time to go."""
        until = time.monotonic() + GONE_S
        while found := self.running():
            if time.monotonic() > until:
                break
            time.sleep(0.1)
        return list(found.values())

    def running(self) -> dict[int, str]:
        """Its processes, by their ids, and what they run."""
        found = {}
        for path in Path("/proc").glob("[0-9]*"):
            try:
                if self._mark.encode() in (path / "environ").read_bytes().split(b"\0"):
                    found[int(path.name)] = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode()[:200]
            except OSError:  # it ended, or is another user's
                continue
        return found

    def end(self) -> None:
        """Make sure that nothing is left, whatever the test found."""
        for pid in [self.process.pid, *self.running()]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait()


@pytest.fixture
def demos(tmp_path: Path) -> Iterator[list[Demo]]:
    """Those of a test: ended when it has."""
    need("java", debian="openjdk-17-jre-headless")
    if not PAGE.exists():
        pytest.skip("the page of the map is not built; fix: make page")
    started: list[Demo] = []
    yield started
    for demo in started:
        demo.end()
