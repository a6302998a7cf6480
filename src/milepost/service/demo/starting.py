"""Starting the demo: everything at once, then one wait after the other, each told.

trips ─▶ network ─▶ files of the town ─▶ edges, pipelines, incidents, centre, map ─▶ SUMO fills the streets
                                                                                 └▶ all ready? ─▶ fleet ─▶ is the way open?
"""

import gzip
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from milepost.model.survives import Survives
from milepost.roads import Network
from milepost.roads.drawing import to_geojson
from milepost.service.demo import fleet, words
from milepost.service.demo import town as towns
from milepost.service.demo.children import Child, Children
from milepost.service.demo.following import Listener
from milepost.service.demo.options import Options
from milepost.service.demo.town import SITES, Town
from milepost.service.road_files import read_roads
from milepost.service.services.java import find_java
from milepost.service.services.ports import free_ports, is_free
from milepost.service.site_logs import open_log
from milepost.service.site_settings import Backbone, SiteLog
from milepost.service.terminal import say
from milepost.simulator.installed import SumoFault, environment
from milepost.simulator.scenarios import Scenario, scenario_of
from milepost.simulator.scenarios import town as town_scenario
from milepost.simulator.traffic import Cars, Traffic, command, connected

MAP_PORT: Final = 8470
READY_S_MAX: Final = 240.0
FILL_S: Final = 240
"""Streets are filled for so many seconds of SUMO's before the clock begins."""
PIPELINES: Final = ("hazards",)
SPARKS: Final = {f"pipelines-{site}": (("pipeline", "run", *PIPELINES), "pipelines ready") for site in SITES}
OTHERS: Final = {
    **{f"incidents-{site}": (("incidents", "run"), "incidents ready") for site in SITES},
    "centre": (("centre", "run"), "centre ready"),
    "map": (("dashboard", "run"), "dashboard ready"),
}
_QUICK: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For Java: be ready soon rather than fast later. What a city reports is little for Spark."""
EDGE_READY: Final = "edge ready"


@dataclass(slots=True)
class Running:
    """Everything that runs, when all of it does."""

    town: Town
    network: Network
    traffic: Traffic
    cars: Cars
    fleet: Child
    children: Children
    listener: Listener

    def tell_fleet(self, value: dict[str, Any]) -> None:
        """Say something to the vehicles."""
        pipe = self.fleet.process.stdin
        assert pipe is not None, "it is spoken to"
        try:
            pipe.write(words.line_of(value))
            pipe.flush()
        except BrokenPipeError:
            self.children.check()


class Starter:
    """Starts it all; what it starts is ended by the stack."""

    def __init__(self, options: Options, folder: Path, children: Children, stack: ExitStack) -> None:
        self._options = options
        self._folder = folder
        self._children = children
        self._stack = stack

    def start(self) -> Running:
        """All of it, ready."""
        find_java()
        roads = self._folder / "city.net.xml"
        with _step("Spark, a process for each site"):
            sites = self._sites()
            self._stack.callback(self._children.stop)  # before Kafka ends, which they use
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
        vehicles = self._start_fleet(town)  # the last process: what follows has threads
        logs = [open_log(log, Survives.NOTHING, "demo") for log in town.sites]
        for log in logs:
            self._stack.callback(log.close)
        listener = Listener(logs)
        self._stack.callback(listener.close)
        running = Running(town, network, traffic, cars, vehicles, self._children, listener)
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
            for log in logs:  # edges would make it, but not before who only reads it looks for it
                open_log(log, Survives.PROCESS_CRASH, "demo").close()
            return logs
        from milepost.service.services.kafka import Kafka  # noqa: PLC0415  # only where it is wanted
        from milepost.service.services.service import running  # noqa: PLC0415

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
        started.process.stdin.write(words.line_of(setup))
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
            return running.listener.sites_with_cells == len(SITES)

        self._children.wait(is_open, "no report comes through Spark", READY_S_MAX)


@contextmanager
def _step(what: str) -> Iterator[None]:
    """Tell what is being done, and how long it took."""
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
    """The net under a name by which everybody knows what it is."""
    if net.suffix == ".gz":
        roads.write_bytes(gzip.decompress(net.read_bytes()))
    else:
        roads.symlink_to(net.resolve())
