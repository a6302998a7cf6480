"""Collusion: attackers that cause false alerts or suppress true ones, against each line of defence (M27, M28, M34).

SUMO traffic ─▶ real collisions, false reports ─▶ cells ─▶ bins ─▶ incidents ─▶ alerts: true or false
                                 └▶ an edge's checks, detectors ─▶ reputation: the weight of a witness
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import cos, hypot, radians
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np
import pandas as pd

from milepost.incidents import Incidents
from milepost.model.incidents import EVENT_KINDS, Cell, EventKind, Extent, IncidentPhase, Square
from milepost.model.incidents.witnesses import WitnessHash, witness_hash, witnesses_of
from milepost.model.instants import FOREVER, Instant
from milepost.model.places import Place
from milepost.model.priorities import Priority
from milepost.pipelines.reputation.evidence import EvidenceThresholds
from milepost.pipelines.reputation.nearby import DEGREE_M
from milepost.vetting import AccessAction, AccessRule, MessageLimits, SendCase, SenderPosition, vet_limits
from milepost.vetting.access import SendRight
from milepost_experiments.papers.mercury.attack_traffic import (
    HOME,
    START_US,
    SimulatedCity,
    drive,
    observed,
    scores_of,
    sightings_of,
)
from milepost_experiments.papers.mercury.false_reports import ALERT_S, EVENT, SCENARIOS, RealCollision, with_collisions_reported
from milepost_experiments.papers.report import Progress, Section, Table

COLLISION: Final = next(kind for kind in EVENT_KINDS if kind.name == EVENT)
COUNT_ONLY: Final = replace(COLLISION, predicate="reports >= 5")
"""The rule of a bin that only counts reports, as in the paper."""

SEEDS: Final = {True: (31,), False: (41, 42, 43)}
"""By `is_quick`. The thresholds of reputation were tuned on other seeds; the scenarios were designed on seed 31."""
SCORE_DELAY_S: Final = 90
"""Delay from a minute to its scores."""
_LENGTH_S: Final = {True: 330, False: 600}
_ALERT_PHASES: Final = (IncidentPhase.RAISED, IncidentPhase.MOVED, IncidentPhase.GROWN)
NEAR_M: Final = 250.0
"""Maximum distance of an incident's centre from the collision that it is about."""


ScoreHistory = dict[str, list[tuple[int, float]]]
"""For each endpoint, its scores with the microsecond from which each is valid."""


@dataclass(frozen=True, slots=True)
class IncidentState:
    """An incident at the end of a slot."""

    second: float
    east_m: float
    north_m: float
    is_alert: bool
    """Whether an alert was published in this slot: the incident was raised, moved or grown."""


@dataclass(frozen=True, slots=True)
class DefenceResult:
    """The result of one defence in one scenario."""

    true_raised: int
    true_of: int
    false_raised: int
    late_false: int
    """False alerts in the second half of the run, when reputations are known."""

    def __add__(self, other: "DefenceResult") -> "DefenceResult":
        return DefenceResult(
            self.true_raised + other.true_raised,
            self.true_of + other.true_of,
            self.false_raised + other.false_raised,
            self.late_false + other.late_false,
        )


@dataclass(frozen=True, slots=True)
class ScenarioResult:
    """One scenario: outcomes by defence, and the number of distrusted endpoints."""

    name: str
    attackers: int
    results: dict[str, DefenceResult]
    attackers_doubted: int
    honest_doubted: int

    def __add__(self, other: "ScenarioResult") -> "ScenarioResult":
        results = {defence: result + other.results[defence] for defence, result in self.results.items()}
        attackers, doubted = self.attackers + other.attackers, self.attackers_doubted + other.attackers_doubted
        return ScenarioResult(self.name, attackers, results, doubted, self.honest_doubted + other.honest_doubted)


def measure(progress: Progress, *, is_quick: bool) -> Section:
    """Run every scenario against every defence, on each seed."""
    results: dict[str, ScenarioResult] = {}
    cars = 0
    for seed in SEEDS[is_quick]:
        progress(f"collusion: running SUMO, seed {seed}")
        with TemporaryDirectory() as folder:
            true = drive(SimulatedCity(seed, _LENGTH_S[is_quick]), Path(folder))
        honest, collisions = with_collisions_reported(observed(true, seed), np.random.default_rng(seed))
        cars += honest["car"].nunique()
        for name, add_false_reports in SCENARIOS:
            progress(f"collusion: {name}, seed {seed}")
            rows, attackers = add_false_reports(honest, np.random.default_rng(seed + 1))
            found = run_scenario(name, rows, attackers, collisions)
            results[name] = results[name] + found if name in results else found
    return _section(list(results.values()), cars, is_quick=is_quick)


