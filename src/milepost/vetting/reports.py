"""Reports: whether what endpoints say of themselves can be true, judged for a whole batch at once (M27).

What must hold:
- the checks stand in `CHAIN`, and the first that refuses a report gives its reason; a check sees only what those before it let
  in, so that all after the ranges may rely on real places, times, headings and speeds;
- a report is judged against the last accepted one of the same endpoint. One call has an endpoint once at most: a batch that has
  it more often is cut by `in_rounds`, and the caller writes down what was accepted before it asks about the next round;
- nobody is shut out for good. The distance that is believed grows with the time since the last accepted report: after a false
  place 10 km away the true one is believed again in 83 s, after one on the other side of the Earth in two days (with the default
  limits). After a clock that ran ahead was set right, reports are out of order for as long as it ran ahead, which is
  `clock_ahead_s_max` at most; without that limit it may be for years. Only who goes on sending false reports in an endpoint's
  name keeps its true ones out, and that is for `trust` to prevent.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from enum import Enum
from functools import cached_property
from math import cos, pi
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from milepost.model.areas import Area
from milepost.model.instants import FOREVER, SECOND_NS, Instant
from milepost.model.places import EARTH_RADIUS_M, Flags, vectors
from milepost.model.reasons import Reason
from milepost.model.reports import SPEED_MPS_MAX
from milepost.vetting.repeats import Numbers

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]

LIMIT_MOST: Final = 1e9
"""Of seconds 31 years: more cannot be meant."""

HEADING_SPEED_MPS_MIN: Final = 3.0
"""A receiver that hardly moves says any heading: slower than this it is not judged."""

_DEGREE: Final = pi / 180
_DEGREE_M: Final = EARTH_RADIUS_M * _DEGREE


class Outside(Enum):
    """What becomes of a report from outside the coverage."""

    REFUSE = "refuse"
    COUNT = "count"
    """It is let in; the edge counts it."""


@dataclass(frozen=True, slots=True)
class ReportLimits:
    """What is believed of reports; each a key of the configuration file."""

    clock_ahead_s_max: float = 2.0
    """How far a report may lie in the future; 0: any, and one from far ahead shuts out all that come before its time."""
    clock_behind_s_max: float = 60.0
    """How old a report may be when it comes; 0: any."""
    speed_mps_max: float = 90.0
    """The speed that a report may say; 0: any."""
    move_mps_max: float = 120.0
    """The speed between two reports; 0: any."""
    move_slack_m: float = 100.0
    """How much of the way between two reports may be the error of both places."""
    heading_off_deg_max: float = 150.0
    """How far a heading may be off the way between two reports; 0: any."""
    heading_move_m_min: float = 50.0
    """A heading is judged by a way longer than this; at least 1."""
    heading_gap_s_max: float = 10.0
    """A heading is judged by a way that took less than this."""
    outside_coverage: Outside = Outside.COUNT

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if each.type is float and not 0 <= value <= LIMIT_MOST:
                raise ValueError(f"{each.name} is {value}, not in 0..{LIMIT_MOST:.0f}")
        if self.heading_off_deg_max > 180:
            raise ValueError(f"heading_off_deg_max is {self.heading_off_deg_max}, but nothing is off by more than 180")
        if self.heading_off_deg_max and not self.heading_gap_s_max:
            raise ValueError("heading_gap_s_max is 0, which would judge no heading; let heading_off_deg_max be 0 to say that")
        if self.heading_off_deg_max and self.heading_move_m_min < 1:
            raise ValueError(f"heading_move_m_min is {self.heading_move_m_min}, shorter than a place is exact; at least 1")


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Reports as columns of one length; a heading or speed that is not known is NaN."""

    numbers: Numbers
    latitudes: Floats
    longitudes: Floats
    seen_at: NDArray[np.int64]
    headings: Floats
    speeds: Floats

    def only(self, rows: Rows) -> "Batch":
        """Some of the reports."""
        return Batch(
            self.numbers[rows],
            self.latitudes[rows],
            self.longitudes[rows],
            self.seen_at[rows],
            self.headings[rows],
            self.speeds[rows],
        )


class Before(NamedTuple):
    """The last accepted report of the same endpoints, row by row; `seen_at` is 0 where there is none yet."""

    latitudes: Floats
    longitudes: Floats
    seen_at: NDArray[np.int64]

    def only(self, rows: Rows) -> "Before":
        """Some of them."""
        return Before(self.latitudes[rows], self.longitudes[rows], self.seen_at[rows])


