"""Tracking of vehicles that cross the coverages of edges: accuracy and delay of the registry, and message loss (M34, D8)."""

import asyncio
import threading
import time
from collections import defaultdict
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from milepost.config.site_settings import SiteLog
from milepost.eventlog.log import read_to_end
from milepost.federation.hub_registry import HubRegistry
from milepost.model.durability import Durability
from milepost.model.endpoints import EndpointId
from milepost.model.places import Place
from milepost.model.reasons import Malformed
from milepost.model.site_records import VEHICLE_INFO, EndpointClaim
from milepost.runtime.site_logs import open_log
from milepost.wire.records import from_record
from milepost_experiments.papers.load.region import Region, running_region, tiles
from milepost_experiments.papers.mercury.accuracy import (
    Quantiles,
    StepFunction,
    StreamResult,
    TrackingResult,
    check_stream,
    check_tracking,
)
from milepost_experiments.papers.mercury.vehicles import Stream, TrackedVehicle
from milepost_experiments.papers.report import Figure, Line, Progress, Section, Table
from milepost_experiments.simulator.traces import Trace

QUERY_INTERVAL_S: Final = 0.1
"""Interval of registry queries."""

_POLL_S: Final = 0.005
_SETTLE_S: Final = 3.0
_MARGIN_S: Final = 1.0
_PROTOCOLS: Final = ("MQTT", "UDP")


@dataclass(frozen=True, slots=True)
class Sizes:
    """The size of the experiment."""

    vehicles: int
    begin_s: int
    seconds: int
    stream_per_s: float


QUICK: Final = Sizes(40, 100, 18, 10.0)
FULL: Final = Sizes(100, 120, 120, 20.0)


class RegistryFollower(threading.Thread):
    """Follows the registry of a site in its log, and records its changes with their times."""

    def __init__(self, log: SiteLog) -> None:
        super().__init__(daemon=True)
        self._site_log = log
        self._stopped = threading.Event()
        self.changes: dict[str, list[tuple[float, str]]] = defaultdict(list)

    def run(self) -> None:
        """Follow until stopped."""
        log, registry, position = open_log(self._site_log, Durability.NONE, "papers"), HubRegistry(), 0
        try:
            while not self._stopped.wait(_POLL_S):
                for records in read_to_end(log, VEHICLE_INFO, position):
                    now = time.time()
                    for record in records:
                        self._take(registry, record.value, now)
                    position = records[-1].offset + 1
        finally:
            log.close()

    def stop(self) -> None:
        """Stop following."""
        self._stopped.set()
        self.join()

    def _take(self, registry: HubRegistry, value: bytes | None, now: float) -> None:
        try:
            claim = from_record(value) if value else None
        except Malformed:
            return
        if isinstance(claim, EndpointClaim):
            registry.put(claim)
            winner, changes = registry.winner(EndpointId(claim.endpoint)), self.changes[claim.endpoint]
            if winner is not None and (not changes or changes[-1][1] != winner.edge.edge):
                changes.append((now, winner.edge.edge))


def measure(trace: Trace, progress: Progress, *, is_quick: bool) -> Section:
    """Drive, follow the registry, and compare."""
    sizes = QUICK if is_quick else FULL
    progress("tracking: starting four edges")
    with running_region(tiles(*_corners(trace), rows=2, columns=2)) as region:
        follower = RegistryFollower(region.log)
        follower.start()
        try:
            vehicles = asyncio.run(replay_trace(trace, sizes, region, progress))
        finally:
            follower.stop()
        region.testbed.check()
    return _section(sizes, vehicles, follower.changes)


def _corners(trace: Trace) -> tuple[Place, Place]:
    """Return the corners of the region, chosen so that coverages meet at the busiest place."""
    south, west = float(trace.latitudes.min()), float(trace.longitudes.min())
    middle = float(np.median(trace.latitudes)), float(np.median(trace.longitudes))
    return Place(south, west), Place(2 * middle[0] - south, 2 * middle[1] - west)


async def replay_trace(trace: Trace, sizes: Sizes, region: Region, progress: Progress) -> list[TrackedVehicle]:
    """Replay the trace in real time; half of the vehicles over MQTT, half over UDP."""
    rows_of = {second: np.flatnonzero(trace.seconds == second) for second in range(sizes.begin_s, sizes.begin_s + sizes.seconds)}
    chosen = crossing_most(trace, rows_of[sizes.begin_s], sizes, region)
    vehicles = {car: TrackedVehicle(f"car-{car}", is_udp=number % 2 == 1) for number, car in enumerate(sorted(chosen))}
    stream = Stream(region.edges[0].mqtt_port, sizes.stream_per_s)
    publishing, moves = asyncio.create_task(stream.run()), set[asyncio.Task[None]]()
    began = time.monotonic()
    for number, rows in enumerate(rows_of.values()):
        here = {int(trace.cars[row]): int(row) for row in rows if int(trace.cars[row]) in chosen}
        for car in [car for car, one in vehicles.items() if car not in here and not one.left_at]:
            await _leave(vehicles[car], stream)
        for car, row in here.items():
            place = Place(float(trace.latitudes[row]), float(trace.longitudes[row]))
            motion = float(trace.headings_deg[row]), float(trace.speeds_mps[row])
            task = asyncio.create_task(vehicles[car].move_to(place, motion, region))
            moves.add(task)
            task.add_done_callback(moves.discard)
        moves_so_far = sum(len(one.edges_entered) - 1 for one in vehicles.values() if one.edges_entered)
        progress(f"tracking: second {number + 1} of {sizes.seconds}, {len(here)} vehicles, {moves_so_far} moves so far")
        await asyncio.sleep(max(0.0, began + number + 1 - time.monotonic()))
    await asyncio.gather(*moves)
    await asyncio.sleep(_SETTLE_S)  # queued messages reach the vehicles that moved last
    publishing.cancel()
    await asyncio.gather(publishing, return_exceptions=True)
    await asyncio.sleep(_MARGIN_S)
    for one in vehicles.values():
        if not one.left_at:
            await _leave(one, stream)
    return list(vehicles.values())


