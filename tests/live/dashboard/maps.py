"""The map as a process: `milepost dashboard run`, over the log of a site."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from live.federation.deployment import Deployment, settings_table, wait_until
from live.mqtt.brokers import STOP_S, free_port
from parts import ROOT

PAGE: Final = ROOT / "src" / "milepost" / "dashboard" / "_built" / "index.html"
TOKEN: Final = "a token for tests"


@dataclass
class MapProcess:
    """A running map server."""

    process: "subprocess.Popen[bytes]"
    port: int
    log: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"


@contextmanager
def map_of(deployment: Deployment, *, more: str = "", port: int = 0) -> Iterator[MapProcess]:
    """Serve the map of the site "north"; `more` are more lines of the table [dashboard], and more tables."""
    if not PAGE.exists():
        pytest.skip("the page of the map is not built; fix: make page")
    port = port or free_port()
    path, log = deployment.folder / f"map-{port}.toml", deployment.folder / f"map-{port}.log"
    lines = [f"[site]\n{settings_table(deployment.sites['north'])}", f'[pipelines]\nfolder = "{deployment.folder / "pipelines"}"']
    path.write_text("\n".join([*lines, f'[dashboard]\naddress = "127.0.0.1:{port}"\ntoken = "{TOKEN}"', more, ""]))
    with log.open("ab") as out:
        command = [sys.executable, "-m", "milepost", "dashboard", "run", "--config", str(path)]
        process = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=out, stdin=subprocess.DEVNULL)
    try:
        wait_until(lambda: "dashboard ready" in log.read_text() or process.poll() is not None, "the map is served")
        assert process.poll() is None, log.read_text()
        yield MapProcess(process, port, log)
        process.terminate()
        assert process.wait(timeout=STOP_S) == 0, log.read_text()
        assert "Traceback" not in log.read_text(), log.read_text()
    finally:
        process.kill()
        process.wait()
