"""An agent as a process, beside the edge that it speaks to."""

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
from live.mqtt.raw import Closed, Raw
from live.udp.edges import HERE, UdpEdge
from parts import ROOT

WAIT_S: Final = 30.0


@dataclass
class Agent:
    """The agent of one vehicle, of the name that its certificate has; programs connect to `port`."""

    name: str
    edge: UdpEdge
    log_path: Path
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and come back when a program can connect, whether or not the edge is there."""
        office = self.edge.office
        assert office is not None
        office.trust(self.name)
        issued = str(office.issued / self.name)
        files = ["--authority", str(office.authority), "--certificate", f"{issued}.cert", "--key", f"{issued}.key"]
        where = ["--url", f"udp://127.0.0.1:{self.edge.udp}", "--at", f"{HERE.latitude},{HERE.longitude}"]
        command = [sys.executable, "-m", "milepost", "agent", "run", "--listen", f"127.0.0.1:{self.port}", *where, *files]
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        until = time.monotonic() + WAIT_S
        while True:
            with contextlib.suppress(OSError, Closed), Raw(self.port, level=4) as first:
                first.ask()
                return
            assert self.process.poll() is None, self.log()
            assert time.monotonic() < until, self.log()
            time.sleep(0.02)

    def stop(self) -> int:
        """SIGTERM; the exit status."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(WAIT_S)

    def end(self) -> None:
        """Make sure that nothing is left running."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(WAIT_S)

    def log(self) -> str:
        return self.log_path.read_text(errors="replace")


@contextlib.contextmanager
def agent_of(edge: UdpEdge, name: str, folder: Path) -> Iterator[Agent]:
    """A running agent; it must end without a fault."""
    agent = Agent(name, edge, folder / "agent.log")
    try:
        agent.start()
        yield agent
    finally:
        agent.end()
    assert "Traceback" not in agent.log(), agent.log()
