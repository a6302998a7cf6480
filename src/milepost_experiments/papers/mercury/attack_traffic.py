"""Traffic for Mercury's attacks: SUMO's traces as receivers report them, and the resulting verdicts and scores.

No Spark: the checks of an edge and the judges of the reputation pipeline are called directly.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from milepost.model.incidents import Grid
from milepost.model.instants import Instant
from milepost.model.places import Place
from milepost.pipelines.reputation.evidence import LEAD_US, MINUTE_US, SIDE_M, Limits, What
from milepost.pipelines.reputation.judges import judge_endpoints, judge_squares
from milepost.pipelines.reputation.ledger import Ledger, Reputation
from milepost.pipelines.reputation.nearby import DEGREE_M
from milepost.vetting.reports import Batch, Before, ReportLimits, vet_reports
from milepost_experiments.simulator.sumo import run_script
from milepost_experiments.simulator.traces import run_program

GRID = "--grid --grid.number 6 --grid.length 200 --default.lanenumber 2 --tls.guess true --default.speed 13.9"
"""A grid of crossings with traffic lights, two lanes each way."""
CROOKED = (
    "--rand --rand.iterations 120 --rand.min-distance 120 --rand.max-distance 300 --default.lanenumber 1 --tls.guess true "
    "--default.speed 16.7"
)
"""A town of winding streets with one lane each way, faster and emptier."""
HOLDING = 0.5
"""Share of receivers that freeze their position while standing."""
COLLISIONS = 3


@dataclass(frozen=True, slots=True)
class Town:
    """Streets and traffic density: a car departs every `period_s`."""

    seed: int
    length_s: int = 720
    period_s: float = 1.2
    streets: str = GRID


def drive(town: Town, folder: Path) -> pd.DataFrame:
    """Return the true position of each car: second, car, east_m, north_m, heading_deg, speed_mps."""
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
    """Add receiver errors: positions drift by metres, speeds and headings are noisy, the heading is random when standing."""
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


def _wandering(cars: NDArray[np.str_], rng: np.random.Generator, *, spread_m: float, lasting_s: float) -> NDArray[np.float64]:
    """Return a slowly changing error (a Gauss-Markov process), independent for each car."""
    keep = np.exp(-1 / lasting_s)
    pushes = rng.normal(0, spread_m, len(cars))
    found = np.empty(len(cars))
    for at, push in enumerate(pushes):
        is_first = at == 0 or cars[at] != cars[at - 1]
        found[at] = push if is_first else keep * found[at - 1] + np.sqrt(1 - keep**2) * push
    return found


HOME = Place(52.5, 13.4)
START_US = 31_666_666 * MINUTE_US


def sights_of(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows of SIGHT_ROW with the verdicts of an edge."""
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


def scores_of(sights: pd.DataFrame, limits: Limits) -> list[Reputation]:
    """Return all published reputations, in order of time."""
    ledger, kept, said = Ledger(), None, list[Reputation]()
    rows = sights.assign(square=_squares(sights))
    for minute in range(int(sights["seen_at_us"].min() // MINUTE_US), int(sights["seen_at_us"].max() // MINUTE_US) + 1):
        seen = rows[rows["seen_at_us"].between(minute * MINUTE_US - LEAD_US, (minute + 1) * MINUTE_US - 1)]
        squares = [seen[(seen["square"] == square) & (seen["verdict"] == 0)] for square in sorted(set(seen["square"]))]
        kept, evidence = judge_squares(kept, squares, minute, limits)
        found = [judge_endpoints(seen, minute, limits), *([evidence] if len(evidence) else [])]
        columns = (pd.concat(found)[name].tolist() for name in ("minute", "endpoint", "what", "count"))
        said += ledger.take([(at, who, What(what), count) for at, who, what, count in zip(*columns, strict=True)])
    return said


def _squares(sights: pd.DataFrame) -> list[str]:
    grid = Grid(SIDE_M)
    places = zip(sights["latitude"], sights["longitude"], strict=True)
    return ["/".join(map(str, grid.spot(Place(latitude, longitude)).square)) for latitude, longitude in places]


def _verdicts(sights: pd.DataFrame) -> NDArray[np.int64]:
    """Return an edge's verdict on each report, in order of time; events are not reports and have 0."""
    verdicts = np.zeros(len(sights), np.int64)
    numbers = pd.factorize(sights["endpoint"])[0].astype(np.int32)
    last = Before(np.zeros(numbers.max() + 1), np.zeros(numbers.max() + 1), np.zeros(numbers.max() + 1, np.int64))
    is_report = sights["kind"].isna().to_numpy()
    columns = {name: sights[name].to_numpy() for name in sights.columns}
    order = np.argsort(columns["seen_at_us"], kind="stable")
    times = columns["seen_at_us"][order]
    for together in np.split(order, np.flatnonzero(np.diff(times)) + 1):
        rows = together[is_report[together]]
        who, seen_at = numbers[rows], columns["seen_at_us"][rows] * 1000
        latitudes, longitudes = columns["latitude"][rows], columns["longitude"][rows]
        batch = Batch(who, latitudes, longitudes, seen_at, columns["heading_deg"][rows], columns["speed_mps"][rows])
        now = Instant(int(columns["seen_at_us"][together[0]]) * 1000)
        verdicts[rows] = vet_reports(batch, last.only(who.astype(np.intp)), ReportLimits(), now)
        let_in = verdicts[rows] == 0
        last.latitudes[who[let_in]], last.longitudes[who[let_in]] = latitudes[let_in], longitudes[let_in]
        last.seen_at[who[let_in]] = seen_at[let_in]
    return verdicts