DEFENCES: Final = ("reports counted", "witnesses counted", "witnesses weighted", "nearby witnesses weighted")
WITHIN_M: Final = 250.0
"""Limit of the access rule: maximum distance of a reporter from the event, about the range of sight."""


def run_scenario(name: str, rows: pd.DataFrame, attackers: set[str], collisions: list[RealCollision]) -> ScenarioResult:
    """Evaluate the same reports with each defence."""
    sightings = sightings_of(rows)
    scores: ScoreHistory = defaultdict(list)
    for reputation in scores_of(sightings, EvidenceThresholds()):
        scores[reputation.endpoint].append((reputation.at_us + SCORE_DELAY_S * 1_000_000, reputation.score))
    events, until_s = sightings[sightings["kind"].notna()], float(rows["second"].max())
    near = events[are_near(events, sightings[sightings["kind"].isna() & (sightings["verdict"] == 0)])]
    results = {
        DEFENCES[0]: count_alerts(incident_states(events, COUNT_ONLY, {}), collisions, until_s),
        DEFENCES[1]: count_alerts(incident_states(events, COLLISION, {}), collisions, until_s),
        DEFENCES[2]: count_alerts(incident_states(events, COLLISION, scores), collisions, until_s),
        DEFENCES[3]: count_alerts(incident_states(near, COLLISION, scores), collisions, until_s),
    }
    doubted = {endpoint for endpoint, history in scores.items() if min(score for _, score in history) < 0.5}
    return ScenarioResult(name, len(attackers), results, len(doubted & attackers), len(doubted - attackers))


