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
from milepost_experiments.papers.load.edges import EdgeProcess, running_edge
from milepost_experiments.papers.load.endpoints import SPEED_MPS, Endpoint, open_all, write_sessions
from milepost_experiments.papers.load.programs import LoadFailed, start_report_source
from milepost_experiments.papers.load.region import running_region
from milepost_experiments.papers.mercury.accuracy import Quantiles, share_within
from milepost_experiments.papers.mercury.probes import ANSWER_S_MAX, PAUSE_S_MAX, emergency, probe, receive_alert
from milepost_experiments.papers.mercury.stages import stage_table, stages_us
from milepost_experiments.papers.report import Figure, Line, Progress, Section, Table

BUDGET_MS: Final = 10.0
"""Mercury's budget for the system, of the 50 ms between two vehicles (M31)."""

_PROBER_PLACE: Final = Place(45.0, -100.0)
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
class LoadResult:
    """One load, and the response times under it."""

    endpoints: int
    offered_per_s: int
    accepted_per_s: float
    refused: int
    cpu_share: float
    """The edge's share of its core."""
    times_ms: tuple[float, ...]

    @property
    def quantiles(self) -> Quantiles:
        """The percentiles of the times."""
        return Quantiles.of(self.times_ms)


def measure(progress: Progress, *, is_quick: bool) -> Section:
    """Measure all loads, the path over the log, and the stages."""
    sizes = QUICK if is_quick else FULL
    by_endpoints = [_measure_load(count, count, sizes.probes, progress) for count in sizes.endpoints]
    by_rate = [_measure_load(sizes.rate_endpoints, rate, sizes.probes, progress) for rate in sizes.rates]
    progress("response: over the log, to the next edge")
    next_edge = measure_over_the_log(sizes.probes)
    progress("response: stages")
    stages = stages_us(sizes.stages)
    return _section(by_endpoints, by_rate, next_edge, stages)


def _measure_load(count: int, rate: int, probes: int, progress: Progress) -> LoadResult:
    """Measure one load at a fresh edge: a used edge would refuse a source that restarts at its first places for a while."""
    with running_edge(is_encrypted=True) as edge:
        progress(f"response: opening {count:,} sessions")
        endpoints = [Endpoint(number, edge.realm) for number in range(count)]
        prober = Endpoint(count, edge.realm, _PROBER_PLACE)
        open_all([*endpoints, prober], edge.port)
        write_sessions(edge.folder / "sessions", endpoints)
        progress(f"response: {count:,} endpoints, {rate:,} reports per second")
        return _under_load(edge, prober, count, rate, probes)


def _under_load(edge: EdgeProcess, prober: Endpoint, count: int, rate: int, probes: int) -> LoadResult:
    seconds = 2.0 + 2 * _SETTLE_S + probes * (PAUSE_S_MAX + 0.002)
    options = ("--rate", rate, "--encrypted", 1, "--counter", _COUNTER, "--walk-mps", SPEED_MPS)
    with start_report_source(edge.port, seconds, edge.folder / "sessions", *options):
        time.sleep(_SETTLE_S)
        before = edge.snapshot()
        times_ms = probe(prober, edge.port, probes)
        after = edge.snapshot()
    took_s = after.at_s - before.at_s
    accepted, refused = (after.of(name) - before.of(name) for name in ("reports_total", "refused_total"))
    return LoadResult(count, rate, accepted / took_s, int(refused), (after.cpu_s - before.cpu_s) / took_s, tuple(times_ms))


def measure_over_the_log(probes: int) -> tuple[float, ...]:
    """Return the milliseconds from an emergency at one edge to its alert at the next edge, through the site's log."""
    middle = Place(40.6, -111.9)
    boxes = [Box(south=40.5, west=-112.0, north=40.7, east=-111.9), Box(south=40.5, west=-111.9, north=40.7, east=-111.8)]
    with running_region(boxes) as region, ExitStack() as stack:
        here, there = Endpoint(1, None, moved(middle, 270.0, 100.0)), Endpoint(2, None, moved(middle, 90.0, 100.0))
        sockets = []
        for endpoint, edge in zip((here, there), region.edges, strict=True):
            sock = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            sock.connect(("127.0.0.1", edge.udp_port))
            sock.settimeout(ANSWER_S_MAX)
            open_session(endpoint, sock)
            sockets.append(sock)
        _wait_until_connected(here, there, sockets)
        times_ms, due = list[float](), 0.0
        for _ in range(probes):
            if time.monotonic() >= due:  # keep sessions alive; the rate limit refuses more than a few reports per second
                due = time.monotonic() + _REPORT_S
                for endpoint, sock in zip((here, there), sockets, strict=True):
                    sock.send(endpoint.report(Instant(time.time_ns())))
            times_ms.append(_across(here, there, sockets))
        return tuple(times_ms)


def open_session(endpoint: Endpoint, sock: socket.socket) -> None:
    """Open a session on this socket."""
    sock.send(endpoint.begin(Instant(time.time_ns())))
    endpoint.read_ack(sock.recv(2048))
    sock.send(endpoint.report(Instant(time.time_ns())))


