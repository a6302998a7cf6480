"""Roads: time of upstream areas, reports placed per second, and accuracy of warnings compared with a plain radius.

`python -m bench.roads` generates a city of 10,000 roads, and drives SUMO cars through three cities (two of them real). QUICK=1: a
smaller run through one of them; the rest is the same workload.
"""

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from statistics import quantiles
from tempfile import TemporaryDirectory
from time import perf_counter

import numpy as np
import shapely
from numpy.typing import NDArray

from bench.harness import QUICK, Row, median_us, publish, row
from bench.road_load.warning_accuracy import WITHIN_S, Curve, curves, drive, hazards
from milepost.model.addresses import ToArea
from milepost.model.areas import Motion, Upstream
from milepost.model.endpoints import EndpointId
from milepost.model.instants import Instant
from milepost.model.messages import Message, MessageId
from milepost.model.places import Place
from milepost.model.session_datagrams import PublishDatagram, SessionToken
from milepost.roads import MapMatcher, RoadNetwork, RoadPosition, UpstreamExtent, find_upstream_area
from milepost.roads.sumo import read_sumo
from milepost.wire.datagrams import encode
from milepost_experiments.papers.mercury.attack_traffic import WINDING
from milepost_experiments.simulator.traces import run_program

ORIGIN = Place(52.4, 13.5)
BIG = "--grid --grid.number 51 --grid.length 150 --default.lanenumber 1 --default.speed 13.9"
"""10,200 roads between 2,601 crossings."""
REPORTS = 200_000
AREAS = 60
RECALLS = (0.5, 0.8, 0.9)
CITIES = (
    ("Berlin", "tools/game/DRT/osm.net.xml", 1.5),
    ("Königs Wusterhausen", "tools/game/A10KW/osm.net.xml", 1.0),
    ("winding", "", 1.0),
)
"""Networks, and the seconds between two departures."""
LENGTH_S, HAZARDS = (540, 50) if QUICK else (900, 200)
WARMUP_S = 250


def main() -> None:
    rows, notes = list[Row](), list[str]()
    with TemporaryDirectory() as folder:
        big = _generated(BIG, Path(folder))
        rows += _areas(big, notes)
        rows += _map_matcher(big)
        for name, net, period_s in CITIES[:1] if QUICK else CITIES:
            rows += _warning_accuracy(name, net, period_s, Path(folder), notes)
    publish("roads", rows, notes)


def _generated(streets: str, folder: Path) -> RoadNetwork:
    net = folder / "generated.net.xml"
    run_program("netgenerate", *streets.split(), "--seed", 1, "-o", net)
    return read_sumo(BytesIO(net.read_bytes()), origin=ORIGIN)


def _areas(network: RoadNetwork, notes: list[str]) -> list[Row]:
    """Measure the time of upstream areas, and their size."""
    rng = np.random.default_rng(1)
    spots = [RoadPosition(int(road), float(network.lengths_m[road]) / 2) for road in rng.integers(len(network), size=AREAS)]
    found = []
    for reach in (UpstreamExtent(seconds=60.0), UpstreamExtent(seconds=120.0), UpstreamExtent(seconds=60.0, share_min=0.0)):
        time_ms = median_us(partial(_upstream, network, reach), spots) / 1_000
        slow_ms = quantiles([_time_ms(network, spot, reach) for spot in spots], n=20)[-1]
        areas = [area for spot in spots if (area := _upstream(network, reach, spot)) is not None]
        stretches, size = np.median([(len(area.stretches), _bytes_of(area)) for area in areas], axis=0)
        workload = f"upstream within {reach.seconds:g} s{'' if reach.share_min else ', all roads'}, {len(network):,} roads"
        found.append(row(workload, "ms", time_ms, less_is_better=True, ours_max=5))
        notes.append(f"{workload}: {stretches:.0f} stretches, {size:,.0f} bytes in a datagram; p95 {slow_ms:.1f} ms")
    return found


def _upstream(network: RoadNetwork, reach: UpstreamExtent, spot: RoadPosition) -> Upstream | None:
    return find_upstream_area(network, [spot], reach)


def _time_ms(network: RoadNetwork, spot: RoadPosition, reach: UpstreamExtent) -> float:
    started = perf_counter()
    find_upstream_area(network, [spot], reach)
    return (perf_counter() - started) * 1_000


def _bytes_of(area: Upstream) -> int:
    message = Message(MessageId(1), EndpointId("e"), "Alert", Instant(1), address=ToArea(area))
    return len(encode(PublishDatagram(message, SessionToken(1))))


