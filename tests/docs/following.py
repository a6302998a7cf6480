"""A page is followed as a reader would: its files are written, its commands typed in their order, and what it says is printed.

The pages' own ports are used, in a network of the test's own. A command that goes on gets a terminal of its own and is waited
for until it is ready. A block of toml or python whose first line is a comment with a name is that file. A block `printed` has
lines that must be printed by then; in them … stands for anything, and how long ago something was may differ.
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
    "milepost centre run": "acts for",
    "milepost agent run": "agent ready",
    "milepost handler run": "part served",
    "milepost incidents run": "acts for the site",
    "milepost pipeline run": "progress queries=",
    "milepost dashboard run": "dashboard ready",
}
"""What goes on until it is stopped, and what it says when it may be used."""

FILES: Final = {"toml", "python"}
_NAMED: Final = re.compile(r"^# ([\w.-]+\.\w+)\n")
_VARIES: Final = re.compile(r"…|(?<= )[\d.]+ (?:µs|ms|s|min) ago")


@dataclass
class Terminal:
    """What one command prints, while it runs and after."""

    command: str
    process: "subprocess.Popen[bytes]"
    output: Path

    def said(self) -> str:
        return self.output.read_text(errors="replace")


@dataclass
class Follower:
    """Somebody who follows a page in a folder."""

    folder: Path
    path: str = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    terminals: list[Terminal] = field(default_factory=list)
    _seen: set[tuple[int, int]] = field(default_factory=set)

    def follow(self, blocks: list[Block]) -> None:
        """Do what these blocks say, one after the other."""
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
        """Paste each block as it is into a new terminal; only its last command may go on."""
        for block in blocks:
            if block.language != "sh":
                self.follow([block])
                continue
            *before, last = commands_of(block.text)
            lasting = [one for one in before if self._maybe_goes_on(one) is not None]
            assert not lasting, f"{block}: {lasting[0]} does not end, so what follows it is never run"
            self.type(block.text, last)

    def type(self, command: str, last: str = "") -> None:
        """Run a command to its good end, or until it is ready; of several commands *last* is the one that may go on."""
        is_ready = self._maybe_goes_on(last or command)
        terminal = self._start(command.removesuffix("&").strip())
        if is_ready is None:
            terminal.process.wait(timeout=SPARK_S)
            assert terminal.process.returncode in _good_ends(command), f"{command}\n{terminal.said()}"
        else:
            self._wait(lambda: is_ready(terminal), terminal)

    def wait_printed(self, line: str) -> None:
        """Wait until a line is there that no other line of the page stands for."""
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

    def _maybe_goes_on(self, command: str) -> Callable[[Terminal], bool] | None:
        """When a command that goes on is ready; None for one that ends."""
        for words, ready in READY.items():
            if command.startswith(words):
                return lambda terminal: ready in terminal.said()
        if _listens(command):
            before = self._figures("milepost_subscriptions")
            return lambda _: self._figures("milepost_subscriptions") > before
        if command.startswith("milepost report") and "--forever" in command:
            reports = self._figures("milepost_reports_total")
            return lambda _: self._figures("milepost_reports_total") > reports
        return None

    def _wait(self, is_so: Callable[[], bool], terminal: Terminal) -> None:
        until = time.monotonic() + SPARK_S
        while not is_so():
            assert terminal.process.poll() is None, f"it ended: {terminal.command}\n{terminal.said()}"
            assert time.monotonic() < until, f"never ready: {terminal.command}\n{terminal.said()}"
            time.sleep(0.05)

    def _figures(self, name: str) -> float:
        """A figure of all edges together."""
        edges = [found for terminal in self.terminals for found in re.findall(r"edge ready.* http=(\S+)", terminal.said())]
        return sum(_figure(address, name) for address in set(edges))

    def _found(self, form: re.Pattern[str]) -> bool:
        for number, terminal in enumerate(self.terminals):
            for row, line in enumerate(terminal.said().splitlines()):
                if (number, row) not in self._seen and form.fullmatch(line.rstrip()):
                    self._seen.add((number, row))
                    return True
        return False

    def _everything(self) -> Iterator[str]:
        for terminal in self.terminals:
            yield f"$ {terminal.command}\n{terminal.said()[-3000:]}"


def _listens(command: str) -> bool:
    """Whether it subscribes to something and then goes on; a program of the page that is sent to the background does."""
    ends = re.search(r" (-C|-W|--count|--timeout|-E)\b", command)
    return not ends and bool(re.match(r"mosquitto_sub|milepost sub|python .*&$", command))


def _good_ends(command: str) -> set[int]:
    """mosquitto_sub that was told how long to wait ends with 27 when nothing came; on a busy machine queries start anew."""
    if command.startswith("milepost pipeline status"):
        return {0, 1}
    return {0, 27} if re.search(r"mosquitto_sub .*-W ", command) else {0}


def _figure(address: str, name: str) -> float:
    try:
        text = build_opener(ProxyHandler({})).open(f"http://{address}/metrics", timeout=5).read().decode()
    except URLError:
        return 0.0
    found = re.search(rf"^{name} (\S+)$", text, re.MULTILINE)
    return float(found[1]) if found else 0.0


@contextmanager
def following(folder: Path, path: str = "") -> Iterator[Follower]:
    """Somebody who leaves nothing running; *path* is the PATH instead of one with `milepost`."""
    follower = Follower(folder, path) if path else Follower(folder)
    try:
        yield follower
    finally:
        follower.stop()
