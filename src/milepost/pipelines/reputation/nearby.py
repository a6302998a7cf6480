"""Evidence between the endpoints of one square: overlapping vehicles, synchronous moves, replayed traces (M27).

Invariants: the order of rows does not matter; the offender is charged as far as it can be determined. For a replayed trace that
is the later user; an endpoint that drives through a standing one is not charged.

All pairs of endpoints of a square are compared, in a grid with a row per endpoint and a column per second, some pairs at a time.
Only the first `ENDPOINTS_MAX` endpoints of a square by name are compared: a square holds no more cars.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import pi
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from milepost.model.places import EARTH_RADIUS_M
from milepost.pipelines.reputation.evidence import LEAD_US, MINUTE_US, EvidenceKind, EvidenceThresholds

# Flat projection: metres east and north, accurate for some kilometres around the first place.

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Flags = NDArray[np.bool_]

DEGREE_M: Final = EARTH_RADIUS_M * pi / 180


def metres(latitudes: Floats, longitudes: Floats) -> tuple[Floats, Floats]:
    """Return metres east and north of the first place, the shorter way round the Earth."""
    east = (longitudes - longitudes[0] + 180.0) % 360.0 - 180.0
    return east * np.cos(np.radians(latitudes[0])) * DEGREE_M, (latitudes - latitudes[0]) * DEGREE_M


def steps_m(latitudes: Floats, longitudes: Floats) -> tuple[Floats, Floats]:
    """Return metres east and north from each place to the next, however far apart."""
    east = (np.diff(longitudes) + 180.0) % 360.0 - 180.0
    return east * np.cos(np.radians(latitudes[1:])) * DEGREE_M, np.diff(latitudes) * DEGREE_M


ENDPOINTS_MAX: Final = 2_000
VISITS_MAX: Final = 20
"""Maximum visits of one spot that are compared for replayed traces, the first ones."""

_SECONDS: Final = (MINUTE_US + LEAD_US) // 1_000_000
_LEAD: Final = LEAD_US // 1_000_000
_BLOCK_S: Final = 5
_PAIRS_MAX: Final = 4_000
"""Maximum pairs of endpoints in memory at a time."""

_SPOTS_PER_DEGREE: Final = 1_000_000
"""A resolution of 11 cm or less: finer than receivers coincide by chance."""
_SPOTS_PER_ROW: Final = 1_000_000_000

COLUMNS: Final = ["endpoint", "evidence", "count"]
EMPTY: Final = pd.DataFrame(
    {"endpoint": pd.Series(dtype=object), "evidence": pd.Series(dtype=object), "count": pd.Series(dtype=float)}
)


def evidence_frame(kind: EvidenceKind, endpoints: Any, counts: Any) -> pd.DataFrame:
    """Return evidence of one kind; counts of 0 are left out."""
    found = pd.DataFrame({"endpoint": np.asarray(endpoints, object), "evidence": str(kind), "count": np.asarray(counts, float)})
    return found[found["count"] > 0]


@dataclass(frozen=True, slots=True, eq=False)
class PositionGrid:
    """Places by endpoint and second, in metres; NaN where there is none."""

    names: NDArray[np.object_]
    east: Singles
    north: Singles
    speed: Singles
    heading: Singles

    def only(self, rows: slice) -> "PositionGrid":
        """Return some endpoints."""
        return PositionGrid(self.names[rows], self.east[rows], self.north[rows], self.speed[rows], self.heading[rows])


def check_neighbours(rows: pd.DataFrame, minute: int, thresholds: EvidenceThresholds) -> pd.DataFrame:
    """Return the evidence in accepted sightings (SQUARE_ROW) of a minute and its lead, square by square."""
    reports = rows[rows["kind"].isna()]
    if reports.empty:
        return EMPTY
    found = [replayed(reports, minute, thresholds)]
    for grid in _position_grids(reports, minute):
        for kind, counts in (
            *_passed(grid, thresholds),
            (EvidenceKind.OVERLAP, _overlaps(grid, thresholds)),
            (EvidenceKind.IN_STEP, _in_step(grid, thresholds)),
        ):
            if counts.any():
                found.append(evidence_frame(kind, grid.names, counts))
    return pd.concat(found, ignore_index=True)


def _position_grids(reports: pd.DataFrame, minute: int) -> Iterator[PositionGrid]:
    """Yield the grid of each square."""
    rows = reports.sort_values(["square", "endpoint", "seen_at_us", "latitude", "longitude", "speed_mps"])
    square, endpoint = rows["square"].to_numpy(), rows["endpoint"].to_numpy()
    is_first = np.append(True, (square[1:] != square[:-1]) | (endpoint[1:] != endpoint[:-1]))
    at = np.cumsum(is_first) - 1
    starts = np.flatnonzero(np.append(True, square[1:] != square[:-1]))
    second = (rows["seen_at_us"].to_numpy() - (minute * MINUTE_US - LEAD_US)) // 1_000_000
    is_in = (second >= 0) & (second < _SECONDS)
    sheets = np.full((4, at[-1] + 1, _SECONDS), np.nan, np.float32)
    columns = (*_metres_in_squares(rows, starts), rows["speed_mps"].to_numpy(), rows["heading_deg"].to_numpy())
    for sheet, values in zip(sheets, columns, strict=True):
        sheet[at[is_in], second[is_in]] = values[is_in]
    whole = PositionGrid(endpoint[is_first], *sheets)
    for first, end in zip(at[starts], np.append(at[starts][1:], at[-1] + 1), strict=True):
        yield whole.only(slice(first, min(end, first + ENDPOINTS_MAX)))


def _metres_in_squares(rows: pd.DataFrame, starts: NDArray[np.intp]) -> tuple[Floats, Floats]:
    """Return metres east and north of the corner of each square's places; *rows* are sorted by square."""
    counts = np.diff(np.append(starts, len(rows)))
    latitude, longitude = rows["latitude"].to_numpy(), rows["longitude"].to_numpy()
    south, west = (np.repeat(np.minimum.reduceat(values, starts), counts) for values in (latitude, longitude))
    return (longitude - west) * np.cos(np.radians(south)) * DEGREE_M, (latitude - south) * DEGREE_M


