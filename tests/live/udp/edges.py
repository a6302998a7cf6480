"""An edge with a UDP door as a process, what it counts, and clients of it."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol
from urllib.request import ProxyHandler, build_opener

from live.mqtt.brokers import Broker, Setup, free_port
from live.udp.offices import Office
from milepost.client import Edge, connect
from milepost.model import Place
from parts import ROOT

HERE: Final = Place(48.1, 11.6)
WAIT_S: Final = 20.0
EDGE_NAME: Final = "edge-1"

Figures = dict[str, float]


@dataclass
class UdpEdge(Broker):
    """An edge of ours with the UDP door at the port `udp`, over MQTT at `tcp`; sealed if it has an office."""

    udp: int = field(default_factory=free_port)
    office: Office | None = None
    name: str = EDGE_NAME
    coverage: str = ""

    def start(self) -> None:
        """Start it and come back when it answers."""
        path = self.setup.folder / "edge.toml"
        tables = [f'[edge]\nname = "{self.name}"\ndata = "{self.setup.data}"\ncoverage = "{self.coverage}"']
        tables += [f'[http]\naddress = "127.0.0.1:{self.http}"', f'[[mqtt.listen]]\naddress = "127.0.0.1:{self.tcp}"']
        path.write_text("\n".join([*tables, self.setup.more, ""]))
        command = [sys.executable, "-m", "milepost", "edge", "run", "--config", str(path)]
        with self.setup.log.open("ab") as log:
            self.process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        self._wait_ready()

    def figures(self) -> Figures:
        """What it counts, by the name that Prometheus sees: `milepost_refused_total{reason="EXPIRED"}`."""
        with build_opener(ProxyHandler({})).open(f"http://127.0.0.1:{self.http}/metrics", timeout=WAIT_S) as answer:
            lines = answer.read().decode().splitlines()
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[:1] not in ("", "#"))}

    def refused(self, reason: str) -> float:
        """How often it refused something for this reason."""
        return self.figures().get(f'milepost_refused_total{{reason="{reason}"}}', 0.0)

    def wait(self, is_it: Callable[[Figures], bool]) -> Figures:
        """Look at the figures until they are so."""
        until = time.monotonic() + WAIT_S
        while not is_it(figures := self.figures()):
            assert time.monotonic() < until, f"it never was so: {figures}"
            time.sleep(0.02)
        return figures

    def client(
        self,
        name: str,
        *,
        place: Place = HERE,
        port: int = 0,
        host: str = "127.0.0.1",
        connect_within_s: float = 20.0,
        reconnect_within_s: float = 60.0,
        receive_max: int = 100,
        hears_cells: bool = False,
    ) -> Edge:
        """A client over UDP, not open yet; `port`: by way of a relay."""
        return connect(
            f"udp://{host}:{port or self.udp}",
            client_id=None if self.office is not None else name,
            trust=None if self.office is None else self.office.trust(name),
            place=place,
            connect_within_s=connect_within_s,
            reconnect_within_s=reconnect_within_s,
            receive_max=receive_max,
            hears_cells=hears_cells,
        )

    def mqtt_client(self, name: str) -> Edge:
        """A client over MQTT, not open yet."""
        return connect(f"mqtt://127.0.0.1:{self.tcp}", client_id=name)


class MakeUdpEdge(Protocol):
    """The `make_edge` fixture: starts an edge, with more lines in its table [udp] and after all tables."""

    def __call__(
        self,
        *,
        udp: str = "",
        more: str = "",
        name: str = EDGE_NAME,
        coverage: str = "",
        is_sealed: bool = True,
        host: str = "127.0.0.1",
        is_started: bool = True,
    ) -> UdpEdge: ...


def edge_in(
    folder: Path,
    office: Office | None,
    *,
    udp: str = "",
    more: str = "",
    name: str = EDGE_NAME,
    coverage: str = "",
    host: str = "127.0.0.1",
) -> UdpEdge:
    """An edge that is not started yet."""
    port = free_port()
    lines = ["[udp]", f'address = "{host}:{port}"']
    if office is None:
        lines += ['seal = "none"', udp]
    else:
        office.admit_edge(name)
        lines += [udp, office.table(name)]
    return UdpEdge(Setup(folder, more="\n".join([*lines, more])), udp=port, office=office, name=name, coverage=coverage)


async def wait_until(is_it: Callable[[], bool]) -> None:
    """Look again and again, as long as the test runs."""
    while not is_it():  # noqa: ASYNC110  # nobody tells
        await asyncio.sleep(0.01)
