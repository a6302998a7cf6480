"""Evidence between the endpoints of one square: overlapping vehicles, synchronous moves, replayed traces (M27).

Invariants: the order of rows does not matter; the offender is charged as far as it can be determined. For a replayed trace that
is the later user; an endpoint that drives through a standing one is not charged.

All pairs of endpoints are compared, in a grid with a row per endpoint and a column per second, a few rows at a time. Only the
first `ENDPOINTS_MAX` endpoints by name are compared: a square holds no more cars.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import pi
from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from milepost.model.places import EARTH_RADIUS_M
from milepost.pipelines.reputation.evidence import LEAD_US, MINUTE_US, EvidenceKind, EvidenceThresholds

# Flat projection: metres east and north, accurate for some kilometres around the first place.

Floats = NDArray[np.float64]

DEGREE_M: Final = EARTH_RADIUS_M * pi / 180


def metres(latitudes: Floats, longitudes: Floats) -> tuple[Floats, Floats]:
    """Return metres east and north of the first place, the shorter way round the Earth."""
    east = (longitudes - longitudes[:1] + 180.0) % 360.0 - 180.0
    return east * np.cos(np.radians(latitudes[:1])) * DEGREE_M, (latitudes - latitudes[:1]) * DEGREE_M


def steps_m(latitudes: Floats, longitudes: Floats) -> tuple[Floats, Floats]:
    """Return metres east and north from each place to the next, however far apart."""
    east = (np.diff(longitudes) + 180.0) % 360.0 - 180.0
    return east * np.cos(np.radians(latitudes[1:])) * DEGREE_M, np.diff(latitudes) * DEGREE_M


ENDPOINTS_MAX: Final = 2_000

_SECONDS: Final = (MINUTE_US + LEAD_US) // 1_000_000
_LEAD: Final = LEAD_US // 1_000_000
_BLOCK_S: Final = 5
_PAIRS_MAX: Final = 1_000_000
"""Maximum pairs of places in memory at a time."""

_SPOTS_PER_DEGREE: Final = 1_000_000
"""A resolution of 11 cm or less: finer than receivers coincide by chance."""
_SPOTS_PER_ROW: Final = 1_000_000_000

Evidence = tuple[EvidenceKind, str, float]


@dataclass(frozen=True, slots=True, eq=False)
class PositionGrid:
    """Places by endpoint and second, in metres; NaN where there is none."""

    names: list[str]
    east: Floats
    north: Floats
    speed: Floats


def check_neighbours(sightings: pd.DataFrame, minute: int, thresholds: EvidenceThresholds) -> list[Evidence]:
    """Return the evidence in sightings (SIGHTING_ROW) of one square: accepted reports of a minute and its lead."""
    reports = sightings[sightings["kind"].isna() & (sightings["verdict"] == 0)]
    if reports.empty:
        return []
    grid = _position_grid(reports, minute)
    return [*_driven_through(grid, thresholds), *_overlaps_and_in_step(grid, thresholds), *_replayed(reports, minute, thresholds)]


def _position_grid(reports: pd.DataFrame, minute: int) -> PositionGrid:
    rows = reports.sort_values(["endpoint", "seen_at_us", "latitude", "longitude", "speed_mps"])
    names = sorted(set(rows["endpoint"]))[:ENDPOINTS_MAX]
    at = pd.Index(names).get_indexer(pd.Index(rows["endpoint"]))
    second = (rows["seen_at_us"].to_numpy() - (minute * MINUTE_US - LEAD_US)) // 1_000_000
    east, north = metres(rows["latitude"].to_numpy(), rows["longitude"].to_numpy())
    is_in = (at >= 0) & (second >= 0) & (second < _SECONDS)
    empty = np.full((3, len(names), _SECONDS), np.nan)
    for sheet, values in zip(empty, (east, north, rows["speed_mps"].to_numpy(np.float64)), strict=True):
        sheet[at[is_in], second[is_in]] = values[is_in]
    return PositionGrid(names, *empty)


def _driven_through(grid: PositionGrid, thresholds: EvidenceThresholds) -> Iterator[Evidence]:
    """Yield the endpoints that stand where others drive, with the number of the others."""
    standing = grid.speed < thresholds.standing_mps
    moving = (grid.speed[:, :-1] > thresholds.moving_mps) & (grid.speed[:, 1:] > thresholds.moving_mps)
    is_moving = moving & ~np.isnan(np.diff(grid.east, axis=1))
    movers = np.flatnonzero(is_moving.any(axis=1))
    for at in np.flatnonzero(standing.any(axis=1)):
        seconds = _LEAD + np.flatnonzero(standing[at, _LEAD:-1] & standing[at, _LEAD + 1 :])
        if not seconds.size or not movers.size:
            continue
        rows = np.ix_(movers, seconds)
        east, north = grid.east[rows] - grid.east[at, seconds], grid.north[rows] - grid.north[at, seconds]
        ahead = (
            grid.east[np.ix_(movers, seconds + 1)] - grid.east[rows],
            grid.north[np.ix_(movers, seconds + 1)] - grid.north[rows],
        )
        length = ahead[0] ** 2 + ahead[1] ** 2 + 1e-9
        share = np.clip(-(east * ahead[0] + north * ahead[1]) / length, 0, 1)
        apart = np.hypot(east + share * ahead[0], north + share * ahead[1])
        passed = ((apart < thresholds.through_m) & is_moving[rows]).any(axis=1)
        if passed.any():
            yield EvidenceKind.DRIVEN_THROUGH, grid.names[at], float(passed.sum())


def _overlaps_and_in_step(grid: PositionGrid, thresholds: EvidenceThresholds) -> Iterator[Evidence]:
    """Yield the moving endpoints that overlap others, and those that move in step with others."""
    overlaps, in_step = np.zeros(len(grid.names)), np.zeros(len(grid.names))
    moving = grid.speed > thresholds.moving_mps
    rows_at_once = max(1, _PAIRS_MAX // (len(grid.names) * _SECONDS))
    changes = np.array([_changes(thresholds, row) for row in grid.speed])
    for first in range(0, len(grid.names), rows_at_once):
        rows = slice(first, first + rows_at_once)
        east = grid.east[rows, None, :] - grid.east[None, :, :]
        north = grid.north[rows, None, :] - grid.north[None, :, :]
        is_pair = np.arange(len(grid.names))[rows, None] != np.arange(len(grid.names))[None, :]
        near = (np.hypot(east, north) < thresholds.overlap_m) & moving[rows, None, :] & moving[None, :, :]
        seconds = near.sum(axis=2) * is_pair
        overlaps[rows] += np.where(seconds >= thresholds.overlap_s, seconds, 0).sum(axis=1)
        candidates = np.nanmin(np.hypot(east, north), axis=2, initial=np.inf, where=~np.isnan(east)) < thresholds.step_near_m
        candidates &= is_pair & changes[rows, None] & changes[None, :]
        for one, other in zip(*candidates.nonzero(), strict=True):
            in_step[first + one] += _is_in_step(east[one, other], north[one, other], grid, first + one, other, thresholds)
    for kind, counts in ((EvidenceKind.OVERLAP, overlaps), (EvidenceKind.IN_STEP, in_step)):
        yield from ((kind, grid.names[at], float(counts[at])) for at in np.flatnonzero(counts))


def _changes(thresholds: EvidenceThresholds, speed: Floats) -> bool:
    known = speed[~np.isnan(speed)]
    return known.size >= thresholds.step_s and bool(known.max() - known.min() >= thresholds.step_change_mps)


def _is_in_step(east: Floats, north: Floats, grid: PositionGrid, one: int, other: int, thresholds: EvidenceThresholds) -> bool:
    """Return whether the relative position of two endpoints stays constant while both move and change speed."""
    both = ~np.isnan(east)
    speeds = grid.speed[one, both]
    if both.sum() < thresholds.step_s or not speeds.max() - speeds.min() >= thresholds.step_change_mps:
        return False
    if min(_extent_m(grid, one, both), _extent_m(grid, other, both)) < thresholds.step_extent_m:
        return False
    return bool(np.hypot(_shift_m(east), _shift_m(north)) < thresholds.step_m)


def _extent_m(grid: PositionGrid, at: int, both: NDArray[np.bool_]) -> float:
    return float(np.hypot(np.ptp(grid.east[at, both]), np.ptp(grid.north[at, both])))


def _shift_m(apart: Floats) -> float:
    """Return the range of a distance, in means of `_BLOCK_S` seconds to suppress the errors of single places."""
    blocks = apart.reshape(-1, _BLOCK_S)
    known = ~np.isnan(blocks)
    means = np.nansum(blocks, axis=1)[known.all(axis=1)] / _BLOCK_S
    return float(np.ptp(means)) if means.size >= 2 else np.inf


def _replayed(reports: pd.DataFrame, minute: int, thresholds: EvidenceThresholds) -> Iterator[Evidence]:
    """Yield the endpoints that repeat the places of another, all by the same delay."""
    moving = reports[reports["speed_mps"] > thresholds.moving_mps]
    north, east = ((moving[name] * _SPOTS_PER_DEGREE).round().astype(np.int64) for name in ("latitude", "longitude"))
    spots = moving[["endpoint", "seen_at_us"]].assign(spot=north * _SPOTS_PER_ROW + east).drop_duplicates()
    spots = spots[spots["spot"].duplicated(keep=False)]
    pairs = spots.merge(spots, on="spot", suffixes=("", "_before"))
    pairs = pairs[pairs["seen_at_us"] >= minute * MINUTE_US]
    later_s = ((pairs["seen_at_us"] - pairs["seen_at_us_before"]) / 1e6).round()
    pairs = pairs[later_s >= 1]
    counts = pairs.groupby(["endpoint", "endpoint_before", later_s.rename("later_s")])["spot"].nunique()
    found = counts[counts >= thresholds.replay_places].groupby("endpoint").max()
    yield from ((EvidenceKind.REPLAY, str(endpoint), float(count)) for endpoint, count in found.items())
