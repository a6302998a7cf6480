"""Traffic of SUMO as rows: a made-up town, cars from everywhere to everywhere, what their receivers say, and true collisions."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from milepost.simulator.installed import run_script
from milepost.simulator.traces import run_program

GRID = "--grid --grid.number 6 --grid.length 200 --default.lanenumber 2 --tls.guess true --default.speed 13.9"
"""A town of crossings with lights, two lanes each way."""
CROOKED = (
    "--rand --rand.iterations 120 --rand.min-distance 120 --rand.max-distance 300 --default.lanenumber 1 --tls.guess true "
    "--default.speed 16.7"
)
"""A town of winding streets with one lane each way, faster and emptier."""
HOLDING = 0.5
"""The share of receivers that hold the place while they stand."""
COLLISIONS = 3


@dataclass(frozen=True, slots=True)
class Town:
    """How much traffic there is on which streets: a car sets out every `period_s`."""

    seed: int
    length_s: int = 720
    period_s: float = 1.2
    streets: str = GRID


def drive(town: Town, folder: Path) -> pd.DataFrame:
    """Where each car truly is: second, car, east_m, north_m, heading_deg, speed_mps."""
    net, trips, places = folder / "net.xml", folder / "trips.xml", folder / "places.csv"
    run_program("netgenerate", *town.streets.split(), "--seed", town.seed, "-o", net)
    when = ("--begin", 0, "--end", town.length_s, "--period", town.period_s, "--seed", town.seed, "--fringe-factor", 3)
    run_script("randomTrips.py", "-n", net, "-o", trips, *when, folder=folder)
    fcd = ("--fcd-output", places, "--fcd-output.attributes", "id,x,y,angle,speed")
    quiet = ("--no-step-log", "--ignore-route-errors")
    run_program("sumo", "-n", net, "-r", trips, *fcd, "--end", town.length_s, "--seed", town.seed, *quiet)
    found = pd.read_csv(places, sep=";").dropna()
    found.columns = pd.Index(["second", "car", "east_m", "north_m", "heading_deg", "speed_mps"])
    return found.astype({"second": int, "car": str})


def seen(true: pd.DataFrame, seed: int) -> pd.DataFrame:
    """What receivers make of it: places that wander by metres, speeds and headings a little off, any heading when standing."""
    rng = np.random.default_rng(seed)
    rows = true.sort_values(["car", "second"], ignore_index=True)
    for name in ("east_m", "north_m"):
        rows[name] += _wandering(rows["car"].to_numpy(), rng, spread_m=1.5, lasting_s=30.0) + rng.normal(0, 0.5, len(rows))
    is_standing = rows["speed_mps"] < 0.3
    heading = rows["heading_deg"] + rng.normal(0, 3, len(rows))
    rows["heading_deg"] = np.where(is_standing, rng.uniform(0, 360, len(rows)), heading) % 360
    holds = rows["car"].map({car: rng.random() < HOLDING for car in sorted(set(rows["car"]))})
    still = holds & is_standing & is_standing.shift(fill_value=False) & (rows["car"] == rows["car"].shift())
    rows[["east_m", "north_m"]] = rows[["east_m", "north_m"]].mask(still).ffill()
    rows["speed_mps"] = (rows["speed_mps"] + rng.normal(0, 0.3, len(rows)) * ~is_standing).clip(lower=0)
    return rows


def with_collisions(rows: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Collisions that there are: of who is within 60 m in the next 20 s more than half report it."""
    rng = np.random.default_rng(seed)
    reported = []
    for at in rng.choice(len(rows), COLLISIONS, replace=False):
        there = rows.iloc[at]
        near_m = np.hypot(rows["east_m"] - there["east_m"], rows["north_m"] - there["north_m"])
        near = rows[(near_m < 60) & rows["second"].between(there["second"], there["second"] + 20)].drop_duplicates("car")
        reported.append(near[rng.random(len(near)) < 0.6])
    found: pd.DataFrame = pd.concat([rows, *reported], ignore_index=True)
    found["event"] = pd.Series([None] * len(rows) + ["Collision"] * (len(found) - len(rows)), dtype=object)
    return found


def _wandering(cars: NDArray[np.str_], rng: np.random.Generator, *, spread_m: float, lasting_s: float) -> NDArray[np.float64]:
    """An error that changes slowly (a Gauss-Markov process), anew for each car."""
    keep = np.exp(-1 / lasting_s)
    pushes = rng.normal(0, spread_m, len(cars))
    found = np.empty(len(cars))
    for at, push in enumerate(pushes):
        is_first = at == 0 or cars[at] != cars[at - 1]
        found[at] = push if is_first else keep * found[at - 1] + np.sqrt(1 - keep**2) * push
    return found
