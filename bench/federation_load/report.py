"""The report of the federation benchmark: rows with goals, tables and a page."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace

from matplotlib import pyplot as plt
from rich.console import Console
from rich.table import Table

from bench.federation_load.latency import PATHS
from bench.federation_load.roaming import SERIES
from bench.federation_load.stages import NAMES, Stages
from bench.harness import QUICK, RESULTS, Row, publish, row
from milepost_experiments.papers.dpsmd.measurements import LARGEST, PAPER_MS, LatencyCell, RoamingResult

MOSQUITTO_TIMES_MAX = 1.2
ACROSS_SITES_MS_MAX = 10.0
SILENCE_MS_MAX = 100.0
KAFKA_RATIO_MIN = 0.7
APPENDS_MIN = 50_000.0
EVALUATED = "sites-kafka"
"""The path whose mean latency has a goal."""

MEANINGS = (
    "Latency is from handing a message to its connection until a subscriber has it: one machine, one clock",
    "All processes share the cores: edges, central hub, one Kafka broker, the generator; durability: process crash",
    "DPSMD's 21.5 ms were measured on other machines: the ratio is only an indication",
    "Silence: from the last message before a move to the first one after it, minus the time away",
    "An endpoint that moves on before a message arrived has one silence over both moves: there may be fewer silences than moves",
    "Messages to one endpoint are 50 ms apart within a site and 25 ms apart between sites: the minimum of a silence",
)


@dataclass
class Results:
    """All results of a run."""

    cells: list[LatencyCell] = field(default_factory=list)
    roaming_results: list[RoamingResult] = field(default_factory=list)
    stages: list[Stages] = field(default_factory=list)
    kafka: dict[str, float] = field(default_factory=dict)
    appends: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def publish_results(results: Results, *, is_partial: bool) -> None:
    """Print the tables; save them if the run was complete."""
    rows = all_rows(results)
    tables = [
        *latency_tables(results.cells),
        *cpu_tables(results.cells),
        *roaming_tables(results.roaming_results),
        *stage_tables(results.stages),
    ]
    console = Console(width=180)
    for title, headings, lines in tables:
        table = Table(title=title, title_justify="left")
        for heading in headings:
            table.add_column(heading)
        for line in lines:
            table.add_row(*line)
        console.print(table)
    if is_partial or not rows:
        for one in rows:
            verdict = {None: "", True: "met", False: "MISSED"}[one.is_met]
            console.print(f"{one.workload}: {one.ours:,.4g} {one.unit}  {one.peer} {one.peer_value or ''}  {one.goal} {verdict}")
        for note in results.notes:
            console.print(note)
        return
    publish("federation", rows, [*results.notes, *MEANINGS])
    measurements = {
        "cells": [asdict(one) for one in results.cells],
        "roaming": [asdict(one) for one in results.roaming_results],
        "stages": [asdict(one) for one in results.stages],
    }
    (RESULTS / "federation.measurements.json").write_text(json.dumps(measurements, indent=1, default=str) + "\n")
    draw_means(results.cells)
    if not QUICK:
        page = RESULTS / "federation.md"
        pictures = ["", "![mean latency by publishers](federation.means.png)", ""]
        page.write_text("\n".join([page.read_text(), *pictures, *(line for table in tables for line in as_page(*table))]))


# Rows with goals


def all_rows(results: Results) -> list[Row]:
    """Return the main results, compared with peers, with goals."""
    rows = [*latency_rows(results.cells), *roaming_rows(results.roaming_results), *log_rows(results)]
    return (
        [replace(one, is_met=None) if one.unit else one for one in rows] if QUICK else rows
    )  # the run is too short to evaluate times


def latency_rows(cells: list[LatencyCell]) -> list[Row]:
    """Return the largest case: compared with Mosquitto within an edge, with the paper otherwise."""
    rows = []
    for qos in sorted({cell.qos for cell in cells}):
        most = {cell.path: cell for cell in cells if cell.qos == qos and (cell.subscribers, cell.publishers) == LARGEST}
        size = f"{LARGEST[1]} publishers to {LARGEST[0]}, QoS {qos}"
        mosquitto, within = most.get("mosquitto"), most.get("within")
        if mosquitto is not None and within is not None:
            rows.append(compare_with_mosquitto(f"{size}: within an edge, p50", within, mosquitto))
        for path in PATHS:
            if path.topology.edges and path.key in most:
                cell = most[path.key]
                has_goal = path.key == EVALUATED and qos == 0
                goal = {"ours_max": ACROSS_SITES_MS_MAX} if has_goal else {}
                title = f"{size}: {path.title}, mean"
                rows.append(row(title, "ms", cell.times.mean_ms, "DPSMD's", PAPER_MS, less_is_better=True, **goal))
    lost = sum(cell.lost + cell.wrong for cell in cells if PATHS[0].key != cell.path)
    return (
        [*rows, row("all sizes: deliveries lost, duplicated or out of order", "", float(lost), ours_max=0.0)] if cells else rows
    )


def compare_with_mosquitto(title: str, ours: LatencyCell, mosquitto: LatencyCell) -> Row:
    """Compare the median with Mosquitto's."""
    ratio = mosquitto.times.p50_ms / ours.times.p50_ms
    is_met = ratio >= 1 / MOSQUITTO_TIMES_MAX
    text = f"at most {MOSQUITTO_TIMES_MAX:g}x the time"
    return Row(title, "µs", ours.times.p50_ms * 1e3, "Mosquitto", mosquitto.times.p50_ms * 1e3, ratio, text, is_met)


