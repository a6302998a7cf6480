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
from milepost.model.sites import VEHICLE_INFO, Claim
from milepost.runtime.site_logs import open_log
from milepost.wire.records import from_record
from milepost_experiments.papers.load.region import Region, standing_region, tiles
from milepost_experiments.papers.mercury.accuracy import Heard, Spread, Steps, Tracked, heard_stream, tracked
from milepost_experiments.papers.mercury.vehicles import Stream, Vehicle
from milepost_experiments.papers.report import Figure, Line, Progress, Section, Table
from milepost_experiments.simulator.traces import Trace

EACH_S: Final = 0.1
"""Interval of registry queries."""

_LOOK_S: Final = 0.005
_SETTLE_S: Final = 3.0
_MARGIN_S: Final = 1.0
_CARRIERS: Final = ("MQTT", "UDP")


@dataclass(frozen=True, slots=True)
class Sizes:
    """The size of the experiment."""

    vehicles: int
    begin_s: int
    seconds: int
    stream_per_s: float


QUICK: Final = Sizes(40, 100, 18, 10.0)
FULL: Final = Sizes(100, 120, 120, 20.0)


class RegisterWatch(threading.Thread):
    """Follows the registry of a site in its log, and records its changes with their times."""

    def __init__(self, log: SiteLog) -> None:
        super().__init__(daemon=True)
        self._site_log = log
        self._over = threading.Event()
        self.told: dict[str, list[tuple[float, str]]] = defaultdict(list)

    def run(self) -> None:
        """Follow until stopped."""
        log, register, position = open_log(self._site_log, Durability.NOTHING, "papers"), HubRegistry(), 0
        try:
            while not self._over.wait(_LOOK_S):
                for records in read_to_end(log, VEHICLE_INFO, position):
                    now = time.time()
                    for record in records:
                        self._take(register, record.value, now)
                    position = records[-1].offset + 1
        finally:
            log.close()

    def stop(self) -> None:
        """Stop following."""
        self._over.set()
        self.join()

    def _take(self, register: HubRegistry, value: bytes | None, now: float) -> None:
        try:
            claim = from_record(value) if value else None
        except Malformed:
            return
        if isinstance(claim, Claim):
            register.put(claim)
            latest, told = register.latest(EndpointId(claim.endpoint)), self.told[claim.endpoint]
            if latest is not None and (not told or told[-1][1] != latest.edge.edge):
                told.append((now, latest.edge.edge))


def measure(trace: Trace, progress: Progress, *, is_quick: bool) -> Section:
    """Drive, follow the registry, and compare."""
    sizes = QUICK if is_quick else FULL
    progress("tracking: four edges start")
    with standing_region(tiles(*_corners(trace), rows=2, columns=2)) as region:
        watch = RegisterWatch(region.log)
        watch.start()
        try:
            vehicles = asyncio.run(driven(trace, sizes, region, progress))
        finally:
            watch.stop()
        region.town.check()
    return _section(sizes, vehicles, watch.told)


def _corners(trace: Trace) -> tuple[Place, Place]:
    """Return the corners of the region, chosen so that coverages meet at the busiest place."""
    south, west = float(trace.latitudes.min()), float(trace.longitudes.min())
    middle = float(np.median(trace.latitudes)), float(np.median(trace.longitudes))
    return Place(south, west), Place(2 * middle[0] - south, 2 * middle[1] - west)


async def driven(trace: Trace, sizes: Sizes, region: Region, progress: Progress) -> list[Vehicle]:
    """Replay the trace in real time; half of the vehicles over MQTT, half over UDP."""
    rows_of = {second: np.flatnonzero(trace.seconds == second) for second in range(sizes.begin_s, sizes.begin_s + sizes.seconds)}
    chosen = crossing_most(trace, rows_of[sizes.begin_s], sizes, region)
    vehicles = {car: Vehicle(f"car-{car}", is_udp=number % 2 == 1) for number, car in enumerate(sorted(chosen))}
    stream = Stream(region.edges[0].mqtt_port, sizes.stream_per_s)
    saying, moves = asyncio.create_task(stream.run()), set[asyncio.Task[None]]()
    began = time.monotonic()
    for number, rows in enumerate(rows_of.values()):
        here = {int(trace.cars[row]): int(row) for row in rows if int(trace.cars[row]) in chosen}
        for car in [car for car, one in vehicles.items() if car not in here and not one.left_at]:
            await _leave(vehicles[car], stream)
        for car, row in here.items():
            place = Place(float(trace.latitudes[row]), float(trace.longitudes[row]))
            going = float(trace.headings_deg[row]), float(trace.speeds_mps[row])
            task = asyncio.create_task(vehicles[car].be_at(place, going, region))
            moves.add(task)
            task.add_done_callback(moves.discard)
        crossed = sum(len(one.covers) - 1 for one in vehicles.values() if one.covers)
        progress(f"tracking: second {number + 1} of {sizes.seconds}, {len(here)} vehicles, {crossed} moves so far")
        await asyncio.sleep(max(0.0, began + number + 1 - time.monotonic()))
    await asyncio.gather(*moves)
    await asyncio.sleep(_SETTLE_S)  # queued messages reach the vehicles that moved last
    saying.cancel()
    await asyncio.gather(saying, return_exceptions=True)
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


