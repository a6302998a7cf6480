"""A crowd: many endpoints that report once a second at one edge, for a while."""

import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from milepost_experiments.papers.load.edges import Edge, serving
from milepost_experiments.papers.load.endpoints import SPEED_MPS, Endpoint, open_all
from milepost_experiments.papers.load.programs import LoadFailed, Program, source

INTERVAL_S, HEARTBEAT_INTERVALS = 3.0, 1
"""A heartbeat every 3 s, as by default; but nine seconds of silence instead of three, since all cannot come at once."""

CHUNK = 200
PASS_S = 3.0
PASS_PER_S = 80_000
SETTLE_S = 2.0
DRAIN_S = 0.3
OPEN_S_MAX = 900.0
COUNTERS_A_PASS = 1_000


@dataclass(frozen=True, slots=True)
class Crowd:
    """What came of it: `busy` is the edge's share of its core."""

    sent: int
    taken: int
    refused: int
    sessions_left: int
    busy: float
    bytes_each: float
    late_ms: float


def report_once_a_second(sessions: int, seconds: float) -> Crowd:
    """Open all sessions, then let all report."""
    with serving(is_sealed=True, interval_s=INTERVAL_S, heartbeat_intervals=HEARTBEAT_INTERVALS) as edge:
        empty_bytes = edge.look().resident_bytes
        path = edge.folder / "sessions"
        passes = gather(edge, path, sessions)
        time.sleep(DRAIN_S)  # what the last pass sent is not counted as taken
        before = edge.look()
        words = ("--rate", sessions, "--sealed", 1, "--counter", (passes + 1) * COUNTERS_A_PASS, "--walk-mps", SPEED_MPS)
        with source(edge.port, seconds, path, *words) as reporting:
            time.sleep(SETTLE_S)
            early = edge.look()
            time.sleep(max(1.0, seconds - 2 * SETTLE_S))
            late = edge.look()
            found = reporting.answer(seconds)
        time.sleep(SETTLE_S)
        after = edge.look()
    return Crowd(
        found["sent"],
        int(after.of("reports_total") - before.of("reports_total")),
        int(after.of("refused_total")),
        int(late.of("udp_sessions")),
        (late.cpu_s - early.cpu_s) / (late.at_s - early.at_s),
        (late.resident_bytes - empty_bytes) / sessions,
        found["late_ms"],
    )


def gather(edge: Edge, path: Path, sessions: int) -> int:
    """Open sessions while those that are open go on reporting; gives how often the source passed over them."""
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
                next_pass, passes = time.monotonic() + PASS_S, passes + 1
                stack.close()
                stack.enter_context(pass_over(edge, path, start + len(chunk), passes))
    return passes


def pass_over(edge: Edge, path: Path, count: int, number: int) -> Program:
    """Have every session report once, in a burst: so it costs the edge least."""
    words = ("--rate", PASS_PER_S, "--count", count, "--sealed", 1, "--counter", number * COUNTERS_A_PASS)
    return source(edge.port, PASS_S, path, *words)
