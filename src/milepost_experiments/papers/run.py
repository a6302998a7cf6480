"""Run an evaluation from the command line: print sections as they finish, then save the report in a folder."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Final

from milepost.config.errors import StartFault, missing_extra
from milepost.config.site_settings import Backbone
from milepost.runtime.terminal import complain, say
from milepost_experiments.papers.load.programs import LoadFailed
from milepost_experiments.papers.report import FIGURES, PAGE, Progress, Report, Section, as_markdown, keep
from milepost_experiments.simulator.sumo import SumoFault

STATUS_BROKEN: Final = 1
TABLES: Final = "report.md"
BUSY_BEFORE: Final = 0.7
"""Load average before the run above which the report has a note."""


def run_paper(paper: str, folder: Path, *, is_quick: bool, backbone: str) -> int:
    """Run an evaluation; return the exit status: 1 if a requirement was violated."""
    signal.signal(signal.SIGTERM, _stop)  # so that all child processes are stopped
    progress, notes = Progress(), machine_notes(os.getloadavg()[0])
    try:
        title, sections = _evaluation(paper, is_quick=is_quick, backbone=Backbone(backbone))(progress)
    except (LoadFailed, SumoFault) as fault:
        raise StartFault(f"the evaluation could not be run: {fault}") from None
    except ModuleNotFoundError:
        raise missing_extra("milepost paper", "experiments") from None
    finally:
        progress.clear()
    words = f"milepost paper {paper}{' --quick' * is_quick}{f' --backbone {backbone}' * (paper == 'dpsmd')}"
    report = Report(paper, title, words, tuple(sections), is_quick, progress.took_s, notes)
    keep(report, folder)
    (folder / TABLES).write_text(as_markdown(report))
    say(f"\n{progress.took_s:.0f} s. {folder / PAGE} has it with pictures, {folder / FIGURES} the figures.")
    for note in notes:
        say(note)
    for line in report.broken:
        complain(f"does not hold: {line}")
    return STATUS_BROKEN if report.broken else 0


def machine_notes(load: float) -> tuple[str, ...]:
    """Return a note if the machine was busy before the run."""
    words = f"The machine was not quiet: load average {load:.1f} before the run. Times are too long."
    return (words,) if load > BUSY_BEFORE else ()


def _evaluation(paper: str, *, is_quick: bool, backbone: Backbone) -> Callable[[Progress], tuple[str, list[Section]]]:
    if paper == "mercury":
        from milepost_experiments.papers.mercury import evaluation as mercury  # noqa: PLC0415  # each paper needs other optional dependencies

        return lambda progress: (mercury.TITLE, mercury.evaluate(progress, is_quick=is_quick))
    from milepost_experiments.papers.dpsmd import evaluation as dpsmd  # noqa: PLC0415

    return lambda progress: (dpsmd.TITLE, dpsmd.evaluate(progress, is_quick=is_quick, backbone=backbone))


def _stop(number: int, frame: FrameType | None) -> None:
    del number, frame
    raise KeyboardInterrupt
