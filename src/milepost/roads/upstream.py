"""Area upstream of a spot on a road: the roads that lead to it in the driving direction, with travel time and distance (M26).

    spots ─▶ from each road to those that lead into it, the nearest first (Dijkstra, backwards) ─▶ stretches ─▶ `Upstream`

Invariants:
- every road is reached by its shortest path, and its remaining time and distance to the spot are those of that path;
- a road belongs to the area up to the limit if enough of its traffic passes the spot, as estimated from the map: by the roads
  that lead there (`Network.shares`) and, since few drivers take detours, by their directness;
- where there is no exit between the limit and the spot, the area extends back past the last exit (`_Found.exit_at`) by another
  `lead_s`, so that vehicles that enter it can still leave the road;
- the area never exceeds `EXIT_WITHIN` times the limit, nor the maximum stretches and points of an area: the nearest roads are
  included first.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import cos, floor, hypot, inf, pi, radians
from typing import Final, NamedTuple

from milepost.model.areas import UPSTREAM_POINTS_MAX, UPSTREAM_STRETCHES_MAX, Stretch, Upstream
from milepost.model.places import EARTH_RADIUS_M, Place
from milepost.roads.network import DIGITS, Network

LANE_M: Final = 3.2
NOISE_M: Final = 15.0
"""Position error that a receiver under open sky seldom exceeds."""
LEAD_S: Final = 10.0
"""Time before the last exit at which a driver should be warned."""
EXIT_WITHIN: Final = 10.0
"""Maximum extent of the area in search of an exit, in multiples of the limit."""
DETOUR_M: Final = 200.0
"""Excess over the straight-line distance that is no detour: ramps are curved, and blocks have corners."""
DIRECT: Final = 6
"""Exponent of directness: of a path twice the straight-line distance, a half to this power of the traffic takes it."""
SHARE_MIN: Final = 0.01
"""Default minimum share of traffic, low enough that most vehicles that will pass the spot are warned (bench/roads.py)."""
_SHORTEST_M: Final = 0.1
_A_DEGREE_M: Final = EARTH_RADIUS_M * pi / 180


class Spot(NamedTuple):
    """A place on a road, by its offset from the start of the road."""

    road: int
    offset_m: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """Extent of an upstream area: seconds of driving at the speed limit, or metres."""

    seconds: float | None = None
    metres: float | None = None
    lead_s: float = LEAD_S
    """Time before the last exit at which the area begins."""
    noise_m: float = NOISE_M
    """Maximum position error of vehicles, across the road."""
    share_min: float = SHARE_MIN
    """Minimum share of a road's traffic expected to pass the spot; roads below it are excluded; 0: none is."""

    def __post_init__(self) -> None:
        if (self.seconds is None) == (self.metres is None):
            raise ValueError("say how many seconds or how many metres upstream the area goes: one of the two")
        if not (0 < self.limit < inf and 0 <= self.lead_s < inf and 0 <= self.noise_m < inf):
            raise ValueError(f"a reach is longer than nothing and ends somewhere: {self}")

    @property
    def limit(self) -> float:
        """The limit, in seconds or metres, whichever is set."""
        limit = self.metres if self.seconds is None else self.seconds
        assert limit is not None
        return limit

    def until(self, share: float, exit_at: float, speed_mps: float) -> float:
        """Return the extent of the area on a road, in the limit's unit, given the share of its traffic that passes the spot."""
        lead = self.lead_s * (speed_mps if self.seconds is None else 1.0)
        return min(max(self.limit if share >= self.share_min else 0.0, exit_at + lead), EXIT_WITHIN * self.limit)


@dataclass(slots=True)
class _Found:
    """A road of the area, with the remaining time and distance to the spot from the road it leads into."""

    road: int
    left_s: float
    left_m: float
    into: int
    """The road that it leads into; -1 if the spot is on this road."""
    across_m: float
    """Distance across the junction to that road."""
    until_m: float
    """Offset up to which the road is driven: the spot, or its end."""
    share: float
    """Share of its traffic that passes the spot, by the roads that lead there."""
    spot: Place
    exit_at: float
    """Remaining time or distance at the last exit, in the limit's unit; infinite if there is none."""


