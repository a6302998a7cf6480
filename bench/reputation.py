"""How well reputation tells who attacks: precision and recall for each kind of attack, on traffic it has not seen.

`python -m bench.reputation` drives a town of SUMO's, lets a tenth of the cars attack, and judges what all of them report. The
thresholds (`milepost.pipelines.reputation.evidence`) were set by looking at the training seeds; the table is of held-out ones,
and of another town that nothing was set on.
QUICK=1: one short drive.
"""

import json
import os
import platform
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
from bench.attacks.veremi import ATTACKS, is_attacker
from rich.console import Console
from rich.table import Table

from milepost.pipelines.reputation.evidence import Limits
from milepost_experiments.papers.mercury.attack_traffic import CROOKED, Town, drive, scores_of, seen, sights_of, with_collisions

RESULTS = Path(__file__).parent / "results"
QUICK = os.environ.get("QUICK", "") not in ("", "0")

TRAINING = (1, 3)
HELD_OUT = (11,) if QUICK else (11, 12, 13)
JAM_PERIOD_S = 0.5
OTHER_PERIOD_S = 1.5
LENGTH_S = 300 if QUICK else 720

ATTACKERS = 0.1
AT_LEAST_S = 60
"""Who drives for less is no attacker: there is nothing to find."""
STOOD_S = 60
DOUBTED = 0.5
"""Whose score was ever lower is found."""


@dataclass(frozen=True, slots=True)
class Row:
    """What was found of one kind of attack, on all drives of a sort."""

    attack: str
    traffic: str
    endpoints: int
    attackers: int
    found: int
    honest_doubted: int
    honest_stood: int
    """Honest ones that stood for a minute and more: at lights, in jams."""
    honest_stood_doubted: int
    after_s: float | None
    """Half of those found are found within so long of their first report."""

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
    calm = [Town(seed, LENGTH_S) for seed in HELD_OUT]
    full = [Town(seed, LENGTH_S, JAM_PERIOD_S) for seed in HELD_OUT[:1]]
    other = [Town(seed, LENGTH_S, OTHER_PERIOD_S, CROOKED) for seed in HELD_OUT[:1]]
    for traffic, towns, kinds in (
        ("flowing", calm, ["nobody", *ATTACKS]),
        ("jammed", full, ["nobody"] if QUICK else ["nobody", "eventual stop", "Sybil"]),
        ("another town", other, ["nobody"] if QUICK else ["nobody", *ATTACKS]),
    ):
        drives = [(town.seed, _driven(town)) for town in towns]
        for kind in kinds:
            rows.append(_row(kind, traffic, drives))
            console.print(f"{traffic}, {kind}: {rows[-1].found} of {rows[-1].attackers}, {rows[-1].honest_doubted} honest")
    RESULTS.mkdir(exist_ok=True)
    figures = [{**asdict(row), "recall": row.recall, "precision": row.precision} for row in rows]
    (RESULTS / "reputation.json").write_text(json.dumps(figures, indent=1) + "\n")
    if not QUICK:
        (RESULTS / "reputation.md").write_text(_page(rows))
    _print(console, rows)


def _driven(town: Town) -> pd.DataFrame:
    with TemporaryDirectory() as folder:
        return drive(town, Path(folder))


def _row(kind: str, traffic: str, drives: list[tuple[int, pd.DataFrame]]) -> Row:
    counts, times = np.zeros(6, int), list[float]()
    for seed, true in drives:
        counts_here, times_here = _judged(kind, seed, true)
        counts += counts_here
        times += times_here
    endpoints, attackers, found, doubted, stood, stood_doubted = map(int, counts)
    after_s = median(times) if times else None
    return Row(kind, traffic, endpoints, attackers, found, doubted, stood, stood_doubted, after_s)


def _judged(kind: str, seed: int, true: pd.DataFrame) -> tuple[list[int], list[float]]:
    rng = np.random.default_rng([seed, *kind.encode()])
    lengths = true.groupby("car").size()
    long = sorted(lengths.index[lengths >= AT_LEAST_S])
    honest = with_collisions(seen(true, seed), seed)
    cars = [] if kind == "nobody" else sorted(rng.choice(long, round(len(long) * ATTACKERS), replace=False))
    sights = sights_of(ATTACKS[kind](honest, cars, rng) if cars else honest)
    doubted_at = dict[str, int]()
    for said in scores_of(sights, Limits()):
        if said.score < DOUBTED:
            doubted_at.setdefault(said.endpoint, said.at_us)
    first = sights.groupby("endpoint")["seen_at_us"].min()
    standing = true[true["speed_mps"] < 1].groupby("car").size()
    stood = set(standing.index[standing >= STOOD_S]) - set(cars)
    attackers = {name for name in first.index if is_attacker(name, cars)}
    found = attackers & set(doubted_at)
    honest_doubted = set(doubted_at) - attackers
    counts = [len(first), len(attackers), len(found), len(honest_doubted), len(stood), len(honest_doubted & stood)]
    return counts, [(doubted_at[name] - int(first[name])) / 1e6 for name in found]


def _page(rows: list[Row]) -> str:
    lines = [
        "# bench reputation",
        "",
        f"Made by `python -m bench.reputation`, Python {platform.python_version()}, numpy {np.__version__}; {LENGTH_S} s each.",
        f"Thresholds were set on seeds {', '.join(map(str, TRAINING))}; these are seeds {', '.join(map(str, HELD_OUT))}.",
        "",
        "| " + " | ".join(_HEADINGS) + " |",
        "|---|---|" + "--:|" * (len(_HEADINGS) - 2),
    ]
    lines += ["| " + " | ".join(cells) + " |" for cells in map(_cells, rows)]
    return "\n".join([*lines, ""])


def _print(console: Console, rows: list[Row]) -> None:
    table = Table(title=f"bench reputation{', quick' if QUICK else ''}")
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
    "found",
    "recall",
    "precision",
    "honest doubted",
    "of those who stood 60 s",
    "found after",
)


def _cells(row: Row) -> Iterator[str]:
    yield from (row.attack, row.traffic, f"{row.endpoints:,}", f"{row.attackers:,}", f"{row.found:,}")
    yield from ("" if share is None else f"{share:.3f}" for share in (row.recall, row.precision))
    yield from (f"{row.honest_doubted:,}", f"{row.honest_stood_doubted} of {row.honest_stood:,}")
    yield "" if row.after_s is None else f"{row.after_s:.0f} s"


if __name__ == "__main__":
    main()
