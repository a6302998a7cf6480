"""What lies upstream of a spot on a road: from where one gets there, in the driving direction, and in how long (M26).

    spots ─▶ from each road to those that lead into it, the nearest first (Dijkstra, backwards) ─▶ stretches ─▶ `Upstream`

What must hold:
- every road is reached by the way that takes least, and what it has left is what that way takes;
- a road belongs to the area as far as the limit reaches, if enough of its traffic comes to the spot, as far as the map tells: by
  which ways lead there (`Network.shares`) and, since few drive detours, by how direct they are;
- where there is no exit between the limit and the spot, the area goes on, back past the last exit (`_Found.exit_at`) and `lead_s`
  more, so that whoever comes into it can still leave;
- it ends for good at `EXIT_WITHIN` times the limit, and where it has as many stretches or points as an area may have: what is
  nearest belongs to it first.
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
"""A receiver in the open is seldom off by more."""
LEAD_S: Final = 10.0
"""So long before the last exit a driver should know."""
EXIT_WITHIN: Final = 10.0
"""So many times the limit the area goes back to find an exit."""
DETOUR_M: Final = 200.0
"""So much farther than straight across is no detour: ramps are curved, and blocks have corners."""
DIRECT: Final = 6
"""Where the way is twice as long as straight across, a half to this power of the traffic takes it."""
SHARE_MIN: Final = 0.01
"""With so little, most who will get there are warned (bench/roads.py)."""
_SHORTEST_M: Final = 0.1
_A_DEGREE_M: Final = EARTH_RADIUS_M * pi / 180


class Spot(NamedTuple):
    """A place on a road: so far from its start."""

    road: int
    offset_m: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """How far upstream an area goes: so many seconds of driving at the speed limit, or so many metres."""

    seconds: float | None = None
    metres: float | None = None
    lead_s: float = LEAD_S
    """How long before the last exit the area begins."""
    noise_m: float = NOISE_M
    """How far beside the road its vehicles may be seen."""
    share_min: float = SHARE_MIN
    """Roads of whose traffic less is expected to come to the spot do not belong to the area; 0: all do."""

    def __post_init__(self) -> None:
        if (self.seconds is None) == (self.metres is None):
            raise ValueError("say how many seconds or how many metres upstream the area goes: one of the two")
        if not (0 < self.limit < inf and 0 <= self.lead_s < inf and 0 <= self.noise_m < inf):
            raise ValueError(f"a reach is longer than nothing and ends somewhere: {self}")

    @property
    def limit(self) -> float:
        """Seconds or metres, whichever it is."""
        limit = self.metres if self.seconds is None else self.seconds
        assert limit is not None
        return limit

    def until(self, share: float, exit_at: float, speed_mps: float) -> float:
        """How far back the area goes on a road, in the measure of the limit, if so much of its traffic comes to the spot."""
        lead = self.lead_s * (speed_mps if self.seconds is None else 1.0)
        return min(max(self.limit if share >= self.share_min else 0.0, exit_at + lead), EXIT_WITHIN * self.limit)


@dataclass(slots=True)
class _Found:
    """A road that belongs to the area, and what is left to the spot from where it leads to."""

    road: int
    left_s: float
    left_m: float
    into: int
    """The road that it leads into; -1: the spot is on it."""
    across_m: float
    """Over the junction to there."""
    until_m: float
    """How far it is driven: up to the spot, or to its end."""
    share: float
    """How much of its traffic comes to the spot, by the ways that lead there."""
    spot: Place
    exit_at: float
    """What is left at the last exit, in the measure of the limit; infinite where none was passed."""


def maybe_upstream(network: Network, spots: Sequence[Spot], reach: Reach) -> Upstream | None:
    """The area upstream of some spots (of a place on both sides of a street there are two); nothing where there is none."""
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
    """The roads of the area, those with least left first."""
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
    """The part of a road that belongs to the area, and on over the junction to where it leads."""
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
    """How much of the traffic would not call the way from the middle of a road to the spot a detour."""
    if found.into < 0:
        return 1.0
    first, last = network.first[found.road], network.first[found.road + 1] - 1
    north = float(network.latitudes[first] + network.latitudes[last]) / 2 - found.spot.latitude
    east = float(network.longitudes[first] + network.longitudes[last]) / 2 - found.spot.longitude
    across_m = hypot(north, east * cos(radians(found.spot.latitude))) * _A_DEGREE_M
    drive_m = found.left_m + found.across_m + found.until_m / 2
    return min(1.0, float((across_m + DETOUR_M) / (drive_m + DETOUR_M))) ** DIRECT


def _path(network: Network, found: _Found, from_m: float) -> tuple[Place, ...]:
    """The points of a road from here to there, no two neighbours the same."""
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
    """The nearest tenth: `round` takes twenty times as long."""
    return floor(number * 10 + 0.5) / 10
