"""DPSMD's evaluation: two brokers, two hubs, a central hub, up to 100 publishers; the paper's results and ours (D13, D14)."""

from contextlib import nullcontext
from dataclasses import asdict, dataclass
from typing import Any, Final

from milepost.config.site_settings import LogType
from milepost_experiments.papers.dpsmd.measurements import (
    LARGEST,
    PAPER_MS,
    PATHS,
    LatencyCell,
    MessagePath,
    RoamingResult,
    measure_moves,
    measure_sizes,
    move_series,
)
from milepost_experiments.papers.load.programs import federation_load, three_digits
from milepost_experiments.papers.load.testbed import Kafka, running_testbed, running_testbed_kafka
from milepost_experiments.papers.report import Figure, Line, Progress, Section, Table, print_section

TITLE: Final = "DPSMD's evaluation"


@dataclass(frozen=True, slots=True)
class Sizes:
    """The size of the load: the full one is the paper's."""

    subscribers: tuple[int, ...]
    publishers: tuple[int, ...]
    packets: int


QUICK: Final = Sizes((5, 20), (10, 100), 20)
FULL: Final = Sizes((5, 10, 20), tuple(range(10, 101, 10)), 100)


def evaluate(progress: Progress, *, is_quick: bool, log_type: LogType) -> list[Section]:
    """Measure transmission times, then moves; print each section when it is done."""
    federation_load()
    with running_testbed_kafka(progress) if log_type is LogType.KAFKA else nullcontext() as kafka:
        sections = [latency_section(progress, kafka, log_type, QUICK if is_quick else FULL)]
        progress.clear()
        print_section(sections[-1])
        sections.append(moves_section(progress, kafka, log_type, is_quick=is_quick))
        progress.clear()
        print_section(sections[-1])
    sections.append(compare_with_paper(sections[0].results, sections[1].results, log_type))
    print_section(sections[-1])
    return sections


def latency_section(progress: Progress, kafka: Kafka | None, log_type: LogType, sizes: Sizes) -> Section:
    """Measure every path from publishers to subscribers, at every size."""
    cells: list[LatencyCell] = []
    paths = [path for path in PATHS if path.topology.log_type is log_type or path.key == "within"]
    for subscribers in sizes.subscribers:
        for path in paths:
            progress(f"{path.title}: {subscribers} subscribers, {sizes.publishers[0]} to {sizes.publishers[-1]} publishers")
            with running_testbed(path.topology, kafka) as testbed:
                packets, publishers = sizes.packets, sizes.publishers
                cells += measure_sizes(testbed, path, qos=0, subscribers=subscribers, publishers=publishers, packets=packets)
    return _latency_section(cells, paths, sizes)


def _latency_section(cells: list[LatencyCell], paths: list[MessagePath], sizes: Sizes) -> Section:
    by_place = {(cell.subscribers, cell.publishers, cell.path): cell for cell in cells}
    rows = tuple(
        (
            str(subscribers),
            str(publishers),
            *(_cell_text(by_place[subscribers, publishers, path.key]) for path in paths),
            f"at most {PAPER_MS:g}" if (subscribers, publishers) == LARGEST else "",
        )
        for subscribers in sizes.subscribers
        for publishers in sizes.publishers
    )
    table = Table(
        f"Transmission time, each publisher {sizes.packets} packets, one every 50 ms: mean / p99 in ms",
        ("subscribers", "publishers", *(path.title for path in paths), "DPSMD's mean"),
        rows,
        (
            f"The paper's text has one number: at most {PAPER_MS} ms at 100 publishers. The rest is a figure without values.",
            "All processes and the load generator share the cores of the machine, as in the paper's virtual machine.",
        ),
    )
    figure = Figure(
        "dpsmd-times",
        f"Mean transmission time, {sizes.subscribers[-1]} subscribers",
        "publishers, each 20 messages per second",
        "ms",
        tuple(
            Line(
                path.title,
                list(sizes.publishers),
                [by_place[sizes.subscribers[-1], publishers, path.key].times.mean_ms for publishers in sizes.publishers],
            )
            for path in paths
        ),
        is_log_y=True,
        reference_line=(PAPER_MS, f"DPSMD, at most {PAPER_MS} ms"),
    )
    violations = tuple(
        f"{cell.path}, {cell.publishers} to {cell.subscribers}: {cell.lost} lost, {cell.wrong} duplicated or out of order"
        for cell in cells
        if cell.lost or cell.wrong
    )
    setup = (
        "processes: two edges of one site, or two sites of one edge each with a central hub; the load generator is a C program"
    )
    results = {"cells": [asdict(cell) for cell in cells]}
    return Section("times", "1. Average transmission time (D13, D14)", setup, (table,), (figure,), results, violations)


