"""Map matching: the road of each report, the offset along it and the distance from it, vectorized over many reports.

    report ─▶ its square ─▶ pieces of road near that square ─▶ the likeliest piece

Invariants:
- a report is matched to the piece of maximum likelihood: its distance relative to `sigma_m`, the heading of a moving vehicle
  relative to `heading_off_deg`, and, if the previous road is known, whether that road leads to this one;
- every piece within `within_m` is considered, and none beyond: a piece is indexed in all squares within that distance;
- no Python loop over reports or pieces; reports are processed in blocks of `BLOCK`.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from milepost.model.areas import Motion
from milepost.model.areas.upstream import MOVING_MPS_MIN
from milepost.model.places import EARTH_RADIUS_M, Place
from milepost.roads.network import Floats, Integers, RoadNetwork
from milepost.roads.upstream import RoadPosition

OFF_ROAD: Final = -1
BLOCK: Final = 16_384
_PIECE_M: Final = 100.0
"""Maximum length of a piece; longer segments are split, so that a diagonal one is not in every square of its bounding box."""
_A_DEGREE_M: Final = EARTH_RADIUS_M * np.pi / 180
_UNCONNECTED_COST: Final = 4.0
"""Cost of a road that the previous one does not lead to, about that of a distance of three times `sigma_m`."""


@dataclass(frozen=True, slots=True, eq=False)
class MatchedReports:
    """Matched reports, one row each; for reports on no road, `roads` is -1 and the other columns are NaN."""

    roads: Integers
    offsets_m: Floats
    distances_m: Floats


class MapMatcher:
    """Spatial index over the roads of a network."""

    def __init__(
        self, network: RoadNetwork, *, within_m: float = 50.0, sigma_m: float = 7.0, heading_off_deg: float = 25.0
    ) -> None:
        if not 1.0 <= within_m <= 1_000.0:
            raise ValueError(f"within_m is {within_m}, not in 1..1000")
        self._network = network
        self._within_m, self._sigma_m, self._heading_sigma_deg = within_m, sigma_m, heading_off_deg
        pieces = _Pieces(network)
        self._pieces = pieces
        # Longitudes are relative to the first point, so that a network may cross the antimeridian.
        self._west, self._south = float(pieces.x.min()), float(pieces.y.min())
        steepest = float(np.abs(pieces.y).max()) + 0.1
        self._margin_y = within_m / _A_DEGREE_M
        self._margin_x = self._margin_y / max(0.01, float(np.cos(np.radians(steepest))))
        side = max(within_m, _PIECE_M)
        self._side_y = side / _A_DEGREE_M
        self._side_x = self._side_y / max(0.01, float(np.cos(np.radians(steepest))))
        self._index()

    def _index(self) -> None:
        """Build the list of nearby pieces of each square that has any."""
        pieces = self._pieces
        west, east = (
            self._columns(pieces.x + add)
            for add in (np.minimum(0, pieces.dx) - self._margin_x, np.maximum(0, pieces.dx) + self._margin_x)
        )
        south, north = (
            self._rows(pieces.y + add)
            for add in (np.minimum(0, pieces.dy) - self._margin_y, np.maximum(0, pieces.dy) + self._margin_y)
        )
        wide, high = east - west + 1, north - south + 1
        which = np.repeat(np.arange(len(west)), wide * high)
        step = np.arange(len(which)) - np.repeat(np.cumsum(wide * high) - wide * high, wide * high)
        keys = self._keys(west[which] + step % wide[which], south[which] + step // wide[which])
        order = np.argsort(keys, kind="stable")
        self._squares, self._first = np.unique(keys[order], return_index=True)
        self._counts = np.diff(np.append(self._first, len(keys)))
        self._near = which[order].astype(np.int32)

    def match(
        self, latitudes: ArrayLike, longitudes: ArrayLike, motion: Motion | None = None, previous_roads: Integers | None = None
    ) -> MatchedReports:
        """Match each report to its likeliest road; `previous_roads`: the previous road of each, -1 if unknown."""
        north, east = np.asarray(latitudes, np.float64), np.asarray(longitudes, np.float64)
        matched = MatchedReports(
            np.full(north.size, OFF_ROAD, np.int32), np.full(north.size, np.nan), np.full(north.size, np.nan)
        )
        for first in range(0, north.size, BLOCK):
            rows = slice(first, first + BLOCK)
            block_motion = None if motion is None else Motion(motion.headings_deg[rows], motion.speeds_mps[rows])
            self._match_block(
                north[rows], east[rows], block_motion, None if previous_roads is None else previous_roads[rows], matched, first
            )
        return matched

    def positions_near(self, match: Place) -> list[RoadPosition]:
        """Return the nearest position on every road near a place: for an event that may be on any of them."""
        x, y = self._pieces.relative_longitudes(np.array([match.longitude])), np.array([match.latitude])
        reports, pieces_near = self._pairs(x, y)
        shares, distances_m = self._pieces.project_onto(pieces_near, x[reports], y[reports])
        offsets_m = self._pieces.from_m[pieces_near] + shares * self._pieces.length_m[pieces_near]
        roads = self._pieces.roads[pieces_near]
        order = np.lexsort((distances_m, roads))
        order = order[distances_m[order] <= self._within_m]
        best = order[_cheapest_of_each(roads[order].astype(np.intp), distances_m[order])]
        return [
            RoadPosition(road, offset_m) for road, offset_m in zip(roads[best].tolist(), offsets_m[best].tolist(), strict=True)
        ]

    def _match_block(
        self,
        latitudes: Floats,
        longitudes: Floats,
        motion: Motion | None,
        previous_roads: Integers | None,
        matched: MatchedReports,
        first: int,
    ) -> None:
        pieces = self._pieces
        x, y = pieces.relative_longitudes(longitudes), latitudes
        reports, pieces_near = self._pairs(x, y)
        if not reports.size:
            return
        shares, distances_m = pieces.project_onto(pieces_near, x[reports], y[reports])
        near_enough = np.flatnonzero(distances_m <= self._within_m)
        reports, pieces_near, shares, distances_m = (
            reports[near_enough],
            pieces_near[near_enough],
            shares[near_enough],
            distances_m[near_enough],
        )
        costs = (distances_m / self._sigma_m) ** 2 / 2
        if motion is not None:
            costs += self._heading_costs(reports, pieces_near, motion)
        if previous_roads is not None:
            costs += self._transition_costs(previous_roads[reports], pieces.roads[pieces_near])
        best = _cheapest_of_each(reports, costs)
        reports, pieces_near = reports[best], pieces_near[best]
        matched.roads[first + reports] = pieces.roads[pieces_near]
        matched.offsets_m[first + reports] = pieces.from_m[pieces_near] + shares[best] * pieces.length_m[pieces_near]
        matched.distances_m[first + reports] = distances_m[best]

    def _pairs(self, x: Floats, y: Floats) -> tuple[NDArray[np.intp], NDArray[np.int32]]:
        """Return pairs of a report and a piece near its square, sorted by report."""
        keys = self._keys(self._columns(x), self._rows(y))
        at = np.minimum(np.searchsorted(self._squares, keys), len(self._squares) - 1)
        counts = np.where(self._squares[at] == keys, self._counts[at], 0)
        reports = np.repeat(np.arange(len(x)), counts)
        starts = np.repeat(self._first[at] - (np.cumsum(counts) - counts), counts)
        return reports, self._near[starts + np.arange(len(reports))]

    def _heading_costs(self, reports: NDArray[np.intp], pieces_near: NDArray[np.int32], motion: Motion) -> Floats:
        """Return the cost of the deviation of the heading from a piece; 0 if stationary or without a heading."""
        headings, speeds = motion.headings_deg[reports], motion.speeds_mps[reports]
        off = np.abs((headings - self._pieces.bearings_deg[pieces_near] + 180.0) % 360.0 - 180.0) / self._heading_sigma_deg
        costs: Floats = np.where(np.isnan(off) | (speeds < MOVING_MPS_MIN), 0.0, off * off / 2)
        return costs

    def _transition_costs(self, previous_roads: Integers, roads: Integers) -> Floats:
        """Return the cost of a change from the previous road; 0 for the same road and those that it leads into."""
        network = self._network
        links = np.repeat(np.arange(len(network), dtype=np.int64), np.diff(network.onward_first)) * len(network) + network.onward
        requested = previous_roads.astype(np.int64) * len(network) + roads
        at = np.minimum(np.searchsorted(links, requested), max(0, links.size - 1))
        is_successor = links[at] == requested if links.size else np.zeros(len(requested), np.bool_)
        costs: Floats = np.where(is_successor | (previous_roads == roads) | (previous_roads < 0), 0.0, _UNCONNECTED_COST)
        return costs

    def _columns(self, x: Floats) -> NDArray[np.int64]:
        return np.floor((x - self._west) / self._side_x).astype(np.int64)

    def _rows(self, y: Floats) -> NDArray[np.int64]:
        return np.floor((y - self._south) / self._side_y).astype(np.int64)

    @staticmethod
    def _keys(columns: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.int64]:
        return (columns << 32) + rows


class _Pieces:
    """Straight pieces of road: start, direction and road of each, with longitudes relative to a local meridian."""

    def __init__(self, network: RoadNetwork) -> None:
        self._meridian = float(network.longitudes[0])
        is_last = np.zeros(len(network.latitudes), np.bool_)
        is_last[network.first[1:] - 1] = True
        starts = np.flatnonzero(~is_last)
        longitudes = self.relative_longitudes(network.longitudes)
        length_m = network.along_m[starts + 1] - network.along_m[starts]
        counts = np.maximum(1, np.ceil(length_m / _PIECE_M)).astype(np.int64)
        which = np.repeat(starts, counts)
        number = np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)
        share = 1.0 / np.repeat(counts, counts)
        self.dx = (longitudes[which + 1] - longitudes[which]) * share
        self.dy = (network.latitudes[which + 1] - network.latitudes[which]) * share
        self.x = longitudes[which] + self.dx * number
        self.y = network.latitudes[which] + self.dy * number
        self.length_m = np.repeat(length_m, counts) * share
        self.from_m = network.along_m[which] + self.length_m * number
        road_of_point = np.repeat(np.arange(len(network), dtype=np.int32), np.diff(network.first))
        self.roads: Integers = road_of_point[which]
        longitude_scale = np.cos(np.radians(self.y))
        self.bearings_deg = np.degrees(np.arctan2(self.dx * longitude_scale, self.dy))

    def relative_longitudes(self, longitudes: Floats) -> Floats:
        """Return degrees east of the local meridian, -180 to 180."""
        return (longitudes - self._meridian + 180.0) % 360.0 - 180.0

    def project_onto(self, pieces_near: NDArray[np.int32], x: Floats, y: Floats) -> tuple[Floats, Floats]:
        """Return for each pair of piece and report the nearest point's fraction of the piece (0 to 1), and its distance."""
        longitude_scale = np.cos(y * (np.pi / 180))
        dx, dy = self.dx[pieces_near] * longitude_scale, self.dy[pieces_near]
        over, up = (x - self.x[pieces_near]) * longitude_scale, y - self.y[pieces_near]
        shares = np.clip((over * dx + up * dy) / np.maximum(dx * dx + dy * dy, 1e-30), 0.0, 1.0)
        return shares, np.hypot(over - shares * dx, up - shares * dy) * _A_DEGREE_M


def _cheapest_of_each(owners: NDArray[np.intp], costs: Floats) -> NDArray[np.intp]:
    """Return the first row of minimum cost of each owner; the rows of an owner must be contiguous."""
    if not owners.size:
        return np.empty(0, np.intp)
    starts = np.flatnonzero(np.append(True, owners[1:] != owners[:-1]))
    least = np.repeat(np.minimum.reduceat(costs, starts), np.diff(np.append(starts, owners.size)))
    rows = np.flatnonzero(costs == least)
    _, firsts = np.unique(owners[rows], return_index=True)
    return rows[firsts]
