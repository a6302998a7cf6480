"""Real collisions and false reports of others; each scenario returns the reports and the liars."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

EVENT: Final = "Collision"
ALERT_S: Final = 120
"""Maximum time from a collision to an alert about it."""

_APART_S: Final = 70
_PASSING_S: Final = 40
_TELLS: Final = 0.75
_TELLS_AGAIN: Final = 0.4
_SHOUT_S: Final = 2
_TOGETHER: Final = 10
_CAMPAIGN_S: Final = 60
_GHOSTS: Final = 9
_FIRST_S: Final = 90


@dataclass(frozen=True, slots=True)
class Crash:
    """A real collision."""

    second: int
    east_m: float
    north_m: float


Lies = Callable[[pd.DataFrame, np.random.Generator], tuple[pd.DataFrame, set[str]]]
"""From honest rows to rows with lies, and the liars."""


def with_crashes(rows: pd.DataFrame, draw: np.random.Generator) -> tuple[pd.DataFrame, list[Crash]]:
    """Add collisions at busy places: three of four cars within 60 m in the next 40 s report them, some twice."""
    rows = rows.assign(event=pd.Series([None] * len(rows), dtype=object))
    seconds = np.arange(_FIRST_S, rows["second"].max() - ALERT_S, _APART_S)
    crashes, reported = [], []
    for second in seconds.tolist():
        there = rows[rows["second"] == second]
        near = [len(_passing(rows, one.east_m, one.north_m, second)) for one in there.itertuples()]
        busiest = there.iloc[int(np.argsort(near)[len(near) * 9 // 10])]
        crash = Crash(second, float(busiest["east_m"]), float(busiest["north_m"]))
        passing = _passing(rows, crash.east_m, crash.north_m, second)
        crashes.append(crash)
        reported.append(passing[draw.random(len(passing)) < _TELLS])
        reported.append(passing.assign(second=passing["second"] + 1)[draw.random(len(passing)) < _TELLS_AGAIN])
    told = pd.concat(reported)
    return pd.concat([rows, told.assign(event=EVENT)], ignore_index=True), crashes


def _passing(rows: pd.DataFrame, east_m: float, north_m: float, second: int) -> pd.DataFrame:
    soon = rows[rows["second"].between(second, second + _PASSING_S)]
    near_m = np.hypot(soon["east_m"] - east_m, soon["north_m"] - north_m)
    found: pd.DataFrame = soon[near_m < 60].drop_duplicates("car")
    return found


def nobody(rows: pd.DataFrame, draw: np.random.Generator) -> tuple[pd.DataFrame, set[str]]:
    """Return the honest rows."""
    del draw
    return rows, set()


def one_liar(rows: pd.DataFrame, draw: np.random.Generator) -> tuple[pd.DataFrame, set[str]]:
    """Add one car that reports a collision wherever it is, every two seconds."""
    return _shouting(rows, _long_drivers(rows, 1, draw))


def ten_liars(rows: pd.DataFrame, draw: np.random.Generator) -> tuple[pd.DataFrame, set[str]]:
    """Add ten such cars, each independent."""
    return _shouting(rows, _long_drivers(rows, 10, draw))


def ten_together(rows: pd.DataFrame, draw: np.random.Generator) -> tuple[pd.DataFrame, set[str]]:
    """Add ten colluding cars at a time that report one place from wherever they are, another place every minute."""
    liars, lies = set[str](), []
    for second in range(_FIRST_S, int(rows["second"].max()) - 30, _CAMPAIGN_S):
        there = rows[(rows["second"] == second) & rows["event"].isna()]
        target, on_road = there.iloc[int(draw.integers(len(there)))], set(there["car"])
        lying = sorted(liars & on_road)[:_TOGETHER]
        lying += draw.choice(sorted(on_road - liars), _TOGETHER - len(lying), replace=False).tolist()
        liars.update(lying)
        for number in range(3):
            said = there[there["car"].isin(lying)].assign(second=second + number * _SHOUT_S, event=EVENT)
            for name in ("east_m", "north_m"):
                said[name] = float(target[name]) + draw.normal(0, 10, len(said))
            lies.append(said)
    return pd.concat([rows, *lies], ignore_index=True), liars


def sybils(rows: pd.DataFrame, draw: np.random.Generator) -> tuple[pd.DataFrame, set[str]]:
    """Add a Sybil attack: two cars as ten each, with ghosts that drive along and confirm the car's reports."""
    liars = _long_drivers(rows, 2, draw)
    ghosts = []
    for car in sorted(liars):
        own = rows[(rows["car"] == car) & rows["event"].isna()]
        for number in range(_GHOSTS):
            ghost = own.assign(car=f"{car}-ghost-{number}")
            for name in ("east_m", "north_m"):
                ghost[name] += draw.uniform(-40, 40) + draw.normal(0, 0.7, len(own))
            ghosts.append(ghost)
    names = liars | {str(ghost["car"].iloc[0]) for ghost in ghosts}
    return _shouting(pd.concat([rows, *ghosts], ignore_index=True), names)


def silent(rows: pd.DataFrame, draw: np.random.Generator) -> tuple[pd.DataFrame, set[str]]:
    """Remove the reports of ten witnesses of collisions."""
    saw = sorted(set(rows.loc[rows["event"].notna(), "car"]))
    liars = set(draw.choice(saw, min(10, len(saw)), replace=False).tolist())
    return rows[~(rows["event"].notna() & rows["car"].isin(liars))], liars


def _shouting(rows: pd.DataFrame, liars: set[str]) -> tuple[pd.DataFrame, set[str]]:
    is_lie = rows["car"].isin(liars) & rows["event"].isna() & (rows["second"] % _SHOUT_S == 0) & (rows["second"] >= _FIRST_S)
    return pd.concat([rows, rows[is_lie].assign(event=EVENT)], ignore_index=True), liars


def _long_drivers(rows: pd.DataFrame, count: int, draw: np.random.Generator) -> set[str]:
    """Return a random choice of the cars that drive longest."""
    lengths = rows[rows["second"] >= _FIRST_S].groupby("car").size().sort_values(ascending=False)
    return set(draw.choice(lengths.index[: 4 * count].to_numpy(), count, replace=False).tolist())


SCENARIOS: Final[tuple[tuple[str, Lies], ...]] = (
    ("nobody lies", nobody),
    ("one liar", one_liar),
    ("ten liars, each alone", ten_liars),
    ("ten at a time who agree", ten_together),
    ("two cars as twenty (Sybils)", sybils),
    ("ten witnesses keep silent", silent),
)
