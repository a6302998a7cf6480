"""Area upstream of a position on a road: the roads that lead to it in the driving direction, with travel time and distance (M26).

    positions ─▶ from each road to those that lead into it, the nearest first (Dijkstra, backwards) ─▶ stretches ─▶ `Upstream`

Invariants:
- every road is reached by its shortest path, and its remaining time and distance to the position are those of that path;
- a road belongs to the area up to the limit if enough of its traffic passes the position, as estimated from the map: by the roads
  that lead there (`RoadNetwork.shares`) and, since few drivers take detours, by their directness;
- where there is no exit between the limit and the position, the area extends back past the last exit
  (`_ReachedRoad.exit_at`) by another `lead_s`, so that vehicles that enter it can still leave the road;
- the area never exceeds `EXIT_SEARCH_FACTOR` times the limit, nor the maximum stretches and points of an area: the nearest
  roads are included first.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import cos, floor, hypot, inf, pi, radians
from typing import Final, NamedTuple

from milepost.model.areas import UPSTREAM_POINTS_MAX, UPSTREAM_STRETCHES_MAX, Stretch, Upstream
from milepost.model.places import EARTH_RADIUS_M, Place
from milepost.roads.network import DIGITS, RoadNetwork

LANE_M: Final = 3.2
NOISE_M: Final = 15.0
"""Position error that a receiver under open sky seldom exceeds."""
LEAD_S: Final = 10.0
"""Time before the last exit at which a driver should be warned."""
EXIT_SEARCH_FACTOR: Final = 10.0
"""Maximum extent of the area in search of an exit, in multiples of the limit."""
DETOUR_M: Final = 200.0
"""Excess over the straight-line distance that is no detour: ramps are curved, and blocks have corners."""
DIRECTNESS_EXPONENT: Final = 6
"""Exponent of directness: of a path twice the straight-line distance, a half to this power of the traffic takes it."""
SHARE_MIN: Final = 0.01
"""Default minimum share of traffic, low enough that most vehicles that will pass the position are warned (bench/roads.py)."""
_SHORTEST_M: Final = 0.1
_A_DEGREE_M: Final = EARTH_RADIUS_M * pi / 180


class RoadPosition(NamedTuple):
    """A place on a road, by its offset from the start of the road."""

    road: int
    offset_m: float


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamExtent:
    """Extent of an upstream area: seconds of driving at the speed limit, or metres."""

    seconds: float | None = None
    metres: float | None = None
    lead_s: float = LEAD_S
    """Time before the last exit at which the area begins."""
    noise_m: float = NOISE_M
    """Maximum position error of vehicles, across the road."""
    share_min: float = SHARE_MIN
    """Minimum share of a road's traffic expected to pass the position; roads below it are excluded; 0: none is."""

    def __post_init__(self) -> None:
        if (self.seconds is None) == (self.metres is None):
            raise ValueError("give the extent of the area in seconds or in metres: one of the two")
        if not (0 < self.limit < inf and 0 <= self.lead_s < inf and 0 <= self.noise_m < inf):
            raise ValueError(f"seconds or metres must be above 0, lead_s and noise_m 0 or more, all of them finite: {self}")

    @property
    def limit(self) -> float:
        """The limit, in seconds or metres, whichever is set."""
        limit = self.metres if self.seconds is None else self.seconds
        assert limit is not None
        return limit

    def until(self, share: float, exit_at: float, speed_mps: float) -> float:
        """Return the extent of the area on a road, in the limit's unit, given the share of its traffic that passes it."""
        lead = self.lead_s * (speed_mps if self.seconds is None else 1.0)
        return min(max(self.limit if share >= self.share_min else 0.0, exit_at + lead), EXIT_SEARCH_FACTOR * self.limit)


@dataclass(slots=True)
class _ReachedRoad:
    """A road of the area, with the remaining time and distance to the position from the road it leads into."""

    road: int
    remaining_s: float
    remaining_m: float
    into: int
    """The road that it leads into; -1 if the position is on this road."""
    across_m: float
    """Distance across the junction to that road."""
    until_m: float
    """Offset up to which the road is driven: the position, or its end."""
    share: float
    """Share of its traffic that passes the position, by the roads that lead there."""
    position: Place
    exit_at: float
    """Remaining time or distance at the last exit, in the limit's unit; infinite if there is none."""


def find_upstream_area(network: RoadNetwork, positions: Sequence[RoadPosition], extent: UpstreamExtent) -> Upstream | None:
    """Return the area upstream of some positions (a place on a two-way street has two), or `None` if it is empty."""
    stretches: list[Stretch] = []
    points = 0
    for reached in _search(network, positions, extent):
        stretch = _maybe_stretch(network, reached, extent)
        points += len(stretch.path) if stretch else 0
        if points > UPSTREAM_POINTS_MAX:
            break
        if stretch:
            stretches.append(stretch)
    return Upstream.of(tuple(stretches)) if stretches else None


