"""The road network: directed roads in columns, and the turns between them.

    road 0   ids[0]   points first[0] … first[1]-1   length_m  speed_mps  lanes  from_junction ─▶ to_junction
    onward   onward_first[0] … onward_first[1]-1     the successors: roads that may be entered at its end
    inward   the predecessors, in the same form

Invariants:
- a network is immutable; a two-way street is two roads;
- every road has at least two distinct points, in the driving direction, and a length and a speed above 0;
- a U-turn (into the opposite road between the same junctions) is a successor only where there is no other.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from milepost.model.places import EARTH_RADIUS_M, Place

ROADS_MAX: Final = 2_000_000
POINTS_MAX: Final = 20_000_000
LANES_MAX: Final = 20
PLACES_MAX: Final = 100_000
"""Maximum roads whose points are cached as places."""
SPEED_MPS_MAX: Final = 100.0
STRAIGHT_WEIGHT: Final = 3.0
"""Ratio of the traffic that goes straight on at a junction to the traffic that turns into each other road."""
STRAIGHT_DEG_MAX: Final = 35.0
DIGITS: Final = 7
"""Decimal places of degrees: a resolution of one centimetre."""
_MIN_LENGTH_M: Final = 0.01

Floats = NDArray[np.float64]
Integers = NDArray[np.int32]


class UnreadableRoads(ValueError):
    """The input is not a usable road network; the text gives the reason and the remedy."""


class Road(NamedTuple):
    """One direction of a street between two junctions, as input of a network; `points` are latitude and longitude."""

    id: str
    points: Sequence[tuple[float, float]]
    speed_mps: float
    lanes: int
    from_junction: str
    to_junction: str
    length_m: float | None = None
    """None: the length along its points."""


@dataclass(frozen=True, slots=True, eq=False)
class RoadNetwork:
    """All roads, by index."""

    ids: tuple[str, ...]
    first: Integers
    """Index of the first point of each road, and the total number of points at the end."""
    latitudes: Floats
    longitudes: Floats
    along_m: Floats
    """Offset of each point from the start of its road, scaled to `lengths_m`."""
    lengths_m: Floats
    speeds_mps: Floats
    lanes: Integers
    from_junctions: Integers
    to_junctions: Integers
    onward_first: Integers
    onward: Integers
    inward_first: Integers
    inward: Integers
    across_m: Floats
    """For each predecessor, the distance across the junction: from its last point to the first of this road."""
    shares: Floats
    """For each predecessor, the share of its traffic that enters this road, as estimated from the map."""
    _places: dict[int, tuple[Place, ...]] = field(default_factory=dict, init=False, repr=False)
    """Cache of the points of requested roads: areas around one place are built repeatedly, from places."""

    def __len__(self) -> int:
        return len(self.ids)

    def successors(self, road: int) -> list[int]:
        """Return the roads that may be entered at the end of a road."""
        roads: list[int] = self.onward[self.onward_first[road] : self.onward_first[road + 1]].tolist()
        return roads

    def predecessors(self, road: int) -> list[tuple[int, float, float]]:
        """Return the predecessors of a road, each with the metres across the junction and its share of traffic that enters."""
        here = slice(self.inward_first[road], self.inward_first[road + 1])
        return list(zip(self.inward[here].tolist(), self.across_m[here].tolist(), self.shares[here].tolist(), strict=True))

    def places_of(self, road: int) -> tuple[Place, ...]:
        """Return the points of a road."""
        places = self._places.get(road)
        if places is None:
            points = slice(self.first[road], self.first[road + 1])
            places = tuple(map(Place, self.latitudes[points].tolist(), self.longitudes[points].tolist()))
            if len(self._places) < PLACES_MAX:
                self._places[road] = places
        return places

    def at(self, road: int, offset_m: float) -> Place:
        """Return the place at an offset along a road."""
        points = slice(self.first[road], self.first[road + 1])
        along = self.along_m[points]
        return Place(
            float(np.interp(offset_m, along, self.latitudes[points])), float(np.interp(offset_m, along, self.longitudes[points]))
        )

    @property
    def has_egress(self) -> NDArray[np.bool_]:
        """For each road, whether its end is an exit: more than one road may be entered there (M26)."""
        return np.diff(self.onward_first) > 1

    @property
    def has_ingress(self) -> NDArray[np.bool_]:
        """For each road, whether its start is an entrance: more than one road leads into it (M26)."""
        return np.diff(self.inward_first) > 1


def build_network(roads: Sequence[Road], turns: Iterable[tuple[int, int]]) -> RoadNetwork:
    """Build a network; a turn is a pair of indices into *roads*: a road and one that it leads into."""
    if not roads:
        raise UnreadableRoads("the network has no roads for cars: give an extract that has some")
    if len(roads) > ROADS_MAX:
        raise UnreadableRoads(f"there are {len(roads)} roads, more than {ROADS_MAX}: cut out the region you need")
    counts = np.array([len(road.points) for road in roads])
    if counts.sum() > POINTS_MAX:
        raise UnreadableRoads(f"the roads have {counts.sum()} points, more than {POINTS_MAX}: cut out the region you need")
    first = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    points = np.array([point for road in roads for point in road.points], np.float64).reshape(-1, 2)
    _check(roads, counts, points, first)
    points, first = _without_repeats(np.round(points, DIGITS), first)
    latitudes, longitudes = np.ascontiguousarray(points.T)
    offsets_m = _offsets_m(latitudes, longitudes, first)
    lengths_m = np.array([np.nan if road.length_m is None else road.length_m for road in roads])
    point_lengths_m = offsets_m[first[1:] - 1]  # 0 for a single point
    if (shortest := np.flatnonzero(point_lengths_m < _MIN_LENGTH_M)).size:
        raise UnreadableRoads(f"road {roads[shortest[0]].id!r} has no length: all its points are one place")
    lengths_m = np.where(lengths_m > 0, lengths_m, point_lengths_m)
    junction_numbers: dict[str, int] = {}
    ends = [
        (
            junction_numbers.setdefault(road.from_junction, len(junction_numbers)),
            junction_numbers.setdefault(road.to_junction, len(junction_numbers)),
        )
        for road in roads
    ]
    from_junctions, to_junctions = np.array(ends, np.int32).T
    onward_first, onward, inward_first, inward = _adjacency(turns, from_junctions, to_junctions)
    owners = np.repeat(np.arange(len(roads)), np.diff(inward_first))
    return RoadNetwork(
        tuple(road.id for road in roads),
        first,
        latitudes,
        longitudes,
        offsets_m * np.repeat(lengths_m / point_lengths_m, np.diff(first)),
        lengths_m,
        np.array([road.speed_mps for road in roads]),
        np.array([road.lanes for road in roads], np.int32),
        from_junctions,
        to_junctions,
        onward_first,
        onward,
        inward_first,
        inward,
        _distances_m(latitudes, longitudes, first[inward + 1] - 1, first[owners]),
        _shares(latitudes, longitudes, first, owners, inward),
    )


def _check(roads: Sequence[Road], counts: NDArray[np.integer], points: Floats, first: Integers) -> None:
    for road, count in zip(roads, counts.tolist(), strict=True):
        if count < 2:
            raise UnreadableRoads(f"road {road.id!r} has {count} points, fewer than 2")
        if not 0 < road.speed_mps <= SPEED_MPS_MAX:
            raise UnreadableRoads(
                f"road {road.id!r} has a speed limit of {road.speed_mps} m/s, not above 0 and up to {SPEED_MPS_MAX:g}"
            )
        if not 1 <= road.lanes <= LANES_MAX:
            raise UnreadableRoads(f"road {road.id!r} has {road.lanes} lanes, not 1 to {LANES_MAX}")
    wrong = np.flatnonzero(~((np.abs(points[:, 0]) <= 90) & (np.abs(points[:, 1]) <= 180)))
    if wrong.size:
        road = roads[int(np.searchsorted(first, wrong[0], "right")) - 1]
        raise UnreadableRoads(
            f"road {road.id!r} has an invalid point: latitude {points[wrong[0], 0]}, longitude {points[wrong[0], 1]}"
        )


def _without_repeats(points: Floats, first: Integers) -> tuple[Floats, Integers]:
    """Return the points without consecutive duplicates on the same road."""
    is_new = np.append(True, (np.diff(points, axis=0) != 0).any(axis=1))
    is_new[first[:-1]] = True
    return points[is_new], np.concatenate(([0], np.cumsum(np.add.reduceat(is_new, first[:-1], dtype=np.int64)))).astype(np.int32)


def _offsets_m(latitudes: Floats, longitudes: Floats, first: Integers) -> Floats:
    """Return the distance of each point from the first of its road, along the points."""
    rows = np.arange(len(latitudes))
    steps = np.concatenate(([0.0], _distances_m(latitudes, longitudes, rows[:-1], rows[1:])))
    steps[first[:-1]] = 0.0
    total = np.cumsum(steps)
    offsets: Floats = total - np.repeat(total[first[:-1]], np.diff(first))
    return offsets


def _shares(latitudes: Floats, longitudes: Floats, first: Integers, owners: NDArray[np.intp], inward: Integers) -> Floats:
    """Return the share of each predecessor's traffic that enters its owner; going straight on is likelier than a turn."""
    at_start = _bearings_deg(latitudes, longitudes, first[:-1])
    at_end = _bearings_deg(latitudes, longitudes, first[1:] - 2)
    turns_deg = np.abs((at_start[owners] - at_end[inward] + 180.0) % 360.0 - 180.0)
    weights = np.where(turns_deg <= STRAIGHT_DEG_MAX, STRAIGHT_WEIGHT, 1.0)
    shares: Floats = weights / np.bincount(inward, weights, len(first) - 1)[inward]
    return shares


