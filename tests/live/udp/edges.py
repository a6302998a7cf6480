"""An edge with a UDP listener as a process, its metrics, and clients of it."""

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
from live.udp.local_authority import LocalAuthority
from milepost.client import Client, connect
from milepost.model import Place
from parts import ROOT

HERE: Final = Place(48.1, 11.6)
WAIT_S: Final = 20.0
EDGE_NAME: Final = "edge-1"

Metrics = dict[str, float]


@dataclass
class UdpEdge(Broker):
    """An edge with a UDP listener at the port `udp` and MQTT at `tcp`; encrypted if it has an authority."""

    udp: int = field(default_factory=free_port)
    authority: LocalAuthority | None = None
    name: str = EDGE_NAME
    coverage: str = ""

    def start(self) -> None:
        """Start the edge; return when it answers."""
        path = self.setup.folder / "edge.toml"
        tables = [f'[edge]\nname = "{self.name}"\ndata = "{self.setup.data}"\ncoverage = "{self.coverage}"']
        tables += [f'[http]\naddress = "127.0.0.1:{self.http}"', f'[[mqtt.listen]]\naddress = "127.0.0.1:{self.tcp}"']
        path.write_text("\n".join([*tables, self.setup.more, ""]))
        command = [sys.executable, "-m", "milepost", "edge", "run", "--config", str(path)]
        with self.setup.log.open("ab") as log:
            self.process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        self._wait_ready()

    def metrics(self) -> Metrics:
        """Return its metrics by their Prometheus name: `milepost_refused_total{reason="EXPIRED"}`."""
        with build_opener(ProxyHandler({})).open(f"http://127.0.0.1:{self.http}/metrics", timeout=WAIT_S) as answer:
            lines = answer.read().decode().splitlines()
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[:1] not in ("", "#"))}

    def refused(self, reason: str) -> float:
        """Return the number of refusals with this reason."""
        return self.metrics().get(f'milepost_refused_total{{reason="{reason}"}}', 0.0)

    def wait(self, condition: Callable[[Metrics], bool]) -> Metrics:
        """Poll the metrics until the *condition* holds; return them."""
        until = time.monotonic() + WAIT_S
        while not condition(metrics := self.metrics()):
            assert time.monotonic() < until, f"the condition never held: {metrics}"
            time.sleep(0.02)
        return metrics

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
        joins_multicast: bool = False,
    ) -> Client:
        """Return a client over UDP, not open yet; *port*: that of a relay."""
        return connect(
            f"udp://{host}:{port or self.udp}",
            client_id=None if self.authority is not None else name,
            credentials=None if self.authority is None else self.authority.credentials(name),
            place=place,
            connect_within_s=connect_within_s,
            reconnect_within_s=reconnect_within_s,
            receive_max=receive_max,
            joins_multicast=joins_multicast,
        )

    def mqtt_client(self, name: str) -> Client:
        """Return a client over MQTT, not open yet."""
        return connect(f"mqtt://127.0.0.1:{self.tcp}", client_id=name)


class MakeUdpEdge(Protocol):
    """The `make_edge` fixture: starts an edge; *udp*: lines of its table [udp], *more*: lines after all tables."""

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
    authority: LocalAuthority | None,
    *,
    udp: str = "",
    more: str = "",
    name: str = EDGE_NAME,
    coverage: str = "",
    host: str = "127.0.0.1",
) -> UdpEdge:
    """Return an edge that is not started yet."""
    port = free_port()
    lines = ["[udp]", f'address = "{host}:{port}"']
    if authority is None:
        lines += ['encryption = "none"', udp]
    else:
        authority.issue_edge(name)
        lines += [udp, authority.trust_table(name)]
    return UdpEdge(Setup(folder, more="\n".join([*lines, more])), udp=port, authority=authority, name=name, coverage=coverage)


async def wait_until(condition: Callable[[], bool]) -> None:
    """Poll until the *condition* holds; the test's timeout ends it."""
    while not condition():  # noqa: ASYNC110  # there is no event to await
        await asyncio.sleep(0.01)