def _passed(grid: PositionGrid, thresholds: EvidenceThresholds) -> Iterator[tuple[EvidenceKind, Floats]]:
    """Yield the numbers of others that drove through the places of standing endpoints, or passed them after a sudden stop."""
    standing = grid.speed < thresholds.standing_mps
    moving = grid.speed > thresholds.moving_mps
    is_moving = moving[:, :-1] & moving[:, 1:] & ~np.isnan(np.diff(grid.east, axis=1))
    movers = np.flatnonzero(is_moving.any(axis=1))
    through, passed = np.zeros(len(grid.names)), np.zeros(len(grid.names))
    stood = standing[:, _LEAD - 1 : -1] & standing[:, _LEAD:]
    for at in np.flatnonzero(stood.any(axis=1)) if movers.size else ():
        seconds = _LEAD - 1 + np.flatnonzero(stood[at])
        apart_m = np.where(is_moving[np.ix_(movers, seconds)], _apart_m(grid, at, movers, seconds), np.inf)
        through[at] = (apart_m < thresholds.through_m).any(axis=1).sum()
        passed[at] = _is_passed(grid, at, movers, seconds, apart_m, thresholds).any(axis=1).sum()
    yield EvidenceKind.DRIVEN_THROUGH, through
    yield EvidenceKind.PASSED, passed


def _is_passed(
    grid: PositionGrid,
    at: np.intp,
    movers: NDArray[np.intp],
    seconds: NDArray[np.intp],
    apart_m: Singles,
    thresholds: EvidenceThresholds,
) -> Flags:
    """Return who passed when: within a lane in the direction of the endpoint before its stop; if that is unknown, beside it."""
    stop = _find_sudden_stop(grid.speed[at], thresholds)
    if stop is None:
        return apart_m < thresholds.beside_m
    turn = np.radians(grid.heading[np.ix_(movers, seconds)] - grid.heading[at, stop])
    is_passed: Flags = (apart_m < thresholds.pass_m) & (np.cos(turn) > thresholds.same_way_cos) & (seconds > stop)
    return is_passed


def _apart_m(grid: PositionGrid, at: np.intp, movers: NDArray[np.intp], seconds: NDArray[np.intp]) -> Singles:
    """Return the least distance of each mover to a place, in the second after each of *seconds*."""
    rows, then = np.ix_(movers, seconds), np.ix_(movers, seconds + 1)
    east, north = grid.east[rows] - grid.east[at, seconds], grid.north[rows] - grid.north[at, seconds]
    ahead_east, ahead_north = grid.east[then] - grid.east[rows], grid.north[then] - grid.north[rows]
    length = ahead_east**2 + ahead_north**2 + np.float32(1e-9)
    share = np.clip(-(east * ahead_east + north * ahead_north) / length, 0, 1)
    apart_m: Singles = np.hypot(east + share * ahead_east, north + share * ahead_north)
    return apart_m


def _find_sudden_stop(speed: Singles, thresholds: EvidenceThresholds) -> int | None:
    """Return the last second at speed before one in which the endpoint stands; None if it brakes like a car."""
    found = np.flatnonzero((speed[:-1] > thresholds.stop_mps) & (speed[1:] < thresholds.standing_mps))
    return int(found[-1]) if found.size else None


