"""`milepost pipeline run` in processes of their own, which tests stop, kill and start again."""

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
"""A session takes seconds, and minutes on a machine that has other work."""

SETTINGS = """
[pipelines]
folder = "{folder}"
http = ""
memory = "512m"
late_s = 600.0
urgent_s = 0.0
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
    def said(self) -> str:
        return (self.folder / "driver.log").read_text()

    def start(self, *, is_ready: bool = True) -> None:
        before = self.said.count("pipelines ready") if (self.folder / "driver.log").exists() else 0
        with (self.folder / "driver.log").open("ab") as out:
            command = [sys.executable, "-m", "milepost", "pipeline", "run", *self.names, "--config", str(self.config)]
            environment = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"}
            self.process = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=out, env=environment)
        if is_ready:
            wait_until(lambda: self.said.count("pipelines ready") > before or self._has_ended(), "queries run", seconds=START_S)

    def kill(self) -> None:
        """With no chance to finish anything; its Java process goes with it."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    @property
    def number(self) -> int:
        assert self.process is not None
        return self.process.pid

    def spark(self) -> int:
        """The number of its Java process."""
        (found,) = Path(f"/proc/{self.number}/task/{self.number}/children").read_text().split()
        return int(found)

    def stop(self) -> int:
        os.kill(self.number, signal.SIGTERM)
        return self.ended()

    def ended(self) -> int:
        """Its exit status, when it has ended."""
        assert self.process is not None
        return self.process.wait(timeout=START_S)

    def status(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads((self.folder / "pipelines" / "status.json").read_text())["queries"]
        return found

    def _has_ended(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.said[-3000:]
        return False


@contextmanager
def driver(site: SiteLog, folder: Path, *names: str, pipelines: str = "", kinds: str = "") -> Iterator[Driver]:
    """One that is not started yet, and is gone in the end."""
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "milepost.toml"
    told = SETTINGS.format(folder=folder / "pipelines", pipelines=pipelines, kinds=kinds)
    config.write_text(f"[site]\n{site.table}\n{told}")
    found = Driver(site, folder, config, names)
    try:
        yield found
    finally:
        if found.process is not None and found.process.poll() is None:
            found.kill()
