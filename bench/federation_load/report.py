"""What was measured becomes rows with goals, tables for people and a page."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace

from bench.federation_load.roaming import TRIPS
from bench.federation_load.latency import COLUMNS
from bench.federation_load.stages import NAMES, Stages
from matplotlib import pyplot as plt
from rich.console import Console
from rich.table import Table

from bench.harness import QUICK, RESULTS, Row, publish, row
from milepost_experiments.papers.dpsmd.measurements import MOST, PAPER_MS, Cell, Roamed

MOSQUITTO_TIMES_MAX = 1.2
ACROSS_SITES_MS_MAX = 10.0
SILENCE_MS_MAX = 100.0
KAFKA_RATIO_MIN = 0.7
APPENDS_MIN = 50_000.0
JUDGED = "sites-kafka"
"""The column whose mean has a goal of its own."""

MEANINGS = (
    "A time is from handing a message to its connection until a subscriber has it: one machine, one clock",
    "All processes share the cores: edges, centre, one Kafka broker, the generator; everything survives a process crash",
    "DPSMD's 21.5 ms were measured on other machines: the ratio is no more than a hint",
    "Silence: from the last message before a move to the first one after it, less the time away",
    "Who moves on before anything came has one silence over both moves: if it takes long there are fewer silences than moves",
    "Messages to one endpoint come 50 ms apart within a site and 25 ms apart between sites: so long it is silent anyway",
)


@dataclass
class Found:
    """Everything that a run has found."""

    cells: list[Cell] = field(default_factory=list)
    roamed: list[Roamed] = field(default_factory=list)
    stages: list[Stages] = field(default_factory=list)
    kafka: dict[str, float] = field(default_factory=dict)
    appends: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def conclude(found: Found, *, is_part: bool) -> None:
    """Print the tables; write them down when the run was whole."""
    rows = all_rows(found)
    tables = [*grids(found.cells), *share_tables(found.cells), *roam_tables(found.roamed), *stage_tables(found.stages)]
    console = Console(width=180)
    for title, headings, lines in tables:
        table = Table(title=title, title_justify="left")
        for heading in headings:
            table.add_column(heading)
        for line in lines:
            table.add_row(*line)
        console.print(table)
    if is_part or not rows:
        for one in rows:
            verdict = {None: "", True: "held", False: "MISSED"}[one.held]
            console.print(f"{one.work}: {one.ours:,.4g} {one.unit}  {one.peer} {one.peer_value or ''}  {one.goal} {verdict}")
        for note in found.notes:
            console.print(note)
        return
    publish("hub", rows, [*found.notes, *MEANINGS])
    figures = {
        "cells": [asdict(one) for one in found.cells],
        "roamed": [asdict(one) for one in found.roamed],
        "stages": [asdict(one) for one in found.stages],
    }
    (RESULTS / "hub.figures.json").write_text(json.dumps(figures, indent=1, default=str) + "\n")
    draw_means(found.cells)
    if not QUICK:
        page = RESULTS / "hub.md"
        pictures = ["", "![mean time by publishers](hub.means.png)", ""]
        page.write_text("\n".join([page.read_text(), *pictures, *(line for table in tables for line in as_page(*table))]))


# Rows with goals


def all_rows(found: Found) -> list[Row]:
    """The figures that matter, ours beside a peer's, with goals."""
    rows = [*spread_rows(found.cells), *roam_rows(found.roamed), *log_rows(found)]
    return [replace(one, held=None) if one.unit else one for one in rows] if QUICK else rows  # too short to judge times by


