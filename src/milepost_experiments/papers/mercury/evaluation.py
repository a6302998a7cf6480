"""Mercury's whole evaluation, in the paper's order, and the comparison with the paper's claims."""

from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from milepost_experiments.papers.mercury import areas, forging, gaming, response, tracking
from milepost_experiments.papers.report import Progress, Section, Table, tell
from milepost_experiments.simulator.sumo import TOWN, home
from milepost_experiments.simulator.traces import drive

TITLE: Final = "Mercury's evaluation"

_SEED: Final = 3
_PERIOD_S: Final = 0.5
_LENGTH_S: Final = {True: 200, False: 480}


def evaluate(progress: Progress, *, is_quick: bool) -> list[Section]:
    """Run every part; print each section when it is done."""
    progress("SUMO drives")
    with TemporaryDirectory() as folder:
        trace = drive(home() / TOWN, Path(folder), seed=_SEED, length_s=_LENGTH_S[is_quick], period_s=_PERIOD_S)
    sections = []
    for part in (
        partial(tracking.measure, trace),
        partial(areas.measure, trace),
        response.measure,
        forging.measure,
        gaming.measure,
    ):
        sections.append(part(progress, is_quick=is_quick))
        progress.clear()
        tell(sections[-1])
    sections.append(beside_the_paper({section.key: section for section in sections}))
    tell(sections[-1])
    return sections


def beside_the_paper(found: dict[str, Section]) -> Section:
    """Compare the paper's claims and intentions with our results."""
    budget = found["response"].found["within_budget"]
    alone = found["response"].found["by_endpoints"][0]
    loads = [one["taken_per_s"] for one in found["response"].found["by_rate"]]
    endpoints = max(one["endpoints"] for one in found["response"].found["by_endpoints"])
    carriers = found["tracking"].found.values()
    right = sum(one["right"] for one in carriers) / max(1, sum(one["instants"] for one in carriers))
    lost, moves = sum(one["lost"] for one in carriers), sum(one["moves"] for one in carriers)
    usual = found["areas"].found["3 m, 1 s"]
    forged = found["forging"].found["attacks"]
    through = sum(one["got_through"] for one in forged)
    gamed = found["gaming"].found
    counted, _, weighed, near = (gamed["ten at a time who agree"][defence]["false"] for defence in gaming.DEFENCES)
    rows = (
        (
            "10 ms inside the system (a budget, not measured)",
            f"p50 {alone['p50']:.2f} ms; {budget['one_edge']:.2%} within it at one edge, {budget['next_edge']:.2%} over the log",
            f"{alone['p50'] / response.BUDGET_MS:.2f} of the budget",
            "theirs has radio and gateways around it; ours is loopback, two cores for all",
        ),
        (
            "dozens of endpoints (intended)",
            f"{endpoints:,} at one edge, up to {max(loads):,.0f} reports a second",
            f"{endpoints / 24:,.0f}x of two dozen",
            "one process of ours; their broker, log and adapter are three",
        ),
        (
            "endpoints tracked through handover (intended)",
            f"the register right at {right:.2%} of instants; {lost} messages lost in {moves} moves",
            "-",
            "PhantomNet and OpenEPC with an emulated radio; ours moves by coverage, on SUMO as planned",
        ),
        (
            "areas interpreted properly (intended)",
            ", ".join(f"{sort} {figures['precision']:.3f}/{figures['recall']:.3f}" for sort, figures in usual.items()),
            "-",
            "precision/recall at 3 m of noise, a report a second; the paper has circles and routes only",
        ),
        (
            "forging and altering tried (intended)",
            f"{through} of {sum(one['sent'] for one in forged):,} got through",
            "-",
            "the paper names a PKI and has none yet",
        ),
        (
            "gaming tried (intended)",
            f"ten who agree: {counted} false if counted, {weighed} if weighed, {near} if witnesses must be near",
            "-",
            "the paper's bins count messages; ours count witnesses, by how far they are believed",
        ),
    )
    table = Table(
        "Mercury's words and ours",
        ("the paper", "ours", "ratio", "what differs"),
        rows,
        ("The paper is a draft: its evaluation is a list of intentions. Its only figures are latency budgets.",),
        is_words=True,
    )
    return Section("beside", "How far ours is from theirs", "what was found above", (table,))
