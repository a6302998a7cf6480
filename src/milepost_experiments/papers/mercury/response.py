"""Response time from an emergency to its alert, by load and number of endpoints, and by stage (M31).

vehicle ─▶ socket ─▶ open, decode ─▶ vet ─▶ match ─▶ deliver: sign, seal ─▶ socket ─▶ vehicle
           └──────────── inside the system: 10 ms of Mercury's 50 ms ────────────┘
"""

import socket
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from milepost.model.areas import Box
from milepost.model.instants import Instant
from milepost.model.places import Place, moved
from milepost_experiments.papers.load.edges import Edge, serving
from milepost_experiments.papers.load.endpoints import SPEED_MPS, Endpoint, open_all, write_sessions
from milepost_experiments.papers.load.programs import LoadFailed, source
from milepost_experiments.papers.load.region import standing_region
from milepost_experiments.papers.mercury.accuracy import Spread, share_within
from milepost_experiments.papers.mercury.probes import ANSWER_S_MAX, PAUSE_S_MAX, emergency, hear_alert, probe
from milepost_experiments.papers.mercury.stages import stage_table, stages_us
from milepost_experiments.papers.report import Figure, Line, Progress, Section, Table

BUDGET_MS: Final = 10.0
"""Mercury's budget for the system, of the 50 ms between two vehicles (M31)."""

_AWAY: Final = Place(45.0, -100.0)
_SETTLE_S: Final = 0.5
_REPORT_S: Final = 0.5
_COUNTER: Final = 10**6
"""First counter of the load's datagrams: far from those that opened the sessions."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """The size of the experiment."""

    endpoints: tuple[int, ...]
    """Numbers of endpoints; each reports once per second."""
    rates: tuple[int, ...]
    """Reports per second of all `rate_endpoints` together."""
    rate_endpoints: int
    probes: int
    stages: int


QUICK: Final = Sizes((12, 48, 1_000), (2_000, 10_000), 1_000, 250, 300)
FULL: Final = Sizes((12, 48, 200, 1_000, 5_000), (1_000, 2_000, 5_000, 10_000, 20_000, 40_000), 1_000, 2_000, 2_000)


@dataclass(frozen=True, slots=True)
class Answered:
    """One load, and the response times under it."""

    endpoints: int
    offered_per_s: int
    taken_per_s: float
    refused: int
    busy: float
    """The edge's share of its core."""
    times_ms: tuple[float, ...]

    @property
    def spread(self) -> Spread:
        """The percentiles of the times."""
        return Spread.of(self.times_ms)


def measure(progress: Progress, *, is_quick: bool) -> Section:
    """Measure all loads, the path over the log, and the stages."""
    sizes = QUICK if is_quick else FULL
    by_endpoints = [_answered(count, count, sizes.probes, progress) for count in sizes.endpoints]
    by_rate = [_answered(sizes.rate_endpoints, rate, sizes.probes, progress) for rate in sizes.rates]
    progress("response: over the log, to the next edge")
    next_edge = over_the_log(sizes.probes)
    progress("response: stages")
    stages = stages_us(sizes.stages)
    return _section(by_endpoints, by_rate, next_edge, stages)


def _answered(count: int, rate: int, probes: int, progress: Progress) -> Answered:
    """Measure one load at a fresh edge: a source that restarts its walk at a used edge would be refused for a while."""
    with serving(is_sealed=True) as edge:
        progress(f"response: {count:,} sessions are opened")
        endpoints = [Endpoint(number, edge.realm) for number in range(count)]
        prober = Endpoint(count, edge.realm, _AWAY)
        open_all([*endpoints, prober], edge.port)
        write_sessions(edge.folder / "sessions", endpoints)
        progress(f"response: {count:,} endpoints, {rate:,} reports a second")
        return _under_load(edge, prober, count, rate, probes)


def _under_load(edge: Edge, prober: Endpoint, count: int, rate: int, probes: int) -> Answered:
    seconds = 2.0 + 2 * _SETTLE_S + probes * (PAUSE_S_MAX + 0.002)
    words = ("--rate", rate, "--sealed", 1, "--counter", _COUNTER, "--walk-mps", SPEED_MPS)
    with source(edge.port, seconds, edge.folder / "sessions", *words):
        time.sleep(_SETTLE_S)
        before = edge.look()
        times_ms = probe(prober, edge.port, probes)
        after = edge.look()
    took_s = after.at_s - before.at_s
    taken, refused = (after.of(name) - before.of(name) for name in ("reports_total", "refused_total"))
    return Answered(count, rate, taken / took_s, int(refused), (after.cpu_s - before.cpu_s) / took_s, tuple(times_ms))


def over_the_log(probes: int) -> tuple[float, ...]:
    """Return the milliseconds from an emergency at one edge to its alert at the next edge, through the site's log."""
    middle = Place(40.6, -111.9)
    boxes = [Box(south=40.5, west=-112.0, north=40.7, east=-111.9), Box(south=40.5, west=-111.9, north=40.7, east=-111.8)]
    with standing_region(boxes) as region, ExitStack() as stack:
        here, there = Endpoint(1, None, moved(middle, 270.0, 100.0)), Endpoint(2, None, moved(middle, 90.0, 100.0))
        ears = []
        for endpoint, edge in zip((here, there), region.edges, strict=True):
            ear = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            ear.connect(("127.0.0.1", edge.udp_port))
            ear.settimeout(ANSWER_S_MAX)
            join(endpoint, ear)
            ears.append(ear)
        _wait_joined(here, there, ears)
        found, due = list[float](), 0.0
        for _ in range(probes):
            if time.monotonic() >= due:  # keep sessions alive; the rate limit refuses more than a few reports per second
                due = time.monotonic() + _REPORT_S
                for endpoint, ear in zip((here, there), ears, strict=True):
                    ear.send(endpoint.report(Instant(time.time_ns())))
            found.append(_across(here, there, ears))
        return tuple(found)


