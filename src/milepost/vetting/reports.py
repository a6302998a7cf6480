"""Reports: plausibility checks of a whole batch at once (M27).

Invariants:
- the checks are listed in `CHAIN`, and the first that refuses a report gives its reason; a check sees only reports that passed
  those before it, so that all checks after the ranges may rely on valid places, times, headings and speeds;
- a report is checked against the last accepted one of the same endpoint. One call has an endpoint at most once: a batch with
  repeated endpoints is split by `in_rounds`, and the caller stores the accepted reports before it checks the next round;
- no endpoint is locked out for good. The plausible distance grows with the time since the last accepted report: after a false
  place 10 km away the true one is plausible again in 83 s, after one on the other side of the Earth in two days (with the
  default limits). After a clock that ran ahead was corrected, reports are out of order for as long as it ran ahead, which is
  `clock_ahead_s_max` at most; without that limit it may be for years. Only an attacker that goes on sending false reports in an
  endpoint's name keeps its true ones out; `trust` prevents that.
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

Numbers = NDArray[np.int32]
"""Numbers of endpoints, one for each row of a batch."""


def maybe_ranks(numbers: Numbers) -> NDArray[np.intp] | None:
    """Return how often each number occurred before in the batch; `None` if none is repeated, which is quick to check."""
    ordered = np.sort(numbers)
    if not np.count_nonzero(ordered[1:] == ordered[:-1]):
        return None
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    is_first = np.concatenate(([True], ordered[1:] != ordered[:-1]))
    starts = np.flatnonzero(is_first)
    ranks = np.empty(numbers.size, np.intp)
    ranks[order] = np.arange(numbers.size) - starts[np.cumsum(is_first) - 1]
    return ranks


def in_rounds(numbers: Numbers) -> list[NDArray[np.intp]]:
    """Return the rows of a batch in rounds: each has an endpoint at most once, and earlier rows are in earlier rounds.

    There are as many rounds as the busiest endpoint has rows. Limit its rate first, or one that floods makes a batch as slow as
    single rows.
    """
    ranks = maybe_ranks(numbers)
    if ranks is None:
        return [np.arange(numbers.size)]
    return np.split(np.argsort(ranks, kind="stable"), np.cumsum(np.bincount(ranks))[:-1])


Floats = NDArray[np.float64]
Rows = NDArray[np.intp]

LIMIT_MAX: Final = 1e9
"""Upper bound of all limits; as seconds, 31 years."""

HEADING_SPEED_MPS_MIN: Final = 3.0
"""Headings are not checked below this speed: an endpoint that hardly moves reports any heading."""

_DEGREE: Final = pi / 180
_DEGREE_M: Final = EARTH_RADIUS_M * _DEGREE


class OutsidePolicy(Enum):
    """Policy for a report from outside the coverage."""

    REFUSE = "refuse"
    COUNT = "count"
    """Accept and count it."""


@dataclass(frozen=True, slots=True)
class ReportLimits:
    """Plausibility limits of reports; each is a key of the configuration file."""

    clock_ahead_s_max: float = 2.0
    """Maximum time that a report may lie in the future; 0: any, and one from far ahead locks out all reports before its time."""
    clock_behind_s_max: float = 60.0
    """Maximum age of a report on arrival; 0: any."""
    speed_mps_max: float = 90.0
    """Maximum reported speed; 0: any."""
    move_mps_max: float = 120.0
    """Maximum speed between two reports; 0: any."""
    position_error_m: float = 100.0
    """Distance between two reports that may be the error of both places."""
    heading_error_deg_max: float = 150.0
    """Maximum angle between a heading and the movement between two reports; 0: any."""
    heading_move_m_min: float = 50.0
    """A heading is checked against a movement longer than this; at least 1."""
    heading_gap_s_max: float = 10.0
    """A heading is checked against a movement that took less than this."""
    outside_coverage: OutsidePolicy = OutsidePolicy.COUNT

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if each.type is float and not 0 <= value <= LIMIT_MAX:
                raise ValueError(f"{each.name} is {value}, not in 0..{LIMIT_MAX:.0f}")
        if self.heading_error_deg_max > 180:
            raise ValueError(f"heading_error_deg_max is {self.heading_error_deg_max}, not in 0..180")
        if self.heading_error_deg_max and not self.heading_gap_s_max:
            raise ValueError("heading_gap_s_max is 0: no heading would be checked; set heading_error_deg_max to 0 instead")
        if self.heading_error_deg_max and self.heading_move_m_min < 1:
            raise ValueError(f"heading_move_m_min is {self.heading_move_m_min}, below the accuracy of positions; give at least 1")


@dataclass(frozen=True, slots=True, eq=False)
class ReportColumns:
    """Reports as columns of one length; a heading or speed that is not known is NaN."""

    numbers: Numbers
    latitudes: Floats
    longitudes: Floats
    seen_at: NDArray[np.int64]
    headings: Floats
    speeds: Floats

    def only(self, rows: Rows) -> "ReportColumns":
        """Return some of the reports."""
        return ReportColumns(
            self.numbers[rows],
            self.latitudes[rows],
            self.longitudes[rows],
            self.seen_at[rows],
            self.headings[rows],
            self.speeds[rows],
        )


class PreviousReports(NamedTuple):
    """The last accepted report of the same endpoints, row by row; `seen_at` is 0 where there is none yet."""

    latitudes: Floats
    longitudes: Floats
    seen_at: NDArray[np.int64]

    def only(self, rows: Rows) -> "PreviousReports":
        """Return some of the rows."""
        return PreviousReports(self.latitudes[rows], self.longitudes[rows], self.seen_at[rows])


@dataclass(frozen=True, eq=False)
class ReportCase:
    """The input of a check, with intermediate results that several checks share."""

    batch: ReportColumns
    previous: PreviousReports
    limits: ReportLimits
    now: Instant
    coverage: Area | None

    def only(self, rows: Rows) -> "ReportCase":
        """Return the case of some of the reports."""
        return replace(self, batch=self.batch.only(rows), previous=self.previous.only(rows))

    @cached_property
    def gaps_s(self) -> Floats:
        """Time since the last accepted report."""
        return (self.batch.seen_at - self.previous.seen_at) / SECOND_NS

    @cached_property
    def squared_spans_deg(self) -> Floats:
        """Squared upper bound of the distance from the last place, in degrees: a straight line on an unprojected map.

        It needs no trigonometry and clears nearly all reports; the exact distance is computed for the rest.
        """
        north, east = self.batch.latitudes - self.previous.latitudes, self.batch.longitudes - self.previous.longitudes
        return north * north + east * east

    @property
    def none_refused(self) -> Flags:
        """The result that refuses no report."""
        return np.zeros(self.batch.numbers.size, np.bool_)


class ReportCheck(NamedTuple):
    """One check of the chain: its name, its reason code, and a function that returns which reports it refuses."""

    name: str
    reason: Reason
    refused: Callable[[ReportCase], Flags]


def vet_reports(
    batch: ReportColumns, previous: PreviousReports, limits: ReportLimits, now: Instant, coverage: Area | None = None
) -> NDArray[np.uint16]:
    """Return for each report 0 if it is accepted, else the reason code."""
    verdicts = np.zeros(batch.numbers.size, np.uint16)
    case = ReportCase(batch, previous, limits, now, coverage)
    rows: Rows | None = None  # rows not refused yet; None: all
    for check in CHAIN:
        refused = check.refused(case)
        if np.count_nonzero(refused):
            rows = np.arange(verdicts.size) if rows is None else rows
            verdicts[rows[refused]] = check.reason
            accepted = (~refused).nonzero()[0]
            rows, case = rows[accepted], case.only(accepted)
    return verdicts


def are_outside(batch: ReportColumns, coverage: Area) -> Flags:
    """Return which reports, of those with a valid place, come from outside the coverage."""
    return ~coverage.contains(vectors(batch.latitudes, batch.longitudes))


def have_invalid_place(case: ReportCase) -> Flags:
    """Return which have no valid place; NaN compares as false."""
    are_valid: Flags = (np.abs(case.batch.latitudes) <= 90.0) & (np.abs(case.batch.longitudes) <= 180.0)
    return ~are_valid


def have_invalid_time(case: ReportCase) -> Flags:
    """Flag reports whose time is missing or before 1970."""
    are_timeless: Flags = (case.batch.seen_at < 0) | (case.batch.seen_at == FOREVER)
    return are_timeless


def have_invalid_heading(case: ReportCase) -> Flags:
    """Return which have an invalid heading."""
    headings = case.batch.headings
    return (headings < 0.0) | (headings >= 360.0)


def have_invalid_speed(case: ReportCase) -> Flags:
    """Return which have an invalid speed."""
    speeds = case.batch.speeds
    return (speeds < 0.0) | (speeds > SPEED_MPS_MAX)


def are_in_future(case: ReportCase) -> Flags:
    """Return which were seen too far in the future."""
    ahead_s = case.limits.clock_ahead_s_max
    return case.batch.seen_at > case.now + _ns(ahead_s) if ahead_s else case.none_refused


def are_too_old(case: ReportCase) -> Flags:
    """Return which were seen too long ago."""
    behind_s = case.limits.clock_behind_s_max
    return case.batch.seen_at < case.now - _ns(behind_s) if behind_s else case.none_refused


def are_out_of_order(case: ReportCase) -> Flags:
    """Return which were not seen after the last accepted one; an equal time means a duplicate."""
    return (case.batch.seen_at <= case.previous.seen_at) & (case.previous.seen_at > 0)


def are_too_fast(case: ReportCase) -> Flags:
    """Return which report too high a speed."""
    limit = case.limits.speed_mps_max
    return case.batch.speeds > limit if limit else case.none_refused


def have_teleported(case: ReportCase) -> Flags:
    """Return which are farther from the last place than the maximum speed allows in the time between."""
    limits, refused = case.limits, case.none_refused
    if limits.move_mps_max:
        allowed = (limits.move_mps_max * case.gaps_s + limits.position_error_m) / _DEGREE_M
        rows = (case.squared_spans_deg > allowed * allowed).nonzero()[0]
        if rows.size:
            distances_m, _ = _distances_m_and_directions(case.only(rows))
            refused[rows] = (distances_m > allowed[rows] * _DEGREE_M) & (case.previous.seen_at[rows] > 0)
    return refused


def have_contrary_heading(case: ReportCase) -> Flags:
    """Return which report a heading against their movement.

    Suspects are found on a flat map, and refused only if the calculation on the sphere agrees: near a pole and at the
    antimeridian it may not.
    """
    limits, refused = case.limits, case.none_refused
    if limits.heading_error_deg_max and np.count_nonzero(case.squared_spans_deg > (limits.heading_move_m_min / _DEGREE_M) ** 2):
        rows = _deviate(_directions_on_flat_map(case), case).nonzero()[0]
        if rows.size:
            refused[rows] = _deviate_on_sphere(case.only(rows))
    return refused


def are_not_covered(case: ReportCase) -> Flags:
    """Return which come from outside the coverage, if that is refused."""
    if case.coverage is None or case.limits.outside_coverage is OutsidePolicy.COUNT:
        return case.none_refused
    return are_outside(case.batch, case.coverage)


CHAIN: Final = (
    ReportCheck("valid place", Reason.COORDINATE_RANGE, have_invalid_place),
    ReportCheck("valid time", Reason.TIME_RANGE, have_invalid_time),
    ReportCheck("valid heading, or none", Reason.HEADING_RANGE, have_invalid_heading),
    ReportCheck("valid speed, or none", Reason.SPEED_RANGE, have_invalid_speed),
    ReportCheck("not in the future", Reason.CLOCK_AHEAD, are_in_future),
    ReportCheck("not too old", Reason.CLOCK_BEHIND, are_too_old),
    ReportCheck("newer than the last report", Reason.REPORT_OUT_OF_ORDER, are_out_of_order),
    ReportCheck("plausible speed", Reason.MOVE_TOO_FAST, are_too_fast),
    ReportCheck("plausible movement", Reason.MOVE_TELEPORT, have_teleported),
    ReportCheck("heading along the movement", Reason.HEADING_AGAINST_MOVE, have_contrary_heading),
    ReportCheck("inside the coverage", Reason.OUTSIDE_COVERAGE, are_not_covered),
)


class _Direction(NamedTuple):
    """A direction on the ground, as two components of any common length."""

    north: Floats
    east: Floats


def _distances_m_and_directions(case: ReportCase) -> tuple[Floats, _Direction]:
    """Return the great-circle distance from the last place, and the direction on arrival."""
    batch, previous = case.batch, case.previous
    latitudes, starts = batch.latitudes * _DEGREE, previous.latitudes * _DEGREE
    longitude_difference = (batch.longitudes - previous.longitudes) * _DEGREE
    up, across, start_up, start_across = np.sin(latitudes), np.cos(latitudes), np.sin(starts), np.cos(starts)
    start_ahead = start_across * np.cos(longitude_difference)
    direction = _Direction(up * start_ahead - across * start_up, start_across * np.sin(longitude_difference))
    angles = np.arctan2(np.hypot(*direction), up * start_up + across * start_ahead)
    return angles * EARTH_RADIUS_M, direction


def _directions_on_flat_map(case: ReportCase) -> _Direction:
    batch, previous = case.batch, case.previous
    east = (batch.longitudes - previous.longitudes) * np.cos(batch.latitudes * _DEGREE)
    return _Direction(batch.latitudes - previous.latitudes, east)


def _deviate(direction: _Direction, case: ReportCase) -> Flags:
    """Return which headings are too far off a direction; unknown ones never are."""
    north, east = direction
    angles = case.batch.headings * _DEGREE
    along = north * np.cos(angles) + east * np.sin(angles)
    return along < cos(case.limits.heading_error_deg_max * _DEGREE) * np.sqrt(north * north + east * east)


def _deviate_on_sphere(case: ReportCase) -> Flags:
    distances_m, direction = _distances_m_and_directions(case)
    is_moving = (case.batch.speeds > HEADING_SPEED_MPS_MIN) & (distances_m > case.limits.heading_move_m_min)
    is_recent = (case.gaps_s < case.limits.heading_gap_s_max) & (case.previous.seen_at > 0)
    return _deviate(direction, case) & is_moving & is_recent


def _ns(seconds: float) -> int:
    return round(seconds * SECOND_NS)
