"""The start of the demo: all processes in parallel, then one wait after the other, each printed.

trips ─▶ network ─▶ files of the city ─▶ edges, pipelines, incidents, central hub, map ─▶ SUMO fills the streets
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

from milepost.config.site_settings import LogType, SiteLog
from milepost.eventlog.log import Following, Log, LogLost, Record, Start, TopicEnd
from milepost.incidents.engine import CELLS
from milepost.model.addresses import ToArea, ToNotified
from milepost.model.durability import Durability
from milepost.model.pipeline_records import PIPELINES
from milepost.model.reasons import Malformed
from milepost.model.site_records import ForwardedMessage, handler_topic
from milepost.roads import RoadNetwork
from milepost.runtime.road_files import read_roads
from milepost.runtime.services.jars import find_java
from milepost.runtime.services.ports import free_ports, is_free
from milepost.runtime.site_logs import open_log
from milepost.runtime.terminal import print_line
from milepost.wire.records import from_record
from milepost_experiments.demo import city_config, fleet, fleet_protocol
from milepost_experiments.demo.child_processes import Child, Children
from milepost_experiments.demo.city_config import SITES, CityConfig
from milepost_experiments.simulator.ledger import AlertKey, PublishedAlert
from milepost_experiments.simulator.scenarios import Scenario, bundled_scenario, read_scenario
from milepost_experiments.simulator.sumo import SumoFault, environment
from milepost_experiments.simulator.traffic import Cars, Traffic, connect_traci, sumo_command


@dataclass(frozen=True, slots=True)
class Options:
    """The options of `milepost demo`."""

    vehicles: int
    seconds: int | None
    """`None`: until a signal."""
    log_type: LogType
    sumo: Path | None
    """The user's own scenario; `None`: the city that comes with SUMO."""
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
    "hub": (("hub", "run"), "hub ready"),
    "map": (("dashboard", "run"), "dashboard ready"),
}
_FAST_START: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""JVM options for a fast start rather than throughput: the load of the demo is small for Spark."""
ALERTS: Final = handler_topic(PIPELINES)
"""The topic of a site's log with alerts."""
EDGE_READY: Final = "edge ready"


class AlertFollower:
    """Follows the logs of sites for alerts and cells; written by the logs' threads, read by the main thread."""

    def __init__(self, logs: Sequence[Log]) -> None:
        self._lock = threading.Lock()
        self._alerts: list[PublishedAlert] = []
        self._has_cells: set[int] = set()
        self.lost: list[str] = []
        starts: dict[str, Start] = {ALERTS: TopicEnd.BEGINNING, CELLS: TopicEnd.BEGINNING}
        self._followings: list[Following] = [
            log.follow(starts, partial(self._take, at), self._on_lost) for at, log in enumerate(logs)
        ]

    @property
    def sites_with_cells(self) -> int:
        """Number of sites in which Spark has produced cells."""
        return len(self._has_cells)

    def take_alerts(self) -> list[PublishedAlert]:
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
            elif (alert := _find_alert(record)) is not None:
                with self._lock:
                    self._alerts.append(alert)

    def _on_lost(self, lost: LogLost) -> None:
        self.lost.append(str(lost))


def _find_alert(record: Record) -> PublishedAlert | None:
    try:
        content = from_record(record.value or b"")
    except Malformed:
        return None
    if not isinstance(content, ForwardedMessage):
        return None
    message, address = content.message, content.message.address
    incident, phase = message.fields.get("incident"), message.fields.get("phase")
    if not isinstance(address, ToArea | ToNotified) or message.place is None or incident is None:
        return None
    key = AlertKey(str(incident), str(phase), message.seen_at)
    area, cancels = (address.area, ()) if isinstance(address, ToArea) else (None, address.incidents)
    return PublishedAlert(key, record.appended_at, message.valid_until, message.place, area, cancels)


