"""The terminal output of the demo: a progress line, overwritten on a terminal, and a table at the end."""

import sys
from typing import Final

from milepost.runtime.terminal import print_line
from milepost_experiments.demo.main_loop import MainLoop
from milepost_experiments.demo.outcome import Outcome, percentiles
from milepost_experiments.simulator.evaluation import Evaluation

INTERVAL_S: Final = 2
INTERVAL_S_FILE: Final = 5


class ProgressLine:
    """The progress line."""

    def __init__(self) -> None:
        self._is_terminal = sys.stdout.isatty()
        self._reports = 0

    def show(self, loop: MainLoop) -> None:
        """Print the progress every few seconds."""
        interval_s = INTERVAL_S if self._is_terminal else INTERVAL_S_FILE
        if loop.second % interval_s:
            return
        ledger, recorder = loop.recorder.ledger, loop.recorder
        rate, self._reports = (recorder.reports - self._reports) / interval_s, recorder.reports
        text = (
            f"{loop.second:4} s  {loop.scenario.state.value:8}  {loop.client_count} vehicles  {len(ledger.moves)} moves  "
            f"{rate:,.0f} reports/s  {loop.active_incidents} incidents  {len(ledger.alerts)} alerts  "
            f"{sum(map(len, ledger.receipts.values())):,} warnings received  {len(recorder.faults)} faults"
        )
        sys.stdout.write(f"\r\x1b[K{text}" if self._is_terminal else f"{text}\n")
        sys.stdout.flush()

    def end(self) -> None:
        """End the line."""
        if self._is_terminal:
            print_line("")


def print_outcome(outcome: Outcome) -> None:
    """Print the table and the verdict."""
    evaluation = outcome.evaluation
    print_line("")
    for line in table(evaluation):
        print_line(line)
    print_line("")
    control = evaluation.control
    print_line(
        f"control stream: {control.published} numbers to each vehicle, {control.expected:,} deliveries expected, "
        f"{sum(map(len, control.lost.values()))} lost, "
        f"{sum(map(len, control.duplicated.values()))} duplicated, {control.marked_duplicates} marked or recognised duplicates, "
        f"through {outcome.counts['moves']} moves between edges"
    )
    for name, some in outcome.times_ms.items():
        print_line(f"{name}: {percentiles(some)}")
    print_line("CPU: " + ", ".join(f"{name} {share:.0%}" for name, share in outcome.cpu_shares.items()))
    print_line("")
    if outcome.has_passed:
        print_line(
            "every guarantee held: all vehicles inside, and all that drove in, were warned, and no others; "
            "no message was lost or duplicated"
        )
    else:
        print_line("FAILED: some guarantees did not hold:")
        for fault in evaluation.faults:
            print_line(f"  {fault}")


_HEADINGS: Final = (
    "incident",
    "phase",
    "inside",
    "warned",
    "drove in",
    "warned",
    "on border",
    "wrongly warned",
    "truly inside",
    "warned",
    "median ms",
)


def table(evaluation: Evaluation) -> list[str]:
    """Return a line for each alert and each all-clear."""
    rows: list[tuple[str, ...]] = [_HEADINGS]
    for one in evaluation.alerts:
        median = percentiles(1_000 * after for after in one.inside.values() if after is not None).p50
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
    for all_clear in evaluation.all_clears:
        median = percentiles(1_000 * after for after in all_clear.notified.values() if after is not None).p50
        notified = len(all_clear.notified)
        cells = (
            str(notified),
            str(notified - len(all_clear.missed)),
            "",
            "",
            "",
            str(len(all_clear.wrong)),
            "",
            "",
            f"{median:,.0f}",
        )
        rows.append((all_clear.alert.key.incident, all_clear.alert.key.phase, *cells))
    widths = [max(len(row[at]) for row in rows) for at in range(len(_HEADINGS))]
    return [
        "  ".join(
            cell.ljust(width) if at < 2 else cell.rjust(width) for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
