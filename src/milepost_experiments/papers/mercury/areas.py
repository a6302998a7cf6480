"""Areas: the endpoints that an edge considers inside, by their reports, against SUMO's ground truth (M15, M26, M34).

The edge's code (`broker.presence`) takes the reports and is queried for the endpoints in an area. The truth is the same query on
SUMO's places, headings and speeds at that moment, without noise and without reporting delay.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from milepost.broker.counts import Counts
from milepost.broker.limits import Limits
from milepost.broker.presence import Presence
from milepost.matching.matcher import Matcher
from milepost.model.areas import Area, Circle, Going, corridor_ahead, holds_going
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.places import EARTH_RADIUS_M, Place, vectors
from milepost.roads import Placing, Reach, maybe_upstream
from milepost.roads.sumo import read_sumo
from milepost.vetting.reports import Batch
from milepost_experiments.papers.mercury.accuracy import Hits
from milepost_experiments.papers.report import Figure, Line, Progress, Section, Table
from milepost_experiments.simulator.sumo import TOWN, home
from milepost_experiments.simulator.traces import Trace

Rows = NDArray[np.int_]

SORTS: Final = ("circle", "corridor", "upstream")
USUAL: Final = (3.0, 1)
"""Noise in metres and interval in seconds of an ordinary receiver."""

_START_NS: Final = 1_900_000_000 * SECOND_NS
_HEADING_SIGMA_DEG: Final = 4.0
_STANDS_MPS: Final = 0.3
_RADII_M: Final = (100.0, 200.0, 400.0, 800.0)
_REACH_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Sizes:
    """The size of the experiment."""

    areas: int
    noises_m: tuple[float, ...]
    """Noise levels, each with a report per second."""
    intervals_s: tuple[int, ...]
    """Report intervals, each with the usual noise."""

    @property
    def cases(self) -> list[tuple[float, int]]:
        """All pairs of noise and interval."""
        return [*((noise_m, USUAL[1]) for noise_m in self.noises_m), *((USUAL[0], interval_s) for interval_s in self.intervals_s)]


QUICK: Final = Sizes(60, (0.0, 3.0, 10.0, 30.0), (5,))
FULL: Final = Sizes(400, (0.0, 1.0, 3.0, 5.0, 10.0, 20.0, 30.0), (2, 5, 10))
SINCE_S: Final = 120
"""Time for the town to fill before the first question."""


@dataclass(frozen=True, slots=True)
class Question:
    """A query for the endpoints in an area at a second."""

    second: int
    sort: str
    area: Area


@dataclass(frozen=True, slots=True)
class Answers:
    """The results of all questions, by the sort of area; and the number of reports that the edge refused."""

    hits: dict[str, Hits]
    refused: int


def measure(trace: Trace, progress: Progress, *, is_quick: bool) -> Section:
    """Ask the same questions at every noise and every interval."""
    sizes = QUICK if is_quick else FULL
    progress("areas: questions are drawn")
    net = home() / TOWN
    asked = questions(trace, net, sizes.areas)
    found: dict[tuple[float, int], Answers] = {}
    for noise_m, interval_s in sizes.cases:
        progress(f"areas: {noise_m:g} m of noise, a report every {interval_s} s")
        found[noise_m, interval_s] = answered(trace, asked, noise_m=noise_m, interval_s=interval_s)
    return _section(sizes, trace, asked, found)


def questions(trace: Trace, net: Path, count: int) -> list[Question]:
    """Return areas around places of cars, equally many of each sort, in order of time."""
    with net.open("rb") as file:
        network = read_sumo(file)
    placing, draw = Placing(network), np.random.default_rng(7)
    rows = np.flatnonzero((trace.seconds >= SINCE_S) & (trace.speeds_mps > 3.0))
    found: list[Question] = []
    for row in draw.permutation(rows).tolist():
        place, second = Place(float(trace.latitudes[row]), float(trace.longitudes[row])), int(trace.seconds[row])
        upstream = maybe_upstream(network, placing.spots_at(place), Reach(seconds=_REACH_S))
        if upstream is None:
            continue
        ahead = corridor_ahead(place, float(trace.headings_deg[row]), ahead_m=600.0, behind_m=200.0, half_width_m=30.0)
        areas: tuple[Area, ...] = (Circle(place, float(draw.choice(_RADII_M))), ahead, upstream)
        found += [Question(second, sort, area) for sort, area in zip(SORTS, areas, strict=True)]
        if len(found) >= len(SORTS) * count:
            break
    return sorted(found, key=lambda one: one.second)


def answered(trace: Trace, asked: list[Question], *, noise_m: float, interval_s: int) -> Answers:
    """Feed the reports to an edge second by second, and ask the questions."""
    draw, matcher = np.random.default_rng(11), Matcher()
    watch = Presence(Limits(reports_per_s=100, reports_burst=100), matcher, Counts())
    hits = dict.fromkeys(SORTS, Hits())
    waiting, phases = list(reversed(asked)), draw.integers(interval_s, size=int(trace.cars.max()) + 1)
    refused, before = 0, np.array([], np.int_)
    for second, rows in seconds_of(trace):
        here = trace.cars[rows]
        for car in np.setdiff1d(before, here).tolist():  # it disconnected
            watch.tracks.forget(car)
            matcher.forget([car])
        is_due = ((second + phases[here]) % interval_s == 0) | ~np.isin(here, before)  # a session begins with a report
        now = Instant(_START_NS + second * SECOND_NS)
        batches = [_reports(trace, rows[is_due & (here % 2 == half)], now, noise_m, draw) for half in (0, 1)]
        refused += int(np.count_nonzero(watch.take(batches[0], now)))
        while waiting and waiting[-1].second == second:
            question = waiting.pop()
            told = set(watch.who_is_in(question.area).tolist())
            hits[question.sort] += Hits.of(told, _truly_in(trace, rows, question.area))
        refused += int(np.count_nonzero(watch.take(batches[1], now)))
        before = here
    return Answers(hits, refused)


def seconds_of(trace: Trace) -> Iterator[tuple[int, Rows]]:
    """Yield the rows of each second, in order."""
    starts = np.flatnonzero(np.diff(trace.seconds, prepend=-1))
    for rows in np.split(np.arange(len(trace)), starts[1:]):
        yield int(trace.seconds[rows[0]]), rows


def _truly_in(trace: Trace, rows: Rows, area: Area) -> set[int]:
    points = vectors(trace.latitudes[rows], trace.longitudes[rows])
    going = Going(trace.headings_deg[rows], trace.speeds_mps[rows])
    return set(trace.cars[rows][holds_going(area, points, going)].tolist())


def _reports(trace: Trace, rows: Rows, now: Instant, noise_m: float, draw: np.random.Generator) -> Batch:
    """Return the reports of receivers: positions with noise in each direction, a random heading when standing."""
    off_m = draw.normal(0.0, noise_m, (2, len(rows)))
    latitudes = trace.latitudes[rows] + np.degrees(off_m[0] / EARTH_RADIUS_M)
    longitudes = trace.longitudes[rows] + np.degrees(off_m[1] / EARTH_RADIUS_M) / np.cos(np.radians(latitudes))
    speeds = trace.speeds_mps[rows]
    off_deg = draw.normal(0.0, _HEADING_SIGMA_DEG if noise_m else 0.0, len(rows))
    headings = trace.headings_deg[rows] + off_deg
    if noise_m:
        headings = np.where(speeds < _STANDS_MPS, draw.uniform(0, 360, len(rows)), headings)
    seen_at = np.full(len(rows), now, np.int64)
    return Batch(trace.cars[rows].astype(np.int32), latitudes, longitudes, seen_at, headings % 360.0, speeds)


def _section(sizes: Sizes, trace: Trace, asked: list[Question], found: dict[tuple[float, int], Answers]) -> Section:
    rows = tuple(
        (
            f"{noise_m:g} m",
            f"{interval_s} s",
            *(f"{figure:.3f}" for sort in SORTS for figure in (answers.hits[sort].precision, answers.hits[sort].recall)),
            f"{answers.refused:,}",
        )
        for (noise_m, interval_s), answers in found.items()
    )
    inside = [answers.hits[sort].right + answers.hits[sort].missed for answers in found.values() for sort in SORTS]
    table = Table(
        "Who an edge takes to be inside, beside who truly is: precision and recall",
        ("noise", "report every", *(f"{sort}, {name}" for sort in SORTS for name in ("prec.", "recall")), "refused"),
        rows,
        (
            f"{len(asked):,} areas among {len(set(trace.cars.tolist())):,} cars of Berlin, {sum(inside[:3]):,} times one inside.",
            "Noise is the standard deviation each way. Half of a second's reports come after the question.",
            "A corridor is 60 m wide, a road in an upstream area about 30 m: noise of that size must tell.",
        ),
    )
    figures = tuple(
        Figure(
            f"mercury-areas-{name}",
            f"{name.capitalize()} of who is inside, a report every second",
            "noise of receivers, m",
            name,
            tuple(
                Line(sort, list(sizes.noises_m), [getattr(found[noise_m, 1].hits[sort], name) for noise_m in sizes.noises_m])
                for sort in SORTS
            ),
        )
        for name in ("precision", "recall")
    )
    figures_of = {
        f"{noise_m:g} m, {interval_s} s": {
            sort: {"precision": hits.precision, "recall": hits.recall, "inside": hits.right + hits.missed}
            for sort, hits in answers.hits.items()
        }
        for (noise_m, interval_s), answers in found.items()
    }
    on = "the edge's own code in this process, fed with a trace of SUMO second by second"
    return Section("areas", "2. Areas interpreted right", on, (table,), figures, figures_of)