@dataclass(slots=True)
class RunningDemo:
    """The running demo, complete and ready."""

    city: CityConfig
    network: RoadNetwork
    traffic: Traffic
    cars: Cars
    fleet: Child
    children: Children
    alerts: AlertFollower

    def send_to_fleet(self, value: dict[str, Any]) -> None:
        """Send a value to the fleet process."""
        pipe = self.fleet.process.stdin
        assert pipe is not None, "the fleet has pipes"
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

    def start(self) -> RunningDemo:
        """Start everything and wait until it is ready."""
        find_java()
        roads = self._folder / "city.net.xml"
        with _step("starting Spark, one process per site"):
            sites = self._sites()
            self._stack.callback(self._children.stop)  # children stop before Kafka, which they use
            city_config.write_sites(self._folder, sites, roads)
            self._start(SPARKS)
        with _step("preparing roads and trips"):
            scenario = self._scenario()
            _unpack(scenario.net, roads)
            network = read_roads(str(roads))
        with _step("starting edges, incidents, central hub and map"):
            city = self._city(network, sites, roads)
            for tile in city.tiles:
                self._start_milepost(tile.name, "edge", "run", "--config", city.config(tile.name))
            self._start(OTHERS)
        with _step("starting SUMO and filling the roads"):
            traffic, cars = self._start_traffic(scenario)
        with _step("waiting for the edges"):
            for tile in city.tiles:
                self._wait_logged(tile.name, EDGE_READY)
        vehicles = self._start_fleet(city)  # the last process: threads start after it
        logs = [open_log(log, Durability.NONE, "demo") for log in city.sites]
        for log in logs:
            self._stack.callback(log.close)
        alerts = AlertFollower(logs)
        self._stack.callback(alerts.close)
        running = RunningDemo(city, network, traffic, cars, vehicles, self._children, alerts)
        for title, some in (("waiting for incidents, central hub and map", OTHERS), ("waiting for Spark", SPARKS)):
            with _step(title):
                for name, (_, ready) in some.items():
                    self._wait_logged(name, ready)
        with _step("waiting for a test report to pass through Spark"):
            self._test_path(running)
        return running

    def _scenario(self) -> Scenario:
        if self._options.sumo is not None:
            return read_scenario(self._options.sumo.resolve())
        trips = self._folder / "trips"
        trips.mkdir()
        return bundled_scenario(trips, seed=self._options.seed)

    def _city(self, network: RoadNetwork, sites: tuple[SiteLog, ...], roads: Path) -> CityConfig:
        road_lines = self._folder / "roads.geojson"
        road_lines.write_bytes(to_geojson(network))
        port = self._options.port or (MAP_PORT if is_free(MAP_PORT) else free_ports(1)[0])
        city = CityConfig(self._folder, sites, city_config.tiles_over(network), port)
        city_config.write_edges(city, roads=roads, road_lines=road_lines)
        return city

    def _sites(self) -> tuple[SiteLog, ...]:
        if self._options.log_type is LogType.EMBEDDED:
            logs = tuple(SiteLog(site, folder=str(self._folder / f"site-{site}")) for site in SITES)
            for log in logs:  # edges would create the log, but processes that only read it may look for it earlier
                open_log(log, Durability.PROCESS_CRASH, "demo").close()
            return logs
        from milepost.runtime.services.kafka import Kafka  # noqa: PLC0415  # only needed here
        from milepost.runtime.services.service import running  # noqa: PLC0415

        kafka = Kafka.open_in(self._folder / "kafka", servers=1, port=None)
        self._stack.enter_context(running(kafka, lambda line: print_line(f"    {line}")))
        return tuple(SiteLog(site, LogType.KAFKA, folder="", address=kafka.address, prefix=f"{site}.") for site in SITES)

    def _start(self, some: Mapping[str, tuple[tuple[str, ...], str]]) -> None:
        for name, (verbs, _) in some.items():
            self._start_milepost(name, *verbs, "--config", str(self._folder / f"{name}.toml"))

    def _start_milepost(self, name: str, *arguments: str) -> None:
        fast_start = {**os.environ, "JAVA_TOOL_OPTIONS": f"{os.environ.get('JAVA_TOOL_OPTIONS', '')} {_FAST_START}".strip()}
        self._children.start(name, [sys.executable, "-m", "milepost", *arguments], environment=fast_start)

    def _start_traffic(self, scenario: Scenario) -> tuple[Traffic, Cars]:
        port = free_ports(1)[0]
        arguments = sumo_command(scenario, port=port, seed=self._options.seed)
        child = self._children.start("sumo", arguments, environment=environment())
        connection = connect_traci(port, lambda: child.is_alive)
        traffic = Traffic(scenario, connection, vehicle_count=self._options.vehicles, seed=self._options.seed)
        self._stack.callback(traffic.close)
        cars = traffic.step()
        for _ in range(FILL_S):
            cars = traffic.step()
        if not len(cars):
            raise SumoFault(f"the scenario has no vehicles on the road after {FILL_S} s")
        return traffic, cars

    def _wait_logged(self, name: str, ready: str) -> None:
        child = self._children.all[name]
        self._children.wait_until(lambda: child.has_logged(ready), f"{name} is not ready", READY_S_MAX)

    def _start_fleet(self, city: CityConfig) -> Child:
        started = self._children.start("fleet", [sys.executable, "-m", fleet.__name__], has_pipes=True)
        assert started.process.stdin is not None
        tiles = [[one.name, one.site, one.south, one.west, one.north, one.east, one.mqtt, one.udp] for one in city.tiles]
        ca = self._folder / "ca"
        setup = {
            "tiles": tiles,
            "authority_key": str(city_config.authority_key_in(ca)),
            "authority": str(city_config.authority_in(ca)),
        }
        started.process.stdin.write(fleet_protocol.line_of(setup))
        started.process.stdin.flush()
        return started

    def _test_path(self, running: RunningDemo) -> None:
        places = [[(one.south + one.north) / 2, (one.west + one.east) / 2] for one in running.city.tiles]
        sent_at = 0.0

        def is_passed() -> bool:
            nonlocal sent_at
            if time.monotonic() > sent_at + 1.0:
                sent_at = time.monotonic()
                running.send_to_fleet({"test_reports": places})
            return running.alerts.sites_with_cells == len(SITES)

        self._children.wait_until(is_passed, "no report has passed through Spark", READY_S_MAX)