def _cell_text(cell: LatencyCell) -> str:
    violations = f" lost {cell.lost}" * bool(cell.lost) + f" wrong {cell.wrong}" * bool(cell.wrong)
    return f"{three_digits(cell.times.mean_ms)} / {three_digits(cell.times.p99_ms)}{violations}"


def moves_section(progress: Progress, kafka: Kafka | None, log_type: LogType, *, is_quick: bool) -> Section:
    """Measure moves between edges and between sites."""
    measured: list[tuple[str, RoamingResult]] = []
    for series in move_series(is_quick=is_quick):
        if series.topology.log_type is log_type:
            progress(f"moves {series.title}")
            measured.append((series.title, measure_moves(series, kafka)))
    rows = tuple(
        (
            title,
            f"{one.moves:,}",
            f"{one.sent:,}",
            f"{one.lost:,}",
            f"{one.duplicated:,}",
            f"{one.reordered:,}",
            three_digits(one.connack.p50_ms),
            three_digits(one.silence.p50_ms),
            three_digits(one.silence.p99_ms),
        )
        for title, one in measured
    )
    table = Table(
        "Moves under 2,000 messages per second: counts, and ms",
        ("series", "moves", "sent", "lost", "duplicated", "out of order", "CONNACK p50", "silence p50", "silence p99"),
        rows,
        ("Silence: from the last message before a move to the first after it, minus 20 ms away. No endpoint subscribes again.",),
    )
    violations = tuple(
        f"{title}: {one.lost} lost, {one.duplicated} duplicated" for title, one in measured if one.lost or one.duplicated
    )
    setup = "processes, as above; endpoints are MQTT clients with persistent sessions"
    results: dict[str, Any] = {"series": {title: asdict(one) for title, one in measured}}
    return Section("moves", "2. Sessions and their subscriptions move along (D8)", setup, (table,), (), results, violations)


def compare_with_paper(latency: dict[str, Any], moves: dict[str, Any], log_type: LogType) -> Section:
    """Compare the paper's claims with our results."""
    largest = [cell for cell in latency["cells"] if (cell["subscribers"], cell["publishers"]) == LARGEST]
    titles = {path.key: path.title for path in PATHS}
    rows = [
        (
            f"at most {PAPER_MS} ms on average at {LARGEST[1]} publishers",
            f"{titles[cell['path']]}: {three_digits(cell['times']['mean_ms'])} ms",
            f"{PAPER_MS / cell['times']['mean_ms']:.1f}",
            "their brokers in Node.js on Kafka, a virtual machine of 2 cores and 4 GB; ours in Python, this machine",
        )
        for cell in largest
    ]
    grows = "times grow with publishers and subscribers"
    rows.append((grows, _growth(latency["cells"]), "-", "ours may be flat: this load is below saturation"))
    counts = [(series["moves"], series["lost"], series["duplicated"]) for series in moves["series"].values()]
    moved, lost, duplicated = (sum(column) for column in zip(*counts, strict=True))
    text = f"{moved:,} moves: {lost} lost, {duplicated} duplicated"
    title = f"The paper's claims and our results, on the {log_type.value} log"
    rows.append(("a client that moves never subscribes again (not measured)", text, "-", "the paper counts no losses"))
    table = Table(title, ("the paper", "ours", "theirs / ours", "differences"), tuple(rows), is_text=True)
    return Section("comparison", "Comparison with the paper", "the results above", (table,))


def _growth(cells: list[dict[str, Any]]) -> str:
    """Return the mean time across edges at the smallest and the largest size."""
    across = [cell for cell in cells if cell["path"].startswith("edges")]
    smallest, largest = across[0], across[-1]
    means = [three_digits(cell["times"]["mean_ms"]) for cell in (smallest, largest)]
    sizes = [f"{cell['publishers']} to {cell['subscribers']}" for cell in (smallest, largest)]
    return f"across edges {means[0]} ms ({sizes[0]}), {means[1]} ms ({sizes[1]})"