def _wait_until_connected(here: Endpoint, there: Endpoint, sockets: list[socket.socket]) -> None:
    """Wait until the edges know each other: the first alert arrives."""
    sockets[1].settimeout(1.0)
    for _ in range(10):
        try:
            _across(here, there, sockets)
        except LoadFailed:
            continue
        sockets[1].settimeout(ANSWER_S_MAX)
        return
    raise LoadFailed("alerts of one edge do not reach the next edge")


def _across(here: Endpoint, there: Endpoint, sockets: list[socket.socket]) -> float:
    data = emergency(here)
    began = time.perf_counter()
    sockets[0].send(data)
    time_ms = (receive_alert(there, sockets[1]) - began) * 1e3
    receive_alert(here, sockets[0])
    return time_ms


def _section(
    by_endpoints: list[LoadResult], by_rate: list[LoadResult], next_edge: tuple[float, ...], stages: dict[str, list[float]]
) -> Section:
    all_times_ms = [time_ms for one in (*by_endpoints, *by_rate) for time_ms in one.times_ms]
    inside, across = share_within(all_times_ms, BUDGET_MS), share_within(next_edge, BUDGET_MS)
    paths = (
        _path_row("one edge, 12 endpoints", by_endpoints[0].times_ms),
        _path_row("one edge, all loads above", all_times_ms),
        _path_row("to the next edge, through the log", next_edge),
    )
    tables = (
        _load_table("From emergency to alert, by number of endpoints, each reporting once a second: ms", by_endpoints),
        _load_table("From emergency to alert, by reports per second: ms", by_rate),
        Table(
            f"Mercury's budget inside the system, {BUDGET_MS:g} ms (M31): the whole path, socket to socket",
            ("path", "probes", "p50 ms", "p99 ms", "max ms", f"within {BUDGET_MS:g} ms"),
            paths,
            ("Includes the vehicle's own work and loopback; excludes messages across sites and incidents of many reports.",),
        ),
        stage_table(stages),
    )
    log_line = _distribution_line("through the log", next_edge)
    figures = (
        Figure(
            "mercury-response-load",
            "From an emergency to its alert, by load",
            "reports per second at one edge",
            "ms",
            tuple(
                Line(name, [one.accepted_per_s for one in by_rate], [getattr(one.quantiles, name) for one in by_rate])
                for name in ("p50", "p99")
            ),
            is_log_x=True,
            is_log_y=True,
            reference_line=(BUDGET_MS, "Mercury's budget, 10 ms"),
        ),
        Figure(
            "mercury-response-spread",
            "Distribution of response times",
            "ms from emergency to alert",
            "share of alerts",
            (*(_distribution_line(f"{one.accepted_per_s:,.0f} reports/s", one.times_ms) for one in by_rate), log_line),
            is_log_x=True,
            reference_line=(BUDGET_MS, "Mercury's budget, 10 ms"),
            is_reference_vertical=True,
        ),
    )
    results = {
        "by_endpoints": [_as_json(one) for one in by_endpoints],
        "by_rate": [_as_json(one) for one in by_rate],
        "next_edge_ms": asdict(Quantiles.of(next_edge)),
        "within_budget": {"one_edge": inside, "next_edge": across},
        "stages_us": {name: asdict(Quantiles.of(times)) for name, times in stages.items()},
    }
    setup = "an edge process with encrypted UDP; two for the path over the log"
    return Section("response", "3. Response time by load", setup, tables, figures, results)


def _load_table(title: str, results: list[LoadResult]) -> Table:
    rows = tuple(
        (
            f"{one.endpoints:,}",
            f"{one.offered_per_s:,}",
            f"{one.accepted_per_s:,.0f}",
            f"{one.refused:,}",
            f"{one.cpu_share:.0%}",
            f"{one.quantiles.p50:.2f}",
            f"{one.quantiles.p99:.2f}",
            f"{one.quantiles.maximum:.2f}",
            f"{share_within(one.times_ms, BUDGET_MS):.1%}",
        )
        for one in results
    )
    headings = ("endpoints", "offered/s", "accepted/s", "refused", "edge CPU", "p50", "p99", "max", "within 10 ms")
    return Table(title, headings, rows)


def _path_row(name: str, times_ms: tuple[float, ...] | list[float]) -> tuple[str, ...]:
    quantiles = Quantiles.of(times_ms)
    share = share_within(times_ms, BUDGET_MS)
    return (
        name,
        f"{quantiles.count:,}",
        f"{quantiles.p50:.2f}",
        f"{quantiles.p99:.2f}",
        f"{quantiles.maximum:.2f}",
        f"{share:.2%}",
    )


def _distribution_line(label: str, times_ms: tuple[float, ...]) -> Line:
    return Line(label, sorted(times_ms), np.linspace(0, 1, len(times_ms)).tolist(), has_markers=False)


def _as_json(one: LoadResult) -> dict[str, Any]:
    results = asdict(one) | asdict(one.quantiles)
    del results["times_ms"]
    return results