def roaming_rows(roaming_results: list[RoamingResult]) -> list[Row]:
    """Return loss, duplicates, reordering and silence of each series of moves."""
    rows = []
    titles = {series.key: series.title for series in SERIES}
    for one in roaming_results:
        title = f"{one.moves:,} moves {titles[one.series]}"
        rows += [
            row(f"{title}: lost", "", float(one.lost), ours_max=0.0),
            row(f"{title}: duplicated", "", float(one.duplicated), ours_max=0.0),
            row(f"{title}: out of order", "", float(one.reordered), ours_max=0.0),
            row(f"{title}: silence, p99", "ms", one.silence.p99_ms, ours_max=SILENCE_MS_MAX),
        ]
    return rows


def log_rows(results: Results) -> list[Row]:
    """Return the results of the two logs alone."""
    rows = []
    if results.kafka:
        rows.append(compare_with_bare_client(results.kafka))
        ours, bare = results.kafka["ours_p50_ms"], results.kafka["bare_p50_ms"]
        title = "Kafka log: from append to reader, p50"
        rows.append(row(title, "ms", ours, "bare confluent-kafka", bare, less_is_better=True))
    if results.appends:
        ours, bare = results.appends["ours_per_s"], results.appends["bare_per_s"]
        rows.append(row("embedded log: durable appends", "/s", ours, ours_min=APPENDS_MIN))
        rows.append(row("embedded log: durable appends", "/s", ours, "bare sqlite3", bare))
        rows.append(row("embedded log: from append to a reader in another process, p50", "ms", results.appends["p50_ms"]))
    return rows


def compare_with_bare_client(results: dict[str, float]) -> Row:
    """Compare with the bare client; the ratio is the median of the ratios of the rounds, not the ratio of the medians."""
    title, text = "Kafka log: records per second", f"at least {KAFKA_RATIO_MIN:g}x"
    ours, bare, ratio = results["ours_per_s"], results["bare_per_s"], results["ratio"]
    return Row(title, "/s", ours, "bare confluent-kafka", bare, ratio, text, ratio >= KAFKA_RATIO_MIN)


# Tables

Lines = list[list[str]]
TableText = tuple[str, list[str], Lines]
"""A table: title, headings, lines."""


def latency_tables(cells: list[LatencyCell]) -> Iterable[TableText]:
    """Yield DPSMD's table, once per QoS."""
    for qos in sorted({cell.qos for cell in cells}):
        paths = [path for path in PATHS if any(cell.path == path.key and cell.qos == qos for cell in cells)]
        by_place = {(cell.subscribers, cell.publishers, cell.path): cell for cell in cells if cell.qos == qos}
        sizes = sorted({(subscribers, publishers) for subscribers, publishers, _ in by_place})
        lines = [[str(size[0]), str(size[1]), *(cell_text(by_place.get((*size, path.key))) for path in paths)] for size in sizes]
        title = f"Transmission time at QoS {qos}: mean / p50 / p99 / max in ms (DPSMD: a mean of at most {PAPER_MS} ms)"
        yield title, ["subscribers", "publishers", *(path.title for path in paths)], lines


