"""The workloads of the UDP listener: each returns rows with goals, and notes."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from bench.harness import QUICK, Row
from bench.udp_load.alerts import answer_under_load, measure_fanout
from bench.udp_load.capacity import report_once_a_second
from bench.udp_load.reports import compare
from milepost_experiments.papers.load.in_process_edge import handshakes_per_s
from milepost_experiments.papers.load.programs import BROKER_CORE, LOAD_CORE

ROUNDS = 1 if QUICK else 5
FLOOD_S = 1.5 if QUICK else 3.0
RECEIVERS, FANOUT_ROUNDS = (2_000, 5) if QUICK else (10_000, 21)
PROBES, LOADED = (200, 1_000) if QUICK else (1_000, 5_000)
ENDPOINTS, CAPACITY_S = (10_000, 10.0) if QUICK else (100_000, 20.0)
HANDSHAKES = 500 if QUICK else 2_000

CPU_NOTE = (
    "Rates are compared by CPU time, because the loop in C does not saturate its core: it receives nearly all that is offered; "
    "where it receives much less, other processes had the core"
)

WorkloadResult = tuple[list[Row], list[str]]


@dataclass(frozen=True, slots=True)
class Goal:
    """A bound and a stretch goal: on the ratio to the peer, or on Milepost's own value."""

    bound: float
    stretch: float | None = None
    is_least: bool = True

    def text(self, unit: str = "") -> str:
        """Return the goal as text."""
        farther = f" (stretch {self.stretch:g}{unit})" if self.stretch else ""
        return f"at {'least' if self.is_least else 'most'} {self.bound:g}{unit}{farther}"

    def is_within(self, value: float, bound: float) -> bool:
        """Return whether a value is within a bound."""
        return value >= bound if self.is_least else value <= bound


def goal_row(workload: str, unit: str, ours: float, goal: Goal, peer: str = "", peer_value: float | None = None) -> Row:
    """Return a row with a goal: on the ratio to the peer if there is one, else on Milepost's own value."""
    ratio = None if peer_value is None else ours / peer_value
    value = ours if ratio is None else ratio
    text = goal.text("x" if ratio is not None else "")
    if goal.stretch is not None and goal.is_within(value, goal.stretch):
        text += ": stretch reached"
    is_met = None if QUICK else goal.is_within(value, goal.bound)
    better = ratio if ratio is None or goal.is_least else 1.0 / ratio
    return Row(workload, unit, ours, peer, peer_value, better, text, is_met)


def reports() -> WorkloadResult:
    """Measure reports on one core, encrypted and plain."""
    os.sched_setaffinity(0, {LOAD_CORE})
    rows, notes = [], []
    for is_encrypted in (True, False):
        for sessions in (1_000, 10_000):
            found = compare(sessions, is_encrypted=is_encrypted, seconds=FLOOD_S, rounds=ROUNDS)
            ours, baseline = found.ours, found.baseline
            mode = "encrypted" if is_encrypted else "plain"
            workload = f"{mode} reports, {sessions:,} sessions"
            peer = "C: recvmmsg and decrypt" if is_encrypted else "C: recvmmsg"
            per_cpu_s, baseline_per_cpu_s = 1e6 / ours.cpu_us, 1e6 / baseline.cpu_us
            if is_encrypted:
                rows.append(goal_row(workload, "/s of CPU", per_cpu_s, Goal(0.4, 0.6), peer, baseline_per_cpu_s))
            else:
                rows.append(Row(workload, "/s of CPU", per_cpu_s, peer, baseline_per_cpu_s, per_cpu_s / baseline_per_cpu_s))
            shares = f"edge {ours.busy:.0%} of its core, C {baseline.busy:.0%}"
            rates = f"{ours.per_s:,.0f}/s of wall time, of {ours.offered_per_s:,.0f}/s offered"
            baseline_rates = f"C {baseline.per_s:,.0f}/s of {baseline.offered_per_s:,.0f}/s"
            spread = f"ratios of the rounds {found.ratios[0]:.2f} to {found.ratios[-1]:.2f}"
            notes.append(f"{workload}: {rates}, {baseline_rates}; {shares}; {spread}")
    return rows, [*notes, CPU_NOTE]


