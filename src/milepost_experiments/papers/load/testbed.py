"""Testbeds: edges of one site, or of two sites joined by a central hub, on either log, as processes of the command line."""

import contextlib
import itertools
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from milepost.config.errors import StartFault
from milepost.config.site_settings import LogType, SiteLog
from milepost.runtime.services.jars import Progress
from milepost.runtime.services.kafka import running_kafka
from milepost_experiments.papers.load.programs import LoadFailed, cache_folder, raise_priority

START_S_MAX = 30.0
STOP_S_MAX = 10.0
SITES = ("north", "south")
_testbed_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Topology:
    """The processes of a testbed: the number of edges of each site, and the log."""

    edges: tuple[int, ...] = ()
    log_type: LogType = LogType.EMBEDDED


@dataclass(frozen=True, slots=True)
class Kafka:
    """The Kafka of this run."""

    address: str
    pid: int


@contextlib.contextmanager
def running_testbed_kafka(on_progress: Progress) -> Iterator[Kafka]:
    """Run a Kafka of one broker, with the priority of edges; raise `StartFault` if it does not start."""
    with (
        tempfile.TemporaryDirectory(prefix="kafka-", dir=cache_folder(), ignore_cleanup_errors=True) as folder,
        running_kafka(Path(folder), progress=on_progress) as service,
    ):
        pid = service.find_pid(1)
        if pid is None:
            raise StartFault("Kafka has ended right after its start: is there enough memory for it?")
        for thread in Path(f"/proc/{pid}/task").iterdir():
            raise_priority(int(thread.name))
        yield Kafka(service.address, pid)


@dataclass(frozen=True, slots=True)
class Process:
    """One process of a testbed and its output."""

    name: str
    popen: "subprocess.Popen[bytes]"
    output: Path

    def last_output_line(self) -> str:
        """Return the last line of its output."""
        lines = self.output.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "(no output)"


class CpuUsage:
    """The CPU time of a testbed's processes from now on."""

    def __init__(self, testbed: "Testbed") -> None:
        self._testbed, self._before, self._began = testbed, testbed.cpu_s(), time.monotonic()

    def since_start(self) -> tuple[dict[str, float], float]:
        """Return the seconds of CPU time by process, and of elapsed time."""
        used_s = {name: cpu_s - self._before[name] for name, cpu_s in self._testbed.cpu_s().items()}
        return used_s, time.monotonic() - self._began


@dataclass
class Testbed:
    """A running testbed: the MQTT ports of its edges, the logs of its sites, its processes."""

    folder: Path
    ports: list[int] = field(default_factory=list)
    logs: list[SiteLog] = field(default_factory=list)
    processes: list[Process] = field(default_factory=list)
    external_pids: dict[str, int] = field(default_factory=dict)
    """Ids of processes that work for the testbed but were not started by it, such as Kafka."""

    def cpu_s(self) -> dict[str, float]:
        """Return the CPU time of each process."""
        own = {one.name: process_cpu_s(one.popen.pid) for one in self.processes}
        return own | {name: process_cpu_s(pid) for name, pid in self.external_pids.items()}

    def start(self, name: str, command: list[str]) -> Process:
        """Start a process."""
        path = self.folder / f"{name}.out"
        with path.open("ab") as output:
            popen = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self.folder,
                start_new_session=True,
            )
        raise_priority(popen.pid)
        self.processes.append(Process(name, popen, path))
        return self.processes[-1]

    def check(self) -> None:
        """Raise `LoadFailed` if a process has ended."""
        for one in self.processes:
            if one.popen.poll() is not None:
                raise LoadFailed(f"{one.name} has ended: {one.last_output_line()}")

    def stop(self) -> None:
        """Stop all processes by SIGTERM, then by SIGKILL."""
        for one in self.processes:
            one.popen.terminate()
        for one in self.processes:
            try:
                one.popen.wait(STOP_S_MAX)
            except subprocess.TimeoutExpired:
                one.popen.kill()
                one.popen.wait()