async def _leave(vehicle: Vehicle, stream: Stream) -> None:
    vehicle.last_due = stream.last_before(time.time() - _MARGIN_S)
    await vehicle.leave()


def _section(sizes: Sizes, vehicles: list[Vehicle], told: dict[str, list[tuple[float, str]]]) -> Section:
    rows, found, broken = [], {}, []
    lines = []
    for is_udp, carrier in enumerate(_CARRIERS):
        own = [one for one in vehicles if one.is_udp == bool(is_udp)]
        judged = [_judged(one, told[one.name]) for one in own]
        heard = [heard_stream(one.heard, last=one.last_due) for one in own]
        row, figures, times = _carrier_row(carrier, own, judged, heard)
        rows.append(row)
        found[carrier] = figures
        lines.append(Line(carrier, sorted(times), np.linspace(0, 1, len(times)).tolist(), has_marks=False))
        if figures["lost"]:
            broken.append(f"{figures['lost']} messages of the stream were lost over {carrier}")
        if figures["doubled"] and not is_udp:
            broken.append(f"{figures['doubled']} messages of the stream came twice over {carrier}")
        broken += [fault for one in own for fault in one.faults][:3]
    table = Table(
        "Endpoints tracked through handovers",
        (
            "over",
            "vehicles",
            "moves",
            "right",
            "p50 ms",
            "p99 ms",
            "max ms",
            "never",
            "expected",
            "lost",
            "doubled",
            "repeated",
        ),
        tuple(rows),
        (
            f"{sizes.seconds} s of Berlin in real time, who crosses most. Right: at so many instants, {EACH_S:g} s apart, the",
            "register had the edge in whose coverage the vehicle was. Times: from SUMO's crossing until the register knew.",
            f"Expected: messages of a stream ({sizes.stream_per_s:g}/s, quality 1) to every vehicle, from the first it heard on.",
            "Over UDP a client learns from its next report that another edge has it: one a second, so long nobody can know.",
        ),
    )
    title = "How soon the register knows of a move"
    figure = Figure("mercury-tracking", title, "ms after the crossing", "share of moves", tuple(lines), is_log_x=True)
    on = "four edge processes of one site, real clients of the client library, a trace of SUMO in real time"
    return Section("tracking", "1. Endpoints tracked through handovers", on, (table,), (figure,), found, tuple(broken))


def _judged(vehicle: Vehicle, told: list[tuple[float, str]]) -> Tracked:
    true = Steps(tuple(vehicle.came_at), tuple(vehicle.covers))
    said = Steps(tuple(at for at, _ in told), tuple(edge for _, edge in told))
    return tracked(true, said, until=vehicle.left_at - _SETTLE_S, each_s=EACH_S)


def _carrier_row(
    carrier: str, own: list[Vehicle], judged: list[Tracked], heard: list[Heard]
) -> tuple[tuple[str, ...], dict[str, object], list[float]]:
    times = [delay_s * 1e3 for one in judged for delay_s in one.delays_s]
    spread = Spread.of(times)
    instants, right = sum(one.instants for one in judged), sum(one.right for one in judged)
    never, moves = sum(one.never for one in judged), sum(len(one.covers) - 1 for one in own)
    counts = {name: sum(getattr(one, name) for one in heard) for name in ("expected", "lost", "doubled", "repeated")}
    row = (
        carrier,
        f"{len(own)}",
        f"{moves}",
        f"{right / max(1, instants):.2%}",
        f"{spread.p50:.0f}",
        f"{spread.p99:.0f}",
        f"{spread.most:.0f}",
        f"{never}",
        *(f"{count:,}" for count in counts.values()),
    )
    figures = {"vehicles": len(own), "moves": moves, "right": right, "instants": instants, "never": never}
    return row, {**figures, "ms": asdict(spread), **counts}, times
