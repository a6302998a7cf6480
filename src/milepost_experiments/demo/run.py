"""The demo from its first process to its last: start, drive, evaluate, report, stop."""

import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import time_ns

from milepost.config.errors import STATUS_FAILED, StartFault, UsageFault
from milepost.model.instants import Instant
from milepost.runtime.terminal import print_line
from milepost_experiments.demo.child_processes import Children
from milepost_experiments.demo.console import ProgressLine, print_outcome
from milepost_experiments.demo.ledger_recorder import LedgerRecorder
from milepost_experiments.demo.main_loop import MainLoop
from milepost_experiments.demo.outcome import Outcome, latencies
from milepost_experiments.demo.report import write_report
from milepost_experiments.demo.startup import Options, RunningDemo, Starter
from milepost_experiments.simulator.evaluation import evaluate
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
    return 0 if outcome.has_passed else STATUS_FAILED


def _outcome(options: Options, folder: Path, children: Children, stack: ExitStack) -> Outcome:
    began = time.monotonic()
    print_line(f"starting the city; logs, settings and the report are in {folder}")
    running = Starter(options, folder / "city", children, stack).start()
    started_s = time.monotonic() - began
    print_line(f"ready after {started_s:.0f} s")
    print_line("")
    print_line(f"  map: http://127.0.0.1:{running.city.map_port}/")
    print_line("")
    loop = _run_loop(options, running)
    outcome = _evaluate(options, loop, started_s)
    page = write_report(folder, outcome, running.network, loop.recorder.ledger)
    print_outcome(outcome)
    print_line(f"report: {page}")
    return outcome


def _run_loop(options: Options, running: RunningDemo) -> MainLoop:
    """Run for the configured time, or until a signal; a run stopped before its first alert is not evaluated."""
    recorder, line = LedgerRecorder(), ProgressLine()
    assert running.fleet.process.stdout is not None, "the fleet has pipes"
    recorder.listen(running.fleet.process.stdout)
    loop = MainLoop(running, recorder, options.vehicles, options.seed, options.seconds, line.show)
    try:
        loop.run()
    except KeyboardInterrupt:
        if options.seconds is not None or not loop.recorder.ledger.alerts:
            raise
        running.children.is_interrupted = False
        loop.ended_at = Instant(time_ns())
        loop.record_pending()
    line.end()
    return loop


def _evaluate(options: Options, loop: MainLoop, started_s: float) -> Outcome:
    ledger = loop.recorder.ledger
    evaluation = evaluate(ledger, loop.ended_at)
    used_options = {
        "vehicles": options.vehicles,
        "seconds": loop.second if options.seconds is None else options.seconds,
        "log_type": options.log_type.value,
        "seed": options.seed,
        "scenario": "bundled city" if options.sumo is None else options.sumo.name,
    }
    counts = {
        "vehicles": len(ledger.clients),
        "moves": len(ledger.moves),
        "reports": loop.recorder.reports,
        "sightings": len(ledger.sightings),
        "collisions": len(loop.scenario.past_collisions),
        "client_faults": len(loop.recorder.faults),
    }
    return Outcome(used_options, started_s, evaluation, loop.cpu_shares(), latencies(evaluation, ledger), counts)


def _new_folder(folder: Path) -> Path:
    folder = folder.resolve()
    try:
        if folder.exists() and any(folder.iterdir()):
            raise UsageFault(f"{folder} is not empty: remove it, or choose another folder (--out)")
        for name in ("logs", "city"):
            (folder / name).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageFault(f"{folder} cannot be created: {error.strerror}; choose another folder (--out)") from None
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
