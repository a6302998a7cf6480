"""The demo from its first process to its last: start, drive, judge, report, stop."""

import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import time_ns

from milepost.config.errors import STATUS_FAILED, StartFault, UsageFault
from milepost.model.instants import Instant
from milepost.runtime.terminal import say
from milepost_experiments.demo.ledger_recorder import Bookkeeper
from milepost_experiments.demo.child_processes import Children
from milepost_experiments.demo.console import Line, say_outcome
from milepost_experiments.demo.main_loop import Drive
from milepost_experiments.demo.outcome import Outcome, times_of
from milepost_experiments.demo.report import write_report
from milepost_experiments.demo.startup import Options, Running, Starter
from milepost_experiments.simulator.evaluation import judge
from milepost_experiments.simulator.sumo import SumoFault


def run(options: Options) -> int:
    """Run the demo; return the exit status: 0 only if all guarantees held."""
    folder = _new_folder(options.out)
    children = Children(folder / "logs")
    try:
        with _interruptible(children), ExitStack() as stack:
            stack.callback(_stop, children)
            outcome = _outcome(options, folder, children, stack)
    except SumoFault as fault:
        raise StartFault(str(fault)) from None
    return 0 if outcome.held else STATUS_FAILED


def _outcome(options: Options, folder: Path, children: Children, stack: ExitStack) -> Outcome:
    began = time.monotonic()
    say(f"starting the city; all that it makes is in {folder}")
    running = Starter(options, folder / "town", children, stack).start()
    started_s = time.monotonic() - began
    say(f"all is ready after {started_s:.0f} s")
    say("")
    say(f"  look at it: http://127.0.0.1:{running.town.map_port}/")
    say("")
    drive = _drive(options, running)
    outcome = _judged(options, drive, started_s)
    page = write_report(folder, outcome, running.network, drive.keeper.books)
    say_outcome(outcome)
    say(f"the report: {page}")
    return outcome


def _drive(options: Options, running: Running) -> Drive:
    """Drive for the configured time, or until a signal; a run stopped before its first alert is not judged."""
    keeper, line = Bookkeeper(), Line()
    assert running.fleet.process.stdout is not None, "it is spoken to"
    keeper.listen(running.fleet.process.stdout)
    drive = Drive(running, keeper, options.vehicles, options.seed, options.seconds, line.show)
    try:
        drive.go()
    except KeyboardInterrupt:
        if options.seconds is not None or not drive.keeper.books.alerts:
            raise
        running.children.is_interrupted = False
        drive.ended_at = Instant(time_ns())
        drive.catch_up()
    line.end()
    return drive


def _judged(options: Options, drive: Drive, started_s: float) -> Outcome:
    books = drive.keeper.books
    judged = judge(books, drive.ended_at)
    asked = {
        "vehicles": options.vehicles,
        "seconds": drive.second if options.seconds is None else options.seconds,
        "backbone": options.backbone.value,
        "seed": options.seed,
        "scenario": "the town" if options.sumo is None else options.sumo.name,
    }
    counts = {
        "vehicles": len(books.stays),
        "moves": len(books.moves),
        "reports": drive.keeper.reports,
        "sightings": len(books.sightings),
        "collisions": len(drive.story.past),
        "client_faults": len(drive.keeper.faults),
    }
    return Outcome(asked, started_s, judged, drive.cpu_shares(), times_of(judged, books), counts)


def _new_folder(folder: Path) -> Path:
    folder = folder.resolve()
    try:
        if folder.exists() and any(folder.iterdir()):
            raise UsageFault(f"{folder} is not empty: remove it, or take another (--out)")
        for name in ("logs", "town"):
            (folder / name).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageFault(f"{folder} cannot be made: {error.strerror}; take another (--out)") from None
    return folder


def _stop(children: Children) -> None:
    """Stop all children, and ignore further signals meanwhile: a second Ctrl-C must leave no process behind."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    children.stop()


@contextmanager
def _interruptible(children: Children) -> Iterator[None]:
    """Handle SIGTERM like Ctrl-C inside the block."""
    before = [(number, signal.signal(number, children.interrupt)) for number in (signal.SIGTERM, signal.SIGINT)]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)
