"""DPSMD's evaluation: two brokers, two hubs, a central hub, up to 100 publishers; the paper's results and ours (D13, D14)."""

from contextlib import nullcontext
from dataclasses import asdict, dataclass
from typing import Any, Final

from milepost.config.site_settings import Backbone
from milepost_experiments.papers.dpsmd.measurements import (
    COLUMNS,
    MOST,
    PAPER_MS,
    Cell,
    Column,
    Roamed,
    measure_sizes,
    measure_trip,
    trips,
)
from milepost_experiments.papers.load.programs import hub_load, three_digits
from milepost_experiments.papers.load.testbed import Kafka, running_for_towns, standing
from milepost_experiments.papers.report import Figure, Line, Progress, Section, Table, tell

TITLE: Final = "DPSMD's evaluation"


@dataclass(frozen=True, slots=True)
class Sizes:
    """The size of the load: the full one is the paper's."""

    subscribers: tuple[int, ...]
    publishers: tuple[int, ...]
    packets: int


QUICK: Final = Sizes((5, 20), (10, 100), 20)
FULL: Final = Sizes((5, 10, 20), tuple(range(10, 101, 10)), 100)


def evaluate(progress: Progress, *, is_quick: bool, backbone: Backbone) -> list[Section]:
    """Measure transmission times, then moves; print each section when it is done."""
    hub_load()
    with running_for_towns(progress) if backbone is Backbone.KAFKA else nullcontext() as kafka:
        sections = [spread_section(progress, kafka, backbone, QUICK if is_quick else FULL)]
        progress.clear()
        tell(sections[-1])
        sections.append(roam_section(progress, kafka, backbone, is_quick=is_quick))
        progress.clear()
        tell(sections[-1])
    sections.append(beside_the_paper(sections[0].found, sections[1].found, backbone))
    tell(sections[-1])
    return sections


def spread_section(progress: Progress, kafka: Kafka | None, backbone: Backbone, sizes: Sizes) -> Section:
    """Measure every path from publishers to subscribers, at every size."""
    cells: list[Cell] = []
    columns = [column for column in COLUMNS if column.plan.backbone is backbone or column.key == "within"]
    for subscribers in sizes.subscribers:
        for column in columns:
            progress(f"{column.title}: {subscribers} subscribers, {sizes.publishers[0]} to {sizes.publishers[-1]} publishers")
            with standing(column.plan, kafka) as town:
                packets, publishers = sizes.packets, sizes.publishers
                cells += measure_sizes(town, column, qos=0, subscribers=subscribers, publishers=publishers, packets=packets)
    return _spread(cells, columns, sizes)


def _spread(cells: list[Cell], columns: list[Column], sizes: Sizes) -> Section:
    by_place = {(cell.subscribers, cell.publishers, cell.column): cell for cell in cells}
    rows = tuple(
        (
            str(subscribers),
            str(publishers),
            *(_cell_text(by_place[subscribers, publishers, column.key]) for column in columns),
            f"at most {PAPER_MS:g}" if (subscribers, publishers) == MOST else "",
        )
        for subscribers in sizes.subscribers
        for publishers in sizes.publishers
    )
    table = Table(
        f"Transmission time, each publisher {sizes.packets} packets, one every 50 ms: mean / p99 in ms",
        ("subscribers", "publishers", *(column.title for column in columns), "DPSMD's mean"),
        rows,
        (
            f"The paper's text has one figure: {PAPER_MS} ms at most, at 100 publishers. The rest is a picture without values.",
            "All processes and the generator share the machine's cores, as the paper's testbed shares one virtual machine's.",
        ),
    )
    figure = Figure(
        "dpsmd-times",
        f"Mean transmission time, {sizes.subscribers[-1]} subscribers",
        "publishers, each 20 messages a second",
        "ms",
        tuple(
            Line(
                column.title,
                list(sizes.publishers),
                [by_place[sizes.subscribers[-1], publishers, column.key].times.mean_ms for publishers in sizes.publishers],
            )
            for column in columns
        ),
        is_log_y=True,
        mark=(PAPER_MS, f"DPSMD, {PAPER_MS} ms at most"),
    )
    broken = tuple(
        f"{cell.column}, {cell.publishers} to {cell.subscribers}: {cell.lost} lost, {cell.wrong} doubled or overtaken"
        for cell in cells
        if cell.lost or cell.wrong
    )
    on = "processes: two edges of one site, or two sites of an edge each with a centre; the load is a program in C"
    found = {"cells": [asdict(cell) for cell in cells]}
    return Section("times", "1. Average transmission time (D13, D14)", on, (table,), (figure,), found, broken)


