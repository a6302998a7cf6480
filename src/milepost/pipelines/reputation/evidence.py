"""Reputation: its input and output rows, the kinds of evidence, and every threshold with its reason.

    reports, event messages ─▶ SIGHTING_ROW ─▶ parts of a minute ─▶ EVIDENCE_ROW ─▶ ledger ─▶ REPUTATION_ROW

A part holds all sightings of one minute: of some endpoints, each checked by itself, or in one square, checked against each other.
`docs/reference/reputation.md` describes the record.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

MINUTE_US: Final = 60_000_000
LEAD_US: Final = 30_000_000
"""Overlap with the minute before: moves at the start of a minute need the reports that precede them."""
SIDE_M: Final = 500.0
"""Side of the squares in which endpoints are checked against each other."""

SIGHTING_ROW: Final = """
    endpoint string, seen_at_us bigint, latitude double, longitude double, heading_deg double, speed_mps double, verdict int,
    kind string
"""
"""A report or, with a `kind`, an event reported by an endpoint."""

SQUARE_ROW: Final = f"square string, {SIGHTING_ROW}"
"""A sighting and the square of its place."""

EVIDENCE_ROW: Final = "minute bigint, endpoint string, evidence string, count double"
"""The count of one kind of evidence about an endpoint in a minute."""

REPUTATION_ROW: Final = "endpoint string, score double, at_us bigint, reasons array<struct<evidence: string, count: bigint>>"


class EvidenceKind(StrEnum):
    """Kinds of evidence; the first ones only count what was checked (BASE_COUNTS)."""

    REPORTS = "reports"
    MOVES = "moves"
    PLACES = "places"
    """Small squares checked against the known roads."""
    MAP_PLACES = "map_places"
    """Small squares checked against the road map."""
    DRIVEN = "driven"
    """Moves at speed: they end what was held against a standing endpoint."""
    CONFIRMED = "confirmed"
    """Events that other endpoints reported too."""
    FLOOD = "flood"
    """Reports above the maximum per minute."""
    REFUSED = "refused"
    """Reports refused by an edge, other than for an impossible move or a rate limit."""
    IMPOSSIBLE_MOVE = "impossible_move"
    """Reports refused as physically impossible moves."""
    MISFIT = "misfit"
    """Moves that do not fit the reported speed and heading."""
    STANDS_STILL = "stands_still"
    """No movement in spite of the reported speed."""
    SUDDEN_STOP = "sudden_stop"
    """Decelerations beyond what brakes can do."""
    DRIVEN_THROUGH = "driven_through"
    """Other endpoints that drove through its reported standing place."""
    PASSED = "passed"
    """Other endpoints that passed it while it stood, in its own direction within a lane, or beside it."""
    OVERLAP = "overlap"
    """Seconds in the same place as another moving endpoint."""
    IN_STEP = "in_step"
    """Other endpoints that moved exactly as it did."""
    REPLAY = "replay"
    """Places, to the decimetre, where another endpoint was before, all by the same delay."""
    OFF_KNOWN_ROADS = "off_known_roads"
    """Small squares off the roads that other endpoints drive."""
    OFF_MAP = "off_map"
    """Small squares off the roads of the map."""
    CONTRADICTED = "contradicted"
    """Events that passing endpoints did not report."""


BASE_COUNTS: Final = frozenset(
    {
        EvidenceKind.REPORTS,
        EvidenceKind.MOVES,
        EvidenceKind.PLACES,
        EvidenceKind.MAP_PLACES,
        EvidenceKind.DRIVEN,
        EvidenceKind.CONFIRMED,
    }
)


@dataclass(frozen=True, slots=True)
class EvidenceThresholds:
    """Thresholds of evidence, tuned on SUMO traffic with GNSS errors (`bench/reputation.py`), on training seeds only."""

    reports_max: int = 720
    """Per minute. ETSI and SAE allow ten messages per second; a fifth more allows for clock errors and duplicates."""
    gap_s_min: float = 0.2
    """Between reports closer in time, position errors exceed the distance moved."""
    gap_s_max: float = 5.0
    """In a longer gap a car may have turned a corner."""
    place_error_m: float = 5.0
    """The position of a receiver drifts by metres, but by less than this within seconds."""
    change_mps2: float = 6.0
    """Cars accelerate and turn by less; only tyres and brakes at their limit exceed it, twice in a lifetime."""
    moving_mps: float = 5.0
    """Below this speed, positions do not distinguish a standing vehicle from a rolling one."""
    still_share: float = 0.15
    """An endpoint that moved less than this share of speed × time stood still."""
    brake_mps2: float = 10.5
    """No car on a road brakes like this; a crash does, which is why a sudden stop alone is weak evidence."""
    stop_mps: float = 7.0
    """Below this speed, position errors exceed the difference between braking and a jump to a stop."""
    stop_error_m: float = 2.5
    """Error of the distance between two reports: receivers drift together, and only noise remains."""
    stop_gap_s_max: float = 2.0
    standing_mps: float = 0.5
    through_m: float = 1.5
    """Half a car's width plus the position error: a car in the next lane is 3 m away."""
    beside_m: float = 2.5
    """Half a lane and the position error: an oncoming car is farther away."""
    pass_m: float = 6.0
    """A lane and the position errors."""
    same_way_cos: float = 0.7
    overlap_m: float = 1.0
    overlap_s: int = 5
    """Position errors bring two receivers together for a moment, not for this many seconds of a minute."""
    step_m: float = 3.0
    """Maximum shift of one endpoint relative to another, in five-second means, for both to move in step."""
    step_near_m: float = 100.0
    step_s: int = 30
    step_extent_m: float = 150.0
    step_change_mps: float = 6.0
    """Minimum change of speed: at constant speed an honest follower keeps its distance too."""
    replay_places: int = 4
    """One place may coincide by chance; this many, all by the same delay, cannot."""
    road_side_m: float = 12.0
    """Side of the small squares in which roads are learned: the width of a street."""
    road_share_min: float = 0.9
    """An endpoint is checked against roads only where at least this share of the others' places is on known roads."""
    road_hours: float = 1.0
    """Time after its last visit until a road is forgotten."""
    off_map_m: float = 15.0
    """Half of a road of four lanes, or of a junction, and the position error."""
    map_share_min: float = 0.75
    """As `road_share_min`, for a map: it may lack a new street, but not every fourth."""
    event_m: float = 60.0
    event_s: float = 30.0
    confirm_m: float = 150.0
    """The join distance of most kinds of events."""
    pass_mps: float = 8.0
    passers_min: int = 2
    """An endpoint that passes this fast and near saw no obstacle; a single one may have missed it."""


