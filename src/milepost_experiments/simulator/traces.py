"""Traces: the true position of each car per second of a SUMO run, as ground truth for evaluations."""

import csv
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from milepost.model.places import EARTH_RADIUS_M, Place
from milepost_experiments.simulator.sumo import TOOL_S_MAX, SumoFault, environment, home, program, run_script

_ATTRIBUTES: Final = ("x", "y", "angle", "speed", "lane", "pos")


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """One row for each car and second, in order of time."""

    seconds: NDArray[np.int_]
    cars: NDArray[np.int_]
    """Indexes of cars, from 0 on."""
    roads: tuple[str, ...]
    """The road's id; inside a junction it begins with a colon."""
    pos_m: NDArray[np.float64]
    latitudes: NDArray[np.float64]
    longitudes: NDArray[np.float64]
    headings_deg: NDArray[np.float64]
    speeds_mps: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.seconds)


def run_program(name: str, *arguments: object) -> None:
    """Run one of SUMO's programs until it ends."""
    done = subprocess.run(
        [program(name), *map(str, arguments)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=5 * TOOL_S_MAX,
        check=False,
    )
    if done.returncode:
        raise SumoFault(f"{name} failed: {done.stderr.strip()[-500:]}")


def net_of(name: str) -> Path:
    """Return the path of a network that comes with SUMO."""
    return home() / name


def drive(
    net: Path, folder: Path, *, seed: int, length_s: int, period_s: float, trip_m_min: float = 1_000, origin: Place | None = None
) -> Trace:
    """Simulate random trips, one more car every `period_s`; `origin` is the place of 0,0 for a network without projection."""
    trips, places = folder / "trips.xml", folder / "places.csv"
    when = ("--begin", 0, "--end", length_s, "--period", period_s, "--seed", seed)
    where = ("--fringe-factor", 3, "--min-distance", trip_m_min, "--vehicle-class", "passenger", "--validate")
    run_script("randomTrips.py", "-n", net, "-o", trips, *when, *where, folder=folder)
    fcd = ("--fcd-output", places, "--fcd-output.attributes", ",".join(("id", *_ATTRIBUTES)))
    quiet = ("--no-step-log", "--ignore-route-errors", "--no-warnings", "--end", length_s, "--seed", seed)
    run_program("sumo", "-n", net, "-r", trips, *fcd, *(("--fcd-output.geo",) if origin is None else ()), *quiet)
    return _read(places, origin)


def _read(places: Path, origin: Place | None) -> Trace:
    with places.open() as lines:
        rows = [row for row in csv.DictReader(lines, delimiter=";") if row["vehicle_id"]]
    if not rows:
        raise SumoFault("the simulation has no vehicles")
    east, north, angle, speed, pos = (
        np.array([float(row[f"vehicle_{name}"]) for row in rows]) for name in _ATTRIBUTES if name != "lane"
    )
    if origin is not None:
        north = origin.latitude + np.degrees(north / EARTH_RADIUS_M)
        east = origin.longitude + np.degrees(east / EARTH_RADIUS_M) / np.cos(np.radians(origin.latitude))
    _, cars = np.unique([row["vehicle_id"] for row in rows], return_inverse=True)
    seconds = np.array([float(row["timestep_time"]) for row in rows]).astype(int)
    roads = tuple(row["vehicle_lane"].rpartition("_")[0] for row in rows)
    return Trace(seconds, cars, roads, pos, north, east, angle, speed)
