"""Sights for tests of reputation: cars on straight roads of a flat town."""

from collections.abc import Callable
from math import cos, radians

import pandas as pd

from milepost.pipelines.reputation.evidence import LEAD_US, MINUTE_US, What
from milepost.pipelines.reputation.nearby import DEGREE_M, Found

MINUTE = 31_666_666
BEGIN_S = -(LEAD_US // 1_000_000)
HOME = (52.5, 13.4)
COLUMNS = ["endpoint", "seen_at_us", "latitude", "longitude", "heading_deg", "speed_mps", "verdict", "kind"]

Row = tuple[str, int, float, float, float | None, float | None, int, str | None]


def sight(
    name: str, second: float, east_m: float, north_m: float, *, speed: float = 0.0, heading: float = 90.0, verdict: int = 0
) -> Row:
    """A report so many seconds after the minute begins."""
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
    """Eastward, a report a second."""
    rows, at_m = [], east_m
    for second in seconds:
        now = speed(second) if callable(speed) else speed
        rows.append(sight(name, second, at_m, north_m, speed=now))
        at_m += now
    return rows


def later(rows: list[Row], seconds: int, name: str | None = None) -> list[Row]:
    """The same so many seconds later, by another if he is named."""
    return [(name or row[0], row[1] + seconds * 1_000_000, *row[2:]) for row in rows]


def standing(name: str, east_m: float, north_m: float = 0.0, seconds: range = range(60)) -> list[Row]:
    return [sight(name, second, east_m, north_m) for second in seconds]


def frame(rows: list[Row]) -> pd.DataFrame:
    found = pd.DataFrame(rows, columns=COLUMNS)
    return found.astype({"heading_deg": float, "speed_mps": float, "kind": object})


def counts(evidence: pd.DataFrame, name: str) -> dict[What, float]:
    """What is found of one endpoint, but for how much there was to judge by."""
    rows = evidence[evidence["endpoint"] == name]
    found = {What(what): count for what, count in zip(rows["what"], rows["count"], strict=True)}
    return {what: count for what, count in found.items() if what not in (What.REPORTS, What.MOVES)}


def found_of(found: list[Found], name: str) -> dict[What, float]:
    return {what: count for what, endpoint, count in found if endpoint == name}
