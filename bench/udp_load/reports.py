"""Reports received on one core: an edge compared with a loop in C that receives, and decrypts, the same datagrams."""

import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench.udp_load.programs import start_sink
from milepost_experiments.papers.load.edges import EdgeProcess, running_edge
from milepost_experiments.papers.load.endpoints import SPEED_MPS, Endpoint, open_all, write_sessions
from milepost_experiments.papers.load.programs import LoadFailed, Program, start_report_source

WARM_S = 0.5
COUNTERS_PER_ROUND = 10**9
"""Offset of the counters of each round: a session never encrypts with the same counter twice."""


@dataclass(frozen=True, slots=True)
class ReceiveRate:
    """The rate of a receiver; `busy` is its share of its core, `offered_per_s` the rate of the source."""

    per_s: float
    cpu_us: float
    busy: float
    offered_per_s: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """The medians of all rounds."""

    ours: ReceiveRate
    baseline: ReceiveRate
    ratios: list[float]
    """Ratios of CPU time per round, sorted; their spread shows how reliable the medians are."""


def compare(sessions: int, *, is_encrypted: bool, seconds: float, rounds: int) -> Comparison:
    """Measure edge and loop alternately, with the same datagrams."""
    with running_edge(is_encrypted=is_encrypted) as edge:
        endpoints = [Endpoint(number, edge.realm) for number in range(sessions)]
        open_all(endpoints, edge.port)
        path = edge.folder / "sessions"
        write_sessions(path, endpoints)
        refused_before = edge.snapshot().of("refused_total")
        ours, baseline = [], []
        for number in range(1, rounds + 1):
            counter = number * COUNTERS_PER_ROUND
            ours.append(flood_edge(edge, path, counter, seconds))
            baseline.append(flood_sink(path, counter, seconds, is_encrypted=is_encrypted))
        refused = edge.snapshot().of("refused_total") - refused_before
    if refused:
        raise LoadFailed(f"the edge refused {refused:,.0f} datagrams: its rate is not that of accepted reports")
    ratios = sorted(theirs.cpu_us / own.cpu_us for own, theirs in zip(ours, baseline, strict=True))
    return Comparison(median_rate(ours), median_rate(baseline), ratios)


def flood_edge(edge: EdgeProcess, path: Path, counter: int, seconds: float) -> ReceiveRate:
    """Send more reports than the edge can process, for a while."""
    with source_to(edge.port, path, counter, WARM_S + seconds + WARM_S, is_encrypted=edge.realm is not None) as source:
        time.sleep(WARM_S)
        before = edge.snapshot()
        time.sleep(seconds)
        after = edge.snapshot()
        sent = source.read_answer(WARM_S)
    took_s, cpu_s = after.at_s - before.at_s, after.cpu_s - before.cpu_s
    reports = after.of("reports_total") - before.of("reports_total")
    if not reports:
        raise LoadFailed(f"the edge accepted no reports: {after.metrics}")
    return ReceiveRate(reports / took_s, cpu_s / reports * 1e6, cpu_s / took_s, sent["per_s"])


def flood_sink(path: Path, counter: int, seconds: float, *, is_encrypted: bool) -> ReceiveRate:
    """Send the same to the loop in C."""
    options = ("--sessions", path) if is_encrypted else ()
    with start_sink(0, WARM_S + seconds + WARM_S, *options) as sink:
        port = sink.read_answer()["port"]
        with source_to(port, path, counter, seconds, is_encrypted=is_encrypted) as source:
            sent = source.read_answer(seconds)
            answer: dict[str, Any] = sink.read_answer(seconds)
    if is_encrypted and answer["decrypted"] != answer["received"]:
        raise LoadFailed(f"the loop in C could not decrypt all datagrams: {answer}")
    return ReceiveRate(answer["per_s"], answer["cpu_us"], answer["cpu_s"] / answer["seconds"], sent["per_s"])


def source_to(port: int, path: Path, counter: int, seconds: float, *, is_encrypted: bool) -> Program:
    """Start a source of reports, round-robin over all sessions, as fast as possible."""
    return start_report_source(
        port, seconds, path, "--encrypted", int(is_encrypted), "--counter", counter, "--walk-mps", SPEED_MPS
    )


def median_rate(answer: list[ReceiveRate]) -> ReceiveRate:
    """Return the median of each value."""
    return ReceiveRate(
        median(one.per_s for one in answer),
        median(one.cpu_us for one in answer),
        median(one.busy for one in answer),
        median(one.offered_per_s for one in answer),
    )