@dataclass(frozen=True, eq=False)
class Case:
    """All that a check may look at, and what several look at, found once."""

    batch: Batch
    before: Before
    limits: ReportLimits
    now: Instant
    coverage: Area | None

    def only(self, rows: Rows) -> "Case":
        """The case of some of the reports."""
        return replace(self, batch=self.batch.only(rows), before=self.before.only(rows))

    @cached_property
    def gaps_s(self) -> Floats:
        """The time since the last accepted report."""
        return (self.batch.seen_at - self.before.seen_at) / SECOND_NS

    @cached_property
    def spans(self) -> Floats:
        """The square of what the way from the last place cannot be longer than, in degrees: a line on a map without projection.

        It costs no sine, and is enough to let in nearly all; the way itself is found for the rest.
        """
        north, east = self.batch.latitudes - self.before.latitudes, self.batch.longitudes - self.before.longitudes
        return north * north + east * east

    @property
    def nothing(self) -> Flags:
        """That no report is refused."""
        return np.zeros(self.batch.numbers.size, np.bool_)


class Check(NamedTuple):
    """One link of the chain: what it asks for, the reason it gives, and which reports it refuses."""

    name: str
    reason: Reason
    refused: Callable[[Case], Flags]


def vet_reports(
    batch: Batch, before: Before, limits: ReportLimits, now: Instant, coverage: Area | None = None
) -> NDArray[np.uint16]:
    """For each report 0 if it is let in, else the number of the reason why not."""
    verdicts = np.zeros(batch.numbers.size, np.uint16)
    case = Case(batch, before, limits, now, coverage)
    rows: Rows | None = None  # those still in; nothing: all
    for check in CHAIN:
        refused = check.refused(case)
        if np.count_nonzero(refused):
            rows = np.arange(verdicts.size) if rows is None else rows
            verdicts[rows[refused]] = check.reason
            kept = (~refused).nonzero()[0]
            rows, case = rows[kept], case.only(kept)
    return verdicts


def are_outside(batch: Batch, coverage: Area) -> Flags:
    """Which reports, of those with a place on Earth, come from outside the coverage."""
    return ~coverage.contains(vectors(batch.latitudes, batch.longitudes))


def are_nowhere(case: Case) -> Flags:
    """Which have no place on Earth; what is not a number compares with nothing."""
    are_somewhere: Flags = (np.abs(case.batch.latitudes) <= 90.0) & (np.abs(case.batch.longitudes) <= 180.0)
    return ~are_somewhere


def are_at_no_time(case: Case) -> Flags:
    """Which were seen before 1970 or never."""
    are_timeless: Flags = (case.batch.seen_at < 0) | (case.batch.seen_at == FOREVER)
    return are_timeless


def have_no_such_heading(case: Case) -> Flags:
    """Which say a heading that is none."""
    headings = case.batch.headings
    return (headings < 0.0) | (headings >= 360.0)


def have_no_such_speed(case: Case) -> Flags:
    """Which say a speed that is none."""
    speeds = case.batch.speeds
    return (speeds < 0.0) | (speeds > SPEED_MPS_MAX)


def are_ahead(case: Case) -> Flags:
    """Which were seen later than now."""
    ahead_s = case.limits.clock_ahead_s_max
    return case.batch.seen_at > case.now + _ns(ahead_s) if ahead_s else case.nothing


def are_behind(case: Case) -> Flags:
    """Which were seen too long ago."""
    behind_s = case.limits.clock_behind_s_max
    return case.batch.seen_at < case.now - _ns(behind_s) if behind_s else case.nothing


def are_out_of_order(case: Case) -> Flags:
    """Which were not seen after the last accepted one; at the same time means a duplicate."""
    return (case.batch.seen_at <= case.before.seen_at) & (case.before.seen_at > 0)


def are_too_fast(case: Case) -> Flags:
    """Which say too high a speed."""
    limit = case.limits.speed_mps_max
    return case.batch.speeds > limit if limit else case.nothing