def _bearings_deg(latitudes: Floats, longitudes: Floats, rows: Integers) -> Floats:
    """Return the bearing from each of these points to the next."""
    east = (longitudes[rows + 1] - longitudes[rows] + 180.0) % 360.0 - 180.0
    bearings: Floats = np.degrees(np.arctan2(east * np.cos(np.radians(latitudes[rows])), latitudes[rows + 1] - latitudes[rows]))
    return bearings


def _distances_m(latitudes: Floats, longitudes: Floats, ones: NDArray[np.integer], others: NDArray[np.integer]) -> Floats:
    """Return the metres between points, by the haversine formula, which is accurate for near ones."""
    north, east = np.radians(latitudes), np.radians(longitudes)
    half_north, half_east = np.sin((north[others] - north[ones]) / 2), np.sin((east[others] - east[ones]) / 2)
    haversine = half_north * half_north + np.cos(north[ones]) * np.cos(north[others]) * half_east * half_east
    distances_m: Floats = 2 * EARTH_RADIUS_M * np.arcsin(np.sqrt(np.minimum(1.0, haversine)))
    return distances_m


def _adjacency(
    turns: Iterable[tuple[int, int]], from_junctions: Integers, to_junctions: Integers
) -> tuple[Integers, Integers, Integers, Integers]:
    """Return successor and predecessor lists by road, without U-turns where there is another way."""
    count = len(from_junctions)
    pairs = np.unique(np.array(list(turns), np.int64).reshape(-1, 2), axis=0)
    start, end = pairs.T
    is_back = (from_junctions[start] == to_junctions[end]) & (to_junctions[start] == from_junctions[end])
    has_others = np.bincount(start[~is_back], minlength=count) > 0
    pairs = pairs[~is_back | ~has_others[start]]
    return (*_csr(pairs[:, 0], pairs[:, 1], count), *_csr(pairs[:, 1], pairs[:, 0], count))


def _csr(owners: NDArray[np.int64], members: NDArray[np.int64], count: int) -> tuple[Integers, Integers]:
    order = np.lexsort((members, owners))
    first = np.concatenate(([0], np.cumsum(np.bincount(owners, minlength=count))))
    return first.astype(np.int32), members[order].astype(np.int32)