def _search(network: RoadNetwork, positions: Sequence[RoadPosition], extent: UpstreamExtent) -> list[_ReachedRoad]:
    """Return the roads of the area, the nearest to the positions first."""
    has_egress, by_time = network.has_egress, extent.seconds is not None
    heap = [
        (0.0, number, _ReachedRoad(position.road, 0.0, 0.0, -1, 0.0, position.offset_m, 1.0, network.at(*position), inf))
        for number, position in enumerate(positions)
    ]
    pushed, done, order, shares = len(heap), set[int](), list[_ReachedRoad](), dict[int, float]()
    while heap and len(order) < UPSTREAM_STRETCHES_MAX:
        reached = heappop(heap)[-1]
        if reached.road in done:
            continue
        done.add(reached.road)
        reached.share = shares.get(reached.road, reached.share)
        order.append(reached)
        speed_mps = float(network.speeds_mps[reached.road])
        drive_m = reached.until_m + reached.across_m
        remaining_s, remaining_m = reached.remaining_s + drive_m / speed_mps, reached.remaining_m + drive_m
        remaining = remaining_s if by_time else remaining_m
        if remaining >= extent.until(reached.share, reached.exit_at, speed_mps):
            continue
        for road, across_m, share in network.predecessors(reached.road):
            if road not in done:
                shares[road] = shares.get(road, 0.0) + share * reached.share
                exit_at = remaining if has_egress[road] and reached.exit_at == inf else reached.exit_at
                before = _ReachedRoad(
                    road,
                    remaining_s,
                    remaining_m,
                    reached.road,
                    across_m,
                    float(network.lengths_m[road]),
                    0.0,
                    reached.position,
                    exit_at,
                )
                heappush(heap, (remaining + across_m / (float(network.speeds_mps[road]) if by_time else 1.0), pushed, before))
                pushed += 1
    return order


def _maybe_stretch(network: RoadNetwork, reached: _ReachedRoad, extent: UpstreamExtent) -> Stretch | None:
    """Return the part of a road inside the area, extended across the junction to the next road."""
    speed_mps = float(network.speeds_mps[reached.road])
    until = extent.until(reached.share * _directness(network, reached), reached.exit_at, speed_mps)
    back_m = until - reached.remaining_m if extent.seconds is None else (until - reached.remaining_s) * speed_mps
    from_m = max(0.0, reached.until_m + reached.across_m - back_m)
    if reached.until_m - from_m < _SHORTEST_M:
        return None
    path = _path(network, reached, from_m)
    if len(path) < 2:
        return None
    drive_m = reached.until_m - from_m + reached.across_m
    half_width_m = float(network.lanes[reached.road]) * LANE_M / 2 + extent.noise_m
    remaining = (
        reached.remaining_s + drive_m / speed_mps,
        reached.remaining_s,
        reached.remaining_m + drive_m,
        reached.remaining_m,
    )
    return Stretch(path, _round_to_tenth(half_width_m), *map(_round_to_tenth, remaining))


def _directness(network: RoadNetwork, reached: _ReachedRoad) -> float:
    """Return the share of traffic for which the path from the middle of a road to the position is no detour."""
    if reached.into < 0:
        return 1.0
    first, last = network.first[reached.road], network.first[reached.road + 1] - 1
    north = float(network.latitudes[first] + network.latitudes[last]) / 2 - reached.position.latitude
    east = float(network.longitudes[first] + network.longitudes[last]) / 2 - reached.position.longitude
    across_m = hypot(north, east * cos(radians(reached.position.latitude))) * _A_DEGREE_M
    drive_m = reached.remaining_m + reached.across_m + reached.until_m / 2
    return min(1.0, float((across_m + DETOUR_M) / (drive_m + DETOUR_M))) ** DIRECTNESS_EXPONENT


def _path(network: RoadNetwork, reached: _ReachedRoad, from_m: float) -> tuple[Place, ...]:
    """Return the points of the driven part of a road, without consecutive duplicates."""
    is_whole = not from_m and reached.into >= 0
    path = network.places_of(reached.road) if is_whole else _part(network, reached.road, from_m, reached.until_m)
    return (*path, network.places_of(reached.into)[0]) if reached.across_m else path


def _part(network: RoadNetwork, road: int, from_m: float, until_m: float) -> tuple[Place, ...]:
    first, end = int(network.first[road]), int(network.first[road + 1])
    along = network.along_m[first:end].tolist()
    inner = slice(first + bisect_right(along, from_m), first + bisect_left(along, until_m))
    path = [
        _rounded(network.at(road, from_m)),
        *map(Place, network.latitudes[inner].tolist(), network.longitudes[inner].tolist()),
        _rounded(network.at(road, until_m)),
    ]
    return tuple(place for at, place in enumerate(path) if not at or place != path[at - 1])


def _rounded(place: Place) -> Place:
    return Place(round(place.latitude, DIGITS), round(place.longitude, DIGITS))


def _round_to_tenth(number: float) -> float:
    """Round to the nearest tenth; the built-in `round` takes twenty times as long."""
    return floor(number * 10 + 0.5) / 10
