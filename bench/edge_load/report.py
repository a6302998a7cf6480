"""Figures become rows with ratios and verdicts: ours beside every peer; without ours, the peers beside Mosquitto 2.0."""

from collections import defaultdict

from bench.edge_load.workloads import BETTER, DEBIAN, Figure, Goal, Line, Work
from rich.console import Console
from rich.table import Table

from bench.edge_load.brokers import Broker
from bench.edge_load.search import BUSY_MAX
from bench.harness import QUICK, Row, publish

OURS = "milepost"
CEILING = "relay"
MOSQUITTOS = ("mosquitto20", "mosquitto21")

Figures = dict[tuple[str, str], list[Figure]]
"""By line and broker, one for each round."""

FAIRNESS = (
    "Rate: the most deliveries/s with every message delivered and p99 under 10 ms from when it was due; the best of the rounds",
    "Every message is sent by itself but where it says otherwise. Payload 64 bytes, JSON 160. Order and number are checked",
    "Mosquitto: max_inflight_messages and max_queued_messages 0, set_tcp_nodelay, no log, no $SYS; persistence where kept",
    "Mosquitto's persistence writes on exit and every half hour; that of 2.1 with SQLite as often as it can (flush_period 0)",
    "NATS: JetStream on, max_ack_pending 32,767. amqtt: no log. TLS: 1.3, AES-128-GCM, one certificate",
)


def conclude(
    works: list[Work],
    brokers: list[Broker],
    figures: Figures,
    failures: dict[tuple[str, str], str],
    notes: list[str],
    *,
    is_part: bool,
) -> None:
    """Print the table; write it down too when we are in it and it is whole."""
    notes = [*notes, *FAIRNESS, *shares(works, brokers, figures), *faults(works, brokers, failures)]
    rows = [row for work in works for key, line in work.lines.items() for row in line_rows(key, line, brokers, figures)]
    if is_part or not any(row.ratio is not None for row in rows):
        print_part(works, brokers, figures, notes)
    else:
        publish("edge", rows, notes)


def gathered(key: str, line: Line, broker: str, figures: Figures) -> float | None:
    """One figure out of all rounds."""
    found = figures.get((key, broker))
    return line.gather([figure.value for figure in found]) if found else None


def line_rows(key: str, line: Line, brokers: list[Broker], figures: Figures) -> list[Row]:
    """Ours beside each peer; the goal stands where its peer is."""
    ours = gathered(key, line, OURS, figures)
    if ours is None:
        return []
    values = {broker.key: gathered(key, line, broker.key, figures) for broker in brokers if broker.key != OURS}
    judged = judged_by(line, values)
    is_limited = max(figure.busy for figure in figures[key, OURS]) > BUSY_MAX
    rows = []
    for broker in brokers:
        value = values.get(broker.key)
        if value is not None:
            goal = line.goal if broker.key == judged else None
            rows.append(judged_row(line, ours, broker.name, value, goal, is_limited=is_limited))
    if line.goal is not None and line.goal.ours_max is not None:
        rows.insert(0, judged_row(line, ours, "", None, line.goal))
    return rows


def judged_by(line: Line, values: dict[str, float | None]) -> str:
    """Whom the goal means."""
    if line.goal is None or line.goal.ours_max is not None:
        return ""
    if line.goal.against != BETTER:
        return line.goal.against
    there = {key: value for key in MOSQUITTOS if (value := values.get(key)) is not None}
    if not there:
        return ""
    best = min(there.values()) if line.less_is_better else max(there.values())
    return next(key for key, value in there.items() if value == best)


def judged_row(line: Line, ours: float, peer: str, value: float | None, goal: Goal | None, *, is_limited: bool = False) -> Row:
    """A row of the common table."""
    ratio = ratio_of(line, ours, value)
    words, is_held = "", None
    if goal is not None and goal.ours_max is not None:
        words, is_held = f"at most {goal.ours_max:,.0f}", ours <= goal.ours_max
    elif goal is not None and ratio is not None:
        words = goal.words or f"at least {goal.ratio_min:g}x (stretch {goal.stretch:g}x)"
        words += (
            ": stretch reached" if goal.stretch and ratio >= goal.stretch else ": generator at its limit" if is_limited else ""
        )
        is_held = ratio >= goal.ratio_min
    if QUICK:
        is_held = None  # too short a run to judge by
    return Row(line.title, line.unit, ours, peer, value, ratio, words, is_held)


def ratio_of(line: Line, ours: float, peers: float | None) -> float | None:
    """How many times better we are."""
    if not peers or not ours:
        return None
    return peers / ours if line.less_is_better else ours / peers


def shares(works: list[Work], brokers: list[Broker], figures: Figures) -> list[str]:
    """How much of its core the generator used, so that everyone sees whose limit a figure is."""
    notes = []
    for work in works:
        for key in work.lines:
            busy = [
                f"{broker.name} {max(figure.busy for figure in found):.0%}"
                for broker in brokers
                if (found := figures.get((key, broker.key))) and found[0].busy
            ]
            notes += [f"Generator's share of its core, {key}: {', '.join(busy)}"] if busy else []
    return notes


def faults(works: list[Work], brokers: list[Broker], failures: dict[tuple[str, str], str]) -> list[str]:
    """Who could not do what."""
    missing: dict[tuple[str, str], list[str]] = defaultdict(list)
    for work in works:
        for broker in brokers:
            why = broker.cannot.get(work.key) or failures.get((work.key, broker.key))
            if why and broker.key != CEILING:
                missing[broker.name, why].append(work.key)
    return [f"{name} is not in {', '.join(keys)}: {why}" for (name, why), keys in missing.items()]


def print_part(works: list[Work], brokers: list[Broker], figures: Figures, notes: list[str]) -> None:
    """Every broker's figure and how it compares with Debian's Mosquitto; for a look, nothing is written."""
    table = Table(
        title="bench edge, in brackets: how many times better than Mosquitto 2.0",
        caption="\n".join(notes),
        caption_justify="left",
    )
    for heading in ("work", "unit", *(broker.name for broker in brokers)):
        table.add_column(heading, justify="left" if heading in ("work", "unit") else "right")
    for work in works:
        for key, line in work.lines.items():
            base = gathered(key, line, DEBIAN, figures)
            cells = [cell(line, gathered(key, line, broker.key, figures), base) for broker in brokers]
            table.add_row(line.title, line.unit, *cells)
    Console(width=150).print(table)


def cell(line: Line, value: float | None, base: float | None) -> str:
    """The figure, and how many times better than Debian's Mosquitto it is."""
    if value is None:
        return "-"
    ratio = ratio_of(line, value, base)
    figure = f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
    return figure if ratio is None else f"{figure} ({ratio:.2g}x)"
