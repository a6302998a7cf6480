"""Broker processes: started, measured, killed and restarted, always stopped."""

import contextlib
import os
import resource
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.edge_load.brokers import Broker, Features, ServerFiles
from bench.edge_load.generator import CACHE
from milepost_experiments.papers.load.programs import BROKER_CORE, LoadFailed, pin_command, raise_priority

START_S_MAX = 20.0
STOP_S_MAX = 10.0
OPEN_FILES_MAX = 40_000
TICKS_PER_S = os.sysconf("SC_CLK_TCK")

SCHEMA = """{
  "type": "object",
  "required": ["sent_ns", "run", "number", "vehicle", "kind", "latitude", "longitude", "speed_kmh"],
  "additionalProperties": false,
  "properties": {
    "sent_ns": {"type": "integer", "minimum": 0},
    "run": {"type": "integer", "minimum": 1000, "maximum": 9999},
    "number": {"type": "integer", "minimum": 0},
    "vehicle": {"type": "string", "pattern": "^car-[0-9]{3}$"},
    "kind": {"enum": ["report", "alert"]},
    "latitude": {"type": "number", "minimum": -90, "maximum": 90},
    "longitude": {"type": "number", "minimum": -180, "maximum": 180},
    "speed_kmh": {"type": "number", "minimum": 0, "maximum": 400}
  }
}
"""


def allow_many_files() -> int:
    """Raise the limit on open files as far as allowed; generator and brokers inherit it."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = OPEN_FILES_MAX if most == resource.RLIM_INFINITY else min(OPEN_FILES_MAX, most)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, most))
    return limit


def make_certificate(folder: Path) -> None:
    """Write a self-signed certificate for all brokers of this run."""
    kind = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    files = ["-keyout", str(folder / "key.pem"), "-out", str(folder / "certificate.pem"), "-subj", "/CN=localhost"]
    subprocess.run([*kind, *files], check=True, capture_output=True)


@dataclass
class Server:
    """One broker's process."""

    broker: Broker
    files: ServerFiles
    features: Features
    process: subprocess.Popen[bytes] | None = None

    @property
    def port(self) -> int:
        return self.files.port

    def start(self) -> None:
        """Start it and wait until it accepts connections."""
        command = pin_command(self.broker.command(self.files, self.features), BROKER_CORE)
        with (self.files.folder / "output").open("ab") as output:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=self.files.folder, start_new_session=True
            )
        raise_priority(self.process.pid)
        deadline = time.monotonic() + START_S_MAX
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1.0):
                return
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise LoadFailed(f"{self.broker.name} does not start: {self.last_output_line()}")
            time.sleep(0.05)

    def last_output_line(self) -> str:
        """Return the last line of its output."""
        lines = (self.files.folder / "output").read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "(no output)"

    def kill(self) -> None:
        """Kill it."""
        assert self.process
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """Stop it by SIGTERM, after a timeout by SIGKILL."""
        if self.process is None or self.process.poll() is not None:
            return
        self.process.terminate()
        try:
            self.process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            self.kill()

    def resident_bytes(self) -> int:
        """Return the resident memory of the process and its children."""
        return sum(_resident_bytes(pid) for pid in self._family())

    def cpu_s(self) -> float:
        """Return the CPU time of the process and its children."""
        return sum(_cpu_s(pid) for pid in self._family())

    def _family(self) -> list[int]:
        assert self.process
        found = [self.process.pid]
        for pid in found:
            with contextlib.suppress(OSError):
                found += [int(word) for path in Path(f"/proc/{pid}/task").iterdir() for word in _words(path / "children")]
        return found


def _words(path: Path) -> list[str]:
    return path.read_text().split()


def _resident_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Rss:"):
            return int(line.split()[1]) * 1024
    return 0


def _cpu_s(pid: int) -> float:
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(after_name[11]) + int(after_name[12])) / TICKS_PER_S


@contextlib.contextmanager
def running_broker(broker: Broker, features: Features, shared: Path) -> Iterator[Server]:
    """Run a broker in a fresh folder for the block."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="edge-", dir=CACHE, ignore_cleanup_errors=True) as folder:
        files = ServerFiles(Path(folder), port, shared / "certificate.pem", shared / "key.pem", shared / "schema.json")
        server = Server(broker, files, features)
        try:
            server.start()
            yield server
        finally:
            server.stop()
