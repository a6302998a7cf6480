"""The broker under test as a process: Milepost, or Mosquitto as the reference (MILEPOST_TEST_BROKER=mosquitto).

A test on which Mosquitto departs from the specification is marked `deviates` (it must then fail there); a test of Milepost's own
features is marked `ours_only`. Both marks have no effect on Milepost.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Final

import pytest

from live.mqtt.certificates import Certificates
from live.mqtt.raw_client import Closed, RawClient
from parts import ROOT, need

IS_REFERENCE: Final = os.environ.get("MILEPOST_TEST_BROKER", "milepost") == "mosquitto"
START_S: Final = 30.0
STOP_S: Final = 15.0
# Below the kernel's ephemeral port range, so that no client occupies a listener's port.
PORTS: Final = count(20_000 + os.getpid() % 100 * 120)

PACKET_BYTES_MAX: Final = 2_000_000
RECEIVE_MAXIMUM: Final = 20
TOPIC_ALIAS_MAXIMUM: Final = 10


OPEN_RULE: Final = "".join(
    f'\n[[access.rules]]\nallow = true\naction = "send"\ntopics = "{topics}"\npriority = "emergency"\n'
    for topics in ("#", "Alert/#")
)
"""Rules that allow all clients to send any message, for tests of other features."""


def deviates(reason: str) -> pytest.MarkDecorator:
    """Mark a test that Mosquitto fails, with the reason."""
    return pytest.mark.xfail(IS_REFERENCE, reason=f"Mosquitto: {reason}", strict=True)


def ours_only(reason: str) -> pytest.MarkDecorator:
    """Mark a test that is skipped on Mosquitto, with the reason."""
    return pytest.mark.skipif(IS_REFERENCE, reason=f"ours only: {reason}")


def free_port() -> int:
    for port in PORTS:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("never ends")


@dataclass(frozen=True)
class Setup:
    """Settings of a broker. `more` is appended to the TOML file as it is; Mosquitto ignores it."""

    folder: Path
    durability: str = "process crash"
    users: dict[str, str] | None = None
    is_anonymous: bool = False
    """Whether clients without a user name are admitted although there are users."""
    certificates: Certificates | None = None
    more: str = ""

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def log(self) -> Path:
        return self.folder / "broker.log"


@dataclass
class Broker:
    """One broker and its process. Its ports stay the same over restarts; TLS and WebSocket only with certificates."""

    setup: Setup
    tcp: int = field(default_factory=free_port)
    tls: int = field(default_factory=free_port)
    mutual: int = field(default_factory=free_port)
    ws: int = field(default_factory=free_port)
    wss: int = field(default_factory=free_port)
    http: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the broker; return when it answers a CONNECT."""
        self.setup.data.mkdir(parents=True, exist_ok=True)
        command = _mosquitto_command(self) if IS_REFERENCE else _milepost_command(self)
        with self.setup.log.open("ab") as log:
            self.process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        self._wait_ready()

    def stop(self) -> int:
        """Send SIGTERM; return the exit status. The process must end within the deadline."""
        self.running.send_signal(signal.SIGTERM)
        return self.wait_ended()

    def kill(self) -> None:
        """Send SIGKILL: the process cannot write anything more."""
        self.running.kill()
        self.wait_ended()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the process meanwhile: packets pile up, and it reads all of them at once afterwards."""
        self.running.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.running.send_signal(signal.SIGCONT)

    def wait_ended(self) -> int:
        code = self.running.wait(timeout=STOP_S)
        self.process = None
        return code

    def end(self) -> None:
        """Kill the process if it still runs."""
        if self.process is not None:
            self.process.kill()
            self.wait_ended()

    @property
    def running(self) -> subprocess.Popen[bytes]:
        assert self.process is not None, "the broker was not started"
        return self.process

    def is_alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def log(self) -> str:
        return self.setup.log.read_text(errors="replace") if self.setup.log.exists() else ""

    def faults(self) -> list[str]:
        """Return the lines of its log that report an internal error."""
        return [line for line in self.log().splitlines() if "traceback" in line.lower() or "exception" in line.lower()]

    def resident_bytes(self) -> int:
        status = Path(f"/proc/{self.running.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) * 1024

    def _wait_ready(self) -> None:
        until = time.monotonic() + START_S
        while True:
            with contextlib.suppress(OSError, Closed), RawClient(self.tcp, level=4) as first:
                first.try_join()  # any reply will do: a broker with users refuses
                return
            if not self.is_alive():
                pytest.fail(f"the broker ended with {self.running.wait()} instead of starting:\n{self.log()[-3000:]}")
            if time.monotonic() > until:
                self.end()
                pytest.fail(f"the broker does not answer after {START_S} s:\n{self.log()[-3000:]}")
            time.sleep(0.01)


def _milepost_command(broker: Broker) -> list[str]:
    setup = broker.setup
    lines = ["[edge]", f'data = "{setup.data}"', "[storage]", f'durability = "{setup.durability}"']
    lines += ["[sys]", "interval_s = 1", "[http]", f'address = "127.0.0.1:{broker.http}"']
    if setup.users is not None:
        lines += ["[access]", f'users = "{_write_users(setup)}"', f"anonymous = {str(setup.is_anonymous).lower()}"]
    lines += ["[[mqtt.listen]]", f'address = "127.0.0.1:{broker.tcp}"', 'transport = "tcp"']
    if setup.certificates:
        files = [f'certificate = "{setup.certificates.server}"', f'key = "{setup.certificates.server_key}"']
        authority = [f'client_ca = "{setup.certificates.ca}"']
        lines += ["[[mqtt.listen]]", f'address = "127.0.0.1:{broker.ws}"', 'transport = "ws"']
        for port, transport, more in ((broker.tls, "tls", []), (broker.mutual, "tls", authority), (broker.wss, "wss", [])):
            lines += ["[[mqtt.listen]]", f'address = "127.0.0.1:{port}"', f'transport = "{transport}"', *files, *more]
    path = setup.folder / "edge.toml"
    path.write_text("\n".join([*lines, setup.more, ""]))
    return [sys.executable, "-m", "milepost", "edge", "run", "--config", str(path)]


def _mosquitto_command(broker: Broker) -> list[str]:
    setup = broker.setup
    lines = ["user root", "log_dest stderr", "sys_interval 1", "persistence true", f"persistence_location {setup.data}/"]
    lines += [f"max_packet_size {PACKET_BYTES_MAX}", "autosave_interval 1", "max_queued_messages 1000", "set_tcp_nodelay true"]
    lines += ["allow_anonymous true"] if setup.users is None else [f"password_file {_write_users(setup)}"]
    lines += [f"listener {broker.tcp} 127.0.0.1"]
    if setup.certificates:
        files = [f"certfile {setup.certificates.server}", f"keyfile {setup.certificates.server_key}"]
        authority = [f"cafile {setup.certificates.ca}", "require_certificate true"]
        lines += [f"listener {broker.ws} 127.0.0.1", "protocol websockets"]
        lines += [f"listener {broker.tls} 127.0.0.1", *files]
        lines += [f"listener {broker.mutual} 127.0.0.1", *files, *authority]
        lines += [f"listener {broker.wss} 127.0.0.1", "protocol websockets", *files]
    path = setup.folder / "mosquitto.conf"
    path.write_text("\n".join([*lines, ""]))
    return [need("mosquitto", debian="mosquitto"), "-c", str(path)]


def _write_users(setup: Setup) -> Path:
    """Write a file of hashed passwords, in the format of mosquitto_passwd, which both brokers read."""
    path = setup.folder / "users"
    if not path.exists():
        path.touch(mode=0o600)
        for name, password in (setup.users or {}).items():
            command = [need("mosquitto_passwd", debian="mosquitto"), "-b", str(path), name, password]
            subprocess.run(command, check=True, capture_output=True)
    return path
