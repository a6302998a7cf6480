"""Scenarios: road networks and their traffic demand.

bundled       the network in SUMO's wheel, random trips, a configured number of vehicles
a .sumocfg    a user's scenario unchanged: its network and its own demand
"""

import gzip
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.etree.ElementTree import Element, ParseError, iterparse, parse

import numpy as np
from numpy.typing import NDArray

from milepost_experiments.simulator.sumo import CITY_NET, SumoFault, home, run_script

TRIPS: Final = 1_200
TRIP_M_MIN: Final = 1_000
_NET_OPTIONS: Final = ("net-file", "net", "n")
_NO_PROJECTION: Final = ("", "!", "-")

Floats = NDArray[np.float64]
Route = tuple[str, ...]
"""The SUMO edges of a trip."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A road network and its demand."""

    net: Path
    projection: "Projection"
    config: Path | None = None
    """`None`: the only demand is `routes`."""
    routes: tuple[Route, ...] = ()


def bundled_scenario(folder: Path, *, seed: int) -> Scenario:
    """Return the scenario of the city that comes with SUMO; random trips are written to *folder*."""
    net = home() / CITY_NET
    trips, routes = folder / "trips.xml", folder / "routes.rou.xml"
    when = ("--begin", 0, "--end", TRIPS, "--period", 1, "--seed", seed)
    vehicles = ("--vehicle-class", "passenger", "--fringe-factor", 3, "--min-distance", TRIP_M_MIN)
    run_script("randomTrips.py", "-n", net, "-o", trips, "-r", routes, *when, *vehicles, "--validate", folder=folder)
    found = tuple(tuple(one.attrib["edges"].split()) for one in parse(routes).getroot().iter("route"))
    if not found:
        raise SumoFault(f"no trips were found in {net}")
    return Scenario(net, projection_of(net), routes=found)


def read_scenario(config: Path) -> Scenario:
    """Return a user's scenario; raise `SumoFault` if it cannot be read or has no geographic projection."""
    try:
        root = parse(config).getroot()
    except OSError as fault:
        raise SumoFault(f"{config} cannot be read: {fault.strerror}") from None
    except ParseError as fault:
        raise SumoFault(f"{config} is not XML: {fault}; give the .sumocfg file of a scenario") from None
    net_name = next((one.get("value") for one in root.iter() if one.tag in _NET_OPTIONS and one.get("value")), None)
    if net_name is None:
        raise SumoFault(f"{config} names no road network: give a .sumocfg with <net-file value=.../>")
    net = config.parent / net_name
    return Scenario(net, projection_of(net), config=config)


@dataclass(frozen=True, slots=True)
class Projection:
    """Conversion from the metres of a network to degrees, by the network's projection."""

    projection: str
    east_m: float
    north_m: float

    def places(self, east_m: Floats, north_m: Floats) -> tuple[Floats, Floats]:
        """Return latitudes and longitudes."""
        from pyproj import Proj  # noqa: PLC0415  # an optional dependency

        longitudes, latitudes = Proj(self.projection)(east_m - self.east_m, north_m - self.north_m, inverse=True)
        return np.asarray(latitudes, np.float64), np.asarray(longitudes, np.float64)


def projection_of(net: Path) -> Projection:
    """Return the projection of a network; raise `SumoFault` if it has none."""
    location = _location(net)
    projection = "" if location is None else location.get("projParameter", "")
    if location is None or projection in _NO_PROJECTION:
        raise SumoFault(
            f"{net} is not georeferenced: use a network that was made from a map, or add a projection to its <location> "
            '(projParameter="+proj=tmerc +lat_0=52.4 +lon_0=13.5 +ellps=WGS84")'
        )
    east_m, north_m = (float(part) for part in location.get("netOffset", "0,0").split(","))
    return Projection(projection, east_m, north_m)


def _location(net: Path) -> Element | None:
    """Return the element `location`, which precedes the roads."""
    try:
        with gzip.open(net) if net.suffix == ".gz" else net.open("rb") as file:
            found: Element
            for _, found in iterparse(file, ("start",)):
                if found.tag == "location":
                    return found
                if found.tag in ("edge", "junction"):
                    break
    except (OSError, EOFError) as fault:
        raise SumoFault(f"{net} cannot be read: {fault}") from None
    except ParseError as fault:
        raise SumoFault(f"{net} is not a network of SUMO: {fault}") from None
    return None