def fanout() -> WorkloadResult:
    """Measure an alert to ten thousand endpoints."""
    os.sched_setaffinity(0, {BROKER_CORE})
    plain = measure_fanout(RECEIVERS, is_encrypted=False, rounds=FANOUT_ROUNDS)
    encrypted = measure_fanout(RECEIVERS, is_encrypted=True, rounds=FANOUT_ROUNDS)
    goal = Goal(1.4, 1.2, is_least=False)
    rows = [
        goal_row(f"alert to {RECEIVERS:,}, plain, first to last", "ms", plain.sends_ms, goal, "C: sendmmsg", plain.baseline_ms),
        Row(
            "the same, from the emergency",
            "ms",
            plain.total_ms,
            "C: sendmmsg",
            plain.baseline_ms,
            plain.baseline_ms / plain.total_ms,
        ),
        Row(
            f"alert to {RECEIVERS:,}, encrypted, from the emergency",
            "ms",
            encrypted.total_ms,
            "C: encrypt and sendmmsg",
            encrypted.baseline_ms,
            encrypted.baseline_ms / encrypted.total_ms,
        ),
    ]
    sizes = f"An alert has {plain.size} bytes plain and {encrypted.size} signed, before encryption"
    order = f"Milepost encrypts all before the first is sent ({encrypted.sends_ms:.1f} ms from first to last), C batch by batch"
    return rows, [f"{sizes}; {order}"]


def emergency() -> WorkloadResult:
    """Measure an emergency under load."""
    os.sched_setaffinity(0, {LOAD_CORE})
    found = answer_under_load(PROBES, LOADED)
    p50, p99, maximum = found.share(0.5), found.share(0.99), found.times_ms[-1]
    load = f"{found.reports_per_s:,.0f} encrypted reports/s"
    rows = [
        goal_row(f"emergency to alert, p99, under {load}", "ms", p99, Goal(2.0, is_least=False)),
        Row("the same, p50", "ms", p50, "", None, None),
        Row("the same, maximum", "ms", maximum, "", None, None),
    ]
    mode = "from sendto to recv of a prober in Python that shares its core with the load"
    return rows, [f"Emergency: {PROBES:,} probes, {mode}; the edge used {found.busy:.0%} of its core"]


def capacity() -> WorkloadResult:
    """Measure many endpoints that report once a second."""
    os.sched_setaffinity(0, {LOAD_CORE})
    found = report_once_a_second(ENDPOINTS, CAPACITY_S)
    workload = f"{ENDPOINTS:,} endpoints, an encrypted report per second each"
    rows = [
        goal_row(f"{workload}: accepted of sent", "%", 100.0 * found.accepted / found.sent, Goal(100.0)),
        Row("the same: CPU share", "%", 100.0 * found.busy, "", None, None),
        goal_row("the same: memory per endpoint", "kB", found.bytes_each / 1e3, Goal(6.0, 3.0, is_least=False)),
    ]
    lost = f"{found.sent - found.accepted:,} of {found.sent:,} lost, {found.refused:,} refused"
    left = f"{found.sessions_left:,} sessions open near the end, the source at most {found.late_ms:.0f} ms late"
    return rows, [f"Capacity: {lost}; {left}; a heartbeat to each endpoint every 3 s"]


def handshakes() -> WorkloadResult:
    """Measure sessions opened, each with a new certificate."""
    os.sched_setaffinity(0, {BROKER_CORE})
    found = median(handshakes_per_s(HANDSHAKES) for _ in range(3))
    row = goal_row("handshakes, certificates checked", "/s of CPU", found, Goal(2_000, 3_000))
    return [row], ["Handshakes: CPU time of the listener for INIT and first report, without sockets"]


WORKLOADS: dict[str, Callable[[], WorkloadResult]] = {
    "reports": reports,
    "fanout": fanout,
    "emergency": emergency,
    "capacity": capacity,
    "handshakes": handshakes,
}
