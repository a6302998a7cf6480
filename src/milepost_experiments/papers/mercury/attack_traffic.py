"""Traffic for Mercury's attacks: SUMO's traces as receivers report them, and the resulting verdicts and scores.

No Spark: the checks of an edge and the evaluators of the reputation pipeline are called directly.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from milepost.model.incidents import Grid
from milepost.model.instants import Instant
from milepost.model.places import Place
from milepost.pipelines.reputation.detectors import check_endpoints, check_squares
from milepost.pipelines.reputation.evidence import LEAD_US, MINUTE_US, SIDE_M, EvidenceKind, EvidenceThresholds
from milepost.pipelines.reputation.known_roads import RoadMap
from milepost.pipelines.reputation.ledger import EndpointScore, EvidenceLedger
from milepost.pipelines.reputation.nearby import DEGREE_M
from milepost.vetting.reports import PreviousReports, ReportColumns, ReportLimits, vet_reports
from milepost_experiments.simulator.sumo import run_script
from milepost_experiments.simulator.traces import run_program

GRID = "--grid --grid.number 6 --grid.length 200 --default.lanenumber 2 --tls.guess true --default.speed 13.9"
"""A grid of crossings with traffic lights, two lanes each way."""
WINDING = (
    "--rand --rand.iterations 120 --rand.min-distance 120 --rand.max-distance 300 --default.lanenumber 1 --tls.guess true "
    "--default.speed 16.7"
)
"""Winding streets with one lane each way, faster and with less traffic."""
FREEZING_SHARE = 0.5
"""Share of receivers that freeze their position while standing."""
COLLISIONS = 3
NET = "net.xml"
"""Name of the file of the streets, in the folder of a drive."""


@dataclass(frozen=True, slots=True)
class SimulatedCity:
    """Streets and traffic density: a car departs every `period_s`."""

    seed: int
    length_s: int = 720
    period_s: float = 1.2
    streets: str = GRID


def drive(city: SimulatedCity, folder: Path) -> pd.DataFrame:
    """Return the true position of each car: second, car, east_m, north_m, heading_deg, speed_mps."""
    net, trips, places = folder / NET, folder / "trips.xml", folder / "places.csv"
    run_program("netgenerate", *city.streets.split(), "--seed", city.seed, "-o", net)
    when = ("--begin", 0, "--end", city.length_s, "--period", city.period_s, "--seed", city.seed, "--fringe-factor", 3)
    run_script("randomTrips.py", "-n", net, "-o", trips, *when, folder=folder)
    fcd = ("--fcd-output", places, "--fcd-output.attributes", "id,x,y,angle,speed")
    quiet = ("--no-step-log", "--ignore-route-errors")
    run_program("sumo", "-n", net, "-r", trips, *fcd, "--end", city.length_s, "--seed", city.seed, *quiet)
    found = pd.read_csv(places, sep=";").dropna()
    found.columns = pd.Index(["second", "car", "east_m", "north_m", "heading_deg", "speed_mps"])
    return found.astype({"second": int, "car": str})


def observed(true: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Add receiver errors: positions drift by metres, speeds and headings are noisy, the heading is random when standing."""
    rng = np.random.default_rng(seed)
    rows = true.sort_values(["car", "second"], ignore_index=True)
    for name in ("east_m", "north_m"):
        rows[name] += _drift(rows["car"].to_numpy(), rng, sigma_m=1.5, correlation_s=30.0) + rng.normal(0, 0.5, len(rows))
    is_standing = rows["speed_mps"] < 0.3
    heading = rows["heading_deg"] + rng.normal(0, 3, len(rows))
    rows["heading_deg"] = np.where(is_standing, rng.uniform(0, 360, len(rows)), heading) % 360
    freezes = rows["car"].map({car: rng.random() < FREEZING_SHARE for car in sorted(set(rows["car"]))})
    still = freezes & is_standing & is_standing.shift(fill_value=False) & (rows["car"] == rows["car"].shift())
    rows[["east_m", "north_m"]] = rows[["east_m", "north_m"]].mask(still).ffill()
    rows["speed_mps"] = (rows["speed_mps"] + rng.normal(0, 0.3, len(rows)) * ~is_standing).clip(lower=0)
    return rows


