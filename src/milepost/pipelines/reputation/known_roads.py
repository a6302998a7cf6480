"""Known roads: of a map, or learned from where other endpoints drove; places off them are evidence (M27).

Places are numbered by small squares: rows of equal height, columns of one width per rounded degree of latitude.

*Invariants:*
- a place is checked against the roads known before its minute, and never by the endpoint's own visits;
- where many places of others in the same square are off the roads, the roads are not known there and nothing is checked;
- a learned small square stores at most `VISITORS_MAX` endpoints, and is forgotten `road_hours` after its last visit; at most
  `LEARNED_MAX` small squares are stored, the last visited ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from milepost.pipelines.reputation.evidence import MINUTE_US, EvidenceKind, EvidenceThresholds
from milepost.pipelines.reputation.nearby import DEGREE_M, EMPTY, Floats, evidence_frame
from milepost.roads.network import RoadNetwork, UnreadableRoads

Cells = NDArray[np.int64]

VISITORS_MAX: Final = 4
LEARNED_MAX: Final = 50_000
"""Per bucket: with 64 buckets more than the streets of a city of millions."""
PLACES_MIN: Final = 200
"""Minimum places in a square and minute to decide whether learned roads are known there."""
MAP_SIDE_M: Final = 6.0
MAP_CELLS_MAX: Final = 20_000_000
"""160 MB in each worker; a metropolis has five million."""

_ROW: Final = 1 << 32
_AROUND: Final = [north * _ROW + east for north in (-1, 0, 1) for east in (-1, 0, 1)]
_TYPES: Final = pa.schema([("cell", pa.int64()), ("visitor", pa.int64()), ("minute", pa.int64())])
_BLOCK: Final = 100_000
_NOBODY: Final = 0


def cells_of(latitudes: Floats, longitudes: Floats, side_m: float) -> Cells:
    """Return the numbers of the small squares of places."""
    side = side_m / DEGREE_M
    width = side / np.maximum(0.01, np.cos(np.radians(np.round(latitudes))))
    north, east = np.floor(latitudes / side), np.floor(longitudes / width)
    return north.astype(np.int64) * _ROW + east.astype(np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class RoadMap:
    """The small squares on and beside the roads of a map, sorted."""

    cells: Cells

    @classmethod
    def of(cls, network: RoadNetwork, *, within_m: float = EvidenceThresholds().off_map_m) -> "RoadMap":
        """Return the small squares within a distance of a road."""
        latitudes, longitudes = _points_on(network, MAP_SIDE_M / 2)
        found: Cells = np.empty(0, np.int64)
        steps = np.arange(-within_m, within_m + 0.1, MAP_SIDE_M / 2)
        for north_m in steps:
            for east_m in steps[np.hypot(steps, north_m) <= within_m]:
                there = latitudes + north_m / DEGREE_M
                longitude = longitudes + east_m / DEGREE_M / np.maximum(0.01, np.cos(np.radians(latitudes)))
                found = np.union1d(found, cells_of(there, longitude, MAP_SIDE_M))
                if found.size > MAP_CELLS_MAX:
                    raise UnreadableRoads(f"the roads fill over {MAP_CELLS_MAX:,} squares of 6 m: cut out the region you need")
        return cls(found)

    def are_on(self, cells: Cells) -> NDArray[np.bool_]:
        """Return which small squares are on or beside a road."""
        if not self.cells.size:
            return np.zeros(cells.size, np.bool_)
        at = np.minimum(np.searchsorted(self.cells, cells), self.cells.size - 1)
        are_on: NDArray[np.bool_] = self.cells[at] == cells
        return are_on


def _points_on(network: RoadNetwork, step_m: float) -> tuple[Floats, Floats]:
    """Return points along all roads, in distinct small squares."""
    is_last = np.zeros(len(network.latitudes), np.bool_)
    is_last[network.first[1:] - 1] = True
    starts = np.flatnonzero(~is_last)
    counts = np.maximum(1, np.ceil((network.along_m[starts + 1] - network.along_m[starts]) / step_m)).astype(np.int64)
    which = np.repeat(starts, counts)
    share = (np.arange(which.size) - np.repeat(np.cumsum(counts) - counts, counts)) / np.repeat(counts, counts)
    latitudes, longitudes = (
        values[which] + (values[which + 1] - values[which]) * share for values in (network.latitudes, network.longitudes)
    )
    _, firsts = np.unique(cells_of(latitudes, longitudes, step_m), return_index=True)
    return latitudes[firsts], longitudes[firsts]


def check_map(road_map: RoadMap, rows: pd.DataFrame, minute: int, thresholds: EvidenceThresholds) -> pd.DataFrame:
    """Return the evidence of places off the map, in accepted sightings (SQUARE_ROW)."""
    visits = _visits(rows, minute, thresholds, MAP_SIDE_M)
    is_off = ~road_map.are_on(visits["cell"].to_numpy())
    return _shares(visits, is_off, thresholds.map_share_min, 1, (EvidenceKind.MAP_PLACES, EvidenceKind.OFF_MAP))


def check_roads(roads: pd.DataFrame, rows: pd.DataFrame, minute: int, thresholds: EvidenceThresholds) -> pd.DataFrame:
    """Return the evidence of places off the learned roads, in accepted sightings (SQUARE_ROW)."""
    visits = _visits(rows, minute, thresholds, thresholds.road_side_m)
    is_off = ~_are_visited_by_others(roads, visits)
    kinds = (EvidenceKind.PLACES, EvidenceKind.OFF_KNOWN_ROADS)
    return _shares(visits, is_off, thresholds.road_share_min, PLACES_MIN, kinds)


def learn_roads(roads: pd.DataFrame, rows: pd.DataFrame, minute: int, thresholds: EvidenceThresholds) -> pd.DataFrame:
    """Return the learned roads after a minute; *rows* are accepted sightings (SQUARE_ROW)."""
    fresh = _visits(rows, minute, thresholds, thresholds.road_side_m)[["cell", "visitor"]].assign(minute=minute)
    recent = roads[roads["minute"] > minute - thresholds.road_hours * 60]
    both = pd.concat([fresh, recent], ignore_index=True)
    order = np.lexsort((both["visitor"], -both["minute"], both["cell"]))
    both = both.iloc[order].drop_duplicates(["cell", "visitor"], ignore_index=True)
    starts = np.flatnonzero(np.diff(both["cell"], prepend=np.int64(-1) << 62))
    number = np.arange(len(both)) - np.repeat(starts, np.diff(np.append(starts, len(both))))
    both = both[number < VISITORS_MAX]
    if starts.size <= LEARNED_MAX:
        return both
    last = both.drop_duplicates("cell")
    kept = last.iloc[np.lexsort((last["cell"], -last["minute"]))[:LEARNED_MAX]]
    return both[both["cell"].isin(kept["cell"])]


def roads_from_bytes(state: bytes | None) -> pd.DataFrame:
    """Return the learned roads in stored state; none if there is no state."""
    found: pd.DataFrame = pa.ipc.open_stream(state).read_pandas() if state else _TYPES.empty_table().to_pandas()
    return found


def roads_to_bytes(roads: pd.DataFrame) -> bytes:
    """Return the learned roads as state to be stored."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, _TYPES) as writer:
        writer.write_table(pa.Table.from_pandas(roads, _TYPES, preserve_index=False))
    return bytes(sink.getvalue())


