"""Reports taken on one core: an edge beside a loop in C that receives, and opens, the same datagrams."""

import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench.udp_load.programs import program_sink
from milepost_experiments.papers.load.edges import Edge, serving
from milepost_experiments.papers.load.endpoints import SPEED_MPS, Endpoint, open_all, write_sessions
from milepost_experiments.papers.load.programs import LoadFailed, Program, source

WARM_S = 0.5
COUNTERS_A_ROUND = 10**9
"""Each round's counters begin so much higher: what one session sealed before is never sealed again."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What a receiver has taken; `busy` is its share of its core, `offered_per_s` what was sent."""

    per_s: float
    cpu_us: float
    busy: float
    offered_per_s: float


@dataclass(frozen=True, slots=True)
class Compared:
    """The medians of some rounds."""

    ours: Taken
    floor: Taken
    ratios: list[float]
    """Of each round, by processor time, sorted: how far apart they lie says how far to believe the medians."""


def compare(sessions: int, *, is_sealed: bool, seconds: float, rounds: int) -> Compared:
    """Edge and loop take turns, round by round, at the same datagrams."""
    with serving(is_sealed=is_sealed) as edge:
        endpoints = [Endpoint(number, edge.realm) for number in range(sessions)]
        open_all(endpoints, edge.port)
        path = edge.folder / "sessions"
        write_sessions(path, endpoints)
        refused_before = edge.look().of("refused_total")
        ours, floor = [], []
        for number in range(1, rounds + 1):
            counter = number * COUNTERS_A_ROUND
            ours.append(flood_edge(edge, path, counter, seconds))
            floor.append(flood_sink(path, counter, seconds, is_sealed=is_sealed))
        refused = edge.look().of("refused_total") - refused_before
    if refused:
        raise LoadFailed(f"the edge refused {refused:,.0f} times: its rate is not that of reports taken")
    ratios = sorted(theirs.cpu_us / own.cpu_us for own, theirs in zip(ours, floor, strict=True))
    return Compared(middle(ours), middle(floor), ratios)


def flood_edge(edge: Edge, path: Path, counter: int, seconds: float) -> Taken:
    """More reports than an edge can take, for a while."""
    with source_to(edge.port, path, counter, WARM_S + seconds + WARM_S, is_sealed=edge.realm is not None) as source:
        time.sleep(WARM_S)
        before = edge.look()
        time.sleep(seconds)
        after = edge.look()
        sent = source.answer(WARM_S)
    took_s, cpu_s = after.at_s - before.at_s, after.cpu_s - before.cpu_s
    reports = after.of("reports_total") - before.of("reports_total")
    if not reports:
        raise LoadFailed(f"the edge took no reports: {after.figures}")
    return Taken(reports / took_s, cpu_s / reports * 1e6, cpu_s / took_s, sent["per_s"])


def flood_sink(path: Path, counter: int, seconds: float, *, is_sealed: bool) -> Taken:
    """The same to the loop in C."""
    words = ("--sessions", path) if is_sealed else ()
    with program_sink(0, WARM_S + seconds + WARM_S, *words) as sink:
        port = sink.answer()["port"]
        with source_to(port, path, counter, seconds, is_sealed=is_sealed) as source:
            sent = source.answer(seconds)
            found: dict[str, Any] = sink.answer(seconds)
    if is_sealed and found["opened"] != found["received"]:
        raise LoadFailed(f"the loop in C could not open what it received: {found}")
    return Taken(found["per_s"], found["cpu_us"], found["cpu_s"] / found["seconds"], sent["per_s"])


def source_to(port: int, path: Path, counter: int, seconds: float, *, is_sealed: bool) -> Program:
    """Reports of all sessions in turn, as fast as it goes."""
    return source(port, seconds, path, "--sealed", int(is_sealed), "--counter", counter, "--walk-mps", SPEED_MPS)


def middle(found: list[Taken]) -> Taken:
    """The median of each figure."""
    return Taken(
        median(one.per_s for one in found),
        median(one.cpu_us for one in found),
        median(one.busy for one in found),
        median(one.offered_per_s for one in found),
    )