def _cell_text(cell: Cell) -> str:
    broken = f" lost {cell.lost}" * bool(cell.lost) + f" wrong {cell.wrong}" * bool(cell.wrong)
    return f"{three_digits(cell.times.mean_ms)} / {three_digits(cell.times.p99_ms)}{broken}"


def roam_section(progress: Progress, kafka: Kafka | None, backbone: Backbone, *, is_quick: bool) -> Section:
    """Measure moves between edges and between sites."""
    found: list[tuple[str, Roamed]] = []
    for trip in trips(is_quick=is_quick):
        if trip.plan.backbone is backbone:
            progress(f"moves {trip.title}")
            found.append((trip.title, measure_trip(trip, kafka)))
    rows = tuple(
        (
            title,
            f"{one.moves:,}",
            f"{one.sent:,}",
            f"{one.lost:,}",
            f"{one.doubled:,}",
            f"{one.overtaken:,}",
            three_digits(one.greeted.p50_ms),
            three_digits(one.silence.p50_ms),
            three_digits(one.silence.p99_ms),
        )
        for title, one in found
    )
    table = Table(
        "Moves under 2,000 messages a second: counts, and ms",
        ("trip", "moves", "sent", "lost", "doubled", "overtaken", "let in p50", "silence p50", "silence p99"),
        rows,
        ("Silence: from the last message before a move to the first after it, less the 20 ms away. Nobody subscribes again.",),
    )
    broken = tuple(f"{title}: {one.lost} lost, {one.doubled} doubled" for title, one in found if one.lost or one.doubled)
    on = "processes, as above; endpoints are MQTT clients with sessions that last"
    figures: dict[str, Any] = {"trips": {title: asdict(one) for title, one in found}}
    return Section("moves", "2. Moves take the subscriptions along (D8)", on, (table,), (), figures, broken)


def beside_the_paper(spread: dict[str, Any], moves: dict[str, Any], backbone: Backbone) -> Section:
    """Compare the paper's claims with our results."""
    most = [cell for cell in spread["cells"] if (cell["subscribers"], cell["publishers"]) == MOST]
    titles = {column.key: column.title for column in COLUMNS}
    rows = [
        (
            f"at most {PAPER_MS} ms on average at {MOST[1]} publishers",
            f"{titles[cell['column']]}: {three_digits(cell['times']['mean_ms'])} ms",
            f"{PAPER_MS / cell['times']['mean_ms']:.1f}",
            "their brokers in Node.js on Kafka, a virtual machine of 2 cores and 4 GB; ours in Python, this machine",
        )
        for cell in most
    ]
    grows = "times grow with publishers and subscribers"
    rows.append((grows, _growth(spread["cells"]), "-", "ours may be flat: at this size it is not full"))
    counts = [(trip["moves"], trip["lost"], trip["doubled"]) for trip in moves["trips"].values()]
    moved, lost, doubled = (sum(column) for column in zip(*counts, strict=True))
    words = f"{moved:,} moves: {lost} lost, {doubled} doubled"
    title = f"DPSMD's words and ours, on the {backbone.value} log"
    rows.append(("a client that moves never subscribes again (not measured)", words, "-", "the paper counts no losses"))
    table = Table(title, ("the paper", "ours", "theirs / ours", "what differs"), tuple(rows), is_words=True)
    return Section("beside", "How far ours is from theirs", "what was found above", (table,))


def _growth(cells: list[dict[str, Any]]) -> str:
    """Return the mean time across edges at the smallest and the largest size."""
    across = [cell for cell in cells if cell["column"].startswith("edges")]
    least, most = across[0], across[-1]
    means = [three_digits(cell["times"]["mean_ms"]) for cell in (least, most)]
    sizes = [f"{cell['publishers']} to {cell['subscribers']}" for cell in (least, most)]
    return f"across edges {means[0]} ms ({sizes[0]}), {means[1]} ms ({sizes[1]})"