def spread_rows(cells: list[Cell]) -> list[Row]:
    """The largest case: beside Mosquitto within an edge, beside the paper elsewhere."""
    rows = []
    for qos in sorted({cell.qos for cell in cells}):
        most = {cell.column: cell for cell in cells if cell.qos == qos and (cell.subscribers, cell.publishers) == MOST}
        size = f"{MOST[1]} publishers to {MOST[0]}, QoS {qos}"
        mosquitto, within = most.get("mosquitto"), most.get("within")
        if mosquitto is not None and within is not None:
            rows.append(beside_mosquitto(f"{size}: within an edge, p50", within, mosquitto))
        for column in COLUMNS:
            if column.plan.edges and column.key in most:
                cell = most[column.key]
                is_judged = column.key == JUDGED and qos == 0
                goal = {"ours_max": ACROSS_SITES_MS_MAX} if is_judged else {}
                title = f"{size}: {column.title}, mean"
                rows.append(row(title, "ms", cell.times.mean_ms, "DPSMD's", PAPER_MS, less_is_better=True, **goal))
    lost = sum(cell.lost + cell.wrong for cell in cells if COLUMNS[0].key != cell.column)
    return [*rows, row("all sizes: deliveries lost, doubled or overtaken", "", float(lost), ours_max=0.0)] if cells else rows


def beside_mosquitto(title: str, ours: Cell, mosquitto: Cell) -> Row:
    """Our median beside Mosquitto's."""
    ratio = mosquitto.times.p50_ms / ours.times.p50_ms
    is_held = ratio >= 1 / MOSQUITTO_TIMES_MAX
    words = f"at most {MOSQUITTO_TIMES_MAX:g}x the time"
    return Row(title, "µs", ours.times.p50_ms * 1e3, "Mosquitto", mosquitto.times.p50_ms * 1e3, ratio, words, is_held)


def roam_rows(roamed: list[Roamed]) -> list[Row]:
    """Nothing lost, nothing doubled, a short silence."""
    rows = []
    titles = {trip.key: trip.title for trip in TRIPS}
    for one in roamed:
        title = f"{one.moves:,} moves {titles[one.trip]}"
        rows += [
            row(f"{title}: lost", "", float(one.lost), ours_max=0.0),
            row(f"{title}: doubled", "", float(one.doubled), ours_max=0.0),
            row(f"{title}: overtaken", "", float(one.overtaken), ours_max=0.0),
            row(f"{title}: silence, p99", "ms", one.silence.p99_ms, ours_max=SILENCE_MS_MAX),
        ]
    return rows


def log_rows(found: Found) -> list[Row]:
    """The two logs by themselves."""
    rows = []
    if found.kafka:
        rows.append(beside_bare_client(found.kafka))
        ours, bare = found.kafka["ours_p50_ms"], found.kafka["bare_p50_ms"]
        title = "Kafka log: from append to reader, p50"
        rows.append(row(title, "ms", ours, "bare confluent-kafka", bare, less_is_better=True))
    if found.appends:
        ours, bare = found.appends["ours_per_s"], found.appends["bare_per_s"]
        rows.append(row("embedded log: durable appends", "/s", ours, ours_min=APPENDS_MIN))
        rows.append(row("embedded log: durable appends", "/s", ours, "bare sqlite3", bare))
        rows.append(row("embedded log: from append to a reader in another process, p50", "ms", found.appends["p50_ms"]))
    return rows


def beside_bare_client(found: dict[str, float]) -> Row:
    """The ratio is the median of the rounds' own, in which both took turns: not that of the two medians."""
    title, words = "Kafka log: records through it", f"at least {KAFKA_RATIO_MIN:g}x"
    ours, bare, ratio = found["ours_per_s"], found["bare_per_s"], found["ratio"]
    return Row(title, "/s", ours, "bare confluent-kafka", bare, ratio, words, ratio >= KAFKA_RATIO_MIN)


# Tables

Lines = list[list[str]]
Grid = tuple[str, list[str], Lines]
"""A table: its title, its headings, its lines."""


def grids(cells: list[Cell]) -> Iterable[Grid]:
    """DPSMD's table, once for each QoS."""
    for qos in sorted({cell.qos for cell in cells}):
        columns = [column for column in COLUMNS if any(cell.column == column.key and cell.qos == qos for cell in cells)]
        by_place = {(cell.subscribers, cell.publishers, cell.column): cell for cell in cells if cell.qos == qos}
        sizes = sorted({(subscribers, publishers) for subscribers, publishers, _ in by_place})
        lines = [
            [str(size[0]), str(size[1]), *(cell_text(by_place.get((*size, column.key))) for column in columns)] for size in sizes
        ]
        title = f"Transmission time at QoS {qos}: mean / p50 / p99 / max in ms (DPSMD: a mean of at most {PAPER_MS} ms)"
        yield title, ["to", "from", *(column.title for column in columns)], lines


