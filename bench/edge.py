"""MQTT brokers side by side: `make bench-edge` (QUICK=1: fewer brokers and steps, within two minutes).

Every broker has one core to itself, the load generator (C, `bench/edge_load/c`) the other; brokers take turns, round by round, so
that what else the machine does falls on all alike. A part of it:
`python -m bench.edge --only fanout,latency --brokers milepost,mosquitto`.
"""

import argparse
import contextlib
import fcntl
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from subprocess import SubprocessError

from bench.edge_load.workloads import JUDGED, Figure, Work, all_works

from bench.edge_load.brokers import Broker, all_brokers
from bench.edge_load.generator import CACHE, load_program, relay_program
from bench.edge_load.report import Figures, conclude
from bench.edge_load.servers import SCHEMA, allow_many_files, make_certificate
from bench.harness import QUICK
from milepost_experiments.papers.load.programs import BROKER_CORE, LOAD_CORE, LoadFailed

WAIT_S_MAX = 1_800.0
QUICK_BROKERS = ("milepost", "mosquitto20", "relay")
QUICK_LEAVES_OUT = ("bursts",)


def main() -> None:
    """Run what was asked for and conclude."""
    works, brokers, notes = chosen(sys.argv[1:])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # so that every server is stopped then too
    with alone():
        run(works, brokers, notes, is_part="--only" in " ".join(sys.argv))


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Wait until no other run has the cores: two at a time would measure each other."""
    CACHE.mkdir(exist_ok=True)
    with (CACHE / "bench-edge.lock").open("w") as lock:
        deadline, is_told = time.monotonic() + WAIT_S_MAX, False
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    sys.exit("another run of this benchmark does not end")
                if not is_told:
                    print("another run has the cores: waiting for its end", flush=True)
                is_told = True
                time.sleep(1.0)
        yield


def run(works: list[Work], brokers: list[Broker], notes: list[str], *, is_part: bool) -> None:
    """Every work, then the table."""
    load_program()
    relay_program()
    limit = allow_many_files()
    print(f"broker on core {BROKER_CORE}, generator on core {LOAD_CORE}, {limit:,} open files allowed", flush=True)
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="edge-") as folder:
        shared = Path(folder)
        make_certificate(shared)
        (shared / "schema.json").write_text(SCHEMA)
        figures: Figures = defaultdict(list)
        failures: dict[tuple[str, str], str] = {}
        for work in works:
            run_work(work, brokers, shared, figures, failures)
    print(f"{time.monotonic() - started:.0f} s", flush=True)
    conclude(works, brokers, figures, failures, notes, is_part=is_part)


def chosen(words: list[str]) -> tuple[list[Work], list[Broker], list[str]]:
    """The works and brokers asked for, and who is missing."""
    works, brokers = all_works(), all_brokers()
    parser = argparse.ArgumentParser(prog="python -m bench.edge", description="MQTT brokers side by side")
    parser.add_argument("--only", default="", help=f"works, with commas between: {','.join(work.key for work in works)}")
    keys = ",".join(broker.key for broker in brokers)
    parser.add_argument("--brokers", default=",".join(QUICK_BROKERS) if QUICK else "", help=f"beginnings of: {keys}")
    asked = parser.parse_args(words)
    only = [word for word in asked.only.split(",") if word]
    wanted = tuple(word for word in asked.brokers.split(",") if word)
    if strange := set(only) - {work.key for work in works}:
        parser.error(f"there is no work named {', '.join(sorted(strange))}")
    left_out = QUICK_LEAVES_OUT if QUICK else ()
    works = [work for work in works if work.key in only or (not only and work.key not in left_out)]
    brokers = [broker for broker in brokers if not wanted or broker.key.startswith(wanted)]
    absent = {broker.key: why for broker in brokers if (why := broker.absence())}
    notes = [f"{broker.name}: {absent[broker.key]}" for broker in brokers if broker.key in absent]
    for note in notes:
        print(note, flush=True)
    return works, [broker for broker in brokers if broker.key not in absent], notes


def run_work(work: Work, brokers: list[Broker], shared: Path, figures: Figures, failures: dict[tuple[str, str], str]) -> None:
    """All rounds of one work; in each the brokers take turns."""
    print(f"{work.key}: {'; '.join(line.title for line in work.lines.values())}", flush=True)
    for number in range(work.rounds):
        for broker in brokers:
            known = figures.get((work.key, broker.key), [])
            is_wanted = number == 0 or (broker.key in JUDGED and (work.key, broker.key) not in failures)
            if broker.key in work_refusals(work, brokers) or not is_wanted:
                continue
            started = time.monotonic()
            try:
                found = work.measure(broker, shared, known[-1] if known else None)
            except (LoadFailed, OSError, SubprocessError) as fault:
                failures[work.key, broker.key] = str(fault)
                print(f"  {broker.name:30} {fault}", flush=True)
                continue
            for key, figure in found.items():
                figures[key, broker.key].append(figure)
                show(work, key, broker, figure, time.monotonic() - started)


def work_refusals(work: Work, brokers: list[Broker]) -> set[str]:
    """Who cannot do this work at all."""
    return {broker.key for broker in brokers if work.key in broker.cannot}


def show(work: Work, key: str, broker: Broker, figure: Figure, took_s: float) -> None:
    """One line of progress."""
    value = f"{figure.value:,.0f}" if figure.value >= 1000 else f"{figure.value:.4g}"
    shares = f"generator {figure.busy:.0%}" + (f", broker {figure.load:.0%}" if figure.load else "") if figure.busy else ""
    print(f"  {broker.name:30} {value:>12} {work.lines[key].unit:13} {figure.remark:32} {shares}  [{took_s:.0f} s]", flush=True)


if __name__ == "__main__":
    main()
