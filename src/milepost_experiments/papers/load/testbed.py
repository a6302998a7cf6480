"""Towns: edges of one site, or of two sites joined by a central hub, on either log, as processes of the command line."""

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
from milepost.config.site_settings import Backbone, SiteLog
from milepost.runtime.services.jars import Told
from milepost.runtime.services.kafka import running_kafka
from milepost_experiments.papers.load.programs import LoadFailed, cache_folder, put_ahead

START_S_MAX = 30.0
STOP_S_MAX = 10.0
SITES = ("north", "south")
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Plan:
    """The processes of a town: the number of edges of each site, and the log."""

    edges: tuple[int, ...] = ()
    backbone: Backbone = Backbone.EMBEDDED


@dataclass(frozen=True, slots=True)
class Kafka:
    """The Kafka of this run."""

    address: str
    pid: int


@contextlib.contextmanager
def running_for_towns(told: Told) -> Iterator[Kafka]:
    """Run a Kafka of one broker, with the priority of edges; raise `StartFault` if it does not start."""
    with (
        tempfile.TemporaryDirectory(prefix="kafka-", dir=cache_folder(), ignore_cleanup_errors=True) as folder,
        running_kafka(Path(folder), told=told) as service,
    ):
        pid = service.maybe_pid(1)
        if pid is None:
            raise StartFault("Kafka has ended again: is there memory for it?")
        for thread in Path(f"/proc/{pid}/task").iterdir():
            put_ahead(int(thread.name))
        yield Kafka(service.address, pid)


@dataclass(frozen=True, slots=True)
class Process:
    """One process of a town and its output."""

    name: str
    popen: "subprocess.Popen[bytes]"
    said: Path

    def last_words(self) -> str:
        """Return the last line of its output."""
        lines = self.said.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it says nothing"


class Shares:
    """The CPU time of a town's processes from now on."""

    def __init__(self, town: "Town") -> None:
        self._town, self._before, self._began = town, town.cpu_s(), time.monotonic()

    def since_then(self) -> tuple[dict[str, float], float]:
        """Return the seconds of CPU time by process, and of elapsed time."""
        used_s = {name: cpu_s - self._before[name] for name, cpu_s in self._town.cpu_s().items()}
        return used_s, time.monotonic() - self._began


@dataclass
class Town:
    """A running town: the MQTT ports of its edges, the logs of its sites, its processes."""

    folder: Path
    ports: list[int] = field(default_factory=list)
    logs: list[SiteLog] = field(default_factory=list)
    processes: list[Process] = field(default_factory=list)
    guests: dict[str, int] = field(default_factory=dict)
    """Ids of processes that work for the town but were not started by it, such as Kafka."""

    def cpu_s(self) -> dict[str, float]:
        """Return the CPU time of each process."""
        own = {one.name: process_cpu_s(one.popen.pid) for one in self.processes}
        return own | {name: process_cpu_s(pid) for name, pid in self.guests.items()}

    def start(self, name: str, command: list[str]) -> Process:
        """Start a process."""
        path = self.folder / f"{name}.said"
        with path.open("ab") as said:
            popen = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *command],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                cwd=self.folder,
                start_new_session=True,
            )
        put_ahead(popen.pid)
        self.processes.append(Process(name, popen, path))
        return self.processes[-1]

    def check(self) -> None:
        """Raise `LoadFailed` if a process has ended."""
        for one in self.processes:
            if one.popen.poll() is not None:
                raise LoadFailed(f"{one.name} has ended: {one.last_words()}")

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
def standing(plan: Plan, kafka: Kafka | None) -> Iterator[Town]:
    """Run a fresh town for the block."""
    with empty_town() as town:
        _build(town, plan, kafka)
        yield town


@contextlib.contextmanager
def empty_town() -> Iterator[Town]:
    """Yield a town without processes; those started in it are stopped at the end of the block."""
    with tempfile.TemporaryDirectory(prefix="town-", dir=cache_folder(), ignore_cleanup_errors=True) as folder:
        town = Town(Path(folder))
        try:
            yield town
        except LoadFailed:
            town.check()  # the fault of an ended process explains more than its consequence
            raise
        finally:
            town.stop()


def _build(town: Town, plan: Plan, kafka: Kafka | None) -> None:
    number = next(_numbers)
    for site in SITES[: len(plan.edges)]:
        if plan.backbone is Backbone.EMBEDDED:
            town.logs.append(SiteLog(site, folder=str(town.folder / site)))
        else:
            assert kafka is not None
            town.logs.append(SiteLog(site, Backbone.KAFKA, folder="", address=kafka.address, prefix=f"town-{number}.{site}."))
            town.guests["kafka"] = kafka.pid
    for log, edges in zip(town.logs, plan.edges, strict=True):
        for at in range(edges):
            _start_edge(town, log, f"{log.name}-{at + 1}")
    if len(town.logs) > 1:
        _start_centre(town)


def _start_edge(town: Town, log: SiteLog, name: str) -> None:
    port = free_port()
    lines = [
        "[edge]",
        f'name = "{name}"',
        f'data = "{town.folder / name}"',
        "[[mqtt.listen]]",
        f'address = "127.0.0.1:{port}"',
        "[limits]",
        "queue_messages_max = 50_000",
        "in_flight_max = 15_000",
        "[site]",
        *_log_lines(log),
    ]
    process = town.start(name, milepost_command(town, "edge", name, lines))
    wait_listening(process, port)
    town.ports.append(port)


def _start_centre(town: Town) -> None:
    lines = ["[centre]", 'name = "centre"']
    for log in town.logs:
        lines += ["[[centre.sites]]", *_log_lines(log)]
    town.start("centre", milepost_command(town, "centre", "centre", lines))


def milepost_command(town: Town, role: str, name: str, lines: list[str]) -> list[str]:
    """Write the settings of a role; return the command that starts it."""
    path = town.folder / f"{name}.toml"
    path.write_text("\n".join([*lines, "[http]", 'address = ""']) + "\n")
    return [sys.executable, "-m", "milepost", role, "run", "--config", str(path)]


def _log_lines(log: SiteLog) -> list[str]:
    where = [f'folder = "{log.folder}"'] if log.backbone is Backbone.EMBEDDED else []
    where += [f'address = "{log.address}"', f'prefix = "{log.prefix}"']
    return [f'name = "{log.name}"', f'backbone = "{log.backbone.value}"', *where]


def process_cpu_s(pid: int) -> float:
    """Return the CPU time of a process, by its POSIX CPU clock: finer than /proc."""
    return time.clock_gettime((~pid << 3) | 2)


def free_port(kind: socket.SocketKind = socket.SOCK_STREAM) -> int:
    """Return a free port on loopback."""
    with socket.socket(socket.AF_INET, kind) as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


def wait_listening(process: Process, port: int) -> None:
    """Wait until the process listens on the port."""
    deadline = time.monotonic() + START_S_MAX
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
            return
        if process.popen.poll() is not None or time.monotonic() > deadline:
            raise LoadFailed(f"{process.name} does not start: {process.last_words()}")
        time.sleep(0.05)
