"""Moves under load, one series after the other, measured by `milepost_experiments.papers.dpsmd.measurements`."""

import time

from bench.harness import QUICK
from milepost_experiments.papers.dpsmd.measurements import MoveSeries, RoamingResult, measure_moves, move_series
from milepost_experiments.papers.load.programs import LoadFailed
from milepost_experiments.papers.load.testbed import Kafka

SERIES = move_series(is_quick=QUICK)


def measure_all(chosen: list[MoveSeries], kafka: Kafka | None) -> tuple[list[RoamingResult], list[str]]:
    """Measure the chosen series of moves; faults become notes."""
    results: list[RoamingResult] = []
    notes: list[str] = []
    for series in chosen:
        began = time.monotonic()
        try:
            results.append(measure_moves(series, kafka))
        except (LoadFailed, OSError) as fault:
            notes.append(f"{series.title}: {fault}")
            print(f"  {notes[-1]}", flush=True)
            continue
        print_progress(series, results[-1], time.monotonic() - began)
    return results, notes


def print_progress(series: MoveSeries, results: RoamingResult, took_s: float) -> None:
    """Print the progress."""
    counts = f"lost {results.lost}, duplicated {results.duplicated}, marked duplicates {results.marked_duplicates}"
    counts += f", out of order {results.reordered}"
    others = (
        f", sessions not present {results.sessions_not_present}, refused {results.refused}, disconnects {results.disconnects}"
    )
    shares = ", ".join(f"{name} {share:.0%}" for name, share in results.shares.items())
    print(f"  {series.title:24} {results.moves} moves: {counts}{others}", flush=True)
    print(f"  {'':24} CONNACK {results.connack}, silence {results.silence}, delay {results.delay} ms", flush=True)
    for example in results.examples:
        print(f"  {'':24} lost: {example}", flush=True)
    print(f"  {'':24} {shares}  [{took_s:.0f} s]", flush=True)