def incident_states(events: pd.DataFrame, kind: EventKind, scores: ScoreHistory) -> list[IncidentState]:
    """Return the incidents of each slot; a score counts from the time when it is available."""
    incidents, found = Incidents([kind]), list[IncidentState]()
    cells = cells_of(kind, zip(events["endpoint"], events["latitude"], events["longitude"], events["seen_at_us"], strict=True))
    for slot in range(min(cells), max(cells) + kind.slots + 1):
        for cell in cells.get(slot, []):
            incidents.add(cell)
        end = (slot + 1) * kind.interval_ns
        incidents.weights = weights_at(scores, end // 1000)
        changes = incidents.advance(Instant(end))
        alerted = {one.incident.id for one in changes if one.phase in _ALERT_PHASES}
        second = (end / 1000 - START_US) / 1e6
        found += [IncidentState(second, *_metres(one.centre), one.id in alerted) for one in incidents.active]
    return found


def are_near(events: pd.DataFrame, reports: pd.DataFrame) -> list[bool]:
    """Return, for each event, whether an edge with the rule `within_m` accepts it, by the sender's last report."""
    columns = ["endpoint", "seen_at_us", "latitude", "longitude"]
    last = reports[columns].assign(reported_at_us=reports["seen_at_us"])
    joined = pd.merge_asof(events[columns], last, on="seen_at_us", by="endpoint", suffixes=("", "_sender"))
    joined = joined.fillna({"reported_at_us": 0})
    names = (*columns[1:], "latitude_sender", "longitude_sender", "reported_at_us")
    near = SendRight(AccessAction.PUBLISH, "within_m", AccessRule(True, AccessAction.PUBLISH, EVENT, within_m=WITHIN_M))
    limits = MessageLimits()
    found = []
    for seen_at_us, *there, latitude, longitude, reported_at_us in zip(*(joined[name].tolist() for name in names), strict=True):
        seen_at = Instant(seen_at_us * 1000)
        place = Place(latitude, longitude) if reported_at_us else None
        position = SenderPosition(place, Instant(int(reported_at_us) * 1000), limits.rights_after_s)
        case = SendCase(Priority.SAFETY, Priority.SAFETY, FOREVER, seen_at, seen_at, Place(*there), None, position, limits)
        found.append(vet_limits((near,), case) is None)
    return found


def weights_at(scores: ScoreHistory, now_us: int) -> dict[WitnessHash, float]:
    """Return the weights of witnesses at a time, by their last available score."""
    found = {}
    for endpoint, history in scores.items():
        available = [score for at_us, score in history if at_us <= now_us]
        if available:
            found[witness_hash(endpoint)] = available[-1]
    return found


def cells_of(kind: EventKind, events: Iterable[tuple[str, float, float, int]]) -> dict[int, list[Cell]]:
    """Aggregate reports of one kind by slot and square, as the pipeline does."""
    reports_by_cell: dict[tuple[int, Square], list[tuple[str, int, int, int]]] = defaultdict(list)
    for endpoint, latitude, longitude, seen_at_us in events:
        spot = kind.grid.locate(Place(latitude, longitude))
        slot = seen_at_us * 1000 // kind.interval_ns
        reports_by_cell[slot, spot.square].append((endpoint, spot.north, spot.east, seen_at_us * 1000))
    found: dict[int, list[Cell]] = defaultdict(list)
    for (slot, square), cell_reports in reports_by_cell.items():
        names, norths, easts, times = zip(*cell_reports, strict=True)
        extent = Extent(min(norths), min(easts), max(norths), max(easts))
        sums = sum(norths), sum(easts)
        first_and_last = Instant(min(times)), Instant(max(times))
        found[slot].append(Cell(kind.name, slot, square, len(cell_reports), witnesses_of(names), *sums, extent, *first_and_last))
    return found


def count_alerts(alerts: list[IncidentState], collisions: list[RealCollision], until_s: float) -> DefenceResult:
    """Count true and false alerts: a true one follows a collision soon and nearby; alerts about no collision are false.

    The radius of an incident is ignored: a false one that spans half the city would contain everything.
    """
    hit = {collision for collision in collisions if any(_concerns(one, collision) for one in alerts)}
    false_at = [one.second for one in alerts if one.is_alert and not any(_concerns(one, collision) for collision in collisions)]
    return DefenceResult(len(hit), len(collisions), len(false_at), sum(at > until_s / 2 for at in false_at))


def _concerns(state: IncidentState, collision: RealCollision) -> bool:
    is_soon = 0 <= state.second - collision.second <= ALERT_S
    return is_soon and hypot(state.east_m - collision.east_m, state.north_m - collision.north_m) <= NEAR_M


def _metres(place: Place) -> tuple[float, float]:
    """Return metres east and north of HOME."""
    longitude_scale = cos(radians(HOME.latitude))
    return (place.longitude - HOME.longitude) * DEGREE_M * longitude_scale, (place.latitude - HOME.latitude) * DEGREE_M


def _section(scenarios: list[ScenarioResult], cars: int, *, is_quick: bool) -> Section:
    rows = tuple(
        (
            one.name if defence == DEFENCES[0] else "",
            defence,
            f"{result.true_raised} of {result.true_of}",
            str(result.false_raised),
            str(result.late_false),
            f"{one.attackers_doubted} of {one.attackers}" if defence == DEFENCES[2] else "",
            str(one.honest_doubted) if defence == DEFENCES[2] else "",
        )
        for one in scenarios
        for defence, result in one.results.items()
    )
    table = Table(
        "True and false collision alerts, by defence",
        ("scenario", "defence", "true alerts", "false alerts", "false in second half", "attackers doubted", "honest doubted"),
        rows,
        (
            f"{cars:,} cars, {_LENGTH_S[is_quick]} s, seeds {', '.join(map(str, SEEDS[is_quick]))}; a SUMO city of 1 km².",
            f"True: an incident within {NEAR_M:g} m of a collision within {ALERT_S} s. False: any other alert, moves included.",
            f"Reports counted: `{COUNT_ONLY.predicate}`, as in the paper. Witnesses counted: `{COLLISION.predicate}`.",
            f"Witnesses weighted: the same with reputation, known {SCORE_DELAY_S} s after each minute. Doubted: below 0.5.",
            f"Nearby: the same, and an access rule refuses reports from over {WITHIN_M:g} m away (`within_m`).",
            "With encryption every Sybil identity needs a certificate: the certificate authority limits them (section 4).",
        ),
    )
    found = {
        one.name: {
            "attackers": one.attackers,
            "attackers_doubted": one.attackers_doubted,
            "honest_doubted": one.honest_doubted,
            **{
                defence: {
                    "true": result.true_raised,
                    "true_of": result.true_of,
                    "false": result.false_raised,
                    "late_false": result.late_false,
                }
                for defence, result in one.results.items()
            },
        }
        for one in scenarios
    }
    setup = "the code of edge, reputation and incidents in this process, without Spark, on a SUMO trace"
    return Section("collusion", "5. False reports and collusion", setup, (table,), (), found)