def _map_matcher(network: RoadNetwork) -> list[Row]:
    """Measure reports placed on roads per second, compared with shapely's tree of segments, which ignores headings."""
    rng = np.random.default_rng(2)
    roads = rng.integers(len(network), size=REPORTS)
    shares = rng.uniform(0, 1, REPORTS)
    first, last = network.first[roads], network.first[roads + 1] - 1
    noise = rng.normal(0, 7 / 111_195, (2, REPORTS))
    latitudes = network.latitudes[first] * (1 - shares) + network.latitudes[last] * shares + noise[0]
    longitudes = (
        network.longitudes[first] * (1 - shares) + network.longitudes[last] * shares + noise[1] / np.cos(np.radians(52.4))
    )
    east_deg = (network.longitudes[last] - network.longitudes[first]) * np.cos(np.radians(52.4))
    headings = np.degrees(np.arctan2(east_deg, network.latitudes[last] - network.latitudes[first])) + rng.normal(0, 5, REPORTS)
    motion, map_matcher = Motion(headings % 360, np.full(REPORTS, 10.0)), MapMatcher(network)
    tree, points = _tree(network), shapely.points(longitudes, latitudes)
    placed, ours = _best(lambda: map_matcher.match(latitudes, longitudes, motion).roads)
    near, theirs = _best(lambda: tree.query_nearest(points, all_matches=False)[1])
    owners = np.repeat(np.arange(len(network)), np.diff(network.first) - 1)
    right, theirs_right = float((placed == roads).mean()), float((owners[near] == roads).mean())
    peer = "shapely STRtree.query_nearest"
    return [
        row(f"reports placed on {len(network):,} roads", "per second", ours, peer, theirs, ours_min=100_000),
        row("share placed on the right road", "share", right, peer, theirs_right),
    ]


def _best(call: Callable[[], NDArray[np.integer]]) -> tuple[NDArray[np.integer], float]:
    """Return the result, and reports per second: the best of three."""
    found, best = call(), 0.0
    for _ in range(3):
        started = perf_counter()
        found = call()
        best = max(best, REPORTS / (perf_counter() - started))
    return found, best


def _tree(network: RoadNetwork) -> shapely.STRtree:
    points = np.stack([network.longitudes, network.latitudes], axis=1)
    is_last = np.zeros(len(points), np.bool_)
    is_last[network.first[1:] - 1] = True
    starts = np.flatnonzero(~is_last)
    return shapely.STRtree(shapely.linestrings(np.stack([points[starts], points[starts + 1]], axis=1)))


def _warning_accuracy(name: str, net: str, period_s: float, folder: Path, notes: list[str]) -> list[Row]:
    """Measure precision at equal recall, compared with a radius."""
    if net:
        spec = find_spec("sumo")
        assert spec is not None
        assert spec.origin is not None
        path = Path(spec.origin).parent / net
        network = read_sumo(BytesIO(path.read_bytes()))
    else:
        network, path = _generated(WINDING.replace("iterations 120", "iterations 700"), folder), folder / "generated.net.xml"
    origin = None if net else ORIGIN
    traffic = drive(path, network, folder, seed=11, length_s=LENGTH_S, period_s=period_s, origin=origin)
    map_matcher = MapMatcher(network)
    upstream, radius = curves(network, list(hazards(traffic, map_matcher, count=HAZARDS, seed=12, since_s=WARMUP_S)))
    placed = map_matcher.match(traffic.latitudes, traffic.longitudes, traffic.motion).roads
    drives = (traffic.roads >= 0) & (traffic.motion.speeds_mps > 2)
    right = float((placed == traffic.roads)[drives].mean())
    crowd = int(np.median(np.bincount(traffic.seconds)[WARMUP_S:]))
    notes.append(
        f"{name}: {len(network):,} roads, {crowd} cars at a time, {HAZARDS} hazards; {right:.1%} placed on the right road"
    )
    return [_compared(name, recall, upstream, radius) for recall in RECALLS]


def _compared(name: str, recall: float, upstream: Curve, radius: Curve) -> Row:
    workload = f"{name}: precision at recall {recall:.0%}, cars that reach the hazard within {WITHIN_S} s"
    values = upstream.at(recall), "radius", radius.at(recall)
    return row(workload, "share", *values, ratio_min=2.0) if not QUICK else row(workload, "share", *values)


if __name__ == "__main__":
    main()