def _visits(rows: pd.DataFrame, minute: int, thresholds: EvidenceThresholds, side_m: float) -> pd.DataFrame:
    """Return the small squares visited, each once per endpoint: frequent reports give an endpoint no more weight."""
    is_driven = rows["kind"].isna() & (rows["speed_mps"] > thresholds.moving_mps) & (rows["seen_at_us"] >= minute * MINUTE_US)
    driven = rows.loc[is_driven, ["square", "endpoint", "visitor"]]
    places = rows.loc[is_driven, ["latitude", "longitude"]].to_numpy()
    return driven.assign(cell=cells_of(places[:, 0], places[:, 1], side_m)).drop_duplicates(["visitor", "cell"])


def _are_visited_by_others(roads: pd.DataFrame, visits: pd.DataFrame) -> NDArray[np.bool_]:
    """Return the visits with two or more other endpoints among those known in the small square and around it."""
    cells, starts = np.unique(roads["cell"].to_numpy(), return_index=True)
    table = np.full((cells.size + 1, VISITORS_MAX), _NOBODY, np.int64)
    counts = np.diff(np.append(starts, len(roads)))
    number = np.arange(len(roads)) - np.repeat(starts, counts)
    table[np.repeat(np.arange(cells.size), counts), number] = roads["visitor"].to_numpy()
    own, at = visits["visitor"].to_numpy(), visits["cell"].to_numpy()
    blocks = [
        _have_others(cells, table, own[first : first + _BLOCK], at[first : first + _BLOCK]) for first in range(0, at.size, _BLOCK)
    ]
    return np.concatenate([np.empty(0, np.bool_), *blocks])


def _have_others(cells: Cells, table: Cells, own: Cells, at: Cells) -> NDArray[np.bool_]:
    """Two others are known where the least of their numbers is not the greatest."""
    least, most = np.full(at.size, np.iinfo(np.int64).max), np.full(at.size, np.iinfo(np.int64).min)
    for step in _AROUND:
        row = np.searchsorted(cells, at + step)
        is_known = cells[np.minimum(row, max(0, cells.size - 1))] == at + step if cells.size else np.zeros(at.size, np.bool_)
        there = table[np.where(is_known, row, cells.size)]
        is_other = (there != own[:, None]) & (there != _NOBODY)
        least = np.minimum(least, np.where(is_other, there, np.iinfo(np.int64).max).min(axis=1))
        most = np.maximum(most, np.where(is_other, there, np.iinfo(np.int64).min).max(axis=1))
    have_others: NDArray[np.bool_] = least < most
    return have_others


def _shares(
    visits: pd.DataFrame, is_off: NDArray[np.bool_], share_min: float, places_min: int, kinds: Sequence[EvidenceKind]
) -> pd.DataFrame:
    """Return the checked places and those off the roads, of the endpoints in squares where most places of others are on roads."""
    if visits.empty:
        return EMPTY
    by_endpoint = visits.assign(off=is_off, places=1).groupby(["square", "endpoint"], sort=False)[["off", "places"]].sum()
    total = by_endpoint.groupby("square", sort=False)[["off", "places"]].transform("sum")
    others = total - by_endpoint
    is_known = (others["places"] > 0) & (others["off"] <= (1 - share_min) * others["places"]) & (total["places"] >= places_min)
    known = by_endpoint[is_known].groupby("endpoint").sum()
    parts = [evidence_frame(kind, known.index, known[name]) for kind, name in zip(kinds, ("places", "off"), strict=True)]
    return pd.concat(parts, ignore_index=True)
