"""The UDP door beside loops in C: `make bench-udp` (QUICK=1: smaller, within two minutes).

The edge, or the loop it is compared with, has one core to itself, the load (C, `bench/udp_load/c`) the other. A part of it, which
is printed and not written down: `python -m bench.udp --only reports,handshakes`.
"""

import argparse
import os
import signal
import sys
import time

from bench.udp_load.workloads import ALL

from bench.edge import alone
from bench.edge_load.servers import allow_many_files
from bench.harness import Row, publish
from milepost_experiments.papers.load.endpoints import OpeningFailed
from milepost_experiments.papers.load.programs import BROKER_CORE, LOAD_CORE, LoadFailed, udp_source

BUSY_BEFORE = 0.5
"""A load average above this, before anything is begun, is told: others work on the machine."""


def main() -> None:
    """Run what was asked for and conclude."""
    only = chosen(sys.argv[1:])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # so that every process is stopped then too
    with alone():
        run(only or list(ALL), is_part=bool(only))


def chosen(words: list[str]) -> list[str]:
    """The works asked for; nothing: all."""
    parser = argparse.ArgumentParser(prog="python -m bench.udp", description="The UDP door beside loops in C")
    parser.add_argument("--only", default="", help=f"works, with commas between: {','.join(ALL)}")
    only = [word for word in parser.parse_args(words).only.split(",") if word]
    if strange := set(only) - set(ALL):
        parser.error(f"there is no work named {', '.join(sorted(strange))}")
    return only


def run(keys: list[str], *, is_part: bool) -> None:
    """Every work, then the table."""
    udp_source()
    allow_many_files()
    average = os.getloadavg()[0]
    print(f"edge on core {BROKER_CORE}, load on core {LOAD_CORE}, load average {average:.2f}", flush=True)
    rows: list[Row] = []
    notes = [f"The machine was not quiet: load average {average:.2f} before the run"] if average > BUSY_BEFORE else []
    for key in keys:
        began = time.monotonic()
        try:
            found, said = ALL[key]()
        except (LoadFailed, OpeningFailed, OSError) as fault:
            found, said = [], [f"{key} failed: {fault}"]
        rows, notes = [*rows, *found], [*notes, *said]
        tell(key, found, said, time.monotonic() - began)
    if not is_part and rows:
        publish("udp", rows, notes)


def tell(key: str, rows: list[Row], notes: list[str], took_s: float) -> None:
    """What one work has found."""
    print(f"{key} [{took_s:.0f} s]", flush=True)
    for row in rows:
        beside = f"{row.peer} {row.peer_value:,.4g}, {row.ratio:.3g}x" if row.peer_value and row.ratio else ""
        print(f"  {row.work:60} {row.ours:>12,.4g} {row.unit:10} {beside:44} {row.goal}", flush=True)
    for note in notes:
        print(f"  {note}", flush=True)


if __name__ == "__main__":
    main()