def crossing_most(trace: Trace, rows: NDArray[np.intp], sizes: Sizes, region: Region) -> set[int]:
    """Return the cars, of those on the road at the beginning, that will cross between coverages most often."""
    is_seen = (trace.seconds >= sizes.begin_s) & (trace.seconds < sizes.begin_s + sizes.seconds)
    crossings = {}
    for car in trace.cars[rows].tolist():
        own = np.flatnonzero((trace.cars == car) & is_seen)
        names = [region.edge_at(Place(float(trace.latitudes[row]), float(trace.longitudes[row]))).name for row in own]
        crossings[car] = sum(one != next_one for one, next_one in pairwise(names))
    return set(sorted(crossings, key=lambda car: -crossings[car])[: sizes.vehicles])


async def _leave(vehicle: TrackedVehicle, stream: Stream) -> None:
    vehicle.last_expected = stream.last_before(time.time() - _MARGIN_S)
    await vehicle.leave()


def _section(sizes: Sizes, vehicles: list[TrackedVehicle], changes: dict[str, list[tuple[float, str]]]) -> Section:
    rows, results_by_protocol, violations = [], {}, []
    lines = []
    for is_udp, protocol in enumerate(_PROTOCOLS):
        own = [one for one in vehicles if one.is_udp == bool(is_udp)]
        tracking = [_check_vehicle(one, changes[one.name]) for one in own]
        received = [check_stream(one.received, last=one.last_expected) for one in own]
        row, results, times = _protocol_row(protocol, own, tracking, received)
        rows.append(row)
        results_by_protocol[protocol] = results
        lines.append(Line(protocol, sorted(times), np.linspace(0, 1, len(times)).tolist(), has_markers=False))
        if results["lost"]:
            violations.append(f"{results['lost']} messages of the stream were lost over {protocol}")
        if results["duplicated"] and not is_udp:
            violations.append(f"{results['duplicated']} messages of the stream were duplicated over {protocol}")
        violations += [fault for one in own for fault in one.faults][:3]
    table = Table(
        "Endpoints tracked through handovers",
        (
            "protocol",
            "vehicles",
            "moves",
            "registry right",
            "p50 ms",
            "p99 ms",
            "max ms",
            "never",
            "expected",
            "lost",
            "duplicated",
            "marked duplicates",
        ),
        tuple(rows),
        (
            f"{sizes.seconds} s of Berlin in real time, vehicles with most crossings. Times: from the crossing to the registry.",
            f"Registry right: share of instants, {QUERY_INTERVAL_S:g} s apart, at which it had the edge that covers the vehicle.",
            f"Expected: messages of a stream ({sizes.stream_per_s:g}/s, QoS 1) to every vehicle, from the first it received.",
            "Over UDP a client detects a new edge by its next report, one a second: the registry cannot know earlier.",
        ),
    )
    title = "Delay of the registry after a move"
    figure = Figure("mercury-tracking", title, "ms after the crossing", "share of moves", tuple(lines), is_log_x=True)
    setup = "four edge processes of one site, real clients of the client library, a SUMO trace in real time"
    return Section(
        "tracking", "1. Endpoints tracked through handovers", setup, (table,), (figure,), results_by_protocol, tuple(violations)
    )


def _check_vehicle(vehicle: TrackedVehicle, changes: list[tuple[float, str]]) -> TrackingResult:
    true = StepFunction(tuple(vehicle.entered_at), tuple(vehicle.edges_entered))
    registered = StepFunction(tuple(at for at, _ in changes), tuple(edge for _, edge in changes))
    return check_tracking(true, registered, until=vehicle.left_at - _SETTLE_S, interval_s=QUERY_INTERVAL_S)


def _protocol_row(
    protocol: str, own: list[TrackedVehicle], tracking: list[TrackingResult], received: list[StreamResult]
) -> tuple[tuple[str, ...], dict[str, object], list[float]]:
    times = [delay_s * 1e3 for one in tracking for delay_s in one.delays_s]
    quantiles = Quantiles.of(times)
    instants, right = sum(one.instants for one in tracking), sum(one.right for one in tracking)
    never, moves = sum(one.never for one in tracking), sum(len(one.edges_entered) - 1 for one in own)
    counts = {
        name: sum(getattr(one, name) for one in received) for name in ("expected", "lost", "duplicated", "marked_duplicates")
    }
    row = (
        protocol,
        f"{len(own)}",
        f"{moves}",
        f"{right / max(1, instants):.2%}",
        f"{quantiles.p50:.0f}",
        f"{quantiles.p99:.0f}",
        f"{quantiles.maximum:.0f}",
        f"{never}",
        *(f"{count:,}" for count in counts.values()),
    )
    results = {"vehicles": len(own), "moves": moves, "right": right, "instants": instants, "never": never}
    return row, {**results, "ms": asdict(quantiles), **counts}, times
