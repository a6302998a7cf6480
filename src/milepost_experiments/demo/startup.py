"""The start of the demo: all processes in parallel, then one wait after the other, each printed.

trips ─▶ network ─▶ files of the town ─▶ edges, pipelines, incidents, central hub, map ─▶ SUMO fills the streets
                                                                                      └▶ all ready? ─▶ fleet ─▶ test report
"""

import gzip
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import orjson

from milepost.config.site_settings import Backbone, SiteLog
from milepost.eventlog.log import Edge, Following, Log, LogLost, Record, Start
from milepost.incidents.engine import CELLS
from milepost.model.addresses import ToArea, ToNotified
from milepost.model.durability import Durability
from milepost.model.pipeline_records import PIPELINES
from milepost.model.reasons import Malformed
from milepost.model.sites import ForwardedMessage, publish_to
from milepost.roads import Network
from milepost.runtime.road_files import read_roads
from milepost.runtime.services.jars import find_java
from milepost.runtime.services.ports import free_ports, is_free
from milepost.runtime.site_logs import open_log
from milepost.runtime.terminal import say
from milepost.wire.records import from_record
from milepost_experiments.demo import fleet, fleet_protocol
from milepost_experiments.demo import town as towns
from milepost_experiments.demo.child_processes import Child, Children
from milepost_experiments.demo.city_config import SITES, Town
from milepost_experiments.simulator.ledger import AlertKey, AlertSaid
from milepost_experiments.simulator.scenarios import Scenario, scenario_of
from milepost_experiments.simulator.scenarios import town as town_scenario
from milepost_experiments.simulator.sumo import SumoFault, environment
from milepost_experiments.simulator.traffic import Cars, Traffic, command, connected


@dataclass(frozen=True, slots=True)
class Options:
    """The options of `milepost demo`."""

    vehicles: int
    seconds: int | None
    """`None`: until a signal."""
    backbone: Backbone
    sumo: Path | None
    """The user's own scenario; `None`: the town that comes with SUMO."""
    seed: int
    out: Path
    port: int | None
    """The port of the map; `None`: MAP_PORT, or a free one if that is taken."""


MAP_PORT: Final = 8470
READY_S_MAX: Final = 240.0
FILL_S: Final = 240
"""Simulated seconds of traffic before the run begins."""
SPARKS: Final = {f"pipelines-{site}": (("pipeline", "run", "hazards"), "pipelines ready") for site in SITES}
OTHERS: Final = {
    **{f"incidents-{site}": (("incidents", "run"), "incidents ready") for site in SITES},
    "centre": (("centre", "run"), "centre ready"),
    "map": (("dashboard", "run"), "dashboard ready"),
}
_QUICK: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""JVM options for a fast start rather than throughput: the load of the demo is small for Spark."""
ALERTS: Final = publish_to(PIPELINES)
"""The topic of a site's log with alerts."""
EDGE_READY: Final = "edge ready"


class AlertFollower:
    """Follows the logs of sites for alerts and cells; written by the logs' threads, read by the main thread."""

    def __init__(self, logs: Sequence[Log]) -> None:
        self._lock = threading.Lock()
        self._alerts: list[AlertSaid] = []
        self._has_cells: set[int] = set()
        self.lost: list[str] = []
        starts: dict[str, Start] = {ALERTS: Edge.BEGINNING, CELLS: Edge.BEGINNING}
        self._followings: list[Following] = [
            log.follow(starts, partial(self._take, at), self._on_lost) for at, log in enumerate(logs)
        ]

    @property
    def sites_with_cells(self) -> int:
        """Number of sites in which Spark has produced cells."""
        return len(self._has_cells)

    def take_alerts(self) -> list[AlertSaid]:
        """Return the alerts since the last call."""
        with self._lock:
            found, self._alerts = self._alerts, []
        return found

    def close(self) -> None:
        """Stop following."""
        for following in self._followings:
            following.close()

    def _take(self, site: int, records: Sequence[Record]) -> None:
        for record in records:
            if record.topic == CELLS:
                self._has_cells.add(site)
            elif (alert := _maybe_alert(record)) is not None:
                with self._lock:
                    self._alerts.append(alert)

    def _on_lost(self, lost: LogLost) -> None:
        self.lost.append(str(lost))


