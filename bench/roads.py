"""Roads, measured: how long an area takes, how many reports are placed in a second, and who is warned beside a plain radius.

`python -m bench.roads` makes a town of 10,000 roads, and drives cars of SUMO's through three towns (two of them real). QUICK=1: a
smaller drive through one of them; the rest is the same work.
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
from bench.road_load.warning_accuracy import WITHIN_S, Curve, curves, drive, hazards
from numpy.typing import NDArray

from bench.harness import QUICK, Row, median_us, publish, row
from milepost.model.addresses import ToArea
from milepost.model.areas import Going, Upstream
from milepost.model.endpoints import EndpointId
from milepost.model.instants import Instant
from milepost.model.messages import Message, MessageId
from milepost.model.places import Place
from milepost.model.sessions import Publish, SessionToken
from milepost.roads import Network, Placing, Reach, Spot, maybe_upstream
from milepost.roads.sumo import read_sumo
from milepost.wire.datagrams import encode
from milepost_experiments.papers.mercury.attack_traffic import CROOKED
from milepost_experiments.simulator.traces import run_program

ORIGIN = Place(52.4, 13.5)
BIG = "--grid --grid.number 51 --grid.length 150 --default.lanenumber 1 --default.speed 13.9"
"""10,200 roads between 2,601 crossings."""
REPORTS = 200_000
AREAS = 60
RECALLS = (0.5, 0.8, 0.9)
TOWNS = (
    ("Berlin", "tools/game/DRT/osm.net.xml", 1.5),
    ("Königs Wusterhausen", "tools/game/A10KW/osm.net.xml", 1.0),
    ("winding", "", 1.0),
)
"""Their nets, and how many seconds lie between two cars that set out."""
LENGTH_S, HAZARDS = (540, 50) if QUICK else (900, 200)
SINCE_S = 250


def main() -> None:
    rows, notes = list[Row](), list[str]()
    with TemporaryDirectory() as folder:
        big = _generated(BIG, Path(folder))
        rows += _areas(big, notes)
        rows += _placing(big)
        for name, net, period_s in TOWNS[:1] if QUICK else TOWNS:
            rows += _warned(name, net, period_s, Path(folder), notes)
    publish("roads", rows, notes)


def _generated(streets: str, folder: Path) -> Network:
    net = folder / "generated.net.xml"
    run_program("netgenerate", *streets.split(), "--seed", 1, "-o", net)
    return read_sumo(BytesIO(net.read_bytes()), origin=ORIGIN)


def _areas(network: Network, notes: list[str]) -> list[Row]:
    """How long it takes to find what lies upstream, and how large that is."""
    rng = np.random.default_rng(1)
    spots = [Spot(int(road), float(network.lengths_m[road]) / 2) for road in rng.integers(len(network), size=AREAS)]
    found = []
    for reach in (Reach(seconds=60.0), Reach(seconds=120.0), Reach(seconds=60.0, share_min=0.0)):
        taken_ms = median_us(partial(_upstream, network, reach), spots) / 1_000
        slow_ms = quantiles([_taken_ms(network, spot, reach) for spot in spots], n=20)[-1]
        areas = [area for spot in spots if (area := _upstream(network, reach, spot)) is not None]
        stretches, size = np.median([(len(area.stretches), _bytes_of(area)) for area in areas], axis=0)
        work = f"upstream within {reach.seconds:g} s{'' if reach.share_min else ', all ways'}, {len(network):,} roads"
        found.append(row(work, "ms", taken_ms, less_is_better=True, ours_max=5))
        notes.append(
            f"{work}: {stretches:.0f} stretches, {size:,.0f} bytes in a datagram; one of twenty takes over {slow_ms:.1f} ms"
        )
    return found


def _upstream(network: Network, reach: Reach, spot: Spot) -> Upstream | None:
    return maybe_upstream(network, [spot], reach)


def _taken_ms(network: Network, spot: Spot, reach: Reach) -> float:
    started = perf_counter()
    maybe_upstream(network, [spot], reach)
    return (perf_counter() - started) * 1_000


def _bytes_of(area: Upstream) -> int:
    message = Message(MessageId(1), EndpointId("e"), "Alert", Instant(1), address=ToArea(area))
    return len(encode(Publish(message, SessionToken(1))))


def _placing(network: Network) -> list[Row]:
    """Reports placed on roads in a second, beside shapely's tree of segments, which knows nothing of headings."""
    rng = np.random.default_rng(2)
    roads = rng.integers(len(network), size=REPORTS)
    shares = rng.uniform(0, 1, REPORTS)
    first, last = network.first[roads], network.first[roads + 1] - 1
    noise = rng.normal(0, 7 / 111_195, (2, REPORTS))
    latitudes = network.latitudes[first] * (1 - shares) + network.latitudes[last] * shares + noise[0]
    longitudes = (
        network.longitudes[first] * (1 - shares) + network.longitudes[last] * shares + noise[1] / np.cos(np.radians(52.4))
    )
    over = (network.longitudes[last] - network.longitudes[first]) * np.cos(np.radians(52.4))
    headings = np.degrees(np.arctan2(over, network.latitudes[last] - network.latitudes[first])) + rng.normal(0, 5, REPORTS)
    going, placing = Going(headings % 360, np.full(REPORTS, 10.0)), Placing(network)
    tree, points = _tree(network), shapely.points(longitudes, latitudes)
    placed, ours = _best(lambda: placing.place(latitudes, longitudes, going).roads)
    near, peers = _best(lambda: tree.query_nearest(points, all_matches=False)[1])
    owners = np.repeat(np.arange(len(network)), np.diff(network.first) - 1)
    right, peers_right = float((placed == roads).mean()), float((owners[near] == roads).mean())
    peer = "shapely STRtree.query_nearest"
    return [
        row(f"reports placed on {len(network):,} roads", "a second", ours, peer, peers, ours_min=100_000),
        row("of these on the right road", "share", right, peer, peers_right),
    ]


