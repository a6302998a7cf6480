"""Real collisions, and scenarios with false reports; each scenario returns the reports and the attackers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

EVENT: Final = "Collision"
ALERT_S: Final = 120
"""Maximum time from a collision to an alert about it."""

_COLLISION_INTERVAL_S: Final = 70
_PASSING_S: Final = 40
_REPORT_SHARE: Final = 0.75
_SECOND_REPORT_SHARE: Final = 0.4
_FALSE_REPORT_INTERVAL_S: Final = 2
_COLLUDING: Final = 10
_CAMPAIGN_S: Final = 60
_SYBILS: Final = 9
_FIRST_S: Final = 90


@dataclass(frozen=True, slots=True)
class RealCollision:
    """A real collision."""

    second: int
    east_m: float
    north_m: float


FalseReportScenario = Callable[[pd.DataFrame, np.random.Generator], tuple[pd.DataFrame, set[str]]]
"""From honest rows to rows with false reports, and the attackers."""


def with_collisions_reported(rows: pd.DataFrame, rng: np.random.Generator) -> tuple[pd.DataFrame, list[RealCollision]]:
    """Add collisions at busy places: three of four cars within 60 m in the next 40 s report them, some twice."""
    rows = rows.assign(event=pd.Series([None] * len(rows), dtype=object))
    seconds = np.arange(_FIRST_S, rows["second"].max() - ALERT_S, _COLLISION_INTERVAL_S)
    collisions, reported = [], []
    for second in seconds.tolist():
        there = rows[rows["second"] == second]
        near = [len(_passing(rows, one.east_m, one.north_m, second)) for one in there.itertuples()]
        busiest = there.iloc[int(np.argsort(near)[len(near) * 9 // 10])]
        collision = RealCollision(second, float(busiest["east_m"]), float(busiest["north_m"]))
        passing = _passing(rows, collision.east_m, collision.north_m, second)
        collisions.append(collision)
        reported.append(passing[rng.random(len(passing)) < _REPORT_SHARE])
        reported.append(passing.assign(second=passing["second"] + 1)[rng.random(len(passing)) < _SECOND_REPORT_SHARE])
    reports = pd.concat(reported)
    return pd.concat([rows, reports.assign(event=EVENT)], ignore_index=True), collisions


def _passing(rows: pd.DataFrame, east_m: float, north_m: float, second: int) -> pd.DataFrame:
    soon = rows[rows["second"].between(second, second + _PASSING_S)]
    near_m = np.hypot(soon["east_m"] - east_m, soon["north_m"] - north_m)
    found: pd.DataFrame = soon[near_m < 60].drop_duplicates("car")
    return found


def no_attacker(rows: pd.DataFrame, rng: np.random.Generator) -> tuple[pd.DataFrame, set[str]]:
    """Return the honest rows."""
    del rng
    return rows, set()


def one_attacker(rows: pd.DataFrame, rng: np.random.Generator) -> tuple[pd.DataFrame, set[str]]:
    """Add one car that reports a collision wherever it is, every two seconds."""
    return _with_false_reports(rows, _long_drivers(rows, 1, rng))


def ten_independent(rows: pd.DataFrame, rng: np.random.Generator) -> tuple[pd.DataFrame, set[str]]:
    """Add ten such cars, each independent."""
    return _with_false_reports(rows, _long_drivers(rows, 10, rng))


def ten_colluding(rows: pd.DataFrame, rng: np.random.Generator) -> tuple[pd.DataFrame, set[str]]:
    """Add ten colluding cars at a time that report one place from wherever they are, another place every minute."""
    attackers, false_reports = set[str](), []
    for second in range(_FIRST_S, int(rows["second"].max()) - 30, _CAMPAIGN_S):
        there = rows[(rows["second"] == second) & rows["event"].isna()]
        target, on_road = there.iloc[int(rng.integers(len(there)))], set(there["car"])
        colluding = sorted(attackers & on_road)[:_COLLUDING]
        colluding += rng.choice(sorted(on_road - attackers), _COLLUDING - len(colluding), replace=False).tolist()
        attackers.update(colluding)
        for number in range(3):
            false_rows = there[there["car"].isin(colluding)].assign(
                second=second + number * _FALSE_REPORT_INTERVAL_S, event=EVENT
            )
            for name in ("east_m", "north_m"):
                false_rows[name] = float(target[name]) + rng.normal(0, 10, len(false_rows))
            false_reports.append(false_rows)
    return pd.concat([rows, *false_reports], ignore_index=True), attackers


def sybils(rows: pd.DataFrame, rng: np.random.Generator) -> tuple[pd.DataFrame, set[str]]:
    """Add a Sybil attack: two cars as ten each, with Sybil identities that drive along and confirm the car's reports."""
    attackers = _long_drivers(rows, 2, rng)
    sybil_rows = []
    for car in sorted(attackers):
        own = rows[(rows["car"] == car) & rows["event"].isna()]
        for number in range(_SYBILS):
            sybil = own.assign(car=f"{car}-sybil-{number}")
            for name in ("east_m", "north_m"):
                sybil[name] += rng.uniform(-40, 40) + rng.normal(0, 0.7, len(own))
            sybil_rows.append(sybil)
    names = attackers | {str(sybil["car"].iloc[0]) for sybil in sybil_rows}
    return _with_false_reports(pd.concat([rows, *sybil_rows], ignore_index=True), names)


def silent_witnesses(rows: pd.DataFrame, rng: np.random.Generator) -> tuple[pd.DataFrame, set[str]]:
    """Remove the reports of ten witnesses of collisions."""
    witnesses = sorted(set(rows.loc[rows["event"].notna(), "car"]))
    attackers = set(rng.choice(witnesses, min(10, len(witnesses)), replace=False).tolist())
    return rows[~(rows["event"].notna() & rows["car"].isin(attackers))], attackers


def _with_false_reports(rows: pd.DataFrame, attackers: set[str]) -> tuple[pd.DataFrame, set[str]]:
    is_time = (rows["second"] % _FALSE_REPORT_INTERVAL_S == 0) & (rows["second"] >= _FIRST_S)
    is_false = rows["car"].isin(attackers) & rows["event"].isna() & is_time
    return pd.concat([rows, rows[is_false].assign(event=EVENT)], ignore_index=True), attackers


def _long_drivers(rows: pd.DataFrame, count: int, rng: np.random.Generator) -> set[str]:
    """Return a random choice of the cars that drive longest."""
    lengths = rows[rows["second"] >= _FIRST_S].groupby("car").size().sort_values(ascending=False)
    return set(rng.choice(lengths.index[: 4 * count].to_numpy(), count, replace=False).tolist())


SCENARIOS: Final[tuple[tuple[str, FalseReportScenario], ...]] = (
    ("no attacker", no_attacker),
    ("one attacker", one_attacker),
    ("ten independent attackers", ten_independent),
    ("ten colluding attackers at a time", ten_colluding),
    ("Sybil attack: two cars as twenty", sybils),
    ("ten silent witnesses", silent_witnesses),
)