def _maybe_alert(record: Record) -> AlertSaid | None:
    try:
        said = from_record(record.value or b"")
    except Malformed:
        return None
    if not isinstance(said, ForwardedMessage):
        return None
    message, address = said.message, said.message.address
    incident, phase = message.fields.get("incident"), message.fields.get("phase")
    if not isinstance(address, ToArea | ToNotified) or message.place is None or incident is None:
        return None
    key = AlertKey(str(incident), str(phase), message.seen_at)
    area, calls_off = (address.area, ()) if isinstance(address, ToArea) else (None, address.incidents)
    return AlertSaid(key, record.appended_at, message.valid_until, message.place, area, calls_off)


@dataclass(slots=True)
class Running:
    """The running demo, complete and ready."""

    town: Town
    network: Network
    traffic: Traffic
    cars: Cars
    fleet: Child
    children: Children
    alerts: AlertFollower

    def tell_fleet(self, value: dict[str, Any]) -> None:
        """Send a value to the fleet process."""
        pipe = self.fleet.process.stdin
        assert pipe is not None, "it is spoken to"
        try:
            pipe.write(fleet_protocol.line_of(value))
            pipe.flush()
        except BrokenPipeError:
            self.children.check()


class Starter:
    """Starts everything; the exit stack stops it."""

    def __init__(self, options: Options, folder: Path, children: Children, stack: ExitStack) -> None:
        self._options = options
        self._folder = folder
        self._children = children
        self._stack = stack

    def start(self) -> Running:
        """Start everything and wait until it is ready."""
        find_java()
        roads = self._folder / "city.net.xml"
        with _step("Spark, a process for each site"):
            sites = self._sites()
            self._stack.callback(self._children.stop)  # children stop before Kafka, which they use
            towns.write_sites(self._folder, sites, roads)
            self._start(SPARKS)
        with _step("streets and trips"):
            scenario = self._scenario()
            _unpack(scenario.net, roads)
            network = read_roads(str(roads))
        with _step("edges, incidents, centre and map"):
            town = self._town(network, sites, roads)
            for tile in town.tiles:
                self._milepost(tile.name, "edge", "run", "--config", town.config(tile.name))
            self._start(OTHERS)
        with _step("SUMO: vehicles on the streets"):
            traffic, cars = self._start_traffic(scenario)
        with _step("edges ready"):
            for tile in town.tiles:
                self._wait_said(tile.name, EDGE_READY)
        vehicles = self._start_fleet(town)  # the last process: threads start after it
        logs = [open_log(log, Durability.NOTHING, "demo") for log in town.sites]
        for log in logs:
            self._stack.callback(log.close)
        alerts = AlertFollower(logs)
        self._stack.callback(alerts.close)
        running = Running(town, network, traffic, cars, vehicles, self._children, alerts)
        for what, some in (("incidents, centre and map ready", OTHERS), ("Spark ready", SPARKS)):
            with _step(what):
                for name, (_, ready) in some.items():
                    self._wait_said(name, ready)
        with _step("the way from a report through Spark to the log is open"):
            self._rehearse(running)
        return running

    def _scenario(self) -> Scenario:
        if self._options.sumo is not None:
            return scenario_of(self._options.sumo.resolve())
        trips = self._folder / "trips"
        trips.mkdir()
        return town_scenario(trips, seed=self._options.seed)

    def _town(self, network: Network, sites: tuple[SiteLog, ...], roads: Path) -> Town:
        drawn = self._folder / "roads.geojson"
        drawn.write_bytes(to_geojson(network))
        port = self._options.port or (MAP_PORT if is_free(MAP_PORT) else free_ports(1)[0])
        town = Town(self._folder, sites, towns.tiles_over(network), port)
        towns.write_edges(town, roads=roads, drawn=drawn)
        return town

    def _sites(self) -> tuple[SiteLog, ...]:
        if self._options.backbone is Backbone.EMBEDDED:
            logs = tuple(SiteLog(site, folder=str(self._folder / f"site-{site}")) for site in SITES)
            for log in logs:  # edges would create the log, but processes that only read it may look for it earlier
                open_log(log, Durability.PROCESS_CRASH, "demo").close()
            return logs
        from milepost.runtime.services.kafka import Kafka  # noqa: PLC0415  # only needed here
        from milepost.runtime.services.service import running  # noqa: PLC0415

        kafka = Kafka.made_in(self._folder / "kafka", servers=1, port=None)
        self._stack.enter_context(running(kafka, lambda line: say(f"    {line}")))
        return tuple(SiteLog(site, Backbone.KAFKA, folder="", address=kafka.address, prefix=f"{site}.") for site in SITES)

    def _start(self, some: Mapping[str, tuple[tuple[str, ...], str]]) -> None:
        for name, (verbs, _) in some.items():
            self._milepost(name, *verbs, "--config", str(self._folder / f"{name}.toml"))

    def _milepost(self, name: str, *typed: str) -> None:
        quick = {**os.environ, "JAVA_TOOL_OPTIONS": f"{os.environ.get('JAVA_TOOL_OPTIONS', '')} {_QUICK}".strip()}
        self._children.start(name, [sys.executable, "-m", "milepost", *typed], environment=quick)

    def _start_traffic(self, scenario: Scenario) -> tuple[Traffic, Cars]:
        port = free_ports(1)[0]
        typed = command(scenario, port=port, seed=self._options.seed)
        child = self._children.start("sumo", typed, environment=environment())
        connection = connected(port, lambda: child.is_alive)
        traffic = Traffic(scenario, connection, wanted=self._options.vehicles, seed=self._options.seed)
        self._stack.callback(traffic.close)
        cars = traffic.step()
        for _ in range(FILL_S):
            cars = traffic.step()
        if not len(cars):
            raise SumoFault(f"nobody drives in the scenario after {FILL_S} s")
        return traffic, cars

    def _wait_said(self, name: str, ready: str) -> None:
        child = self._children.all[name]
        self._children.wait(lambda: child.has_said(ready), f"{name} is not ready", READY_S_MAX)

    def _start_fleet(self, town: Town) -> Child:
        started = self._children.start("fleet", [sys.executable, "-m", fleet.__name__], is_spoken_to=True)
        assert started.process.stdin is not None
        tiles = [[one.name, one.site, one.south, one.west, one.north, one.east, one.mqtt, one.udp] for one in town.tiles]
        ca = self._folder / "ca"
        setup = {"tiles": tiles, "authority_key": str(towns.authority_key_in(ca)), "authority": str(towns.authority_in(ca))}
        started.process.stdin.write(fleet_protocol.line_of(setup))
        started.process.stdin.flush()
        return started

    def _rehearse(self, running: Running) -> None:
        places = [[(one.south + one.north) / 2, (one.west + one.east) / 2] for one in running.town.tiles]
        told_at = 0.0

        def is_open() -> bool:
            nonlocal told_at
            if time.monotonic() > told_at + 1.0:
                told_at = time.monotonic()
                running.tell_fleet({"rehearse": places})
            return running.alerts.sites_with_cells == len(SITES)

        self._children.wait(is_open, "no report comes through Spark", READY_S_MAX)


