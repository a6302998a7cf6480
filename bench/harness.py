"""What all benchmarks share: result rows, timers, tables, files and charts."""

import json
import os
import platform
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import TypedDict, TypeVar, Unpack

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt
from rich.console import Console
from rich.table import Table

mpl.use("Agg")

T = TypeVar("T")

RESULTS = Path(__file__).parent / "results"

QUICK = os.environ.get("QUICK", "") not in ("", "0")
"""A smaller run that ends within a minute; goals are evaluated only for workloads that equal those of the full run."""

WARM_S = 0.05 if QUICK else 0.2
"""Warm-up time: a CPU that has just been idle is slow for a while; both sides are warmed up equally."""


@dataclass(frozen=True, slots=True)
class Row:
    """One workload, Milepost compared with a peer: `ratio` is how many times better Milepost is, `goal` bounds a value."""

    workload: str
    unit: str
    ours: float
    peer: str
    peer_value: float | None
    ratio: float | None
    goal: str = ""
    is_met: bool | None = None


class Goal(TypedDict, total=False):
    """At most one bound: on the ratio or on Milepost's own value."""

    ratio_min: float
    ours_min: float
    ours_max: float


def row(
    workload: str,
    unit: str,
    ours: float,
    peer: str = "",
    peer_value: float | None = None,
    *,
    less_is_better: bool = False,
    **goal: Unpack[Goal],
) -> Row:
    """Return a row with its ratio, and whether its goal is met."""
    ratio = None if peer_value is None else (peer_value / ours if less_is_better else ours / peer_value)
    text, is_met = "", None
    if (least := goal.get("ratio_min")) is not None and ratio is not None:
        text, is_met = f"at least {least:g}x", ratio >= least
    elif (least := goal.get("ours_min")) is not None:
        text, is_met = f"at least {least:,.0f}", ours >= least
    elif (most := goal.get("ours_max")) is not None:
        text, is_met = f"at most {most:,.0f}", ours <= most
    return Row(workload, unit, ours, peer, peer_value, ratio, text, is_met)


def median_us(ask: Callable[[T], object], questions: Iterable[T]) -> float:
    """Return the median time of one call in microseconds, after a warm-up."""
    questions = list(questions)
    warm_until = time.perf_counter() + WARM_S
    while time.perf_counter() < warm_until:
        ask(questions[0])
    times_s = []
    for question in questions:
        started = time.perf_counter()
        ask(question)
        times_s.append(time.perf_counter() - started)
    return median(times_s) * 1e6


def per_second(do: Callable[[T], object], things: list[T], *, rounds: int = 3) -> float:
    """Return the calls per second: the best of a few rounds, because other processes share the machine."""
    best = 0.0
    for _ in range(rounds):
        started = time.perf_counter()
        for thing in things:
            do(thing)
        best = max(best, len(things) / (time.perf_counter() - started))
    return best


def resident_bytes() -> int:
    """Return the resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def publish(name: str, rows: list[Row], notes: list[str]) -> None:
    """Write the results, print them as a table, and draw a chart."""
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps([asdict(one) for one in rows], indent=1) + "\n")
    if not QUICK:
        (RESULTS / f"{name}.md").write_text(_page(name, rows, notes))
    _print_table(name, rows, notes)
    _draw(RESULTS / f"{name}.png", name, rows)


def _page(name: str, rows: list[Row], notes: list[str]) -> str:
    """Return the results of a full run as a page, linked from `docs/benchmarks.md`."""
    versions = f"Python {platform.python_version()}, numpy {np.__version__}"
    lines = [
        f"# Benchmark: {name}",
        "",
        f"Produced by `make bench-{name.replace('_', '-')}` on {os.cpu_count()} cores, {versions}.",
        *(f"{note}." for note in notes),
        "",
        "| workload | unit | ours | peer | peer's | ratio | goal | met |",
        "|---|---|--:|---|--:|--:|---|---|",
    ]
    for one in rows:
        values = f"{_format(one.ours)} | {one.peer} | {_format(one.peer_value)} | {_format(one.ratio, 'x')}"
        verdict = {None: "", True: "yes", False: "**no**"}[one.is_met]
        lines.append(f"| {one.workload} | {one.unit} | {values} | {one.goal} | {verdict} |")
    return "\n".join([*lines, "", f"![ratio to each peer]({name}.png)", ""])


def _print_table(name: str, rows: list[Row], notes: list[str]) -> None:
    table = Table(title=f"Benchmark: {name}{', quick' if QUICK else ''}", caption="\n".join(notes), caption_justify="left")
    for heading in ("workload", "unit", "ours", "peer", "peer's", "ratio", "goal", "met"):
        table.add_column(heading, justify="right" if heading in ("ours", "peer's", "ratio") else "left")
    for one in rows:
        verdict = {None: "", True: "[green]yes[/]", False: "[red]no[/]"}[one.is_met]
        cells = [
            one.workload,
            one.unit,
            _format(one.ours),
            one.peer,
            _format(one.peer_value),
            _format(one.ratio, "x"),
            one.goal,
            verdict,
        ]
        table.add_row(*cells)
    Console(width=None if os.isatty(1) else 150).print(table)


def _format(value: float | None, suffix: str = "") -> str:
    if value is None:
        return ""
    return (f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}") + suffix


def _draw(path: Path, name: str, rows: list[Row]) -> None:
    """Draw the ratio to each peer as bars on a logarithmic scale."""
    bars = [one for one in rows if one.ratio is not None][::-1]
    figure, axes = plt.subplots(figsize=(10, 0.42 * len(bars) + 1.2), layout="constrained")
    colours = ["#b23a48" if one.is_met is False else "#2a6f97" if one.is_met else "#8d99ae" for one in bars]
    ratios = [one.ratio or 1.0 for one in bars]
    labels = [f"{one.workload}\ncompared with {one.peer}" for one in bars]
    axes.barh(labels, [ratio - 1.0 for ratio in ratios], left=1.0, color=colours)
    for at, ratio in enumerate(ratios):
        axes.annotate(_format(ratio, "x"), (max(1.0, ratio), at), (4, 0), textcoords="offset points", va="center", fontsize=8)
    axes.axvline(1.0, color="black", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_xlim(min(0.3, *ratios), 3 * max(ratios))
    axes.margins(y=0.01)
    axes.tick_params(axis="y", labelsize=7)
    figure.suptitle(f"{name}: ratio to each peer (blue: goal met, red: not met, grey: no goal)", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)
    plt.close(figure)
