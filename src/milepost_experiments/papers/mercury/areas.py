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

from milepost.broker.broker_counters import BrokerCounters
from milepost.broker.limits import BrokerLimits
from milepost.broker.presence import Presence
from milepost.matching.matcher import Matcher
from milepost.model.areas import Area, Circle, Motion, contains_moving, corridor_ahead
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.places import EARTH_RADIUS_M, Place, vectors
from milepost.roads import MapMatcher, UpstreamExtent, find_upstream_area
from milepost.roads.sumo import read_sumo
from milepost.vetting.reports import ReportColumns
from milepost_experiments.papers.mercury.accuracy import ConfusionCounts
from milepost_experiments.papers.report import Figure, Line, Progress, Section, Table
from milepost_experiments.simulator.sumo import CITY_NET, home
from milepost_experiments.simulator.traces import Trace

Rows = NDArray[np.int_]

SHAPES: Final = ("circle", "corridor", "upstream")
TYPICAL: Final = (3.0, 1)
"""Noise in metres and interval in seconds of an ordinary receiver."""

_START_NS: Final = 1_900_000_000 * SECOND_NS
_HEADING_SIGMA_DEG: Final = 4.0
_STANDING_MPS_MAX: Final = 0.3
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
        return [
            *((noise_m, TYPICAL[1]) for noise_m in self.noises_m),
            *((TYPICAL[0], interval_s) for interval_s in self.intervals_s),
        ]


QUICK: Final = Sizes(60, (0.0, 3.0, 10.0, 30.0), (5,))
FULL: Final = Sizes(400, (0.0, 1.0, 3.0, 5.0, 10.0, 20.0, 30.0), (2, 5, 10))
WARMUP_S: Final = 120
"""Time for the roads to fill before the first question."""


@dataclass(frozen=True, slots=True)
class Question:
    """A query for the endpoints in an area at a second."""

    second: int
    shape: str
    area: Area


@dataclass(frozen=True, slots=True)
class Answers:
    """The results of all questions, by the shape of the area; and the number of reports that the edge refused."""

    counts: dict[str, ConfusionCounts]
    refused: int


def measure(trace: Trace, progress: Progress, *, is_quick: bool) -> Section:
    """Ask the same questions at every noise and every interval."""
    sizes = QUICK if is_quick else FULL
    progress("areas: drawing questions")
    net = home() / CITY_NET
    questions = draw_questions(trace, net, sizes.areas)
    answers_of: dict[tuple[float, int], Answers] = {}
    for noise_m, interval_s in sizes.cases:
        progress(f"areas: {noise_m:g} m of noise, a report every {interval_s} s")
        answers_of[noise_m, interval_s] = answer_all(trace, questions, noise_m=noise_m, interval_s=interval_s)
    return _section(sizes, trace, questions, answers_of)


def draw_questions(trace: Trace, net: Path, count: int) -> list[Question]:
    """Return areas around places of cars, equally many of each shape, in order of time."""
    with net.open("rb") as file:
        network = read_sumo(file)
    map_matcher, rng = MapMatcher(network), np.random.default_rng(7)
    rows = np.flatnonzero((trace.seconds >= WARMUP_S) & (trace.speeds_mps > 3.0))
    found: list[Question] = []
    for row in rng.permutation(rows).tolist():
        place, second = Place(float(trace.latitudes[row]), float(trace.longitudes[row])), int(trace.seconds[row])
        upstream = find_upstream_area(network, map_matcher.positions_near(place), UpstreamExtent(seconds=_REACH_S))
        if upstream is None:
            continue
        corridor = corridor_ahead(place, float(trace.headings_deg[row]), ahead_m=600.0, behind_m=200.0, half_width_m=30.0)
        areas: tuple[Area, ...] = (Circle(place, float(rng.choice(_RADII_M))), corridor, upstream)
        found += [Question(second, shape, area) for shape, area in zip(SHAPES, areas, strict=True)]
        if len(found) >= len(SHAPES) * count:
            break
    return sorted(found, key=lambda one: one.second)