def maybe_upstream(network: Network, spots: Sequence[Spot], reach: Reach) -> Upstream | None:
    """Return the area upstream of some spots (a place on a two-way street has two), or `None` if it is empty."""
    stretches: list[Stretch] = []
    points = 0
    for found in _search(network, spots, reach):
        stretch = _maybe_stretch(network, found, reach)
        points += len(stretch.path) if stretch else 0
        if points > UPSTREAM_POINTS_MAX:
            break
        if stretch:
            stretches.append(stretch)
    return Upstream(tuple(stretches)) if stretches else None


def _search(network: Network, spots: Sequence[Spot], reach: Reach) -> list[_Found]:
    """Return the roads of the area, the nearest to the spots first."""
    has_egress, by_time = network.has_egress, reach.seconds is not None
    waiting = [
        (0.0, number, _Found(spot.road, 0.0, 0.0, -1, 0.0, spot.offset_m, 1.0, network.at(*spot), inf))
        for number, spot in enumerate(spots)
    ]
    pushed, done, order, shares = len(waiting), set[int](), list[_Found](), dict[int, float]()
    while waiting and len(order) < UPSTREAM_STRETCHES_MAX:
        found = heappop(waiting)[-1]
        if found.road in done:
            continue
        done.add(found.road)
        found.share = shares.get(found.road, found.share)
        order.append(found)
        speed_mps = float(network.speeds_mps[found.road])
        drive_m = found.until_m + found.across_m
        left_s, left_m = found.left_s + drive_m / speed_mps, found.left_m + drive_m
        left = left_s if by_time else left_m
        if left >= reach.until(found.share, found.exit_at, speed_mps):
            continue
        for road, across_m, share in network.ways_in(found.road):
            if road not in done:
                shares[road] = shares.get(road, 0.0) + share * found.share
                exit_at = left if has_egress[road] and found.exit_at == inf else found.exit_at
                before = _Found(
                    road, left_s, left_m, found.road, across_m, float(network.lengths_m[road]), 0.0, found.spot, exit_at
                )
                heappush(waiting, (left + across_m / (float(network.speeds_mps[road]) if by_time else 1.0), pushed, before))
                pushed += 1
    return order


def _maybe_stretch(network: Network, found: _Found, reach: Reach) -> Stretch | None:
    """Return the part of a road inside the area, extended across the junction to the next road."""
    speed_mps = float(network.speeds_mps[found.road])
    until = reach.until(found.share * _directness(network, found), found.exit_at, speed_mps)
    back_m = until - found.left_m if reach.seconds is None else (until - found.left_s) * speed_mps
    from_m = max(0.0, found.until_m + found.across_m - back_m)
    if found.until_m - from_m < _SHORTEST_M:
        return None
    path = _path(network, found, from_m)
    if len(path) < 2:
        return None
    drive_m = found.until_m - from_m + found.across_m
    half_width_m = float(network.lanes[found.road]) * LANE_M / 2 + reach.noise_m
    left = (found.left_s + drive_m / speed_mps, found.left_s, found.left_m + drive_m, found.left_m)
    return Stretch(path, _tenths(half_width_m), *map(_tenths, left))


def _directness(network: Network, found: _Found) -> float:
    """Return the share of traffic for which the path from the middle of a road to the spot is no detour."""
    if found.into < 0:
        return 1.0
    first, last = network.first[found.road], network.first[found.road + 1] - 1
    north = float(network.latitudes[first] + network.latitudes[last]) / 2 - found.spot.latitude
    east = float(network.longitudes[first] + network.longitudes[last]) / 2 - found.spot.longitude
    across_m = hypot(north, east * cos(radians(found.spot.latitude))) * _A_DEGREE_M
    drive_m = found.left_m + found.across_m + found.until_m / 2
    return min(1.0, float((across_m + DETOUR_M) / (drive_m + DETOUR_M))) ** DIRECT


def _path(network: Network, found: _Found, from_m: float) -> tuple[Place, ...]:
    """Return the points of the driven part of a road, without consecutive duplicates."""
    is_whole = not from_m and found.into >= 0
    path = network.places_of(found.road) if is_whole else _part(network, found.road, from_m, found.until_m)
    return (*path, network.places_of(found.into)[0]) if found.across_m else path


def _part(network: Network, road: int, from_m: float, until_m: float) -> tuple[Place, ...]:
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


def _tenths(number: float) -> float:
    """Round to the nearest tenth; the built-in `round` takes twenty times as long."""
    return floor(number * 10 + 0.5) / 10