@dataclass(frozen=True, slots=True)
class Weight:
    """Penalty of one kind of evidence: it grows from none at `low` to the share `max_penalty` of the score at `high`."""

    low: float
    high: float
    max_penalty: float
    relative_to: EvidenceKind | None = None
    """The evidence is divided by the count of this kind; `None`: not divided."""
    min_divisor: float = 20.0
    """Minimum divisor: three odd moves out of four are no habit."""


WEIGHTS: Final[dict[EvidenceKind, Weight]] = {
    # A tenth too many may be clock error; reports refused for their rate are included.
    EvidenceKind.FLOOD: Weight(0, 200, 0.8),
    # With a wrong clock all reports are refused, without any lie.
    EvidenceKind.REFUSED: Weight(0.1, 0.5, 0.4, EvidenceKind.REPORTS),
    # A receiver that recovers its fix at the end of a tunnel jumps once or twice.
    EvidenceKind.IMPOSSIBLE_MOVE: Weight(0.05, 0.2, 0.9, EvidenceKind.REPORTS),
    # None of 2,000 honest cars had more than one such move.
    EvidenceKind.MISFIT: Weight(0.1, 0.3, 0.9, EvidenceKind.MOVES),
    EvidenceKind.STANDS_STILL: Weight(0.1, 0.3, 0.9, EvidenceKind.MOVES),
    # A crashed vehicle stops like this, and its report matters most.
    EvidenceKind.SUDDEN_STOP: Weight(0, 2, 0.3),
    # A car in a jam is passed in the next lane, and positions err by a lane: alone this never excludes an endpoint.
    EvidenceKind.DRIVEN_THROUGH: Weight(6, 14, 0.45),
    # Counts after a sudden stop only, see `score_of`: cars that wait at lights are passed all the time.
    EvidenceKind.PASSED: Weight(100, 200, 0.1),
    # Two honest cars once shared a place for ten seconds of a minute, by the error of one receiver.
    EvidenceKind.OVERLAP: Weight(10, 30, 0.7),
    # One car in step with another may be towed.
    EvidenceKind.IN_STEP: Weight(1, 5, 0.9),
    EvidenceKind.REPLAY: Weight(4, 12, 0.95),
    # The first endpoint on a new road or in a car park is off the known roads for a while.
    EvidenceKind.OFF_KNOWN_ROADS: Weight(0.2, 0.5, 0.8, EvidenceKind.PLACES, 40.0),
    # A car park or a new street is off the map, for a part of the way.
    EvidenceKind.OFF_MAP: Weight(0.1, 0.3, 0.8, EvidenceKind.MAP_PLACES),
    # Honest reporters err too: one more contradicted than confirmed event raises doubt, two are a habit.
    EvidenceKind.CONTRADICTED: Weight(0, 2, 0.8),
}
"""Penalty of each kind of evidence, summed over the last MINUTES."""

MINUTES: Final = 10
"""Number of minutes for which evidence counts."""
