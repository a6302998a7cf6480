"""Follows a page as a reader would: writes its files, runs its commands in order, and compares the output.

The ports of the page are used, in a network namespace of the test. A command that does not end gets a terminal of its own; the
follower waits until it is ready. A block of toml or python whose first line is a comment with a file name is that file. A block
`printed` has lines that must have been printed by then; … matches any text, and ages ("2 ms ago") may differ.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.error import URLError
from urllib.request import ProxyHandler, build_opener

from docs.pages import Block, commands_of

WAIT_S: Final = 120.0
SPARK_S: Final = 200.0
READY: Final = {
    "make edge": "edge ready",
    "milepost edge run": "edge ready",
    "milepost hub run": "serving site",
    "milepost agent run": "agent ready",
    "milepost handler run": "partition served",
    "milepost incidents run": "incidents active",
    "milepost pipeline run": "progress queries=",
    "milepost dashboard run": "dashboard ready",
}
"""Commands that run until they are stopped, and the output that shows that they are ready."""

FILES: Final = {"toml", "python"}
_NAMED: Final = re.compile(r"^# ([\w.-]+\.\w+)\n")
_VARIES: Final = re.compile(r"…|(?<= )[\d.]+ (?:µs|ms|s|min) ago")


@dataclass
class Terminal:
    """One command, and its output so far."""

    command: str
    process: "subprocess.Popen[bytes]"
    output: Path

    def text(self) -> str:
        return self.output.read_text(errors="replace")


@dataclass
class Follower:
    """A reader who follows a page in a folder."""

    folder: Path
    path: str = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    terminals: list[Terminal] = field(default_factory=list)
    _seen: set[tuple[int, int]] = field(default_factory=set)

    def follow(self, blocks: list[Block]) -> None:
        """Execute blocks, one after the other."""
        for block in blocks:
            if block.language == "sh":
                for command in commands_of(block.text):
                    self.type(command)
            elif block.language == "printed":
                for line in block.text.splitlines():
                    self.wait_printed(line)
            elif block.language in FILES and (name := _NAMED.match(block.text)):
                (self.folder / name[1]).write_text(block.text)

    def paste(self, blocks: list[Block]) -> None:
        """Paste each block unchanged into a new terminal; only its last command may run on."""
        for block in blocks:
            if block.language != "sh":
                self.follow([block])
                continue
            *before, last = commands_of(block.text)
            endless = [one for one in before if self._maybe_ready_check(one) is not None]
            assert not endless, f"{block}: {endless[0]} does not end, so later commands are never run"
            self.type(block.text, last)

    def type(self, command: str, last: str = "") -> None:
        """Run a command until it succeeds or is ready; of several commands only *last* may run on."""
        is_ready = self._maybe_ready_check(last or command)
        terminal = self._start(command.removesuffix("&").strip())
        if is_ready is None:
            terminal.process.wait(timeout=SPARK_S)
            assert terminal.process.returncode in _expected_statuses(command), f"{command}\n{terminal.text()}"
        else:
            self._wait(lambda: is_ready(terminal), terminal)

    def wait_printed(self, line: str) -> None:
        """Wait until a line is printed that no earlier line of the page has matched."""
        form = re.compile(".*".join(map(re.escape, _VARIES.split(line))))
        until = time.monotonic() + WAIT_S
        while not self._found(form):
            assert time.monotonic() < until, f"never printed: {line}\n" + "\n".join(self._everything())
            time.sleep(0.05)

    def stop(self) -> None:
        """End all terminals."""
        if (self.folder / "data" / "services").exists():
            self._start("milepost services stop").process.wait(timeout=WAIT_S)
        for terminal in reversed(self.terminals):
            if terminal.process.poll() is None:
                os.killpg(terminal.process.pid, signal.SIGTERM)
        for terminal in self.terminals:
            try:
                terminal.process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                os.killpg(terminal.process.pid, signal.SIGKILL)
                terminal.process.wait()

    def _start(self, command: str) -> Terminal:
        output = self.folder / f".terminal-{len(self.terminals)}"
        environment = {**os.environ, "PATH": self.path, "PYTHONUNBUFFERED": "1", "SPARK_LOCAL_IP": "127.0.0.1"}
        environment = {name: value for name, value in environment.items() if not name.lower().endswith("_proxy")}
        typed = f"exec stdbuf -oL {command}" if command.startswith("mosquitto_sub") else command
        with output.open("wb") as out:
            process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "TERM", "bash", "-c", typed],
                cwd=self.folder, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                start_new_session=True,
            )  # fmt: skip
        self.terminals.append(Terminal(command, process, output))
        return self.terminals[-1]

    def _maybe_ready_check(self, command: str) -> Callable[[Terminal], bool] | None:
        """Return the check whether an endless command is ready; None for a command that ends."""
        for prefix, ready in READY.items():
            if command.startswith(prefix):
                return lambda terminal: ready in terminal.text()
        if _subscribes(command):
            before = self._metric("milepost_subscriptions")
            return lambda _: self._metric("milepost_subscriptions") > before
        if command.startswith("milepost report") and "--forever" in command:
            reports = self._metric("milepost_reports_total")
            return lambda _: self._metric("milepost_reports_total") > reports
        return None

    def _wait(self, is_so: Callable[[], bool], terminal: Terminal) -> None:
        until = time.monotonic() + SPARK_S
        while not is_so():
            assert terminal.process.poll() is None, f"command ended: {terminal.command}\n{terminal.text()}"
            assert time.monotonic() < until, f"never ready: {terminal.command}\n{terminal.text()}"
            time.sleep(0.05)

    def _metric(self, name: str) -> float:
        """Return the sum of a metric over all edges."""
        edges = [found for terminal in self.terminals for found in re.findall(r"edge ready.* http=(\S+)", terminal.text())]
        return sum(_metric_at(address, name) for address in set(edges))

    def _found(self, form: re.Pattern[str]) -> bool:
        for number, terminal in enumerate(self.terminals):
            for row, line in enumerate(terminal.text().splitlines()):
                if (number, row) not in self._seen and form.fullmatch(line.rstrip()):
                    self._seen.add((number, row))
                    return True
        return False

    def _everything(self) -> Iterator[str]:
        for terminal in self.terminals:
            yield f"$ {terminal.command}\n{terminal.text()[-3000:]}"


def _subscribes(command: str) -> bool:
    """Return whether a command subscribes and does not end; a background program of the page does."""
    ends = re.search(r" (-C|-W|--count|--timeout|-E)\b", command)
    return not ends and bool(re.match(r"mosquitto_sub|milepost sub|python .*&$", command))


def _expected_statuses(command: str) -> set[int]:
    """Return the exit statuses of success: 27 for mosquitto_sub after a timeout, 1 for restarting queries."""
    if command.startswith("milepost pipeline status"):
        return {0, 1}
    return {0, 27} if re.search(r"mosquitto_sub .*-W ", command) else {0}


def _metric_at(address: str, name: str) -> float:
    try:
        text = build_opener(ProxyHandler({})).open(f"http://{address}/metrics", timeout=5).read().decode()
    except URLError:
        return 0.0
    found = re.search(rf"^{name} (\S+)$", text, re.MULTILINE)
    return float(found[1]) if found else 0.0


@contextmanager
def following(folder: Path, path: str = "") -> Iterator[Follower]:
    """Yield a follower, and stop all its processes at the end; *path* replaces the PATH with `milepost`."""
    follower = Follower(folder, path) if path else Follower(folder)
    try:
        yield follower
    finally:
        follower.stop()
