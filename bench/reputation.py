"""Precision and recall of reputation for each type of attack, on traffic that was not used for tuning.

`python -m bench.reputation` simulates a SUMO city in which a tenth of the cars attack, and evaluates all reports. The thresholds
(`milepost.pipelines.reputation.evidence`) were tuned on the training seeds; the table is for held-out seeds, and for a city of
another shape.
QUICK=1: one short run.
"""

import json
import os
import platform
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

from bench.attacks.veremi import ATTACKS, is_attacker
from milepost.pipelines.reputation.evidence import EvidenceThresholds
from milepost.pipelines.reputation.known_roads import RoadMap
from milepost.roads.sumo import read_sumo
from milepost_experiments.papers.mercury.attack_traffic import (
    HOME,
    NET,
    WINDING,
    SimulatedCity,
    drive,
    observed,
    scores_of,
    sightings_of,
    with_collisions,
)

RESULTS = Path(__file__).parent / "results"
QUICK = os.environ.get("QUICK", "") not in ("", "0")

TRAINING = (1, 3)
HELD_OUT = (11,) if QUICK else (11, 12, 13)
JAM_PERIOD_S = 0.5
OTHER_PERIOD_S = 1.5
LENGTH_S = 300 if QUICK else 720

ATTACKERS = 0.1
DRIVING_S_MIN = 60
"""Minimum driving time of an attacker: shorter trips cannot be detected."""
STANDING_S_MIN = 60
DOUBTED = 0.5
"""An endpoint whose score was ever lower counts as detected."""


WITHOUT_MAP = ["none", "constant offset"]
"""Attacks that are also evaluated without a road map, with roads learned from traffic: the others do not depend on it."""


class Drive(NamedTuple):
    """The true positions of a run, and the map of its streets."""

    seed: int
    true: pd.DataFrame
    road_map: RoadMap


@dataclass(frozen=True, slots=True)
class Row:
    """The result of one type of attack, over all runs of one kind of traffic."""

    attack: str
    traffic: str
    endpoints: int
    attackers: int
    found: int
    honest_doubted: int
    honest_stood: int
    """Honest cars that stood for a minute or more: at lights, in jams."""
    honest_stood_doubted: int
    after_s: float | None
    """Median time from the first report to detection."""

    @property
    def recall(self) -> float | None:
        return self.found / self.attackers if self.attackers else None

    @property
    def precision(self) -> float | None:
        doubted = self.found + self.honest_doubted
        return self.found / doubted if self.attackers and doubted else None


def main() -> None:
    assert not set(TRAINING) & set(HELD_OUT)
    console, rows = Console(width=None if os.isatty(1) else 150), list[Row]()
    calm = [SimulatedCity(seed, LENGTH_S) for seed in HELD_OUT]
    full = [SimulatedCity(seed, LENGTH_S, JAM_PERIOD_S) for seed in HELD_OUT[:1]]
    other = [SimulatedCity(seed, LENGTH_S, OTHER_PERIOD_S, WINDING) for seed in HELD_OUT[:1]]
    for traffic, cities, kinds, without_map in (
        ("flowing", calm, ["none", *ATTACKS], WITHOUT_MAP),
        ("jammed", full, ["none"] if QUICK else ["none", "eventual stop", "Sybil"], []),
        ("another city", other, ["none"] if QUICK else ["none", *ATTACKS], [] if QUICK else WITHOUT_MAP),
    ):
        drives = [_simulate(city) for city in cities]
        runs = [(kind, traffic, True) for kind in kinds] + [(kind, f"{traffic}, no map", False) for kind in without_map]
        for kind, label, has_map in runs:
            rows.append(_row(kind, label, drives, has_map=has_map))
            console.print(f"{label}, {kind}: {rows[-1].found} of {rows[-1].attackers}, {rows[-1].honest_doubted} honest")
    RESULTS.mkdir(exist_ok=True)
    results = [{**asdict(row), "recall": row.recall, "precision": row.precision} for row in rows]
    (RESULTS / "reputation.json").write_text(json.dumps(results, indent=1) + "\n")
    if not QUICK:
        (RESULTS / "reputation.md").write_text(_page(rows))
    _print(console, rows)


