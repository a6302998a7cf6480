"""Edges of a site, and sites joined by a central hub: `make bench-federation` (QUICK=1: smaller, within three minutes).

DPSMD's table compared with Mosquitto, roaming under load, the logs alone, and the time by stage. All processes share the cores of
the machine, as in the paper; the load generator sleeps when idle, and the CPU share of each process is reported. To run a part,
which is printed and not saved: `python -m bench.federation --only latency,roaming --logs embedded`.
"""

import argparse
import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping

from bench import log_appends, log_kafka
from bench.edge import exclusive_run
from bench.edge_load.servers import allow_many_files
from bench.federation_load import latency, roaming, stages
from bench.federation_load.report import Results, publish_results
from milepost.config.errors import StartFault
from milepost.config.site_settings import LogType
from milepost.model.durability import Durability
from milepost_experiments.papers.load.programs import LoadFailed, federation_load
from milepost_experiments.papers.load.testbed import Kafka, Topology, running_testbed_kafka

WORKLOADS = ("logs", "latency", "roaming", "stages")
BUSY_BEFORE = 0.5
"""Load average before the run above which the results have a note: other processes use the machine."""


def main() -> None:
    """Run the selected workloads and publish the results."""
    workloads, log_types = chosen(sys.argv[1:])
    is_partial = len(workloads) < len(WORKLOADS) or len(log_types) < len(LogType)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # so that every process is stopped
    with exclusive_run():
        federation_load()
        allow_many_files()
        results, began = Results(), time.monotonic()
        if (average := os.getloadavg()[0]) > BUSY_BEFORE:
            results.notes.append(f"The machine was busy: load average {average:.2f} before the run")
        with kafka_if_selected(log_types, results) as kafka:
            run(workloads, log_types, kafka, results)
        print(f"{time.monotonic() - began:.0f} s", flush=True)
        publish_results(results, is_partial=is_partial)


def chosen(argv: list[str]) -> tuple[list[str], list[LogType]]:
    """Return the selected workloads and logs; all by default."""
    parser = argparse.ArgumentParser(prog="python -m bench.federation", description="Sites, their logs and the central hub")
    logs = ",".join(one.value for one in LogType)
    parser.add_argument("--only", default=",".join(WORKLOADS), help=f"workloads, separated by commas: {','.join(WORKLOADS)}")
    parser.add_argument("--logs", default=logs, help=f"logs, separated by commas: {logs}")
    arguments = parser.parse_args(argv)
    workloads = arguments.only.split(",")
    if unknown := set(workloads) - set(WORKLOADS):
        parser.error(f"unknown workload: {', '.join(sorted(unknown))}")
    try:
        return workloads, [LogType(word) for word in arguments.logs.split(",")]
    except ValueError as fault:
        parser.error(str(fault))


@contextlib.contextmanager
def kafka_if_selected(log_types: list[LogType], results: Results) -> Iterator[Kafka | None]:
    """Run a Kafka of one broker for the block, if it is selected and available."""
    with contextlib.ExitStack() as stack:
        kafka = None
        if LogType.KAFKA in log_types:
            try:
                kafka = stack.enter_context(running_testbed_kafka(print))
            except StartFault as fault:
                results.notes.append(f"Kafka is not available: {fault}")
                print(results.notes[-1], flush=True)
        yield kafka


def run(workloads: list[str], log_types: list[LogType], kafka: Kafka | None, results: Results) -> None:
    """Run the selected workloads on the available logs."""
    available = [one for one in log_types if one is LogType.EMBEDDED or kafka is not None]

    def is_available(topology: Topology) -> bool:
        return topology.log_type in available

    if "logs" in workloads:
        print("logs", flush=True)
        measure_logs(available, kafka, results)
    if "latency" in workloads:
        print("latency: mean / p50 / p99 / max", flush=True)
        results.cells, notes = latency.measure_all([one for one in latency.PATHS if is_available(one.topology)], kafka)
        results.notes += notes
    if "roaming" in workloads:
        print("roaming", flush=True)
        results.roaming_results, notes = roaming.measure_all([one for one in roaming.SERIES if is_available(one.topology)], kafka)
        results.notes += notes
    if "stages" in workloads:
        print("stages", flush=True)
        for log_type in available:
            try:
                results.stages += stages.measure(log_type, kafka)
            except (LoadFailed, OSError) as fault:
                results.notes.append(f"stages, {log_type.value}: {fault}")
                print(f"  {results.notes[-1]}", flush=True)


def measure_logs(log_types: list[LogType], kafka: Kafka | None, results: Results) -> None:
    """Measure the logs alone."""
    if LogType.EMBEDDED in log_types:
        results.appends = appends_of(log_appends.measure())
    if kafka is not None:
        results.kafka = log_kafka.measure(kafka.address)
    for log, values in (("embedded", results.appends), ("kafka", results.kafka)):
        for name, value in values.items():
            print(f"  {log:10} {name:14} {value:,.4g}", flush=True)


def appends_of(measured: Mapping[str, object]) -> dict[str, float]:
    """Return the rates of the log and of the bare loop, at the default durability of a site."""

    def value_of(name: str, key: str) -> float:
        group = measured[name]
        assert isinstance(group, dict)
        return float(group[key])

    level = Durability.PROCESS_CRASH.value
    rates = {"ours_per_s": value_of("appends", level), "bare_per_s": value_of("bare sqlite3", level)}
    return rates | {"p50_ms": value_of("latency, two processes", "p50") / 1e3}


if __name__ == "__main__":
    main()
