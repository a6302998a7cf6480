"""Capacity: many endpoints that report once a second at one edge, for a while."""

import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from milepost_experiments.papers.load.edges import EdgeProcess, running_edge
from milepost_experiments.papers.load.endpoints import SPEED_MPS, Endpoint, open_all
from milepost_experiments.papers.load.programs import LoadFailed, Program, start_report_source

INTERVAL_S, HEARTBEAT_INTERVALS = 3.0, 1
"""A heartbeat every 3 s, the default; but nine seconds of silence instead of three, since not all sessions can open at once."""

CHUNK = 200
KEEPALIVE_PASS_S = 3.0
KEEPALIVE_PASS_PER_S = 80_000
SETTLE_S = 2.0
DRAIN_S = 0.3
OPEN_S_MAX = 900.0
COUNTERS_PER_PASS = 1_000


@dataclass(frozen=True, slots=True)
class CapacityResult:
    """The result; `busy` is the edge's share of its core."""

    sent: int
    accepted: int
    refused: int
    sessions_left: int
    busy: float
    bytes_each: float
    late_ms: float


def report_once_a_second(sessions: int, seconds: float) -> CapacityResult:
    """Open all sessions, then let all report once a second."""
    with running_edge(is_encrypted=True, interval_s=INTERVAL_S, heartbeat_intervals=HEARTBEAT_INTERVALS) as edge:
        empty_bytes = edge.snapshot().resident_bytes
        path = edge.folder / "sessions"
        passes = open_sessions(edge, path, sessions)
        time.sleep(DRAIN_S)  # reports of the last pass are not counted
        before = edge.snapshot()
        options = ("--rate", sessions, "--encrypted", 1, "--counter", (passes + 1) * COUNTERS_PER_PASS, "--walk-mps", SPEED_MPS)
        with start_report_source(edge.port, seconds, path, *options) as reporting:
            time.sleep(SETTLE_S)
            early = edge.snapshot()
            time.sleep(max(1.0, seconds - 2 * SETTLE_S))
            late = edge.snapshot()
            answer = reporting.read_answer(seconds)
        time.sleep(SETTLE_S)
        after = edge.snapshot()
    return CapacityResult(
        answer["sent"],
        int(after.of("reports_total") - before.of("reports_total")),
        int(after.of("refused_total")),
        int(late.of("udp_sessions")),
        (late.cpu_s - early.cpu_s) / (late.at_s - early.at_s),
        (late.resident_bytes - empty_bytes) / sessions,
        answer["late_ms"],
    )


def open_sessions(edge: EdgeProcess, path: Path, sessions: int) -> int:
    """Open sessions while the open ones report; return the number of passes of the source."""
    deadline, next_pass, passes = time.monotonic() + OPEN_S_MAX, 0.0, 0
    with path.open("wb") as file, ExitStack() as stack:
        for start in range(0, sessions, CHUNK):
            chunk = [Endpoint(number, edge.realm) for number in range(start, min(start + CHUNK, sessions))]
            open_all(chunk, edge.port)
            file.writelines(one.record() for one in chunk)
            file.flush()
            if time.monotonic() > deadline:
                raise LoadFailed(f"only {start:,} sessions were opened in {OPEN_S_MAX:.0f} s")
            if time.monotonic() > next_pass:
                next_pass, passes = time.monotonic() + KEEPALIVE_PASS_S, passes + 1
                stack.close()
                stack.enter_context(report_all_once(edge, path, start + len(chunk), passes))
    return passes


def report_all_once(edge: EdgeProcess, path: Path, count: int, number: int) -> Program:
    """Let every session report once, in a burst, which costs the edge least."""
    options = ("--rate", KEEPALIVE_PASS_PER_S, "--count", count, "--encrypted", 1, "--counter", number * COUNTERS_PER_PASS)
    return start_report_source(edge.port, KEEPALIVE_PASS_S, path, *options)
