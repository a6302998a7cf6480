"""An agent as a process, and the edge that it connects to."""

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from live.mqtt.brokers import free_port
from live.mqtt.raw_client import Closed, RawClient
from live.udp.edges import HERE, UdpEdge
from parts import ROOT

WAIT_S: Final = 30.0


@dataclass
class Agent:
    """The agent of one vehicle, named by its certificate; programs connect to `port`."""

    name: str
    edge: UdpEdge
    log_path: Path
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the agent; return when a program can connect, whether or not the edge is reachable."""
        authority = self.edge.authority
        assert authority is not None
        authority.credentials(self.name)
        issued = str(authority.issued / self.name)
        files = ["--ca", str(authority.ca_file), "--certificate", f"{issued}.cert", "--key", f"{issued}.key"]
        where = ["--url", f"udp://127.0.0.1:{self.edge.udp}", "--at", f"{HERE.latitude},{HERE.longitude}"]
        command = [sys.executable, "-m", "milepost", "agent", "run", "--listen", f"127.0.0.1:{self.port}", *where, *files]
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        until = time.monotonic() + WAIT_S
        while True:
            with contextlib.suppress(OSError, Closed), RawClient(self.port, level=4) as first:
                first.try_join()
                return
            assert self.process.poll() is None, self.log()
            assert time.monotonic() < until, self.log()
            time.sleep(0.02)

    def stop(self) -> int:
        """Send SIGTERM; return the exit status."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(WAIT_S)

    def end(self) -> None:
        """Kill the process if it still runs."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(WAIT_S)

    def log(self) -> str:
        return self.log_path.read_text(errors="replace")


@contextlib.contextmanager
def agent_of(edge: UdpEdge, name: str, folder: Path) -> Iterator[Agent]:
    """Run an agent; it must end without a traceback."""
    agent = Agent(name, edge, folder / "agent.log")
    try:
        agent.start()
        yield agent
    finally:
        agent.end()
    assert "Traceback" not in agent.log(), agent.log()