def _pairs(which: Flags) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Yield all pairs of some endpoints, some at a time."""
    numbers = np.flatnonzero(which)
    one, other = (numbers[side] for side in np.triu_indices(numbers.size, 1))
    for first in range(0, one.size, _PAIRS_MAX):
        yield one[first : first + _PAIRS_MAX], other[first : first + _PAIRS_MAX]


def _overlaps(grid: PositionGrid, thresholds: EvidenceThresholds) -> Floats:
    """Return the seconds in which each endpoint moved in the place of another moving one."""
    moving = grid.speed > thresholds.moving_mps
    east = np.where(moving, grid.east, np.nan)
    counts = np.zeros(len(grid.names))
    for one, other in _pairs(moving.sum(axis=1) >= thresholds.overlap_s):
        apart = (east[one] - east[other]) ** 2 + (grid.north[one] - grid.north[other]) ** 2
        seconds = (apart < thresholds.overlap_m**2).sum(axis=1)
        seconds[seconds < thresholds.overlap_s] = 0
        for side in (one, other):
            np.add.at(counts, side, seconds)
    return counts


def _in_step(grid: PositionGrid, thresholds: EvidenceThresholds) -> Floats:
    """Return the number of others that moved just as each endpoint did, through changes of speed."""
    known = ~np.isnan(grid.speed) & ~np.isnan(grid.east)
    counts = np.zeros(len(grid.names))
    for one, other in _pairs((known.sum(axis=1) >= thresholds.step_s) & (_range(grid.speed) >= thresholds.step_change_mps)):
        both = known[one] & known[other]
        is_pair = both.sum(axis=1) >= thresholds.step_s
        one, other, both = one[is_pair], other[is_pair], both[is_pair]
        east, north = (np.where(both, sheet[one] - sheet[other], np.nan) for sheet in (grid.east, grid.north))
        is_near = np.fmin.reduce(east**2 + north**2, axis=1, initial=np.inf) < thresholds.step_near_m**2
        is_constant = np.hypot(_shift_m(east), _shift_m(north)) < thresholds.step_m
        has_extent = np.minimum(_extent_m(grid, one, both), _extent_m(grid, other, both)) >= thresholds.step_extent_m
        for side in (one, other):
            changes = _range(np.where(both, grid.speed[side], np.nan)) >= thresholds.step_change_mps
            np.add.at(counts, side, is_near & is_constant & has_extent & changes)
    return counts


def _range(values: Singles) -> Singles:
    """Return the range of each row; negative if all are NaN."""
    found: Singles = np.fmax.reduce(values, axis=1, initial=-np.inf) - np.fmin.reduce(values, axis=1, initial=np.inf)
    return found


def _extent_m(grid: PositionGrid, side: NDArray[np.intp], both: Flags) -> Singles:
    extent: Singles = np.hypot(*(_range(np.where(both, sheet[side], np.nan)) for sheet in (grid.east, grid.north)))
    return extent


def _shift_m(apart: Singles) -> Singles:
    """Return the range of distances, in means of `_BLOCK_S` seconds to suppress the errors of single places."""
    means = apart.reshape(len(apart), _SECONDS // _BLOCK_S, _BLOCK_S).mean(axis=2)
    return np.where((~np.isnan(means)).sum(axis=1) >= 2, _range(means), np.inf)


def replayed(reports: pd.DataFrame, minute: int, thresholds: EvidenceThresholds) -> pd.DataFrame:
    """Return the evidence of endpoints that repeat the places of another, all by the same delay."""
    moving = reports[reports["speed_mps"] > thresholds.moving_mps]
    north, east = ((moving[name] * _SPOTS_PER_DEGREE).round().astype(np.int64) for name in ("latitude", "longitude"))
    spots = moving[["endpoint", "visitor", "seen_at_us"]].assign(spot=north * _SPOTS_PER_ROW + east)
    spots = spots[spots["spot"].duplicated(keep=False)].sort_values(["spot", "seen_at_us", "endpoint"])
    spots = spots.drop_duplicates(["spot", "seen_at_us", "endpoint"]).groupby("spot").head(VISITS_MAX)
    pairs = spots.merge(spots, on="spot", suffixes=("", "_before"))
    later_s = ((pairs["seen_at_us"] - pairs["seen_at_us_before"]) / 1e6).round().rename("later_s")
    is_replay = (pairs["seen_at_us"] >= minute * MINUTE_US) & (later_s >= 1) & (pairs["visitor"] != pairs["visitor_before"])
    pairs = pairs[is_replay]
    counts = pairs.groupby(["endpoint", "visitor_before", later_s[is_replay]])["spot"].nunique()
    found = counts[counts >= thresholds.replay_places].groupby("endpoint").max()
    return evidence_frame(EvidenceKind.REPLAY, found.index, found)
