"""Attacks of the literature on misbehaving vehicles (VeReMi), applied to honest traffic.

Each attack takes the reports of all cars and the attackers, and returns the reports with the attack. An attacker attacks from the
first report to the last, except for the eventual stop.
"""

from collections.abc import Callable

import numpy as np
import pandas as pd

Attack = Callable[[pd.DataFrame, list[str], np.random.Generator], pd.DataFrame]

SYBILS = 4
FLOOD = 25
FALSE_EVENT_INTERVAL_S = 20


def constant_position(rows: pd.DataFrame, cars: list[str], rng: np.random.Generator) -> pd.DataFrame:
    """Report always the same place, with the true speed and heading."""
    for car in cars:
        at = rows["car"] == car
        rows.loc[at, ["east_m", "north_m"]] = rng.uniform(0, rows["east_m"].max()), rng.uniform(0, rows["north_m"].max())
    return rows


def constant_offset(rows: pd.DataFrame, cars: list[str], rng: np.random.Generator) -> pd.DataFrame:
    """Report the true place, moved by a constant 50 to 250 m."""
    for car in cars:
        direction_rad, offset_m = rng.uniform(0, 2 * np.pi), rng.uniform(50, 250)
        at = rows["car"] == car
        rows.loc[at, "east_m"] += offset_m * np.sin(direction_rad)
        rows.loc[at, "north_m"] += offset_m * np.cos(direction_rad)
    return rows


def random_position(rows: pd.DataFrame, cars: list[str], rng: np.random.Generator) -> pd.DataFrame:
    """Report random places in the city."""
    at = rows["car"].isin(cars)
    for name in ("east_m", "north_m"):
        rows.loc[at, name] = rng.uniform(0, rows[name].max(), at.sum())
    return rows


def random_offset(rows: pd.DataFrame, cars: list[str], rng: np.random.Generator) -> pd.DataFrame:
    """Report the true place, moved by up to 30 m at random each time."""
    at = rows["car"].isin(cars)
    for name in ("east_m", "north_m"):
        rows.loc[at, name] += rng.uniform(-30, 30, at.sum())
    return rows


def eventual_stop(rows: pd.DataFrame, cars: list[str], rng: np.random.Generator) -> pd.DataFrame:
    """Report a sudden stop that did not happen: from then on the same place at no speed."""
    for car in cars:
        at = rows.index[(rows["car"] == car) & (rows["speed_mps"] > 8)]
        own = rows.index[rows["car"] == car]
        stop = at[int(rng.integers(len(at) // 4, len(at) // 2))] if len(at) > 8 else own[0]
        frozen = own[own >= stop]
        rows.loc[frozen, ["east_m", "north_m"]] = rows.loc[stop, ["east_m", "north_m"]].to_numpy(float)
        rows.loc[frozen, "speed_mps"] = 0.0
    return rows


def replay(rows: pd.DataFrame, cars: list[str], rng: np.random.Generator) -> pd.DataFrame:
    """Replay the reports of another car from 5 to 25 s ago, under the own name."""
    honest = rows[~rows["car"].isin(cars)]
    parts = [honest]
    for car in cars:
        own = rows[rows["car"] == car]
        overlap = honest[honest["second"].between(own["second"].min() - 5, own["second"].max())]
        victim = overlap["car"].value_counts().head(20).sample(1, random_state=rng).index[0]
        later = honest[honest["car"] == victim].assign(car=car)
        parts.append(later.assign(second=later["second"] + rng.integers(5, 26)))
    return pd.concat(parts, ignore_index=True)


def flooding(rows: pd.DataFrame, cars: list[str], rng: np.random.Generator) -> pd.DataFrame:
    """Send true reports, but 25 per second."""
    more = rows[rows["car"].isin(cars)]
    parts = [more.assign(second=more["second"] + part / FLOOD) for part in range(1, FLOOD)]
    for part, copies in enumerate(parts, 1):
        ahead_m = copies["speed_mps"] * part / FLOOD
        copies["east_m"] += ahead_m * np.sin(np.radians(copies["heading_deg"])) + rng.normal(0, 0.3, len(copies))
        copies["north_m"] += ahead_m * np.cos(np.radians(copies["heading_deg"])) + rng.normal(0, 0.3, len(copies))
    return pd.concat([rows, *parts], ignore_index=True)


def sybil(rows: pd.DataFrame, cars: list[str], rng: np.random.Generator) -> pd.DataFrame:
    """Add four Sybil cars, each at a constant distance from the true one, with independent errors."""
    sybils = []
    for car in cars:
        own = rows[rows["car"] == car]
        for number in range(SYBILS):
            east_m, north_m = rng.uniform(-40, 40, 2)
            sybil_rows = own.assign(car=f"{car}-sybil-{number}")
            sybil_rows["east_m"] += east_m + rng.normal(0, 0.7, len(own))
            sybil_rows["north_m"] += north_m + rng.normal(0, 0.7, len(own))
            sybil_rows["speed_mps"] = (sybil_rows["speed_mps"] + rng.normal(0, 0.3, len(own))).clip(lower=0)
            sybils.append(sybil_rows)
    return pd.concat([rows, *sybils], ignore_index=True)


def false_event(rows: pd.DataFrame, cars: list[str], rng: np.random.Generator) -> pd.DataFrame:
    """Report a collision where there is none, every twenty seconds."""
    begin = rows["car"].map({car: int(rng.integers(FALSE_EVENT_INTERVAL_S)) for car in cars})
    false_events = rows[(rows["second"] % FALSE_EVENT_INTERVAL_S == begin) & rows["event"].isna()]
    return pd.concat([rows, false_events.assign(event="Collision")], ignore_index=True)


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
    """Return whether an endpoint is an attacker or one of its Sybil identities."""
    return endpoint.partition("-sybil-")[0] in cars
