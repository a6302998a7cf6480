"""`milepost pipeline run` and other commands as processes that tests stop, kill and restart."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from live.pipelines.logs import SiteLog, wait_until
from parts import ROOT

START_S = 240.0
"""A session starts within seconds, or minutes on a busy machine."""

_QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options of Java: compile little, as these processes are killed before it would pay off."""

SETTINGS = """
[pipelines]
folder = "{folder}"
http = ""
memory = "512m"
allowed_lateness_s = 600.0
alert_interval_s = 0.0
{pipelines}
[incidents]
{kinds}
"""


@dataclass
class Driver:
    """A process, by default one that runs pipelines."""

    site: SiteLog
    folder: Path
    config: Path
    command: Sequence[str]
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def logged(self) -> str:
        return (self.folder / "driver.log").read_text()

    def start(self, *, is_ready: bool = True) -> None:
        ready = " ready "
        before = self.logged.count(ready) if (self.folder / "driver.log").exists() else 0
        with (self.folder / "driver.log").open("ab") as out:
            command = [sys.executable, "-m", "milepost", *self.command, "--config", str(self.config)]
            environment = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1", "JAVA_TOOL_OPTIONS": _QUICK_START}
            self.process = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=out, env=environment)
        if is_ready:
            wait_until(lambda: self.logged.count(ready) > before or self._has_ended(), "the process is ready", seconds=START_S)

    def kill(self, *, java_first: bool = False) -> None:
        """Kill the process; its Java process ends by itself a moment later, unless it is killed before."""
        assert self.process is not None
        if java_first:
            os.kill(self.spark_pid(), signal.SIGKILL)
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def spark_pid(self) -> int:
        """Return the process id of its Java process."""
        (found,) = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        return int(found)

    def stop(self) -> int:
        os.kill(self.pid, signal.SIGTERM)
        return self.ended()

    def ended(self) -> int:
        """Wait until the process ends, and return its exit status."""
        assert self.process is not None
        return self.process.wait(timeout=START_S)

    def status(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads((self.folder / "pipelines" / "status.json").read_text())["queries"]
        return found

    def status_at(self) -> int:
        """Return when the status was written, in nanoseconds."""
        at: int = json.loads((self.folder / "pipelines" / "status.json").read_text())["at_ns"]
        return at

    def _has_ended(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.logged[-3000:]
        return False


@contextmanager
def driver(
    site: SiteLog,
    folder: Path,
    *names: str,
    pipelines: str = "",
    kinds: str = "",
    command: Sequence[str] = ("pipeline", "run"),
) -> Iterator[Driver]:
    """A driver that is not started yet, killed at the end of the block; *names* are the pipelines."""
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "milepost.toml"
    settings = SETTINGS.format(folder=folder / "pipelines", pipelines=pipelines, kinds=kinds)
    config.write_text(f"[site]\n{site.table}\n{settings}")
    found = Driver(site, folder, config, (*command, *names))
    try:
        yield found
    finally:
        if found.process is not None and found.process.poll() is None:
            found.kill()
