"""From what cars say to scores, through an edge's own checks and the judges of the pipeline, without Spark."""

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from milepost.model.incidents import Grid
from milepost.model.instants import Instant
from milepost.model.places import Place
from milepost.pipelines.reputation.flat import DEGREE_M
from milepost.pipelines.reputation.judges import judge_endpoints, judge_squares
from milepost.pipelines.reputation.ledger import Ledger, Reputation
from milepost.pipelines.reputation.limits import Limits
from milepost.pipelines.reputation.schema import LEAD_US, MINUTE_US, SIDE_M, What
from milepost.vetting.reports import Batch, Before, ReportLimits, vet_reports

HOME = Place(52.5, 13.4)
START_US = 31_666_666 * MINUTE_US


def sights_of(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows of SIGHT_ROW with the verdicts of an edge."""
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
    """All that is told of endpoints, in the order of time."""
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
    """What an edge says of each report, one after the other; events are no reports."""
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
