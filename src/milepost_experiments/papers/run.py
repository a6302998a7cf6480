"""Run an evaluation from the command line: print sections as they finish, then save the report in a folder."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Final

from milepost.config.errors import StartFault, missing_extra
from milepost.config.site_settings import LogType
from milepost.runtime.terminal import print_error, print_line
from milepost_experiments.papers.load.programs import LoadFailed
from milepost_experiments.papers.report import PAGE, RESULTS, Progress, Report, Section, as_markdown, save_report
from milepost_experiments.simulator.sumo import SumoFault

STATUS_VIOLATED: Final = 1
TABLES: Final = "report.md"
BUSY_BEFORE: Final = 0.7
"""Load average before the run above which the report has a note."""


def run_paper(paper: str, folder: Path, *, is_quick: bool, log_type: str) -> int:
    """Run an evaluation; return the exit status: 1 if a requirement was violated."""
    signal.signal(signal.SIGTERM, _stop)  # so that all child processes are stopped
    progress, notes = Progress(), machine_notes(os.getloadavg()[0])
    try:
        title, sections = _evaluation(paper, is_quick=is_quick, log_type=LogType(log_type))(progress)
    except (LoadFailed, SumoFault) as fault:
        raise StartFault(f"the evaluation could not be run: {fault}") from None
    except ModuleNotFoundError:
        raise missing_extra("milepost paper", "experiments") from None
    finally:
        progress.clear()
    command = f"milepost paper {paper}{' --quick' * is_quick}{f' --log {log_type}' * (paper == 'dpsmd')}"
    report = Report(paper, title, command, tuple(sections), is_quick, progress.took_s, notes)
    save_report(report, folder)
    (folder / TABLES).write_text(as_markdown(report))
    print_line(f"\n{progress.took_s:.0f} s. Report with figures: {folder / PAGE}; results as JSON: {folder / RESULTS}.")
    for note in notes:
        print_line(note)
    for line in report.violations:
        print_error(f"violated: {line}")
    return STATUS_VIOLATED if report.violations else 0


def machine_notes(load: float) -> tuple[str, ...]:
    """Return a note if the machine was busy before the run."""
    note = f"The machine was busy: load average {load:.1f} before the run. Times are too long."
    return (note,) if load > BUSY_BEFORE else ()


def _evaluation(paper: str, *, is_quick: bool, log_type: LogType) -> Callable[[Progress], tuple[str, list[Section]]]:
    if paper == "mercury":
        from milepost_experiments.papers.mercury import evaluation as mercury  # noqa: PLC0415  # each paper needs other optional dependencies

        return lambda progress: (mercury.TITLE, mercury.evaluate(progress, is_quick=is_quick))
    from milepost_experiments.papers.dpsmd import evaluation as dpsmd  # noqa: PLC0415

    return lambda progress: (dpsmd.TITLE, dpsmd.evaluate(progress, is_quick=is_quick, log_type=log_type))


def _stop(number: int, frame: FrameType | None) -> None:
    del number, frame
    raise KeyboardInterrupt
