"""The terminal output of the demo: a progress line, overwritten on a terminal, and a table at the end."""

import sys
from typing import Final

from milepost.runtime.terminal import say
from milepost_experiments.demo.main_loop import Drive
from milepost_experiments.demo.outcome import Outcome, spread
from milepost_experiments.simulator.evaluation import Judged

EACH_S: Final = 2
EACH_S_FILE: Final = 5


class Line:
    """The progress line."""

    def __init__(self) -> None:
        self._is_terminal = sys.stdout.isatty()
        self._reports = 0

    def show(self, drive: Drive) -> None:
        """Print the progress every few seconds."""
        each_s = EACH_S if self._is_terminal else EACH_S_FILE
        if drive.second % each_s:
            return
        books, keeper = drive.keeper.books, drive.keeper
        rate, self._reports = (keeper.reports - self._reports) / each_s, keeper.reports
        text = (
            f"{drive.second:4} s  {drive.story.act.value:8}  {drive.client_count} vehicles  {len(books.moves)} moves  "
            f"{rate:,.0f} reports/s  {drive.living} incidents  {len(books.alerts)} alerts  "
            f"{sum(map(len, books.heard.values())):,} warnings heard  {len(keeper.faults)} faults"
        )
        sys.stdout.write(f"\r\x1b[K{text}" if self._is_terminal else f"{text}\n")
        sys.stdout.flush()

    def end(self) -> None:
        """End the line."""
        if self._is_terminal:
            say("")


def say_outcome(outcome: Outcome) -> None:
    """Print the table and the verdict."""
    judged = outcome.judged
    say("")
    for line in table(judged):
        say(line)
    say("")
    control = judged.control
    say(
        f"control stream: {control.said} numbers to each, {control.due:,} due, {sum(map(len, control.lost.values()))} lost, "
        f"{sum(map(len, control.doubled.values()))} doubled, {control.again} second copies marked or recognised as such, "
        f"through {outcome.counts['moves']} moves between edges"
    )
    for name, some in outcome.times_ms.items():
        say(f"{name}: {spread(some)}")
    say("processors: " + ", ".join(f"{name} {share:.0%}" for name, share in outcome.cpu_shares.items()))
    say("")
    if outcome.held:
        say("every promise held: all inside and all who drove in were warned, nobody else; nothing was lost or doubled")
    else:
        say("NOT everything held:")
        for fault in judged.faults:
            say(f"  {fault}")


_HEADS: Final = (
    "incident",
    "phase",
    "inside",
    "warned",
    "drove in",
    "warned",
    "border",
    "wrong",
    "truly inside",
    "warned",
    "median ms",
)


def table(judged: Judged) -> list[str]:
    """Return a line for each alert and each all-clear."""
    rows: list[tuple[str, ...]] = [_HEADS]
    for one in judged.alerts:
        median = spread(1_000 * after for after in one.inside.values() if after is not None).p50
        numbers = (
            len(one.inside),
            len(one.inside) - len(one.missed),
            len(one.entered),
            len(one.entered) - len(one.entered_missed),
            len(one.border),
            len(one.wrong),
            len(one.truly_inside),
            len(one.truly_inside & one.warned),
        )
        rows.append((one.alert.key.incident, one.alert.key.phase, *map(str, numbers), f"{median:,.0f}"))
    for recall in judged.recalls:
        median = spread(1_000 * after for after in recall.told.values() if after is not None).p50
        told = len(recall.told)
        cells = (str(told), str(told - len(recall.missed)), "", "", "", str(len(recall.wrong)), "", "", f"{median:,.0f}")
        rows.append((recall.alert.key.incident, recall.alert.key.phase, *cells))
    widths = [max(len(row[at]) for row in rows) for at in range(len(_HEADS))]
    return [
        "  ".join(
            cell.ljust(width) if at < 2 else cell.rjust(width) for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
