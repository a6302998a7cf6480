"""What every benchmark shares: a row of the result, the clock, the table, the file and the picture."""

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
"""A smaller run that ends within a minute; goals are judged only where the work is the same as in the full one."""

WARM_S = 0.05 if QUICK else 0.2
"""A processor that has just waited for another program is slow for a while; both sides are warmed alike."""


@dataclass(frozen=True, slots=True)
class Row:
    """One piece of work, ours beside a peer's: `ratio` says how many times better we are, `goal` bounds one of the figures."""

    work: str
    unit: str
    ours: float
    peer: str
    peer_value: float | None
    ratio: float | None
    goal: str = ""
    held: bool | None = None


class Goal(TypedDict, total=False):
    """At most one bound: on the ratio or on our own figure."""

    ratio_min: float
    ours_min: float
    ours_max: float


def row(
    work: str,
    unit: str,
    ours: float,
    peer: str = "",
    peer_value: float | None = None,
    *,
    less_is_better: bool = False,
    **goal: Unpack[Goal],
) -> Row:
    """A row with its ratio and the verdict on its goal."""
    ratio = None if peer_value is None else (peer_value / ours if less_is_better else ours / peer_value)
    words, is_held = "", None
    if (least := goal.get("ratio_min")) is not None and ratio is not None:
        words, is_held = f"at least {least:g}x", ratio >= least
    elif (least := goal.get("ours_min")) is not None:
        words, is_held = f"at least {least:,.0f}", ours >= least
    elif (most := goal.get("ours_max")) is not None:
        words, is_held = f"at most {most:,.0f}", ours <= most
    return Row(work, unit, ours, peer, peer_value, ratio, words, is_held)


def median_us(ask: Callable[[T], object], questions: Iterable[T]) -> float:
    """Microseconds that one question takes, half of them more and half of them less, when the machine is warm."""
    questions = list(questions)
    warm_until = time.perf_counter() + WARM_S
    while time.perf_counter() < warm_until:
        ask(questions[0])
    taken = []
    for question in questions:
        started = time.perf_counter()
        ask(question)
        taken.append(time.perf_counter() - started)
    return median(taken) * 1e6


def a_second(do: Callable[[T], object], things: list[T], *, rounds: int = 3) -> float:
    """How many things are done in a second: the best of a few rounds, since others share the machine."""
    best = 0.0
    for _ in range(rounds):
        started = time.perf_counter()
        for thing in things:
            do(thing)
        best = max(best, len(things) / (time.perf_counter() - started))
    return best


def resident_bytes() -> int:
    """The memory this process occupies."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def publish(name: str, rows: list[Row], notes: list[str]) -> None:
    """Write the result, print it as a table, draw it."""
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps([asdict(one) for one in rows], indent=1) + "\n")
    if not QUICK:
        (RESULTS / f"{name}.md").write_text(_page(name, rows, notes))
    _print_table(name, rows, notes)
    _draw(RESULTS / f"{name}.png", name, rows)


def _page(name: str, rows: list[Row], notes: list[str]) -> str:
    """The full run's result as a page for `docs/benchmarks.md` to lead to."""
    lines = [
        f"# bench {name}",
        "",
        f"Made by `make bench-{name}` on {os.cpu_count()} cores, Python {platform.python_version()}, numpy {np.__version__}.",
        *(f"{note}." for note in notes),
        "",
        "| work | unit | ours | peer | peer's | ratio | goal | held |",
        "|---|---|--:|---|--:|--:|---|---|",
    ]
    for one in rows:
        figures = f"{_short(one.ours)} | {one.peer} | {_short(one.peer_value)} | {_short(one.ratio, 'x')}"
        verdict = {None: "", True: "yes", False: "**no**"}[one.held]
        lines.append(f"| {one.work} | {one.unit} | {figures} | {one.goal} | {verdict} |")
    return "\n".join([*lines, "", f"![how many times better]({name}.png)", ""])


def _print_table(name: str, rows: list[Row], notes: list[str]) -> None:
    table = Table(title=f"bench {name}{', quick' if QUICK else ''}", caption="\n".join(notes), caption_justify="left")
    for heading in ("work", "unit", "ours", "peer", "peer's", "ratio", "goal", "held"):
        table.add_column(heading, justify="right" if heading in ("ours", "peer's", "ratio") else "left")
    for one in rows:
        verdict = {None: "", True: "[green]yes[/]", False: "[red]no[/]"}[one.held]
        cells = [
            one.work,
            one.unit,
            _short(one.ours),
            one.peer,
            _short(one.peer_value),
            _short(one.ratio, "x"),
            one.goal,
            verdict,
        ]
        table.add_row(*cells)
    Console(width=None if os.isatty(1) else 150).print(table)


def _short(value: float | None, mark: str = "") -> str:
    if value is None:
        return ""
    return (f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}") + mark


def _draw(path: Path, name: str, rows: list[Row]) -> None:
    """Bars: how many times better than each peer, on a logarithmic scale."""
    drawn = [one for one in rows if one.ratio is not None][::-1]
    figure, axes = plt.subplots(figsize=(10, 0.42 * len(drawn) + 1.2), layout="constrained")
    colours = ["#b23a48" if one.held is False else "#2a6f97" if one.held else "#8d99ae" for one in drawn]
    ratios = [one.ratio or 1.0 for one in drawn]
    labels = [f"{one.work}\nbeside {one.peer}" for one in drawn]
    axes.barh(labels, [ratio - 1.0 for ratio in ratios], left=1.0, color=colours)
    for at, ratio in enumerate(ratios):
        axes.annotate(_short(ratio, "x"), (max(1.0, ratio), at), (4, 0), textcoords="offset points", va="center", fontsize=8)
    axes.axvline(1.0, color="black", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_xlim(min(0.3, *ratios), 3 * max(ratios))
    axes.margins(y=0.01)
    axes.tick_params(axis="y", labelsize=7)
    figure.suptitle(f"{name}: how many times better (blue: goal held, red: not held, grey: no goal)", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)
    plt.close(figure)