def cell_text(cell: LatencyCell | None) -> str:
    """Return the latency statistics, and the numbers of lost and wrong deliveries."""
    if cell is None:
        return "-"
    broken = f" lost {cell.lost}" * bool(cell.lost) + f" wrong {cell.wrong}" * bool(cell.wrong)
    return f"{cell.times}{broken}"


def cpu_tables(cells: list[LatencyCell]) -> Iterable[TableText]:
    """Yield the CPU share of each process in the largest case."""
    lines = []
    for path in PATHS:
        for cell in cells:
            if cell.path == path.key and (cell.subscribers, cell.publishers) == LARGEST:
                shares = ", ".join(f"{name} {share:.0%}" for name, share in cell.shares.items())
                cpu_us = ", ".join(f"{name} {used_us:.0f}" for name, used_us in cell.cpu_us_per_message.items())
                lines.append([path.title, str(cell.qos), f"{cell.late_p99_ms:.2f}", shares, cpu_us])
    if lines:
        title = (
            f"CPU shares, {LARGEST[1]} publishers to {LARGEST[0]}; late: delay of the generator behind its schedule, p99 in ms"
        )
        yield title, ["path", "QoS", "late", "shares of a core", "CPU µs per message"], lines


def roaming_tables(roaming_results: list[RoamingResult]) -> Iterable[TableText]:
    """Yield the table of all series of moves."""
    if not roaming_results:
        return
    titles = {series.key: series.title for series in SERIES}
    counts = ("moves", "sent", "lost", "duplicated", "marked_duplicates", "reordered", "sessions_not_present", "disconnects")
    times = ("connack", "silence", "delay")
    lines = []
    for one in roaming_results:
        measurements = [f"{getattr(one, name):,}" for name in counts]
        lines.append([titles[one.series], *measurements, *(str(getattr(one, name)) for name in times), f"{one.silence.count:,}"])
    headings = ["series", *(name.replace("_", " ") for name in counts), *times, "silences"]
    yield "Roaming at 2,000 messages per second: counts, and mean / p50 / p99 / max in ms", headings, lines


def stage_tables(stages: list[Stages]) -> Iterable[TableText]:
    """Yield the table of stage times."""
    if not stages:
        return
    lines = []
    for one in stages:
        size = f"with {LARGEST[1]} publishers to {LARGEST[0]}" if one.is_loaded else "no other load"
        lines.append([one.log_type.value, size, *(f"{part:.2f}" for part in one.parts_ms), f"{one.total_ms:.2f}"])
    yield "One message between two sites, medians in ms", ["log", "", *NAMES, "total"], lines


def as_page(title: str, headings: list[str], lines: Lines) -> list[str]:
    """Return a table as Markdown."""
    head = ["", f"## {title}", "", f"| {' | '.join(headings)} |", f"|{'---|' * len(headings)}"]
    return [*head, *(f"| {' | '.join(line)} |" for line in lines), ""]


def draw_means(cells: list[LatencyCell]) -> None:
    """Draw the mean latency by the number of publishers, with most subscribers, at QoS 0."""
    chart, axes = plt.subplots(figsize=(9, 5), layout="constrained")
    for path in PATHS:
        points = [cell for cell in cells if cell.path == path.key and cell.qos == 0 and cell.subscribers == LARGEST[0]]
        axes.plot([cell.publishers for cell in points], [cell.times.mean_ms for cell in points], marker="o", label=path.title)
    axes.axhline(PAPER_MS, color="black", linestyle="--", linewidth=0.8, label=f"DPSMD, {PAPER_MS} ms")
    axes.set_yscale("log")
    axes.set_xlabel(f"publishers, each 20 messages per second, all to {LARGEST[0]} subscribers")
    axes.set_ylabel("mean latency, ms")
    axes.legend(fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    chart.savefig(RESULTS / "federation.means.png", dpi=110)
    plt.close(chart)