def answer_all(trace: Trace, questions: list[Question], *, noise_m: float, interval_s: int) -> Answers:
    """Feed the reports to an edge second by second, and ask the questions."""
    rng, matcher = np.random.default_rng(11), Matcher()
    presence = Presence(BrokerLimits(reports_per_s=100, reports_burst=100), matcher, BrokerCounters())
    counts = dict.fromkeys(SHAPES, ConfusionCounts())
    pending, phases = list(reversed(questions)), rng.integers(interval_s, size=int(trace.cars.max()) + 1)
    refused, before = 0, np.array([], np.int_)
    for second, rows in seconds_of(trace):
        here = trace.cars[rows]
        for car in np.setdiff1d(before, here).tolist():  # it disconnected
            presence.last_reports.forget(car)
            matcher.forget([car])
        reports_now = ((second + phases[here]) % interval_s == 0) | ~np.isin(here, before)  # a session begins with a report
        now = Instant(_START_NS + second * SECOND_NS)
        batches = [_reports(trace, rows[reports_now & (here % 2 == half)], now, noise_m, rng) for half in (0, 1)]
        refused += int(np.count_nonzero(presence.process(batches[0], now)))
        while pending and pending[-1].second == second:
            question = pending.pop()
            found_inside = set(presence.find_inside(question.area).tolist())
            counts[question.shape] += ConfusionCounts.of(found_inside, _truly_in(trace, rows, question.area))
        refused += int(np.count_nonzero(presence.process(batches[1], now)))
        before = here
    return Answers(counts, refused)


def seconds_of(trace: Trace) -> Iterator[tuple[int, Rows]]:
    """Yield the rows of each second, in order."""
    starts = np.flatnonzero(np.diff(trace.seconds, prepend=-1))
    for rows in np.split(np.arange(len(trace)), starts[1:]):
        yield int(trace.seconds[rows[0]]), rows


def _truly_in(trace: Trace, rows: Rows, area: Area) -> set[int]:
    points = vectors(trace.latitudes[rows], trace.longitudes[rows])
    motion = Motion(trace.headings_deg[rows], trace.speeds_mps[rows])
    return set(trace.cars[rows][contains_moving(area, points, motion)].tolist())


def _reports(trace: Trace, rows: Rows, now: Instant, noise_m: float, rng: np.random.Generator) -> ReportColumns:
    """Return the reports of receivers: positions with noise in each direction, a random heading when standing."""
    errors_m = rng.normal(0.0, noise_m, (2, len(rows)))
    latitudes = trace.latitudes[rows] + np.degrees(errors_m[0] / EARTH_RADIUS_M)
    longitudes = trace.longitudes[rows] + np.degrees(errors_m[1] / EARTH_RADIUS_M) / np.cos(np.radians(latitudes))
    speeds = trace.speeds_mps[rows]
    errors_deg = rng.normal(0.0, _HEADING_SIGMA_DEG if noise_m else 0.0, len(rows))
    headings = trace.headings_deg[rows] + errors_deg
    if noise_m:
        headings = np.where(speeds < _STANDING_MPS_MAX, rng.uniform(0, 360, len(rows)), headings)
    seen_at = np.full(len(rows), now, np.int64)
    return ReportColumns(trace.cars[rows].astype(np.int32), latitudes, longitudes, seen_at, headings % 360.0, speeds)


def _section(sizes: Sizes, trace: Trace, questions: list[Question], answers_of: dict[tuple[float, int], Answers]) -> Section:
    rows = tuple(
        (
            f"{noise_m:g} m",
            f"{interval_s} s",
            *(f"{value:.3f}" for shape in SHAPES for value in (answers.counts[shape].precision, answers.counts[shape].recall)),
            f"{answers.refused:,}",
        )
        for (noise_m, interval_s), answers in answers_of.items()
    )
    inside = [answers.counts[shape].right + answers.counts[shape].missed for answers in answers_of.values() for shape in SHAPES]
    table = Table(
        "Endpoints inside an area according to the edge and in truth: precision and recall",
        ("noise", "report every", *(f"{shape}, {name}" for shape in SHAPES for name in ("prec.", "recall")), "refused"),
        rows,
        (
            f"{len(questions):,} areas among {len(set(trace.cars.tolist())):,} cars in Berlin, {sum(inside[:3]):,} inside.",
            "Noise is the standard deviation in each direction. Half of the reports of a second arrive after the question.",
            "A corridor is 60 m wide, a road in an upstream area about 30 m: noise of that size has an effect.",
        ),
    )
    figures = tuple(
        Figure(
            f"mercury-areas-{name}",
            f"{name.capitalize()} of endpoints inside, a report every second",
            "noise of receivers, m",
            name,
            tuple(
                Line(
                    shape,
                    list(sizes.noises_m),
                    [getattr(answers_of[noise_m, 1].counts[shape], name) for noise_m in sizes.noises_m],
                )
                for shape in SHAPES
            ),
        )
        for name in ("precision", "recall")
    )
    results = {
        f"{noise_m:g} m, {interval_s} s": {
            shape: {"precision": counts.precision, "recall": counts.recall, "inside": counts.right + counts.missed}
            for shape, counts in answers.counts.items()
        }
        for (noise_m, interval_s), answers in answers_of.items()
    }
    setup = "the edge's code in this process, fed with a SUMO trace second by second"
    return Section("areas", "2. Areas interpreted correctly", setup, (table,), figures, results)
