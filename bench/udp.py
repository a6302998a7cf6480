"""The UDP listener compared with loops in C: `make bench-udp` (QUICK=1: smaller, within two minutes).

The edge, or the loop it is compared with, has one core to itself, the load (C, `bench/udp_load/c`) another one. To run a part,
which is printed and not saved: `python -m bench.udp --only reports,handshakes`.
"""

import argparse
import os
import signal
import sys
import time

from bench.edge import exclusive_run
from bench.edge_load.servers import allow_many_files
from bench.harness import Row, publish
from bench.udp_load.workloads import WORKLOADS
from milepost_experiments.papers.load.endpoints import SessionOpenFailed
from milepost_experiments.papers.load.programs import BROKER_CORE, LOAD_CORE, LoadFailed, udp_source

BUSY_BEFORE = 0.5
"""Load average before the run above which the results have a note: other processes use the machine."""


def main() -> None:
    """Run the selected workloads and publish the results."""
    only = chosen(sys.argv[1:])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # so that every process is stopped
    with exclusive_run():
        run(only or list(WORKLOADS), is_partial=bool(only))


def chosen(argv: list[str]) -> list[str]:
    """Return the selected workloads; empty: all."""
    parser = argparse.ArgumentParser(prog="python -m bench.udp", description="The UDP listener compared with loops in C")
    parser.add_argument("--only", default="", help=f"workloads, separated by commas: {','.join(WORKLOADS)}")
    only = [word for word in parser.parse_args(argv).only.split(",") if word]
    if unknown := set(only) - set(WORKLOADS):
        parser.error(f"unknown workload: {', '.join(sorted(unknown))}")
    return only


def run(keys: list[str], *, is_partial: bool) -> None:
    """Run every workload, then print the table."""
    udp_source()
    allow_many_files()
    average = os.getloadavg()[0]
    print(f"edge on core {BROKER_CORE}, load on core {LOAD_CORE}, load average {average:.2f}", flush=True)
    rows: list[Row] = []
    notes = [f"The machine was busy: load average {average:.2f} before the run"] if average > BUSY_BEFORE else []
    for key in keys:
        began = time.monotonic()
        try:
            workload_rows, workload_notes = WORKLOADS[key]()
        except (LoadFailed, SessionOpenFailed, OSError) as fault:
            workload_rows, workload_notes = [], [f"{key} failed: {fault}"]
        rows, notes = [*rows, *workload_rows], [*notes, *workload_notes]
        print_results(key, workload_rows, workload_notes, time.monotonic() - began)
    if not is_partial and rows:
        publish("udp", rows, notes)


def print_results(key: str, rows: list[Row], notes: list[str], took_s: float) -> None:
    """Print the results of one workload."""
    print(f"{key} [{took_s:.0f} s]", flush=True)
    for row in rows:
        comparison = f"{row.peer} {row.peer_value:,.4g}, {row.ratio:.3g}x" if row.peer_value and row.ratio else ""
        print(f"  {row.workload:60} {row.ours:>12,.4g} {row.unit:10} {comparison:44} {row.goal}", flush=True)
    for note in notes:
        print(f"  {note}", flush=True)


if __name__ == "__main__":
    main()