def with_collisions(rows: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Add real collisions: more than half of the cars within 60 m in the next 20 s report them."""
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


def _drift(cars: NDArray[np.str_], rng: np.random.Generator, *, sigma_m: float, correlation_s: float) -> NDArray[np.float64]:
    """Return a slowly changing error (a Gauss-Markov process), independent for each car."""
    decay = np.exp(-1 / correlation_s)
    innovations = rng.normal(0, sigma_m, len(cars))
    found = np.empty(len(cars))
    for at, innovation in enumerate(innovations):
        is_first = at == 0 or cars[at] != cars[at - 1]
        found[at] = innovation if is_first else decay * found[at - 1] + np.sqrt(1 - decay**2) * innovation
    return found


HOME = Place(52.5, 13.4)
START_US = 31_666_666 * MINUTE_US


def sightings_of(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows of SIGHTING_ROW with the verdicts of an edge."""
    found = pd.DataFrame(
        {
            "endpoint": rows["car"],
            "seen_at_us": START_US + (rows["second"] * 1e6).round().astype(np.int64),
            "latitude": HOME.latitude + rows["north_m"] / DEGREE_M,
            "longitude": HOME.longitude + rows["east_m"] / DEGREE_M / np.cos(np.radians(HOME.latitude)),
            "heading_deg": rows["heading_deg"],
            "speed_mps": rows["speed_mps"],
            "kind": rows["event"],
        }
    )
    return found.assign(verdict=_verdicts(found)).sort_values("seen_at_us", ignore_index=True)


def scores_of(sightings: pd.DataFrame, limits: EvidenceThresholds, road_map: RoadMap | None = None) -> list[EndpointScore]:
    """Return all published reputations, in order of time."""
    ledger, history, published = EvidenceLedger(), None, list[EndpointScore]()
    rows = sightings.assign(square=_squares(sightings))
    for minute in range(int(sightings["seen_at_us"].min() // MINUTE_US), int(sightings["seen_at_us"].max() // MINUTE_US) + 1):
        window = rows[rows["seen_at_us"].between(minute * MINUTE_US - LEAD_US, (minute + 1) * MINUTE_US - 1)]
        history, evidence = check_squares(history, window, minute, limits, road_map)
        found = [check_endpoints(window, minute, limits), *([evidence] if len(evidence) else [])]
        columns = (pd.concat(found)[name].tolist() for name in ("minute", "endpoint", "evidence", "count"))
        published += ledger.take(
            [(at, endpoint, EvidenceKind(what), count) for at, endpoint, what, count in zip(*columns, strict=True)]
        )
    return published


def _squares(sightings: pd.DataFrame) -> list[str]:
    grid = Grid(SIDE_M)
    places = zip(sightings["latitude"], sightings["longitude"], strict=True)
    return ["/".join(map(str, grid.locate(Place(latitude, longitude)).square)) for latitude, longitude in places]


def _verdicts(sightings: pd.DataFrame) -> NDArray[np.int64]:
    """Return an edge's verdict on each report, in order of time; events are not reports and have 0."""
    verdicts = np.zeros(len(sightings), np.int64)
    numbers = pd.factorize(sightings["endpoint"])[0].astype(np.int32)
    last = PreviousReports(np.zeros(numbers.max() + 1), np.zeros(numbers.max() + 1), np.zeros(numbers.max() + 1, np.int64))
    is_report = sightings["kind"].isna().to_numpy()
    columns = {name: sightings[name].to_numpy() for name in sightings.columns}
    order = np.argsort(columns["seen_at_us"], kind="stable")
    times = columns["seen_at_us"][order]
    for together in np.split(order, np.flatnonzero(np.diff(times)) + 1):
        rows = together[is_report[together]]
        endpoints, seen_at = numbers[rows], columns["seen_at_us"][rows] * 1000
        latitudes, longitudes = columns["latitude"][rows], columns["longitude"][rows]
        batch = ReportColumns(endpoints, latitudes, longitudes, seen_at, columns["heading_deg"][rows], columns["speed_mps"][rows])
        now = Instant(int(columns["seen_at_us"][together[0]]) * 1000)
        verdicts[rows] = vet_reports(batch, last.only(endpoints.astype(np.intp)), ReportLimits(), now)
        accepted = verdicts[rows] == 0
        last.latitudes[endpoints[accepted]], last.longitudes[endpoints[accepted]] = latitudes[accepted], longitudes[accepted]
        last.seen_at[endpoints[accepted]] = seen_at[accepted]
    return verdicts
