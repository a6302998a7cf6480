"""What is measured at the UDP door: each work gives rows, judged by its goal, and words on how they came about."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from bench.udp_load.capacity import report_once_a_second
from milepost_experiments.papers.load.in_process_edge import handshakes_per_s

from bench.harness import QUICK, Row
from bench.udp_load.alerts import answer_under_load, fan_out
from bench.udp_load.reports import compare
from milepost_experiments.papers.load.programs import BROKER_CORE, LOAD_CORE

ROUNDS = 1 if QUICK else 5
FLOOD_S = 1.5 if QUICK else 3.0
RECEIVERS, FAN_ROUNDS = (2_000, 5) if QUICK else (10_000, 21)
PROBES, LOADED = (200, 1_000) if QUICK else (1_000, 5_000)
CROWD, CROWD_S = (10_000, 10.0) if QUICK else (100_000, 20.0)
HANDSHAKES = 500 if QUICK else 2_000

IDLE = (
    "Rates by CPU time are compared, since C does not fill its core: it takes nearly all that is offered and waits for more, "
    "or, where it takes much less than that, others had the core"
)

Found = tuple[list[Row], list[str]]


@dataclass(frozen=True, slots=True)
class Goal:
    """A bound and a farther one: on how many times better we are, on how many times as long we take, or on our own figure."""

    bound: float
    stretch: float | None = None
    is_least: bool = True

    def words(self, unit: str = "") -> str:
        """The goal as people say it."""
        farther = f" (stretch {self.stretch:g}{unit})" if self.stretch else ""
        return f"at {'least' if self.is_least else 'most'} {self.bound:g}{unit}{farther}"

    def is_within(self, value: float, bound: float) -> bool:
        """Whether a figure keeps to a bound."""
        return value >= bound if self.is_least else value <= bound


def judged(work: str, unit: str, ours: float, goal: Goal, peer: str = "", peer_value: float | None = None) -> Row:
    """A row with a goal: on the ratio to the peer if there is one, else on our own figure."""
    ratio = None if peer_value is None else ours / peer_value
    value = ours if ratio is None else ratio
    words = goal.words("x" if ratio is not None else "")
    if goal.stretch is not None and goal.is_within(value, goal.stretch):
        words += ": stretch reached"
    is_held = None if QUICK else goal.is_within(value, goal.bound)
    better = ratio if ratio is None or goal.is_least else 1.0 / ratio
    return Row(work, unit, ours, peer, peer_value, better, words, is_held)


def reports() -> Found:
    """Reports on one core, sealed and plain."""
    os.sched_setaffinity(0, {LOAD_CORE})
    rows, notes = [], []
    for is_sealed in (True, False):
        for sessions in (1_000, 10_000):
            found = compare(sessions, is_sealed=is_sealed, seconds=FLOOD_S, rounds=ROUNDS)
            ours, floor = found.ours, found.floor
            how = "sealed" if is_sealed else "plain"
            work = f"{how} reports, {sessions:,} sessions"
            peer = "C: recvmmsg and open" if is_sealed else "C: recvmmsg"
            per_cpu_s, floor_per_cpu_s = 1e6 / ours.cpu_us, 1e6 / floor.cpu_us
            if is_sealed:
                rows.append(judged(work, "/s of CPU", per_cpu_s, Goal(0.4, 0.6), peer, floor_per_cpu_s))
            else:
                rows.append(Row(work, "/s of CPU", per_cpu_s, peer, floor_per_cpu_s, per_cpu_s / floor_per_cpu_s))
            shares = f"edge {ours.busy:.0%} of its core, C {floor.busy:.0%}"
            rates = f"{ours.per_s:,.0f}/s by the clock of {ours.offered_per_s:,.0f}/s offered"
            floor_rates = f"C {floor.per_s:,.0f}/s of {floor.offered_per_s:,.0f}/s"
            spread = f"ratios of the rounds {found.ratios[0]:.2f} to {found.ratios[-1]:.2f}"
            notes.append(f"{work}: {rates}, {floor_rates}; {shares}; {spread}")
    return rows, [*notes, IDLE]


def fan() -> Found:
    """An alert to ten thousand."""
    os.sched_setaffinity(0, {BROKER_CORE})
    plain = fan_out(RECEIVERS, is_sealed=False, rounds=FAN_ROUNDS)
    sealed = fan_out(RECEIVERS, is_sealed=True, rounds=FAN_ROUNDS)
    goal = Goal(1.4, 1.2, is_least=False)
    rows = [
        judged(f"alert to {RECEIVERS:,}, plain, first to last", "ms", plain.sends_ms, goal, "C: sendmmsg", plain.floor_ms),
        Row("the same from the emergency on", "ms", plain.turn_ms, "C: sendmmsg", plain.floor_ms, plain.floor_ms / plain.turn_ms),
        Row(
            f"alert to {RECEIVERS:,}, sealed, from the emergency on",
            "ms",
            sealed.turn_ms,
            "C: seal and sendmmsg",
            sealed.floor_ms,
            sealed.floor_ms / sealed.turn_ms,
        ),
    ]
    sizes = f"An alert has {plain.size} bytes plain and {sealed.size} signed, before its seal"
    order = f"we seal all before the first is sent ({sealed.sends_ms:.1f} ms from first to last), C batch by batch"
    return rows, [f"{sizes}; {order}"]


def urgent() -> Found:
    """An emergency under load."""
    os.sched_setaffinity(0, {LOAD_CORE})
    found = answer_under_load(PROBES, LOADED)
    p50, p99, most = found.share(0.5), found.share(0.99), found.times_ms[-1]
    load = f"{found.reports_per_s:,.0f} sealed reports/s"
    rows = [
        judged(f"emergency to alert, p99, under {load}", "ms", p99, Goal(2.0, is_least=False)),
        Row("the same, p50", "ms", p50, "", None, None),
        Row("the same, longest", "ms", most, "", None, None),
    ]
    how = "from sendto to recv of a prober in Python that shares its core with the load"
    return rows, [f"Emergency: {PROBES:,} probes, {how}; the edge used {found.busy:.0%} of its core"]


def crowd() -> Found:
    """Many endpoints, once a second each."""
    os.sched_setaffinity(0, {LOAD_CORE})
    found = report_once_a_second(CROWD, CROWD_S)
    work = f"{CROWD:,} endpoints, a sealed report a second each"
    rows = [
        judged(f"{work}: taken of sent", "%", 100.0 * found.taken / found.sent, Goal(100.0)),
        Row("the same: share of the core", "%", 100.0 * found.busy, "", None, None),
        judged("the same: memory for each", "kB", found.bytes_each / 1e3, Goal(6.0, 3.0, is_least=False)),
    ]
    lost = f"{found.sent - found.taken:,} of {found.sent:,} lost, {found.refused:,} refused"
    left = f"{found.sessions_left:,} sessions open near the end, the source at most {found.late_ms:.0f} ms late"
    return rows, [f"Crowd: {lost}; {left}; a heartbeat to each every 3 s"]


def handshakes() -> Found:
    """Sessions opened, each with a new certificate."""
    os.sched_setaffinity(0, {BROKER_CORE})
    found = median(handshakes_per_s(HANDSHAKES) for _ in range(3))
    row = judged("handshakes, certificates checked", "/s of CPU", found, Goal(2_000, 3_000))
    return [row], ["Handshakes: the door's own time for INIT and first report, without sockets"]


ALL: dict[str, Callable[[], Found]] = {
    "reports": reports,
    "fan": fan,
    "urgent": urgent,
    "crowd": crowd,
    "handshakes": handshakes,
}