@contextmanager
def _step(what: str) -> Iterator[None]:
    """Print the step and its duration."""
    began = time.monotonic()
    sys.stdout.write(f"  {what} ...")
    sys.stdout.flush()
    try:
        yield
    except BaseException:
        say("")
        raise
    say(f"\r  {what}: {time.monotonic() - began:.1f} s" if sys.stdout.isatty() else f" {time.monotonic() - began:.1f} s")


def _unpack(net: Path, roads: Path) -> None:
    """Provide the network, decompressed, under the path *roads*."""
    if net.suffix == ".gz":
        roads.write_bytes(gzip.decompress(net.read_bytes()))
    else:
        roads.symlink_to(net.resolve())


def to_geojson(network: Network) -> bytes:
    """Return the roads as GeoJSON lines with id, lanes and speed; longitude before latitude."""
    features = []
    for road, name in enumerate(network.ids):
        points = slice(network.first[road], network.first[road + 1])
        line = [list(pair) for pair in zip(network.longitudes[points].tolist(), network.latitudes[points].tolist(), strict=True)]
        known = {"road": name, "lanes": int(network.lanes[road]), "speed_mps": round(float(network.speeds_mps[road]), 2)}
        features.append({"type": "Feature", "properties": known, "geometry": {"type": "LineString", "coordinates": line}})
    return orjson.dumps({"type": "FeatureCollection", "features": features})
