"""An edge process with a UDP listener: pinned to a core, read by its metrics, always stopped."""

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from milepost.runtime.trust_files import read_authority_key, read_key
from milepost.trust.noise import public_of
from milepost_experiments.papers.load.endpoints import Realm
from milepost_experiments.papers.load.programs import BROKER_CORE, LoadFailed, cache_folder, pin_command, raise_priority
from milepost_experiments.papers.load.testbed import free_port

NAME = "edge-1"
MILEPOST = [sys.executable, "-m", "milepost"]
START_S_MAX = 20.0
STOP_S_MAX = 10.0
HTTP_S_MAX = 10.0
TICKS_PER_S = os.sysconf("SC_CLK_TCK")

# Rate limits are too high to refuse anything, but are still checked.
SETTINGS = """
[edge]
name = "{name}"
data = "{folder}/data"
[storage]
durability = "none"
[[mqtt.listen]]
address = "127.0.0.1:{mqtt_port}"
[udp]
address = "127.0.0.1:{port}"
encryption = "{encryption}"
reporting_interval_s = {interval_s}
heartbeat_intervals = {heartbeat_intervals}
handshakes_per_s = 1_000_000
prefix_per_s = 100_000_000
prefix_burst = 100_000_000
total_per_s = 100_000_000
total_burst = 100_000_000
messages_per_s = 1_000_000
messages_burst = 1_000_000
[trust]
{trust}
[limits]
reports_per_s = 1_000_000
reports_burst = 1_000_000
[[rules.alert]]
topic = "Emergency"
[[access.rules]]
allow = true
action = "publish"
topics = "Emergency"
[http]
address = "127.0.0.1:{http_port}"
[log]
level = "error"
[sys]
interval_s = 0
"""
TRUST = """
ca = "{folder}/authority/authority.pub"
certificate = "{folder}/{name}.cert"
key = "{folder}/{name}.key"
revoked = "{folder}/authority/revoked.list"
"""


@dataclass(frozen=True, slots=True)
class MetricsSnapshot:
    """The metrics of an edge at one moment."""

    at_s: float
    cpu_s: float
    resident_bytes: int
    metrics: dict[str, float]

    def of(self, name: str) -> float:
        """Return a metric, summed over all its labels."""
        return sum(value for key, value in self.metrics.items() if key.partition("{")[0] == f"milepost_{name}")


@dataclass(frozen=True, slots=True)
class EdgeProcess:
    """A running edge."""

    folder: Path
    port: int
    http_port: int
    realm: Realm | None
    process: subprocess.Popen[bytes]

    def snapshot(self) -> MetricsSnapshot:
        """Read the metrics and the CPU time so far."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}/metrics", timeout=HTTP_S_MAX) as page:
            lines = page.read().decode().splitlines()
        metrics = {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[:1] != "#")}
        return MetricsSnapshot(time.monotonic(), self._cpu_s(), self._resident_bytes(), metrics)

    def _cpu_s(self) -> float:
        after_name = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(after_name[11]) + int(after_name[12])) / TICKS_PER_S

    def _resident_bytes(self) -> int:
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@contextlib.contextmanager
def running_edge(*, is_encrypted: bool, interval_s: float = 300.0, heartbeat_intervals: int = 3) -> Iterator[EdgeProcess]:
    """Run an edge in a fresh folder for the block; endpoints may be silent for *heartbeat_intervals* intervals."""
    with tempfile.TemporaryDirectory(prefix="udp-", dir=cache_folder(), ignore_cleanup_errors=True) as name:
        folder = Path(name)
        realm = make_trust(folder) if is_encrypted else None
        port, http_port, mqtt_port = free_port(socket.SOCK_DGRAM), free_port(), free_port()
        names = {"name": NAME, "folder": folder, "port": port, "http_port": http_port, "mqtt_port": mqtt_port}
        trust = TRUST.format(**names) if is_encrypted else ""
        options = {
            "encryption": "noise" if is_encrypted else "none",
            "interval_s": interval_s,
            "heartbeat_intervals": heartbeat_intervals,
        }
        (folder / "edge.toml").write_text(SETTINGS.format(**names, **options, trust=trust))
        command = pin_command([*MILEPOST, "edge", "run", "--config", str(folder / "edge.toml")], BROKER_CORE)
        with (folder / "output").open("wb") as output:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True)
        edge = EdgeProcess(folder, port, http_port, realm, process)
        try:
            raise_priority(process.pid)
            wait_until_ready(edge)
            yield edge
        finally:
            stop(process)


def make_trust(folder: Path) -> Realm:
    """Create a certificate authority, and an edge's key and certificate, by the command line."""
    authority = folder / "authority"
    subprocess.run([*MILEPOST, "trust", "init", str(authority)], check=True, capture_output=True)
    issue = [*MILEPOST, "trust", "issue", str(authority), NAME, "--edge", "--out", str(folder)]
    subprocess.run(issue, check=True, capture_output=True)
    key = read_key(folder / f"{NAME}.key")
    return Realm(read_authority_key(authority / "authority.key"), public_of(key.static))


def wait_until_ready(edge: EdgeProcess) -> None:
    """Wait until the edge serves."""
    deadline = time.monotonic() + START_S_MAX
    while time.monotonic() < deadline and edge.process.poll() is None:
        with contextlib.suppress(OSError):
            edge.snapshot()
            return
        time.sleep(0.05)
    text = (edge.folder / "output").read_text(errors="replace").strip()
    raise LoadFailed(f"the edge does not start: {text[-500:] or '(no output)'}")


def stop(process: subprocess.Popen[bytes]) -> None:
    """Stop a process that was started here."""
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(STOP_S_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