def _best(do: Callable[[], NDArray[np.integer]]) -> tuple[NDArray[np.integer], float]:
    """What is found, and reports a second: the best of three."""
    found, best = do(), 0.0
    for _ in range(3):
        started = perf_counter()
        found = do()
        best = max(best, REPORTS / (perf_counter() - started))
    return found, best


def _tree(network: Network) -> shapely.STRtree:
    points = np.stack([network.longitudes, network.latitudes], axis=1)
    is_last = np.zeros(len(points), np.bool_)
    is_last[network.first[1:] - 1] = True
    starts = np.flatnonzero(~is_last)
    return shapely.STRtree(shapely.linestrings(np.stack([points[starts], points[starts + 1]], axis=1)))


def _warned(name: str, net: str, period_s: float, folder: Path, notes: list[str]) -> list[Row]:
    """Precision at equal recall, beside a radius."""
    if net:
        spec = find_spec("sumo")
        assert spec is not None
        assert spec.origin is not None
        path = Path(spec.origin).parent / net
        network = read_sumo(BytesIO(path.read_bytes()))
    else:
        network, path = _generated(CROOKED.replace("iterations 120", "iterations 700"), folder), folder / "generated.net.xml"
    origin = None if net else ORIGIN
    traffic = drive(path, network, folder, seed=11, length_s=LENGTH_S, period_s=period_s, origin=origin)
    placing = Placing(network)
    upstream, radius = curves(network, list(hazards(traffic, placing, count=HAZARDS, seed=12, since_s=SINCE_S)))
    placed = placing.place(traffic.latitudes, traffic.longitudes, traffic.going).roads
    drives = (traffic.roads >= 0) & (traffic.going.speeds_mps > 2)
    right = float((placed == traffic.roads)[drives].mean())
    crowd = int(np.median(np.bincount(traffic.seconds)[SINCE_S:]))
    notes.append(f"{name}: {len(network):,} roads, {crowd} cars at a time, {HAZARDS} hazards; {right:.1%} placed right")
    return [_compared(name, recall, upstream, radius) for recall in RECALLS]


def _compared(name: str, recall: float, upstream: Curve, radius: Curve) -> Row:
    work = f"{name}: precision at recall {recall:.0%} of who gets there within {WITHIN_S} s"
    figures = upstream.at(recall), "radius", radius.at(recall)
    return row(work, "share", *figures, ratio_min=2.0) if not QUICK else row(work, "share", *figures)


if __name__ == "__main__":
    main()
