"""MQTT brokers compared: `make bench-edge` (QUICK=1: fewer brokers and steps, within two minutes).

The broker has one core to itself, the load generator (C, `bench/edge_load/c`) another one; brokers take turns in each round, so
that other load on the machine affects all of them equally. To run a part:
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

from bench.edge_load.brokers import Broker, all_brokers
from bench.edge_load.generator import CACHE, load_program, relay_program
from bench.edge_load.report import Measurements, publish_results
from bench.edge_load.servers import SCHEMA, allow_many_files, make_certificate
from bench.edge_load.workloads import EVALUATED, Measurement, Workload, all_workloads
from bench.harness import QUICK
from milepost_experiments.papers.load.programs import BROKER_CORE, LOAD_CORE, LoadFailed

WAIT_S_MAX = 1_800.0
QUICK_BROKERS = ("milepost", "mosquitto20", "relay")
QUICK_LEAVES_OUT = ("bursts",)


def main() -> None:
    """Run the selected workloads and publish the results."""
    workloads, brokers, notes = chosen(sys.argv[1:])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # so that every server is stopped
    with exclusive_run():
        run(workloads, brokers, notes, is_partial="--only" in " ".join(sys.argv))


@contextlib.contextmanager
def exclusive_run() -> Iterator[None]:
    """Wait until no other benchmark runs: two at a time would measure each other."""
    CACHE.mkdir(exist_ok=True)
    with (CACHE / "bench-edge.lock").open("w") as lock:
        deadline, is_printed = time.monotonic() + WAIT_S_MAX, False
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    sys.exit("another benchmark is still running: giving up")
                if not is_printed:
                    print("another benchmark is running: waiting for its end", flush=True)
                is_printed = True
                time.sleep(1.0)
        yield


def run(workloads: list[Workload], brokers: list[Broker], notes: list[str], *, is_partial: bool) -> None:
    """Run every workload, then print the table."""
    load_program()
    relay_program()
    limit = allow_many_files()
    print(f"broker on core {BROKER_CORE}, generator on core {LOAD_CORE}, {limit:,} open files allowed", flush=True)
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="edge-") as folder:
        shared = Path(folder)
        make_certificate(shared)
        (shared / "schema.json").write_text(SCHEMA)
        measurements: Measurements = defaultdict(list)
        failures: dict[tuple[str, str], str] = {}
        for workload in workloads:
            run_workload(workload, brokers, shared, measurements, failures)
    print(f"{time.monotonic() - started:.0f} s", flush=True)
    publish_results(workloads, brokers, measurements, failures, notes, is_partial=is_partial)


def chosen(argv: list[str]) -> tuple[list[Workload], list[Broker], list[str]]:
    """Return the selected workloads and brokers, and a note for each missing broker."""
    workloads, brokers = all_workloads(), all_brokers()
    parser = argparse.ArgumentParser(prog="python -m bench.edge", description="MQTT brokers compared")
    parser.add_argument(
        "--only", default="", help=f"workloads, separated by commas: {','.join(workload.key for workload in workloads)}"
    )
    keys = ",".join(broker.key for broker in brokers)
    parser.add_argument("--brokers", default=",".join(QUICK_BROKERS) if QUICK else "", help=f"prefixes of: {keys}")
    arguments = parser.parse_args(argv)
    only = [word for word in arguments.only.split(",") if word]
    prefixes = tuple(word for word in arguments.brokers.split(",") if word)
    if unknown := set(only) - {workload.key for workload in workloads}:
        parser.error(f"unknown workload: {', '.join(sorted(unknown))}")
    left_out = QUICK_LEAVES_OUT if QUICK else ()
    workloads = [workload for workload in workloads if workload.key in only or (not only and workload.key not in left_out)]
    brokers = [broker for broker in brokers if not prefixes or broker.key.startswith(prefixes)]
    missing = {broker.key: why for broker in brokers if (why := broker.missing_reason())}
    notes = [f"{broker.name}: {missing[broker.key]}" for broker in brokers if broker.key in missing]
    for note in notes:
        print(note, flush=True)
    return workloads, [broker for broker in brokers if broker.key not in missing], notes


def run_workload(
    workload: Workload, brokers: list[Broker], shared: Path, measurements: Measurements, failures: dict[tuple[str, str], str]
) -> None:
    """Run all rounds of one workload; in each round the brokers take turns."""
    print(f"{workload.key}: {'; '.join(line.title for line in workload.lines.values())}", flush=True)
    for number in range(workload.rounds):
        for broker in brokers:
            earlier = measurements.get((workload.key, broker.key), [])
            is_needed = number == 0 or (broker.key in EVALUATED and (workload.key, broker.key) not in failures)
            if broker.key in unsupporting_brokers(workload, brokers) or not is_needed:
                continue
            started = time.monotonic()
            try:
                found = workload.measure(broker, shared, earlier[-1] if earlier else None)
            except (LoadFailed, OSError, SubprocessError) as fault:
                failures[workload.key, broker.key] = str(fault)
                print(f"  {broker.name:30} {fault}", flush=True)
                continue
            for key, measurement in found.items():
                measurements[key, broker.key].append(measurement)
                show(workload, key, broker, measurement, time.monotonic() - started)


def unsupporting_brokers(workload: Workload, brokers: list[Broker]) -> set[str]:
    """Return the brokers that do not support this workload."""
    return {broker.key for broker in brokers if workload.key in broker.unsupported}


def show(workload: Workload, key: str, broker: Broker, measurement: Measurement, took_s: float) -> None:
    """Print one line of progress."""
    value = f"{measurement.value:,.0f}" if measurement.value >= 1000 else f"{measurement.value:.4g}"
    shares = (
        f"generator {measurement.busy:.0%}" + (f", broker {measurement.load:.0%}" if measurement.load else "")
        if measurement.busy
        else ""
    )
    print(
        f"  {broker.name:30} {value:>12} {workload.lines[key].unit:13} {measurement.remark:32} {shares}  [{took_s:.0f} s]",
        flush=True,
    )


if __name__ == "__main__":
    main()
