"""A town of real processes: sites with their logs, edges, and a centre; whatever happens, nothing of it is left running.

Town ─┬─ site "north": a log (a folder, or a prefix on Kafka) ─┬─ edge "n1"
      │                                                        └─ edge "n2"
      ├─ site "south": …
      └─ centre: joins them
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

from live.mqtt.brokers import Broker, Setup
from live.udp.edges import UdpEdge, edge_in
from milepost.config.site_settings import Backbone, SiteLog
from milepost.eventlog.log import Log
from milepost.model.durability import Durability
from milepost.runtime.site_logs import open_log
from parts import ROOT

WAIT_S: Final = 90.0


def wait_until(is_so: Callable[[], bool], what: str, *, within_s: float = WAIT_S) -> None:
    """Look again and again, at most so long."""
    until = time.monotonic() + within_s
    while not is_so():
        assert time.monotonic() < until, f"never: {what}"
        time.sleep(0.02)


def ask(port: int, path: str) -> str:
    """What a process answers over HTTP; nothing while it does not."""
    try:
        with build_opener(ProxyHandler({})).open(f"http://127.0.0.1:{port}{path}", timeout=WAIT_S) as answer:
            return str(answer.read().decode())
    except (URLError, OSError):
        return ""


@dataclass
class CentreProcess(Broker):
    """`milepost centre run`; ready when it acts for all its sites."""

    sites: Sequence[SiteLog] = ()

    def start(self) -> None:
        """Start it, and come back when it acts."""
        self.launch()
        self._wait_ready()

    def launch(self) -> None:
        """Start it without waiting."""
        self.setup.folder.mkdir(exist_ok=True)
        path = self.setup.folder / "centre.toml"
        tables = [f'[http]\naddress = "127.0.0.1:{self.http}"', "[centre]"]
        tables += [f"[[centre.sites]]\n{table_of(site)}" for site in self.sites]
        path.write_text("\n".join([*tables, self.setup.more, ""]))
        command = [sys.executable, "-m", "milepost", "centre", "run", "--config", str(path)]
        with self.setup.log.open("ab") as log:
            self.process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def _wait_ready(self) -> None:
        def is_ready() -> bool:
            assert self.is_alive(), f"the centre ended:\n{self.log()[-3000:]}"
            page = ask(self.http, "/metrics")
            return all(f'milepost_centre_owned{{site="{site.name}"}} 1' in page for site in self.sites)

        wait_until(is_ready, "the centre acts for all sites")

    def figure(self, name: str) -> float:
        """One of its figures, by the name that Prometheus sees; the sum over its labels."""
        lines = [line for line in ask(self.http, "/metrics").splitlines() if line.startswith((f"{name} ", f"{name}{{"))]
        return sum(float(line.rpartition(" ")[2]) for line in lines)


def table_of(site: SiteLog) -> str:
    """A site's log in the words of the settings."""
    if site.backbone is Backbone.KAFKA:
        return f'name = "{site.name}"\nbackbone = "kafka"\naddress = "{site.address}"\nprefix = "{site.prefix}"'
    return f'name = "{site.name}"\nfolder = "{site.folder}"'


@dataclass
class Town:
    """All processes of a test, or of several."""

    folder: Path
    sites: dict[str, SiteLog] = field(default_factory=dict)
    edges: dict[str, UdpEdge] = field(default_factory=dict)
    centre: CentreProcess | None = None
    _logs: dict[str, Log] = field(default_factory=dict)

    def add_site(self, name: str, *, folder: Path | None = None) -> SiteLog:
        """A site whose log is in a folder."""
        self.sites[name] = SiteLog(name, folder=str(folder or self.folder / f"site-{name}"))
        return self.sites[name]

    def add_kafka_site(self, name: str, address: str, prefix: str) -> SiteLog:
        """A site whose log is on Kafka."""
        self.sites[name] = SiteLog(name, Backbone.KAFKA, address=address, prefix=prefix)
        return self.sites[name]

    def add_edge(
        self, site: str, name: str, *, coverage: str = "", limits: str = "", more: str = "", starts: bool = True
    ) -> UdpEdge:
        """An edge of a site; `limits` are more lines of its table [site], `more` more tables."""
        folder = self.folder / f"edge-{name}"
        folder.mkdir(exist_ok=True)
        table = f"[site]\n{table_of(self.sites[site])}\n{limits}"
        rates = "messages_per_s = 0\nreporting_interval_s = 0.5"
        edge = edge_in(folder, None, udp=rates, more=f"{table}\n{more}", name=name, coverage=coverage)
        self.edges[name] = edge
        if starts:
            edge.start()
        return edge

    def add_centre(self, *, starts: bool = True) -> CentreProcess:
        """The centre, of all sites that there are."""
        folder = self.folder / "centre"
        self.centre = CentreProcess(Setup(folder), sites=tuple(self.sites.values()))
        folder.mkdir(exist_ok=True)
        if starts:
            self.centre.start()
        return self.centre

    def log(self, site: str) -> Log:
        """The log of a site, to look into and to write to."""
        if site not in self._logs:
            self._logs[site] = open_log(self.sites[site], Durability.PROCESS_CRASH, "test")
        return self._logs[site]

    @property
    def processes(self) -> list[Broker]:
        return [*self.edges.values(), *([self.centre] if self.centre is not None else [])]

    def repair(self) -> None:
        """Start what does not run, all at once."""
        down = [one for one in self.processes if not one.is_alive()]
        with ThreadPoolExecutor(max(1, len(down))) as starting:
            list(starting.map(lambda one: one.start(), down))

    def faults(self) -> list[str]:
        """What any process said that was not foreseen."""
        return [f"{one.setup.folder.name}: {line}" for one in self.processes for line in one.faults()]

    def end(self) -> None:
        """Make sure that nothing is left running."""
        for log in self._logs.values():
            log.close()
        for one in self.processes:
            one.end()


@contextmanager
def town_in(folder: Path) -> Iterator[Town]:
    """A town, ended whatever happens."""
    town = Town(folder)
    try:
        yield town
    finally:
        town.end()