@contextmanager
def _step(title: str) -> Iterator[None]:
    """Print the step when it begins, and its duration when it is complete."""
    began = time.monotonic()
    sys.stdout.write(f"  {title} ...")
    sys.stdout.flush()
    try:
        yield
    except BaseException:
        print_line("")
        raise
    print_line(f"\r  {title}: {time.monotonic() - began:.1f} s" if sys.stdout.isatty() else f" {time.monotonic() - began:.1f} s")


def _unpack(net: Path, roads: Path) -> None:
    """Provide the network, decompressed, under the path *roads*."""
    if net.suffix == ".gz":
        roads.write_bytes(gzip.decompress(net.read_bytes()))
    else:
        roads.symlink_to(net.resolve())


def to_geojson(network: RoadNetwork) -> bytes:
    """Return the roads as GeoJSON lines with id, lanes and speed; longitude before latitude."""
    features = []
    for road, name in enumerate(network.ids):
        points = slice(network.first[road], network.first[road + 1])
        line = [list(pair) for pair in zip(network.longitudes[points].tolist(), network.latitudes[points].tolist(), strict=True)]
        properties = {"road": name, "lanes": int(network.lanes[road]), "speed_mps": round(float(network.speeds_mps[road]), 2)}
        features.append({"type": "Feature", "properties": properties, "geometry": {"type": "LineString", "coordinates": line}})
    return orjson.dumps({"type": "FeatureCollection", "features": features})
