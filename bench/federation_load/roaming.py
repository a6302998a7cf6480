"""Moves under load, one trip after the other: `milepost_experiments.papers.dpsmd.measurements` measures each."""

import time

from milepost_experiments.papers.load.testbed import Kafka

from bench.harness import QUICK
from milepost_experiments.papers.dpsmd.measurements import Roamed, Trip, measure_trip, trips
from milepost_experiments.papers.load.programs import LoadFailed

TRIPS = trips(is_quick=QUICK)


def measure_all(chosen: list[Trip], kafka: Kafka | None) -> tuple[list[Roamed], list[str]]:
    """Every trip; faults become notes."""
    found: list[Roamed] = []
    notes: list[str] = []
    for trip in chosen:
        began = time.monotonic()
        try:
            found.append(measure_trip(trip, kafka))
        except (LoadFailed, OSError) as fault:
            notes.append(f"{trip.title}: {fault}")
            print(f"  {notes[-1]}", flush=True)
            continue
        tell(trip, found[-1], time.monotonic() - began)
    return found, notes


def tell(trip: Trip, found: Roamed, took_s: float) -> None:
    """One line of progress."""
    counts = f"lost {found.lost}, doubled {found.doubled}, repeated {found.repeated}, overtaken {found.overtaken}"
    strange = f", sessions absent {found.absent_sessions}, refused {found.refused}, cut {found.cut}"
    shares = ", ".join(f"{name} {share:.0%}" for name, share in found.shares.items())
    print(f"  {trip.title:24} {found.moves} moves: {counts}{strange}", flush=True)
    print(f"  {'':24} greeted {found.greeted}, silence {found.silence}, wait {found.waited} ms", flush=True)
    for example in found.examples:
        print(f"  {'':24} lost: {example}", flush=True)
    print(f"  {'':24} {shares}  [{took_s:.0f} s]", flush=True)