def have_teleported(case: Case) -> Flags:
    """Which are farther from the last place than anything gets in the time between."""
    limits, refused = case.limits, case.nothing
    if limits.move_mps_max:
        allowed = (limits.move_mps_max * case.gaps_s + limits.move_slack_m) / _DEGREE_M
        rows = (case.spans > allowed * allowed).nonzero()[0]
        if rows.size:
            ways_m, _ = _ways_m_and_towards(case.only(rows))
            refused[rows] = (ways_m > allowed[rows] * _DEGREE_M) & (case.before.seen_at[rows] > 0)
    return refused


def head_elsewhere(case: Case) -> Flags:
    """Which say a heading against the way they have come.

    Suspects are found on a flat map. None is refused whom the sphere clears, as it does near a pole and at the antimeridian.
    """
    limits, refused = case.limits, case.nothing
    if limits.heading_off_deg_max and np.count_nonzero(case.spans > (limits.heading_move_m_min / _DEGREE_M) ** 2):
        rows = _are_against(_towards_on_flat_map(case), case).nonzero()[0]
        if rows.size:
            refused[rows] = _are_surely_against(case.only(rows))
    return refused


def are_not_covered(case: Case) -> Flags:
    """Which come from outside the coverage, if that is refused."""
    if case.coverage is None or case.limits.outside_coverage is Outside.COUNT:
        return case.nothing
    return are_outside(case.batch, case.coverage)


CHAIN: Final = (
    Check("a place on Earth", Reason.COORDINATE_RANGE, are_nowhere),
    Check("a time", Reason.TIME_RANGE, are_at_no_time),
    Check("a heading, or none", Reason.HEADING_RANGE, have_no_such_heading),
    Check("a speed, or none", Reason.SPEED_RANGE, have_no_such_speed),
    Check("not from the future", Reason.CLOCK_AHEAD, are_ahead),
    Check("not from long ago", Reason.CLOCK_BEHIND, are_behind),
    Check("newer than the last", Reason.REPORT_OUT_OF_ORDER, are_out_of_order),
    Check("a speed that is believed", Reason.MOVE_TOO_FAST, are_too_fast),
    Check("a place that can be reached", Reason.MOVE_TELEPORT, have_teleported),
    Check("a heading along the way", Reason.HEADING_AGAINST_MOVE, head_elsewhere),
    Check("inside the coverage", Reason.OUTSIDE_COVERAGE, are_not_covered),
)


class _Towards(NamedTuple):
    """A direction on the ground, in two parts of any common length."""

    north: Floats
    east: Floats


def _ways_m_and_towards(case: Case) -> tuple[Floats, _Towards]:
    """How far the last place is along the sphere, and the direction on arrival."""
    batch, before = case.batch, case.before
    latitudes, starts = batch.latitudes * _DEGREE, before.latitudes * _DEGREE
    turned = (batch.longitudes - before.longitudes) * _DEGREE
    up, across, start_up, start_across = np.sin(latitudes), np.cos(latitudes), np.sin(starts), np.cos(starts)
    start_ahead = start_across * np.cos(turned)
    towards = _Towards(up * start_ahead - across * start_up, start_across * np.sin(turned))
    angles = np.arctan2(np.hypot(*towards), up * start_up + across * start_ahead)
    return angles * EARTH_RADIUS_M, towards


def _towards_on_flat_map(case: Case) -> _Towards:
    batch, before = case.batch, case.before
    east = (batch.longitudes - before.longitudes) * np.cos(batch.latitudes * _DEGREE)
    return _Towards(batch.latitudes - before.latitudes, east)


def _are_against(towards: _Towards, case: Case) -> Flags:
    """Which headings are too far off a direction; one that is not known never is."""
    north, east = towards
    angles = case.batch.headings * _DEGREE
    along = north * np.cos(angles) + east * np.sin(angles)
    return along < cos(case.limits.heading_off_deg_max * _DEGREE) * np.sqrt(north * north + east * east)


def _are_surely_against(case: Case) -> Flags:
    ways_m, towards = _ways_m_and_towards(case)
    is_moving = (case.batch.speeds > HEADING_SPEED_MPS_MIN) & (ways_m > case.limits.heading_move_m_min)
    is_recent = (case.gaps_s < case.limits.heading_gap_s_max) & (case.before.seen_at > 0)
    return _are_against(towards, case) & is_moving & is_recent


def _ns(seconds: float) -> int:
    return round(seconds * SECOND_NS)
