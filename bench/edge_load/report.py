"""The report of the edge benchmark: Milepost compared with every peer; without Milepost, the peers with Mosquitto 2.0."""

from collections import defaultdict

from rich.console import Console
from rich.table import Table

from bench.edge_load.brokers import Broker
from bench.edge_load.search import BUSY_MAX
from bench.edge_load.workloads import BETTER_MOSQUITTO, DEBIAN_MOSQUITTO, Goal, Line, Measurement, Workload
from bench.harness import QUICK, Row, publish

OURS = "milepost"
CEILING = "relay"
MOSQUITTOS = ("mosquitto20", "mosquitto21")

Measurements = dict[tuple[str, str], list[Measurement]]
"""By line and broker, one per round."""

FAIRNESS = (
    "Rate: the maximum deliveries/s with every message delivered and p99 under 10 ms after it was due; the best round",
    "Messages are sent one by one unless stated otherwise. Payload 64 bytes, JSON 160. Order and number are verified",
    "Mosquitto: max_inflight_messages and max_queued_messages 0, set_tcp_nodelay, no log, no $SYS; persistence where stored",
    "Mosquitto's persistence writes on exit and every half hour; that of 2.1 with SQLite as often as it can (flush_period 0)",
    "NATS: JetStream on, max_ack_pending 32,767. amqtt: no log. TLS: 1.3, AES-128-GCM, one certificate",
)


def publish_results(
    workloads: list[Workload],
    brokers: list[Broker],
    measurements: Measurements,
    failures: dict[tuple[str, str], str],
    notes: list[str],
    *,
    is_partial: bool,
) -> None:
    """Print the table; publish it if it is complete and includes Milepost."""
    notes = [*notes, *FAIRNESS, *shares(workloads, brokers, measurements), *faults(workloads, brokers, failures)]
    rows = [
        row
        for workload in workloads
        for key, line in workload.lines.items()
        for row in line_rows(key, line, brokers, measurements)
    ]
    if is_partial or not any(row.ratio is not None for row in rows):
        print_partial(workloads, brokers, measurements, notes)
    else:
        publish("edge", rows, notes)


def combined_value(key: str, line: Line, broker: str, measurements: Measurements) -> float | None:
    """Return the combined value of all rounds."""
    found = measurements.get((key, broker))
    return line.combine([measurement.value for measurement in found]) if found else None


def line_rows(key: str, line: Line, brokers: list[Broker], measurements: Measurements) -> list[Row]:
    """Return a row for each peer; the goal is in the row of its peer."""
    ours = combined_value(key, line, OURS, measurements)
    if ours is None:
        return []
    values = {broker.key: combined_value(key, line, broker.key, measurements) for broker in brokers if broker.key != OURS}
    evaluated = goal_peer(line, values)
    is_limited = max(measurement.busy for measurement in measurements[key, OURS]) > BUSY_MAX
    rows = []
    for broker in brokers:
        value = values.get(broker.key)
        if value is not None:
            goal = line.goal if broker.key == evaluated else None
            rows.append(goal_row(line, ours, broker.name, value, goal, is_limited=is_limited))
    if line.goal is not None and line.goal.ours_max is not None:
        rows.insert(0, goal_row(line, ours, "", None, line.goal))
    return rows


def goal_peer(line: Line, values: dict[str, float | None]) -> str:
    """Return the peer that the goal refers to."""
    if line.goal is None or line.goal.ours_max is not None:
        return ""
    if line.goal.against != BETTER_MOSQUITTO:
        return line.goal.against
    there = {key: value for key in MOSQUITTOS if (value := values.get(key)) is not None}
    if not there:
        return ""
    best = min(there.values()) if line.less_is_better else max(there.values())
    return next(key for key, value in there.items() if value == best)


def goal_row(line: Line, ours: float, peer: str, value: float | None, goal: Goal | None, *, is_limited: bool = False) -> Row:
    """Return a row of the results."""
    ratio = ratio_of(line, ours, value)
    text, is_met = "", None
    if goal is not None and goal.ours_max is not None:
        text, is_met = f"at most {goal.ours_max:,.0f}", ours <= goal.ours_max
    elif goal is not None and ratio is not None:
        text = goal.text or f"at least {goal.ratio_min:g}x (stretch {goal.stretch:g}x)"
        text += ": stretch reached" if goal.stretch and ratio >= goal.stretch else ": generator saturated" if is_limited else ""
        is_met = ratio >= goal.ratio_min
    if QUICK:
        is_met = None  # the run is too short to evaluate goals
    return Row(line.title, line.unit, ours, peer, value, ratio, text, is_met)


def ratio_of(line: Line, ours: float, theirs: float | None) -> float | None:
    """Return how many times better Milepost is."""
    if not theirs or not ours:
        return None
    return theirs / ours if line.less_is_better else ours / theirs


def shares(workloads: list[Workload], brokers: list[Broker], measurements: Measurements) -> list[str]:
    """Return notes on the generator's share of its core: near 100 % the generator is the bottleneck."""
    notes = []
    for workload in workloads:
        for key in workload.lines:
            busy = [
                f"{broker.name} {max(measurement.busy for measurement in found):.0%}"
                for broker in brokers
                if (found := measurements.get((key, broker.key))) and found[0].busy
            ]
            notes += [f"Generator's share of its core, {key}: {', '.join(busy)}"] if busy else []
    return notes


def faults(workloads: list[Workload], brokers: list[Broker], failures: dict[tuple[str, str], str]) -> list[str]:
    """Return notes on workloads that a broker does not support or failed."""
    missing: dict[tuple[str, str], list[str]] = defaultdict(list)
    for workload in workloads:
        for broker in brokers:
            why = broker.unsupported.get(workload.key) or failures.get((workload.key, broker.key))
            if why and broker.key != CEILING:
                missing[broker.name, why].append(workload.key)
    return [f"{name}, not measured: {', '.join(keys)}: {why}" for (name, why), keys in missing.items()]


def print_partial(workloads: list[Workload], brokers: list[Broker], measurements: Measurements, notes: list[str]) -> None:
    """Print the result of every broker and its ratio to Debian's Mosquitto; nothing is written."""
    table = Table(
        title="Benchmark: edge, in brackets the ratio to Mosquitto 2.0",
        caption="\n".join(notes),
        caption_justify="left",
    )
    for heading in ("workload", "unit", *(broker.name for broker in brokers)):
        table.add_column(heading, justify="left" if heading in ("workload", "unit") else "right")
    for workload in workloads:
        for key, line in workload.lines.items():
            base = combined_value(key, line, DEBIAN_MOSQUITTO, measurements)
            cells = [cell(line, combined_value(key, line, broker.key, measurements), base) for broker in brokers]
            table.add_row(line.title, line.unit, *cells)
    Console(width=150).print(table)


def cell(line: Line, value: float | None, base: float | None) -> str:
    """Return the value and its ratio to Debian's Mosquitto."""
    if value is None:
        return "-"
    ratio = ratio_of(line, value, base)
    text = f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
    return text if ratio is None else f"{text} ({ratio:.2g}x)"
