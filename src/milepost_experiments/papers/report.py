"""The report of an evaluation: progress, and sections of tables and figures, saved as HTML, PNG and JSON."""

import base64
import json
import platform
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from os import cpu_count
from pathlib import Path
from typing import Any, Final

from milepost import __version__
from milepost.runtime.terminal import print_line


class Progress:
    """Prints the progress; on a terminal each line overwrites the last."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._is_terminal = sys.stderr.isatty()
        self._width = 0

    @property
    def took_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._began

    def __call__(self, text: str) -> None:
        """Print the current step."""
        line = f"[{self.took_s:4.0f} s] {text}"
        if self._is_terminal:
            sys.stderr.write("\r" + line.ljust(self._width))
            self._width = len(line)
        else:
            sys.stderr.write(line + "\n")
        sys.stderr.flush()

    def clear(self) -> None:
        """Erase the line, before a table is printed."""
        if self._is_terminal and self._width:
            sys.stderr.write("\r" + " " * self._width + "\r")
            sys.stderr.flush()
            self._width = 0


PAGE: Final = "report.html"
RESULTS: Final = "report.json"

_STYLE: Final = """
:root { --paper: #fcfcfa; --ink: #23262b; --line: #dddcd6; --plain: #77736a; color-scheme: light dark; }
@media (prefers-color-scheme: dark) { :root { --paper: #17191d; --ink: #e6e4de; --line: #34373d; --plain: #9c978c; } }
body { background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 64rem;
  padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; display: block; overflow-x: auto; }
caption { text-align: left; font-weight: 600; padding: .3rem 0; }
td, th { border-bottom: 1px solid var(--line); padding: .25rem .7rem; text-align: right; }
td:first-child, th:first-child, table.text td { text-align: left; }
p.note { color: var(--plain); } img { width: 100%; background: #fff; border: 1px solid var(--line); border-radius: 4px; }
"""


@dataclass(frozen=True, slots=True)
class Table:
    """A table of text; the first column is the row's label."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    is_text: bool = False
    """Whether all cells are text, aligned to the left."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a figure."""

    label: str
    xs: Sequence[float]
    ys: Sequence[float]
    has_markers: bool = True


@dataclass(frozen=True, slots=True)
class Figure:
    """Lines over one pair of axes; `reference_line` is a labelled horizontal line (vertical if `is_reference_vertical`)."""

    name: str
    title: str
    x_label: str
    y_label: str
    lines: tuple[Line, ...]
    is_log_x: bool = False
    is_log_y: bool = False
    reference_line: tuple[float, str] | None = None
    is_reference_vertical: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    """One question of the paper and its results; `setup` describes the processes and the load."""

    key: str
    title: str
    setup: str
    tables: tuple[Table, ...]
    figures: tuple[Figure, ...] = ()
    results: dict[str, Any] = field(default_factory=dict)
    """The results for the JSON report."""
    violations: tuple[str, ...] = ()
    """Violated requirements, one line each."""


@dataclass(frozen=True, slots=True)
class Report:
    """A complete evaluation."""

    paper: str
    title: str
    command: str
    sections: tuple[Section, ...]
    is_quick: bool
    took_s: float
    notes: tuple[str, ...] = ()

    @property
    def violations(self) -> tuple[str, ...]:
        """All violated requirements."""
        return tuple(f"{section.title}: {line}" for section in self.sections for line in section.violations)


def as_text(table: Table) -> str:
    """Return a table for a terminal."""
    rows = [table.head, *table.rows]
    widths = [max(len(row[at]) for row in rows) for at in range(len(table.head))]

    def line(row: tuple[str, ...]) -> str:
        cells = [
            cell.ljust(width) if at == 0 or table.is_text else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        return "  " + "  ".join(cells).rstrip()

    ruler = "  " + "  ".join("─" * width for width in widths)
    notes = [f"  {note}" for note in table.notes]
    return "\n".join([f"  {table.title}", line(table.head), ruler, *map(line, table.rows), *notes])


def print_section(section: Section) -> None:
    """Print a section."""
    print_line(f"\n{section.title}\n  setup: {section.setup}")
    for table in section.tables:
        print_line("\n" + as_text(table))
    for line in section.violations:
        print_line(f"  VIOLATED: {line}")


def save_report(report: Report, folder: Path) -> None:
    """Write the page, its figures and the JSON report."""
    folder.mkdir(parents=True, exist_ok=True)
    pictures = {figure.name: _draw(figure, folder) for section in report.sections for figure in section.figures}
    (folder / PAGE).write_text(_page(report, pictures))
    (folder / RESULTS).write_text(json.dumps(as_json(report), indent=1) + "\n")


def as_json(report: Report) -> dict[str, Any]:
    """Return all results as values for JSON."""
    return {
        "paper": report.paper,
        "command": report.command,
        "is_quick": report.is_quick,
        "took_s": round(report.took_s, 1),
        "version": __version__,
        "machine": machine(),
        "notes": list(report.notes),
        "violations": list(report.violations),
        "sections": {section.key: {"setup": section.setup, **section.results} for section in report.sections},
    }


def machine() -> dict[str, Any]:
    """Describe the machine."""
    return {"cores": cpu_count(), "processor": platform.machine(), "python": platform.python_version()}


def as_markdown(report: Report) -> str:
    """Return the tables as Markdown."""
    origin = f"Produced by `{report.command}` in {report.took_s:.0f} s on {_machine_text()}."
    lines = [f"# {report.title}", "", origin, *report.notes]
    for section in report.sections:
        lines += ["", f"## {section.title}", "", f"Setup: {section.setup}."]
        for table in section.tables:
            lines += ["", f"**{table.title}**", "", f"| {' | '.join(table.head)} |", f"|{'---|' * len(table.head)}"]
            lines += [f"| {' | '.join(row)} |" for row in table.rows]
            lines += ["", *table.notes]
    return "\n".join([*lines, ""])


def _machine_text() -> str:
    results = machine()
    return f"{results['cores']} cores ({results['processor']}), Python {results['python']}"


def _page(report: Report, pictures: dict[str, bytes]) -> str:
    parts = [
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(report.title)}</title>',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<style>{_STYLE}</style></head><body><h1>{escape(report.title)}</h1>",
        f"<p>Produced by <code>{escape(report.command)}</code> in {report.took_s:.0f} s on {escape(_machine_text())}.</p>",
    ]
    parts += [f'<p class="note">{escape(note)}</p>' for note in report.notes]
    parts += [f"<p><strong>Violated:</strong> {escape(line)}</p>" for line in report.violations]
    for section in report.sections:
        parts.append(f"<h2>{escape(section.title)}</h2><p>Setup: {escape(section.setup)}.</p>")
        for figure in section.figures:
            data = base64.b64encode(pictures[figure.name]).decode()
            parts.append(f'<p><img alt="{escape(figure.title)}" src="data:image/png;base64,{data}"></p>')
        parts += [_table(table) for table in section.tables]
    return "\n".join([*parts, "</body></html>\n"])


def _table(table: Table) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in table.head)
    rows = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>\n" for row in table.rows)
    notes = f'<p class="note">{escape(" ".join(table.notes))}</p>' if table.notes else ""
    kind = ' class="text"' if table.is_text else ""
    return f"<table{kind}><caption>{escape(table.title)}</caption><tr>{head}</tr>\n{rows}</table>{notes}"


def _draw(figure: Figure, folder: Path) -> bytes:
    """Draw a figure into the folder; return its PNG data."""
    import matplotlib as mpl  # noqa: PLC0415  # an optional dependency

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    drawing, axes = plt.subplots(figsize=(9, 4.6), layout="constrained")
    for line in figure.lines:
        axes.plot(line.xs, line.ys, marker="o" if line.has_markers else None, markersize=4, label=line.label)
    if figure.reference_line is not None:
        draw_line = axes.axvline if figure.is_reference_vertical else axes.axhline
        draw_line(figure.reference_line[0], color="black", linestyle="--", linewidth=0.8, label=figure.reference_line[1])
    axes.set(title=figure.title, xlabel=figure.x_label, ylabel=figure.y_label)
    if figure.is_log_x:
        axes.set_xscale("log")
    if figure.is_log_y:
        axes.set_yscale("log")
    axes.grid(visible=True, alpha=0.25)
    axes.legend(fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    path = folder / f"{figure.name}.png"
    drawing.savefig(path, dpi=110)
    plt.close(drawing)
    return path.read_bytes()