def _simulate(city: SimulatedCity) -> Drive:
    with TemporaryDirectory() as folder:
        true = drive(city, Path(folder))
        with (Path(folder) / NET).open("rb") as net:
            return Drive(city.seed, true, RoadMap.of(read_sumo(net, origin=HOME)))


def _row(kind: str, traffic: str, drives: list[Drive], *, has_map: bool) -> Row:
    counts, times = np.zeros(6, int), list[float]()
    for one in drives:
        counts_here, times_here = _evaluate(kind, one.seed, one.true, one.road_map if has_map else None)
        counts += counts_here
        times += times_here
    endpoints, attackers, found, doubted, stood, stood_doubted = map(int, counts)
    after_s = median(times) if times else None
    return Row(kind, traffic, endpoints, attackers, found, doubted, stood, stood_doubted, after_s)


def _evaluate(kind: str, seed: int, true: pd.DataFrame, road_map: RoadMap | None) -> tuple[list[int], list[float]]:
    rng = np.random.default_rng([seed, *kind.encode()])
    lengths = true.groupby("car").size()
    long = sorted(lengths.index[lengths >= DRIVING_S_MIN])
    honest = with_collisions(observed(true, seed), seed)
    cars = [] if kind == "none" else sorted(rng.choice(long, round(len(long) * ATTACKERS), replace=False))
    sightings = sightings_of(ATTACKS[kind](honest, cars, rng) if cars else honest)
    doubted_at = dict[str, int]()
    for reputation in scores_of(sightings, EvidenceThresholds(), road_map):
        if reputation.score < DOUBTED:
            doubted_at.setdefault(reputation.endpoint, reputation.at_us)
    first = sightings.groupby("endpoint")["seen_at_us"].min()
    standing_s = true[true["speed_mps"] < 1].groupby("car").size()
    stood = set(standing_s.index[standing_s >= STANDING_S_MIN]) - set(cars)
    attackers = {name for name in first.index if is_attacker(name, cars)}
    found = attackers & set(doubted_at)
    honest_doubted = set(doubted_at) - attackers
    counts = [len(first), len(attackers), len(found), len(honest_doubted), len(stood), len(honest_doubted & stood)]
    return counts, [(doubted_at[name] - int(first[name])) / 1e6 for name in found]


def _page(rows: list[Row]) -> str:
    lines = [
        "# Benchmark: reputation",
        "",
        f"Produced by `python -m bench.reputation`, Python {platform.python_version()}, numpy {np.__version__}; {LENGTH_S} s.",
        f"Thresholds were tuned on seeds {', '.join(map(str, TRAINING))}; these are seeds {', '.join(map(str, HELD_OUT))}.",
        "",
        "| " + " | ".join(_HEADINGS) + " |",
        "|---|---|" + "--:|" * (len(_HEADINGS) - 2),
    ]
    lines += ["| " + " | ".join(cells) + " |" for cells in map(_cells, rows)]
    return "\n".join([*lines, ""])


def _print(console: Console, rows: list[Row]) -> None:
    table = Table(title=f"Benchmark: reputation{', quick' if QUICK else ''}")
    for number, heading in enumerate(_HEADINGS):
        table.add_column(heading, justify="left" if number < 2 else "right")
    for row in rows:
        table.add_row(*_cells(row))
    console.print(table)


_HEADINGS = (
    "attack",
    "traffic",
    "endpoints",
    "attackers",
    "detected",
    "recall",
    "precision",
    "honest doubted",
    "of those that stood 60 s",
    "detected after",
)


def _cells(row: Row) -> Iterator[str]:
    yield from (row.attack, row.traffic, f"{row.endpoints:,}", f"{row.attackers:,}", f"{row.found:,}")
    yield from ("" if share is None else f"{share:.3f}" for share in (row.recall, row.precision))
    yield from (f"{row.honest_doubted:,}", f"{row.honest_stood_doubted} of {row.honest_stood:,}")
    yield "" if row.after_s is None else f"{row.after_s:.0f} s"


if __name__ == "__main__":
    main()
