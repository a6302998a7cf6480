"""Who is warned of a hazard, and who gets there: a plain radius beside what lies upstream, on the same traffic.

A hazard is where and when some car truly was, reported with the noise of its receiver. Of the cars that drive then, those that
pass that place on that road within `WITHIN_S` reach it; who does so within `TOO_LATE_S` is past help and left out.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from milepost.model.areas import Area, Circle, Going, holds_going
from milepost.model.places import EARTH_RADIUS_M, Place, vectors
from milepost.roads import NOT_ON_A_ROAD, Network, Placing, Reach, Spot, maybe_upstream
from milepost_experiments.simulator.traces import drive as drive_trace

WITHIN_S = 180
TOO_LATE_S = 3
SIGMA_M = 7.0
HEADING_SIGMA_DEG = 5.0
STANDS_MPS = 0.3
RADII_M = (50, 100, 150, 200, 300, 400, 500, 700, 900, 1_200, 1_600, 2_500, 4_000)
SHARES = (0.5, 0.3, 0.2, 0.15, 0.1, 0.07, 0.05, 0.03, 0.02, 0.01, 0.005, 0.002, 0.0)
"""Of an area within `WITHIN_S`: how much of the traffic of its roads comes by, at the least."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """Cars second by second: on which road they truly are and how far along it, and what their receivers make of it."""

    seconds: NDArray[np.int_]
    cars: NDArray[np.int_]
    roads: NDArray[np.int_]
    pos_m: NDArray[np.float64]
    latitudes: NDArray[np.float64]
    longitudes: NDArray[np.float64]
    going: Going


@dataclass(frozen=True, slots=True)
class Hazard:
    """One moment: who is where, who will get there."""

    place: Place
    spot: Spot
    points: NDArray[np.float64]
    going: Going
    reaches: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Curve:
    """How precision goes with recall as an area grows."""

    precision: NDArray[np.float64]
    recall: NDArray[np.float64]

    def at(self, recall: float) -> float:
        """The precision at a recall, between the two nearest; of a recall that is never reached, nothing."""
        return float(np.interp(recall, self.recall, self.precision)) if recall <= self.recall[-1] else float("nan")


def drive(
    net: Path, network: Network, folder: Path, *, seed: int, length_s: int, period_s: float, origin: Place | None
) -> Traffic:
    """Cars from everywhere to everywhere; `origin` is where the 0,0 of a flat net is."""
    trace = drive_trace(net, folder, seed=seed, length_s=length_s, period_s=period_s, origin=origin)
    number = {name: road for road, name in enumerate(network.ids)}
    roads = np.array([number.get(name, NOT_ON_A_ROAD) for name in trace.roads])
    north, east, speed = trace.latitudes, trace.longitudes, trace.speeds_mps
    rng = np.random.default_rng(seed)
    off_north, off_east = rng.normal(0, SIGMA_M * 180 / np.pi / EARTH_RADIUS_M, (2, len(trace)))
    off_deg = rng.normal(0, HEADING_SIGMA_DEG, len(trace))
    heading = np.where(speed < STANDS_MPS, rng.uniform(0, 360, len(trace)), trace.headings_deg + off_deg)
    places_seen = (north + off_north, east + off_east / np.cos(np.radians(north)))
    return Traffic(trace.seconds, trace.cars, roads, trace.pos_m, *places_seen, Going(heading % 360, speed))


def hazards(traffic: Traffic, placing: Placing, *, count: int, seed: int, since_s: int) -> Iterator[Hazard]:
    """Random ones, each with the traffic of its moment."""
    until_s = int(traffic.seconds.max()) - WITHIN_S
    is_known = (traffic.seconds >= since_s) & (traffic.seconds <= until_s) & (traffic.roads >= 0)
    candidates = np.flatnonzero(is_known & (traffic.going.speeds_mps > 3))
    for one in np.random.default_rng(seed).choice(candidates, count, replace=False).tolist():
        at_s, road, pos = int(traffic.seconds[one]), int(traffic.roads[one]), float(traffic.pos_m[one])
        latitude, longitude = float(traffic.latitudes[one]), float(traffic.longitudes[one])
        here = placing.place([latitude], [longitude], traffic.going.only(np.array([one])))
        is_past = (traffic.roads == road) & (traffic.pos_m >= pos)
        since = traffic.seconds - at_s
        soon = set(traffic.cars[is_past & (since > 0) & (since <= TOO_LATE_S)].tolist())
        later = set(traffic.cars[is_past & (since > TOO_LATE_S) & (since <= WITHIN_S)].tolist())
        there = set(traffic.cars[(traffic.roads == road) & (traffic.pos_m >= pos - 1) & (since == 0)].tolist())
        now = np.flatnonzero((since == 0) & ~np.isin(traffic.cars, list(soon | there)))
        yield Hazard(
            Place(latitude, longitude),
            Spot(int(here.roads[0]), float(here.offsets_m[0])),
            vectors(traffic.latitudes[now], traffic.longitudes[now]),
            traffic.going.only(now),
            np.isin(traffic.cars[now], list(later)),
        )


def curves(network: Network, some: list[Hazard]) -> tuple[Curve, Curve]:
    """Upstream and radius."""
    reaches = [Reach(seconds=WITHIN_S, share_min=share) for share in SHARES]
    upstream = [_counted(some, [maybe_upstream(network, [one.spot], reach) for one in some]) for reach in reaches]
    radius = [_counted(some, [Circle(one.place, metres) for one in some]) for metres in RADII_M]
    return _curve(upstream), _curve(radius)


def _counted(some: list[Hazard], areas: Sequence[Area | None]) -> tuple[int, int, int]:
    """Who was warned and gets there, who was warned, who gets there."""
    both = warned = reach = 0
    for hazard, area in zip(some, areas, strict=True):
        if area is not None:
            inside = holds_going(area, hazard.points, hazard.going)
            both, warned = both + int((inside & hazard.reaches).sum()), warned + int(inside.sum())
        reach += int(hazard.reaches.sum())
    return both, warned, reach


def _curve(counts: list[tuple[int, int, int]]) -> Curve:
    both, warned, reach = np.array(counts, np.float64).T
    return Curve(both / np.maximum(warned, 1), both / np.maximum(reach, 1))
