"""A deployment of real processes: sites with their logs, edges, and a central hub; all are stopped in the end.

Deployment ─┬─ site "north": a log (a folder, or a prefix on Kafka) ─┬─ edge "n1"
            │                                                        └─ edge "n2"
            ├─ site "south": …
            └─ central hub: joins them
"""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.error import URLError
from urllib.request import ProxyHandler, build_opener

from live.mqtt.brokers import OPEN_RULE, Broker, Setup
from live.udp.edges import UdpEdge, edge_in
from milepost.config.site_settings import LogType, SiteLog
from milepost.eventlog.log import Log
from milepost.model.durability import Durability
from milepost.runtime.site_logs import open_log
from parts import ROOT

WAIT_S: Final = 90.0


def wait_until(condition: Callable[[], bool], what: str, *, within_s: float = WAIT_S) -> None:
    """Poll a condition, up to a timeout."""
    until = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < until, f"timeout: {what}"
        time.sleep(0.02)


def ask(port: int, path: str) -> str:
    """Return the HTTP response of a process; empty while there is none."""
    try:
        with build_opener(ProxyHandler({})).open(f"http://127.0.0.1:{port}{path}", timeout=WAIT_S) as answer:
            return str(answer.read().decode())
    except (URLError, OSError):
        return ""


@dataclass
class HubProcess(Broker):
    """`milepost hub run`; ready when it acts for all its sites."""

    sites: Sequence[SiteLog] = ()

    def start(self) -> None:
        """Start it, and wait until it owns all sites."""
        self.launch()
        self._wait_ready()

    def launch(self) -> None:
        """Start it without waiting."""
        self.setup.folder.mkdir(exist_ok=True)
        path = self.setup.folder / "hub.toml"
        tables = [f'[http]\naddress = "127.0.0.1:{self.http}"', "[hub]"]
        tables += [f"[[hub.sites]]\n{settings_table(site)}" for site in self.sites]
        path.write_text("\n".join([*tables, self.setup.more, ""]))
        command = [sys.executable, "-m", "milepost", "hub", "run", "--config", str(path)]
        with self.setup.log.open("ab") as log:
            self.process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def _wait_ready(self) -> None:
        def is_ready() -> bool:
            assert self.is_alive(), f"the hub ended:\n{self.log()[-3000:]}"
            page = ask(self.http, "/metrics")
            return all(f'milepost_hub_owned{{site="{site.name}"}} 1' in page for site in self.sites)

        wait_until(is_ready, "the hub owns all sites")

    def metric(self, name: str) -> float:
        """Return one of its metrics by name, summed over its labels."""
        lines = [line for line in ask(self.http, "/metrics").splitlines() if line.startswith((f"{name} ", f"{name}{{"))]
        return sum(float(line.rpartition(" ")[2]) for line in lines)


def settings_table(site: SiteLog) -> str:
    """Return the settings of a site's log as TOML."""
    if site.log_type is LogType.KAFKA:
        return f'name = "{site.name}"\nlog = "kafka"\naddress = "{site.address}"\nprefix = "{site.prefix}"\nkey = "{site.key}"'
    return f'name = "{site.name}"\nfolder = "{site.folder}"\nkey = "{site.key}"'


@dataclass
class Deployment:
    """All processes of a test, or of several."""

    folder: Path
    sites: dict[str, SiteLog] = field(default_factory=dict)
    edges: dict[str, UdpEdge] = field(default_factory=dict)
    hub: HubProcess | None = None
    _logs: dict[str, Log] = field(default_factory=dict)

    def add_site(self, name: str, *, folder: Path | None = None, key: str = "") -> SiteLog:
        """Add a site whose log is in a folder; `key` is the file of its key."""
        self.sites[name] = SiteLog(name, folder=str(folder or self.folder / f"site-{name}"), key=key)
        return self.sites[name]

    def add_kafka_site(self, name: str, address: str, prefix: str, *, key: str = "") -> SiteLog:
        """Add a site whose log is on Kafka; `key` is the file of its key."""
        self.sites[name] = SiteLog(name, LogType.KAFKA, address=address, prefix=prefix, key=key)
        return self.sites[name]

    def add_edge(
        self, site: str, name: str, *, coverage: str = "", limits: str = "", more: str = "", starts: bool = True
    ) -> UdpEdge:
        """Add an edge to a site; `limits` are further lines of its table [site], `more` further tables."""
        folder = self.folder / f"edge-{name}"
        folder.mkdir(exist_ok=True)
        table = f"[site]\n{settings_table(self.sites[site])}\n{limits}"
        rates = "messages_per_s = 0\nreporting_interval_s = 0.5"
        edge = edge_in(folder, None, udp=rates, more=f"{table}\n{more}\n{OPEN_RULE}", name=name, coverage=coverage)
        self.edges[name] = edge
        if starts:
            edge.start()
        return edge

    def add_hub(self, *, starts: bool = True) -> HubProcess:
        """Add a process of the central hub for all sites."""
        folder = self.folder / "centre"
        self.hub = HubProcess(Setup(folder), sites=tuple(self.sites.values()))
        folder.mkdir(exist_ok=True)
        if starts:
            self.hub.start()
        return self.hub

    def log(self, site: str) -> Log:
        """Open the log of a site."""
        if site not in self._logs:
            self._logs[site] = open_log(self.sites[site], Durability.PROCESS_CRASH, "test")
        return self._logs[site]

    @property
    def processes(self) -> list[Broker]:
        return [*self.edges.values(), *([self.hub] if self.hub is not None else [])]

    def repair(self) -> None:
        """Start all processes that are not running, in parallel."""
        down = [one for one in self.processes if not one.is_alive()]
        with ThreadPoolExecutor(max(1, len(down))) as starting:
            list(starting.map(lambda one: one.start(), down))

    def faults(self) -> list[str]:
        """Return unexpected errors in the output of all processes."""
        return [f"{one.setup.folder.name}: {line}" for one in self.processes for line in one.faults()]

    def end(self) -> None:
        """Stop all processes."""
        for log in self._logs.values():
            log.close()
        for one in self.processes:
            one.end()


@contextmanager
def deployment_in(folder: Path) -> Iterator[Deployment]:
    """A deployment that is stopped in the end."""
    deployment = Deployment(folder)
    try:
        yield deployment
    finally:
        deployment.end()
