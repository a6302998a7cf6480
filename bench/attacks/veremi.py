"""Attacks as the literature on misbehaving vehicles (VeReMi) names them, laid over honest traffic.

Each takes what all cars would report and which of them attack, and gives what is reported then. An attacker is one from the
first report to the last, but for the eventual stop.
"""

from collections.abc import Callable

import numpy as np
import pandas as pd

Attack = Callable[[pd.DataFrame, list[str], np.random.Generator], pd.DataFrame]

GHOSTS = 4
FLOOD = 25
LIE_EVERY_S = 20


def constant_position(rows: pd.DataFrame, cars: list[str], rng: np.random.Generator) -> pd.DataFrame:
    """Always the same place, with the true speed and heading."""
    for car in cars:
        at = rows["car"] == car
        rows.loc[at, ["east_m", "north_m"]] = rng.uniform(0, rows["east_m"].max()), rng.uniform(0, rows["north_m"].max())
    return rows


def constant_offset(rows: pd.DataFrame, cars: list[str], rng: np.random.Generator) -> pd.DataFrame:
    """The true place, moved by the same 50 to 250 m."""
    for car in cars:
        towards, way_m = rng.uniform(0, 2 * np.pi), rng.uniform(50, 250)
        at = rows["car"] == car
        rows.loc[at, "east_m"] += way_m * np.sin(towards)
        rows.loc[at, "north_m"] += way_m * np.cos(towards)
    return rows


def random_position(rows: pd.DataFrame, cars: list[str], rng: np.random.Generator) -> pd.DataFrame:
    """Any place in town."""
    at = rows["car"].isin(cars)
    for name in ("east_m", "north_m"):
        rows.loc[at, name] = rng.uniform(0, rows[name].max(), at.sum())
    return rows


def random_offset(rows: pd.DataFrame, cars: list[str], rng: np.random.Generator) -> pd.DataFrame:
    """The true place, moved by another 30 m at most each time."""
    at = rows["car"].isin(cars)
    for name in ("east_m", "north_m"):
        rows.loc[at, name] += rng.uniform(-30, 30, at.sum())
    return rows


def eventual_stop(rows: pd.DataFrame, cars: list[str], rng: np.random.Generator) -> pd.DataFrame:
    """After some time a sudden stop that never was: the place of then, at no speed."""
    for car in cars:
        at = rows.index[(rows["car"] == car) & (rows["speed_mps"] > 8)]
        own = rows.index[rows["car"] == car]
        stop = at[int(rng.integers(len(at) // 4, len(at) // 2))] if len(at) > 8 else own[0]
        frozen = own[own >= stop]
        rows.loc[frozen, ["east_m", "north_m"]] = rows.loc[stop, ["east_m", "north_m"]].to_numpy(float)
        rows.loc[frozen, "speed_mps"] = 0.0
    return rows


def replay(rows: pd.DataFrame, cars: list[str], rng: np.random.Generator) -> pd.DataFrame:
    """What another said 5 to 25 s ago, under the own name."""
    honest = rows[~rows["car"].isin(cars)]
    kept = [honest]
    for car in cars:
        own = rows[rows["car"] == car]
        overlap = honest[honest["second"].between(own["second"].min() - 5, own["second"].max())]
        victim = overlap["car"].value_counts().head(20).sample(1, random_state=rng).index[0]
        later = honest[honest["car"] == victim].assign(car=car)
        kept.append(later.assign(second=later["second"] + rng.integers(5, 26)))
    return pd.concat(kept, ignore_index=True)


def flooding(rows: pd.DataFrame, cars: list[str], rng: np.random.Generator) -> pd.DataFrame:
    """True reports, but 25 a second."""
    more = rows[rows["car"].isin(cars)]
    parts = [more.assign(second=more["second"] + part / FLOOD) for part in range(1, FLOOD)]
    for part, copies in enumerate(parts, 1):
        ahead_m = copies["speed_mps"] * part / FLOOD
        copies["east_m"] += ahead_m * np.sin(np.radians(copies["heading_deg"])) + rng.normal(0, 0.3, len(copies))
        copies["north_m"] += ahead_m * np.cos(np.radians(copies["heading_deg"])) + rng.normal(0, 0.3, len(copies))
    return pd.concat([rows, *parts], ignore_index=True)


def sybil(rows: pd.DataFrame, cars: list[str], rng: np.random.Generator) -> pd.DataFrame:
    """Four more cars that are none, each at its own distance from the true one, with errors of their own."""
    ghosts = []
    for car in cars:
        own = rows[rows["car"] == car]
        for number in range(GHOSTS):
            east_m, north_m = rng.uniform(-40, 40, 2)
            ghost = own.assign(car=f"{car}-ghost-{number}")
            ghost["east_m"] += east_m + rng.normal(0, 0.7, len(own))
            ghost["north_m"] += north_m + rng.normal(0, 0.7, len(own))
            ghost["speed_mps"] = (ghost["speed_mps"] + rng.normal(0, 0.3, len(own))).clip(lower=0)
            ghosts.append(ghost)
    return pd.concat([rows, *ghosts], ignore_index=True)


def false_event(rows: pd.DataFrame, cars: list[str], rng: np.random.Generator) -> pd.DataFrame:
    """A collision where there is none, every twenty seconds."""
    begin = rows["car"].map({car: int(rng.integers(LIE_EVERY_S)) for car in cars})
    lies = rows[(rows["second"] % LIE_EVERY_S == begin) & rows["event"].isna()]
    return pd.concat([rows, lies.assign(event="Collision")], ignore_index=True)


ATTACKS: dict[str, Attack] = {
    "constant position": constant_position,
    "constant offset": constant_offset,
    "random position": random_position,
    "random offset": random_offset,
    "eventual stop": eventual_stop,
    "replay": replay,
    "flooding": flooding,
    "Sybil": sybil,
    "false event": false_event,
}


def is_attacker(endpoint: str, cars: list[str]) -> bool:
    """Whether an endpoint is one of them or one of their ghosts."""
    return endpoint.partition("-ghost-")[0] in cars