@contextlib.contextmanager
def running_testbed(topology: Topology, kafka: Kafka | None) -> Iterator[Testbed]:
    """Run a fresh testbed for the block."""
    with empty_testbed() as testbed:
        _start_all(testbed, topology, kafka)
        yield testbed


@contextlib.contextmanager
def empty_testbed() -> Iterator[Testbed]:
    """Yield a testbed without processes; those started in it are stopped at the end of the block."""
    with tempfile.TemporaryDirectory(prefix="testbed-", dir=cache_folder(), ignore_cleanup_errors=True) as folder:
        testbed = Testbed(Path(folder))
        try:
            yield testbed
        except LoadFailed:
            testbed.check()  # the fault of an ended process explains more than its consequence
            raise
        finally:
            testbed.stop()


def _start_all(testbed: Testbed, topology: Topology, kafka: Kafka | None) -> None:
    number = next(_testbed_numbers)
    for site in SITES[: len(topology.edges)]:
        if topology.log_type is LogType.EMBEDDED:
            testbed.logs.append(SiteLog(site, folder=str(testbed.folder / site)))
        else:
            assert kafka is not None
            prefix = f"testbed-{number}.{site}."
            testbed.logs.append(SiteLog(site, LogType.KAFKA, folder="", address=kafka.address, prefix=prefix))
            testbed.external_pids["kafka"] = kafka.pid
    for log, edges in zip(testbed.logs, topology.edges, strict=True):
        for at in range(edges):
            _start_edge(testbed, log, f"{log.name}-{at + 1}")
    if len(testbed.logs) > 1:
        _start_hub(testbed)


def _start_edge(testbed: Testbed, log: SiteLog, name: str) -> None:
    port = free_port()
    lines = [
        "[edge]",
        f'name = "{name}"',
        f'data = "{testbed.folder / name}"',
        "[[mqtt.listen]]",
        f'address = "127.0.0.1:{port}"',
        "[limits]",
        "queue_messages_max = 50_000",
        "in_flight_max = 15_000",
        "[site]",
        *_log_lines(log),
    ]
    process = testbed.start(name, milepost_command(testbed, "edge", name, lines))
    wait_until_listening(process, port)
    testbed.ports.append(port)


def _start_hub(testbed: Testbed) -> None:
    lines = ["[hub]", 'name = "hub"']
    for log in testbed.logs:
        lines += ["[[hub.sites]]", *_log_lines(log)]
    testbed.start("hub", milepost_command(testbed, "hub", "hub", lines))


def milepost_command(testbed: Testbed, role: str, name: str, lines: list[str]) -> list[str]:
    """Write the settings of a role; return the command that starts it."""
    path = testbed.folder / f"{name}.toml"
    path.write_text("\n".join([*lines, "[http]", 'address = ""']) + "\n")
    return [sys.executable, "-m", "milepost", role, "run", "--config", str(path)]


def _log_lines(log: SiteLog) -> list[str]:
    location = [f'folder = "{log.folder}"'] if log.log_type is LogType.EMBEDDED else []
    location += [f'address = "{log.address}"', f'prefix = "{log.prefix}"']
    return [f'name = "{log.name}"', f'log = "{log.log_type.value}"', *location]


def process_cpu_s(pid: int) -> float:
    """Return the CPU time of a process, by its POSIX CPU clock: finer than /proc."""
    return time.clock_gettime((~pid << 3) | 2)


def free_port(kind: socket.SocketKind = socket.SOCK_STREAM) -> int:
    """Return a free port on loopback."""
    with socket.socket(socket.AF_INET, kind) as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
    return port


def wait_until_listening(process: Process, port: int) -> None:
    """Wait until the process listens on the port."""
    deadline = time.monotonic() + START_S_MAX
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
            return
        if process.popen.poll() is not None or time.monotonic() > deadline:
            raise LoadFailed(f"{process.name} does not start: {process.last_output_line()}")
        time.sleep(0.05)
