"""Edges of a site and sites joined by a centre: `make bench-hub` (QUICK=1: smaller, within three minutes).

DPSMD's table beside Mosquitto, roaming under load, the logs by themselves, and where the time goes. All processes share the
machine's cores, as in the paper; the generator sleeps when it has nothing to do, and what each process used is told. A part of
it, which is printed and not written down: `python -m bench.federation --only spread,roam --logs embedded`.
"""

import argparse
import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping

from bench.federation_load import roam, spread, stages
from bench.federation_load.report import Found, conclude
from milepost_experiments.papers.load.testbed import Kafka, Plan, running_for_towns

from bench import log_appends, log_kafka
from bench.edge import alone
from bench.edge_load.servers import allow_many_files
from milepost.config.errors import StartFault
from milepost.config.site_settings import Backbone
from milepost.model.durability import Durability
from milepost_experiments.papers.load.programs import LoadFailed, hub_load

WORKS = ("logs", "spread", "roam", "stages")
BUSY_BEFORE = 0.5
"""A load average above this, before anything is begun, is told: others work on the machine."""


def main() -> None:
    """Run what was asked for and conclude."""
    works, backbones = chosen(sys.argv[1:])
    is_part = len(works) < len(WORKS) or len(backbones) < len(Backbone)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # so that every process is stopped then too
    with alone():
        hub_load()
        allow_many_files()
        found, began = Found(), time.monotonic()
        if (average := os.getloadavg()[0]) > BUSY_BEFORE:
            found.notes.append(f"The machine was not quiet: load average {average:.2f} before the run")
        with maybe_kafka(backbones, found) as kafka:
            run(works, backbones, kafka, found)
        print(f"{time.monotonic() - began:.0f} s", flush=True)
        conclude(found, is_part=is_part)


def chosen(words: list[str]) -> tuple[list[str], list[Backbone]]:
    """The works and logs asked for; nothing: all."""
    parser = argparse.ArgumentParser(prog="python -m bench.federation", description="Sites, their logs and the centre")
    logs = ",".join(one.value for one in Backbone)
    parser.add_argument("--only", default=",".join(WORKS), help=f"works, with commas between: {','.join(WORKS)}")
    parser.add_argument("--logs", default=logs, help=f"with commas between: {logs}")
    asked = parser.parse_args(words)
    works = asked.only.split(",")
    if strange := set(works) - set(WORKS):
        parser.error(f"there is no work named {', '.join(sorted(strange))}")
    try:
        return works, [Backbone(word) for word in asked.logs.split(",")]
    except ValueError as fault:
        parser.error(str(fault))


@contextlib.contextmanager
def maybe_kafka(backbones: list[Backbone], found: Found) -> Iterator[Kafka | None]:
    """A Kafka of one broker for the whole run, if it is asked for and can be had."""
    with contextlib.ExitStack() as stack:
        kafka = None
        if Backbone.KAFKA in backbones:
            try:
                kafka = stack.enter_context(running_for_towns(print))
            except StartFault as fault:
                found.notes.append(f"There is no Kafka: {fault}")
                print(found.notes[-1], flush=True)
        yield kafka


def run(works: list[str], backbones: list[Backbone], kafka: Kafka | None, found: Found) -> None:
    """Every work asked for, on the logs that are there."""
    there = [one for one in backbones if one is Backbone.EMBEDDED or kafka is not None]

    def is_wanted(plan: Plan) -> bool:
        return plan.backbone in there

    if "logs" in works:
        print("logs", flush=True)
        measure_logs(there, kafka, found)
    if "spread" in works:
        print("spread: mean / p50 / p99 / max", flush=True)
        found.cells, notes = spread.measure_all([one for one in spread.COLUMNS if is_wanted(one.plan)], kafka)
        found.notes += notes
    if "roam" in works:
        print("roam", flush=True)
        found.roamed, notes = roam.measure_all([one for one in roam.TRIPS if is_wanted(one.plan)], kafka)
        found.notes += notes
    if "stages" in works:
        print("stages", flush=True)
        for backbone in there:
            try:
                found.stages += stages.measure(backbone, kafka)
            except (LoadFailed, OSError) as fault:
                found.notes.append(f"stages, {backbone.value}: {fault}")
                print(f"  {found.notes[-1]}", flush=True)


def measure_logs(backbones: list[Backbone], kafka: Kafka | None, found: Found) -> None:
    """The logs by themselves."""
    if Backbone.EMBEDDED in backbones:
        found.appends = appends_of(log_appends.measure())
    if kafka is not None:
        found.kafka = log_kafka.measure(kafka.address)
    for log, figures in (("embedded", found.appends), ("kafka", found.kafka)):
        for name, value in figures.items():
            print(f"  {log:10} {name:14} {value:,.4g}", flush=True)


def appends_of(measured: Mapping[str, object]) -> dict[str, float]:
    """Ours and the bare loop's, at the level that a site has by default."""

    def figure(name: str, key: str) -> float:
        group = measured[name]
        assert isinstance(group, dict)
        return float(group[key])

    level = Durability.PROCESS_CRASH.value
    rates = {"ours_per_s": figure("appends", level), "bare_per_s": figure("bare sqlite3", level)}
    return rates | {"p50_ms": figure("latency, two processes", "p50") / 1e3}


if __name__ == "__main__":
    main()