def join(endpoint: Endpoint, ear: socket.socket) -> None:
    """Open a session on this socket."""
    ear.send(endpoint.begin(Instant(time.time_ns())))
    endpoint.read_ack(ear.recv(2048))
    ear.send(endpoint.report(Instant(time.time_ns())))


def _wait_joined(here: Endpoint, there: Endpoint, ears: list[socket.socket]) -> None:
    """Wait until the edges know each other: the first alert arrives."""
    ears[1].settimeout(1.0)
    for _ in range(10):
        try:
            _across(here, there, ears)
        except LoadFailed:
            continue
        ears[1].settimeout(ANSWER_S_MAX)
        return
    raise LoadFailed("the edges of the region do not hear each other")


def _across(here: Endpoint, there: Endpoint, ears: list[socket.socket]) -> float:
    data = emergency(here)
    began = time.perf_counter()
    ears[0].send(data)
    found_ms = (hear_alert(there, ears[1]) - began) * 1e3
    hear_alert(here, ears[0])
    return found_ms


def _section(
    by_endpoints: list[Answered], by_rate: list[Answered], next_edge: tuple[float, ...], stages: dict[str, list[float]]
) -> Section:
    every = [time_ms for one in (*by_endpoints, *by_rate) for time_ms in one.times_ms]
    inside, across = share_within(every, BUDGET_MS), share_within(next_edge, BUDGET_MS)
    paths = (
        _path_row("one edge, alone with a dozen", by_endpoints[0].times_ms),
        _path_row("one edge, under every load above", every),
        _path_row("to the next edge, through the log", next_edge),
    )
    tables = (
        _loads("Emergency in, alert out, by endpoints that report once a second: ms", by_endpoints),
        _loads("The same by messages a second", by_rate),
        Table(
            f"Mercury's budget inside the system, {BUDGET_MS:g} ms (M31): the whole path, from socket to socket",
            ("path", "probes", "p50 ms", "p99 ms", "max ms", f"within {BUDGET_MS:g} ms"),
            paths,
            ("The vehicle's own work and loopback are in it. What crosses sites, and incidents of many reports, are not.",),
        ),
        stage_table(stages),
    )
    log_line = _spread_line("through the log", next_edge)
    figures = (
        Figure(
            "mercury-response-load",
            "From an emergency to its alert, by load",
            "reports a second at one edge",
            "ms",
            tuple(
                Line(name, [one.taken_per_s for one in by_rate], [getattr(one.spread, name) for one in by_rate])
                for name in ("p50", "p99")
            ),
            is_log_x=True,
            is_log_y=True,
            mark=(BUDGET_MS, "Mercury's budget, 10 ms"),
        ),
        Figure(
            "mercury-response-spread",
            "How many alerts came within how long",
            "ms from emergency to alert",
            "share of alerts",
            (*(_spread_line(f"{one.taken_per_s:,.0f} reports/s", one.times_ms) for one in by_rate), log_line),
            is_log_x=True,
            mark=(BUDGET_MS, "Mercury's budget, 10 ms"),
            mark_at_x=True,
        ),
    )
    found = {
        "by_endpoints": [_as_json(one) for one in by_endpoints],
        "by_rate": [_as_json(one) for one in by_rate],
        "next_edge_ms": asdict(Spread.of(next_edge)),
        "within_budget": {"one_edge": inside, "next_edge": across},
        "stages_us": {name: asdict(Spread.of(times)) for name, times in stages.items()},
    }
    on = "an edge process over UDP, sealed; two for the log"
    return Section("response", "3. Response time against load", on, tables, figures, found)


def _loads(title: str, found: list[Answered]) -> Table:
    rows = tuple(
        (
            f"{one.endpoints:,}",
            f"{one.offered_per_s:,}",
            f"{one.taken_per_s:,.0f}",
            f"{one.refused:,}",
            f"{one.busy:.0%}",
            f"{one.spread.p50:.2f}",
            f"{one.spread.p99:.2f}",
            f"{one.spread.most:.2f}",
            f"{share_within(one.times_ms, BUDGET_MS):.1%}",
        )
        for one in found
    )
    heads = ("endpoints", "offered/s", "taken/s", "refused", "edge's core", "p50", "p99", "max", "within 10 ms")
    return Table(title, heads, rows)


def _path_row(name: str, times_ms: tuple[float, ...] | list[float]) -> tuple[str, ...]:
    spread = Spread.of(times_ms)
    share = share_within(times_ms, BUDGET_MS)
    return name, f"{spread.count:,}", f"{spread.p50:.2f}", f"{spread.p99:.2f}", f"{spread.most:.2f}", f"{share:.2%}"


def _spread_line(label: str, times_ms: tuple[float, ...]) -> Line:
    return Line(label, sorted(times_ms), np.linspace(0, 1, len(times_ms)).tolist(), has_marks=False)


def _as_json(one: Answered) -> dict[str, Any]:
    found = asdict(one) | asdict(one.spread)
    del found["times_ms"]
    return found
