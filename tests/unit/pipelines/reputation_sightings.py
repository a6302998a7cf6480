"""Sightings for tests of reputation: cars on straight roads of a flat town."""

from collections.abc import Callable
from math import cos, radians

import numpy as np
import pandas as pd

from milepost.pipelines.reputation.evidence import BASE_COUNTS, LEAD_US, MINUTE_US, EvidenceKind
from milepost.pipelines.reputation.nearby import DEGREE_M

MINUTE = 31_666_666
BEGIN_S = -(LEAD_US // 1_000_000)
HOME = (52.5, 13.4)
COLUMNS = ["endpoint", "seen_at_us", "latitude", "longitude", "heading_deg", "speed_mps", "verdict", "kind"]

Row = tuple[str, int, float, float, float | None, float | None, int, str | None]


def sighting(
    name: str, second: float, east_m: float, north_m: float, *, speed: float = 0.0, heading: float = 90.0, verdict: int = 0
) -> Row:
    """Build a report some seconds after the start of the minute."""
    at_us = MINUTE * MINUTE_US + round(second * 1e6)
    return name, at_us, *place(east_m, north_m), heading, speed, verdict, None


def event(name: str, second: float, east_m: float, north_m: float, kind: str = "Collision") -> Row:
    return name, MINUTE * MINUTE_US + round(second * 1e6), *place(east_m, north_m), None, None, 0, kind


def place(east_m: float, north_m: float) -> tuple[float, float]:
    return HOME[0] + north_m / DEGREE_M, HOME[1] + east_m / DEGREE_M / cos(radians(HOME[0]))


def driving(
    name: str,
    *,
    east_m: float = 0.0,
    north_m: float = 0.0,
    speed: float | Callable[[int], float] = 10.0,
    seconds: range = range(60),
) -> list[Row]:
    """Build the reports of an eastbound car, one per second."""
    rows, at_m = [], east_m
    for second in seconds:
        now = speed(second) if callable(speed) else speed
        rows.append(sighting(name, second, at_m, north_m, speed=now))
        at_m += now
    return rows


def later(rows: list[Row], seconds: int, name: str | None = None) -> list[Row]:
    """Shift rows in time, and optionally rename their endpoint."""
    return [(name or row[0], row[1] + seconds * 1_000_000, *row[2:]) for row in rows]


def standing(name: str, east_m: float, north_m: float = 0.0, seconds: range = range(60)) -> list[Row]:
    return [sighting(name, second, east_m, north_m) for second in seconds]


def frame(rows: list[Row]) -> pd.DataFrame:
    found = pd.DataFrame(rows, columns=COLUMNS)
    return found.astype({"heading_deg": float, "speed_mps": float, "kind": object})


def counts(evidence: pd.DataFrame, name: str) -> dict[EvidenceKind, float]:
    """Return the evidence about one endpoint, without the counts of checked items."""
    rows = evidence[evidence["endpoint"] == name]
    found = {EvidenceKind(kind): count for kind, count in zip(rows["evidence"], rows["count"], strict=True)}
    return {kind: count for kind, count in found.items() if kind not in BASE_COUNTS}


def in_one_square(rows: list[Row]) -> pd.DataFrame:
    """Build accepted sightings as the checks of squares take them."""
    found = frame(rows)
    return found.assign(square=0, visitor=pd.util.hash_array(found["endpoint"].to_numpy(object)).view(np.int64))


def found_of(found: pd.DataFrame, name: str) -> dict[EvidenceKind, float]:
    rows = found[found["endpoint"] == name]
    return {EvidenceKind(kind): count for kind, count in zip(rows["evidence"], rows["count"], strict=True)}
