"""Mercury's complete evaluation, in the paper's order, and the comparison with the paper's claims."""

from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from milepost_experiments.papers.mercury import areas, collusion, forgery, response, tracking
from milepost_experiments.papers.report import Progress, Section, Table, print_section
from milepost_experiments.simulator.sumo import CITY_NET, home
from milepost_experiments.simulator.traces import drive

TITLE: Final = "Mercury's evaluation"

_SEED: Final = 3
_PERIOD_S: Final = 0.5
_LENGTH_S: Final = {True: 200, False: 480}


def evaluate(progress: Progress, *, is_quick: bool) -> list[Section]:
    """Run every part; print each section when it is done."""
    progress("running SUMO")
    with TemporaryDirectory() as folder:
        trace = drive(home() / CITY_NET, Path(folder), seed=_SEED, length_s=_LENGTH_S[is_quick], period_s=_PERIOD_S)
    sections = []
    for part in (
        partial(tracking.measure, trace),
        partial(areas.measure, trace),
        response.measure,
        forgery.measure,
        collusion.measure,
    ):
        sections.append(part(progress, is_quick=is_quick))
        progress.clear()
        print_section(sections[-1])
    sections.append(compare_with_paper({section.key: section for section in sections}))
    print_section(sections[-1])
    return sections


def compare_with_paper(found: dict[str, Section]) -> Section:
    """Compare the paper's claims and intentions with our results."""
    budget = found["response"].results["within_budget"]
    fewest = found["response"].results["by_endpoints"][0]
    rates = [one["accepted_per_s"] for one in found["response"].results["by_rate"]]
    endpoints = max(one["endpoints"] for one in found["response"].results["by_endpoints"])
    protocols = found["tracking"].results.values()
    right = sum(one["right"] for one in protocols) / max(1, sum(one["instants"] for one in protocols))
    lost, moves = sum(one["lost"] for one in protocols), sum(one["moves"] for one in protocols)
    typical = found["areas"].results["3 m, 1 s"]
    forged = found["forgery"].results["attacks"]
    accepted = sum(one["accepted"] for one in forged)
    colluding = found["collusion"].results["ten colluding attackers at a time"]
    counted, _, weighted, near = (colluding[defence]["false"] for defence in collusion.DEFENCES)
    rows = (
        (
            "10 ms inside the system (a budget, not measured)",
            f"p50 {fewest['p50']:.2f} ms; {budget['one_edge']:.2%} within it at one edge, {budget['next_edge']:.2%} over the log",
            f"{fewest['p50'] / response.BUDGET_MS:.2f} of the budget",
            "theirs includes radio and gateways; ours is loopback, two cores for all processes",
        ),
        (
            "dozens of endpoints (intended)",
            f"{endpoints:,} at one edge, up to {max(rates):,.0f} reports per second",
            f"{endpoints / 24:,.0f}x of two dozen",
            "ours is one process; their broker, log and adapter are three",
        ),
        (
            "endpoints tracked through handover (intended)",
            f"the registry right at {right:.2%} of instants; {lost} messages lost in {moves} moves",
            "-",
            "theirs: PhantomNet and OpenEPC with an emulated radio; ours moves by coverage, on SUMO as planned",
        ),
        (
            "areas interpreted properly (intended)",
            ", ".join(f"{shape} {scores['precision']:.3f}/{scores['recall']:.3f}" for shape, scores in typical.items()),
            "-",
            "precision/recall at 3 m of noise, a report a second; the paper has circles and routes only",
        ),
        (
            "forged and altered messages (intended)",
            f"{accepted} of {sum(one['sent'] for one in forged):,} accepted",
            "-",
            "the paper plans a PKI",
        ),
        (
            "gaming the system (intended)",
            f"ten colluding: {counted} false alerts by count, {weighted} weighted, {near} if witnesses must be near",
            "-",
            "the paper's bins count messages; ours count witnesses, weighted by reputation",
        ),
    )
    table = Table(
        "The paper's intentions and our results",
        ("the paper", "ours", "ratio", "differences"),
        rows,
        ("The paper is a draft: its evaluation is a list of intentions. Its only numbers are latency budgets.",),
        is_text=True,
    )
    return Section("comparison", "Comparison with the paper", "the results above", (table,))
