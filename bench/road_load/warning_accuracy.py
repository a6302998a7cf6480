"""Accuracy of warnings about a hazard: a plain radius compared with the upstream area, on the same traffic.

A hazard is a true place and time of a car, reported with the noise of its receiver. Of the cars that drive then, those that pass
the place on that road within `WITHIN_S` reach it; cars that do so within `TOO_LATE_S` cannot be warned and are excluded.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from milepost.model.areas import Area, Circle, Motion, contains_moving
from milepost.model.places import EARTH_RADIUS_M, Place, vectors
from milepost.roads import OFF_ROAD, MapMatcher, RoadNetwork, RoadPosition, UpstreamExtent, find_upstream_area
from milepost_experiments.simulator.traces import drive as drive_trace

WITHIN_S = 180
TOO_LATE_S = 3
SIGMA_M = 7.0
HEADING_SIGMA_DEG = 5.0
STANDING_MPS_MAX = 0.3
RADII_M = (50, 100, 150, 200, 300, 400, 500, 700, 900, 1_200, 1_600, 2_500, 4_000)
SHARES = (0.5, 0.3, 0.2, 0.15, 0.1, 0.07, 0.05, 0.03, 0.02, 0.01, 0.005, 0.002, 0.0)
"""Values of `share_min`, the minimum share of a road's traffic that will pass the spot, for areas of `WITHIN_S`."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """Cars by second: their true road and offset, and the positions and motion of their receivers."""

    seconds: NDArray[np.int_]
    cars: NDArray[np.int_]
    roads: NDArray[np.int_]
    pos_m: NDArray[np.float64]
    latitudes: NDArray[np.float64]
    longitudes: NDArray[np.float64]
    motion: Motion


@dataclass(frozen=True, slots=True)
class Hazard:
    """A hazard: the cars at that moment, and which of them will reach it."""

    place: Place
    spot: RoadPosition
    points: NDArray[np.float64]
    motion: Motion
    reaches: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Curve:
    """Precision and recall as an area grows."""

    precision: NDArray[np.float64]
    recall: NDArray[np.float64]

    def at(self, recall: float) -> float:
        """Return the precision at a recall, interpolated; NaN if the recall is never reached."""
        return float(np.interp(recall, self.recall, self.precision)) if recall <= self.recall[-1] else float("nan")


def drive(
    net: Path, network: RoadNetwork, folder: Path, *, seed: int, length_s: int, period_s: float, origin: Place | None
) -> Traffic:
    """Simulate cars between random places; `origin` is the place of 0,0 for a network without projection."""
    trace = drive_trace(net, folder, seed=seed, length_s=length_s, period_s=period_s, origin=origin)
    number = {name: road for road, name in enumerate(network.ids)}
    roads = np.array([number.get(name, OFF_ROAD) for name in trace.roads])
    north, east, speed = trace.latitudes, trace.longitudes, trace.speeds_mps
    rng = np.random.default_rng(seed)
    error_north, error_east = rng.normal(0, SIGMA_M * 180 / np.pi / EARTH_RADIUS_M, (2, len(trace)))
    error_deg = rng.normal(0, HEADING_SIGMA_DEG, len(trace))
    heading = np.where(speed < STANDING_MPS_MAX, rng.uniform(0, 360, len(trace)), trace.headings_deg + error_deg)
    observed = (north + error_north, east + error_east / np.cos(np.radians(north)))
    return Traffic(trace.seconds, trace.cars, roads, trace.pos_m, *observed, Motion(heading % 360, speed))


def hazards(traffic: Traffic, map_matcher: MapMatcher, *, count: int, seed: int, since_s: int) -> Iterator[Hazard]:
    """Yield random hazards, each with the traffic of its moment."""
    until_s = int(traffic.seconds.max()) - WITHIN_S
    is_known = (traffic.seconds >= since_s) & (traffic.seconds <= until_s) & (traffic.roads >= 0)
    candidates = np.flatnonzero(is_known & (traffic.motion.speeds_mps > 3))
    for one in np.random.default_rng(seed).choice(candidates, count, replace=False).tolist():
        at_s, road, pos = int(traffic.seconds[one]), int(traffic.roads[one]), float(traffic.pos_m[one])
        latitude, longitude = float(traffic.latitudes[one]), float(traffic.longitudes[one])
        here = map_matcher.match([latitude], [longitude], traffic.motion.only(np.array([one])))
        is_past = (traffic.roads == road) & (traffic.pos_m >= pos)
        since = traffic.seconds - at_s
        too_late = set(traffic.cars[is_past & (since > 0) & (since <= TOO_LATE_S)].tolist())
        later = set(traffic.cars[is_past & (since > TOO_LATE_S) & (since <= WITHIN_S)].tolist())
        at_place = set(traffic.cars[(traffic.roads == road) & (traffic.pos_m >= pos - 1) & (since == 0)].tolist())
        now = np.flatnonzero((since == 0) & ~np.isin(traffic.cars, list(too_late | at_place)))
        yield Hazard(
            Place(latitude, longitude),
            RoadPosition(int(here.roads[0]), float(here.offsets_m[0])),
            vectors(traffic.latitudes[now], traffic.longitudes[now]),
            traffic.motion.only(now),
            np.isin(traffic.cars[now], list(later)),
        )


def curves(network: RoadNetwork, some: list[Hazard]) -> tuple[Curve, Curve]:
    """Return the curves of the upstream area and of the radius."""
    reaches = [UpstreamExtent(seconds=WITHIN_S, share_min=share) for share in SHARES]
    upstream = [_counted(some, [find_upstream_area(network, [one.spot], reach) for one in some]) for reach in reaches]
    radius = [_counted(some, [Circle(one.place, metres) for one in some]) for metres in RADII_M]
    return _curve(upstream), _curve(radius)


def _counted(some: list[Hazard], areas: Sequence[Area | None]) -> tuple[int, int, int]:
    """Return the numbers of cars warned and reaching the hazard, warned, and reaching it."""
    both = warned = reach = 0
    for hazard, area in zip(some, areas, strict=True):
        if area is not None:
            inside = contains_moving(area, hazard.points, hazard.motion)
            both, warned = both + int((inside & hazard.reaches).sum()), warned + int(inside.sum())
        reach += int(hazard.reaches.sum())
    return both, warned, reach


def _curve(counts: list[tuple[int, int, int]]) -> Curve:
    both, warned, reach = np.array(counts, np.float64).T
    return Curve(both / np.maximum(warned, 1), both / np.maximum(reach, 1))