def cell_text(cell: Cell | None) -> str:
    """The times, and what is wrong with them."""
    if cell is None:
        return "-"
    broken = f" lost {cell.lost}" * bool(cell.lost) + f" wrong {cell.wrong}" * bool(cell.wrong)
    return f"{cell.times}{broken}"


def share_tables(cells: list[Cell]) -> Iterable[Grid]:
    """Who had how much of a core in the largest case."""
    lines = []
    for column in COLUMNS:
        for cell in cells:
            if cell.column == column.key and (cell.subscribers, cell.publishers) == MOST:
                shares = ", ".join(f"{name} {share:.0%}" for name, share in cell.shares.items())
                each = ", ".join(f"{name} {used_us:.0f}" for name, used_us in cell.each_us.items())
                lines.append([column.title, str(cell.qos), f"{cell.late_p99_ms:.2f}", shares, each])
    if lines:
        title = f"Shares of a core, {MOST[1]} publishers to {MOST[0]}; late: the generator behind its own plan, p99 in ms"
        yield title, ["way", "QoS", "late", "shares", "µs of processor time a message"], lines


def roam_tables(roamed: list[Roamed]) -> Iterable[Grid]:
    """Every trip."""
    if not roamed:
        return
    titles = {trip.key: trip.title for trip in TRIPS}
    counts = ("moves", "sent", "lost", "doubled", "repeated", "overtaken", "absent_sessions", "cut")
    times = ("greeted", "silence", "waited")
    lines = []
    for one in roamed:
        figures = [f"{getattr(one, name):,}" for name in counts]
        lines.append([titles[one.trip], *figures, *(str(getattr(one, name)) for name in times), f"{one.silence.count:,}"])
    headings = ["trip", *(name.replace("_", " ") for name in counts), *times, "silences"]
    yield "Roaming at 2,000 messages a second: counts, and mean / p50 / p99 / max in ms", headings, lines


def stage_tables(stages: list[Stages]) -> Iterable[Grid]:
    """Where the time goes."""
    if not stages:
        return
    lines = []
    for one in stages:
        size = f"beside {MOST[1]} publishers to {MOST[0]}" if one.is_loaded else "alone"
        lines.append([one.backbone.value, size, *(f"{part:.2f}" for part in one.parts_ms), f"{one.whole_ms:.2f}"])
    yield "One message between two sites, medians in ms", ["log", "", *NAMES, "whole"], lines


def as_page(title: str, headings: list[str], lines: Lines) -> list[str]:
    """A table in Markdown."""
    head = ["", f"## {title}", "", f"| {' | '.join(headings)} |", f"|{'---|' * len(headings)}"]
    return [*head, *(f"| {' | '.join(line)} |" for line in lines), ""]


def draw_means(cells: list[Cell]) -> None:
    """Mean times by the number of publishers, with the most subscribers, at QoS 0."""
    figure, axes = plt.subplots(figsize=(9, 5), layout="constrained")
    for column in COLUMNS:
        drawn = [cell for cell in cells if cell.column == column.key and cell.qos == 0 and cell.subscribers == MOST[0]]
        axes.plot([cell.publishers for cell in drawn], [cell.times.mean_ms for cell in drawn], marker="o", label=column.title)
    axes.axhline(PAPER_MS, color="black", linestyle="--", linewidth=0.8, label=f"DPSMD, {PAPER_MS} ms")
    axes.set_yscale("log")
    axes.set_xlabel(f"publishers, each 20 messages a second, all to {MOST[0]} subscribers")
    axes.set_ylabel("mean transmission time, ms")
    axes.legend(fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(RESULTS / "hub.means.png", dpi=110)
    plt.close(figure)
