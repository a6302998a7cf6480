"""`milepost pipeline run` as processes that tests stop, kill and restart."""

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
    """A process that runs pipelines."""

    site: SiteLog
    folder: Path
    config: Path
    names: Sequence[str]
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def logged(self) -> str:
        return (self.folder / "driver.log").read_text()

    def start(self, *, is_ready: bool = True) -> None:
        before = self.logged.count("pipelines ready") if (self.folder / "driver.log").exists() else 0
        with (self.folder / "driver.log").open("ab") as out:
            command = [sys.executable, "-m", "milepost", "pipeline", "run", *self.names, "--config", str(self.config)]
            environment = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"}
            self.process = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=out, env=environment)
        if is_ready:
            wait_until(lambda: self.logged.count("pipelines ready") > before or self._has_ended(), "queries run", seconds=START_S)

    def kill(self) -> None:
        """Kill the process; its Java process ends with it."""
        assert self.process is not None
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

    def _has_ended(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.logged[-3000:]
        return False


@contextmanager
def driver(site: SiteLog, folder: Path, *names: str, pipelines: str = "", kinds: str = "") -> Iterator[Driver]:
    """A driver that is not started yet, killed at the end of the block."""
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "milepost.toml"
    settings = SETTINGS.format(folder=folder / "pipelines", pipelines=pipelines, kinds=kinds)
    config.write_text(f"[site]\n{site.table}\n{settings}")
    found = Driver(site, folder, config, names)
    try:
        yield found
    finally:
        if found.process is not None and found.process.poll() is None:
            found.kill()
