"""Plausibility of reports: impossible ones are refused, and no endpoint is locked out for good (M27)."""

from dataclasses import fields, replace
from math import cos, inf, nan, radians
from typing import Any

import numpy as np
import pytest

from milepost.model.areas import Circle
from milepost.model.instants import FOREVER, SECOND_NS, Instant
from milepost.model.places import EARTH_RADIUS_M, Place
from milepost.model.reasons import Reason
from milepost.vetting import OutsidePolicy, PreviousReports, ReportColumns, ReportLimits, are_outside, vet_reports
from milepost.vetting.reports import CHAIN

NOON = Instant(1_893_499_200 * SECOND_NS)
DEGREE_M = radians(1) * EARTH_RADIUS_M
LIMITS = ReportLimits()
COVERAGE = Circle(Place(50.0, 8.0), 5_000)


def batch(
    latitude: float = 50.0, longitude: float = 8.0, seen_s: float = 0, heading: float = nan, speed: float = nan
) -> ReportColumns:
    places = np.array([latitude]), np.array([longitude])
    seen_at = np.array([NOON + round(seen_s * SECOND_NS)])
    return ReportColumns(np.array([3], np.int32), *places, seen_at, np.array([heading]), np.array([speed]))


def previous(north_m: float = 0, east_m: float = 0, seen_s: float | None = -1, *, latitude: float = 50.0) -> PreviousReports:
    """Return the previous report of one from 50° north (or `latitude`), 8° east, at this distance from it."""
    longitude = 8.0 + east_m / DEGREE_M / cos(radians(latitude))
    seen_at = 0 if seen_s is None else NOON + round(seen_s * SECOND_NS)
    return PreviousReports(np.array([latitude + north_m / DEGREE_M]), np.array([longitude]), np.array([seen_at]))


NEW = previous(seen_s=None)


def reason(
    report: ReportColumns,
    last: PreviousReports = NEW,
    limits: ReportLimits = LIMITS,
    now: Instant = NOON,
    coverage: Circle | None = None,
) -> Reason | None:
    verdicts = vet_reports(report, last, limits, now, coverage)
    assert (verdicts.shape, verdicts.dtype) == ((1,), np.dtype(np.uint16))
    return Reason(int(verdicts[0])) if verdicts[0] else None


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        (batch(), None),
        (batch(90, 180), None),
        (batch(-90, -180), None),
        (batch(90.0001, 8), Reason.COORDINATE_RANGE),
        (batch(-90.0001, 8), Reason.COORDINATE_RANGE),
        (batch(50, 180.0001), Reason.COORDINATE_RANGE),
        (batch(50, -1e308), Reason.COORDINATE_RANGE),
        (batch(nan, 8), Reason.COORDINATE_RANGE),
        (batch(50, nan), Reason.COORDINATE_RANGE),
        (batch(inf, -inf), Reason.COORDINATE_RANGE),
        (batch(heading=0), None),
        (batch(heading=359.999), None),
        (batch(heading=360), Reason.HEADING_RANGE),
        (batch(heading=-0.001), Reason.HEADING_RANGE),
        (batch(heading=inf), Reason.HEADING_RANGE),
        (batch(speed=0), None),
        (batch(speed=90), None),
        (batch(speed=90.001), Reason.MOVE_TOO_FAST),
        (batch(speed=500), Reason.MOVE_TOO_FAST),
        (batch(speed=500.001), Reason.SPEED_RANGE),
        (batch(speed=-0.001), Reason.SPEED_RANGE),
        (batch(speed=inf), Reason.SPEED_RANGE),
        (batch(seen_s=2), None),
        (batch(seen_s=2.001), Reason.CLOCK_AHEAD),
        (batch(seen_s=-60), None),
        (batch(seen_s=-60.001), Reason.CLOCK_BEHIND),
        (batch(seen_s=-1_893_499_200.001), Reason.TIME_RANGE),
        (replace(batch(), seen_at=np.array([FOREVER])), Reason.TIME_RANGE),
        (replace(batch(), seen_at=np.array([FOREVER - 1])), Reason.CLOCK_AHEAD),
        (replace(batch(), seen_at=np.array([-(2**63)])), Reason.TIME_RANGE),
    ],
)
def test_a_first_report_is_checked_by_its_fields(report: ReportColumns, expected: Reason | None) -> None:
    assert reason(report) is expected


def test_a_report_not_newer_than_the_last_is_out_of_order() -> None:
    assert reason(batch(seen_s=-1), previous(seen_s=-1.001)) is None
    assert reason(batch(seen_s=-1), previous(seen_s=-1)) is Reason.REPORT_OUT_OF_ORDER
    assert reason(batch(seen_s=-1.001), previous(seen_s=-1)) is Reason.REPORT_OUT_OF_ORDER


def test_a_report_at_time_zero_is_valid() -> None:
    start = replace(batch(), seen_at=np.array([0]))
    assert reason(start, NEW, LIMITS, Instant(0)) is None
    early = replace(batch(0.001, 0, heading=180, speed=20), seen_at=np.array([5 * SECOND_NS]))
    unwritten = PreviousReports(np.zeros(1), np.zeros(1), np.zeros(1, np.int64))
    assert reason(early, unwritten, LIMITS, Instant(5 * SECOND_NS)) is None


@pytest.mark.parametrize(
    ("moved_m", "gap_s", "expected"),
    [
        (0, 0.001, None),
        (219, 1, None),
        (221, 1, Reason.MOVE_TELEPORT),
        (100, 0.001, None),
        (101, 0.001, Reason.MOVE_TELEPORT),
        (12_000, 99.3, None),
        (12_000, 99.1, Reason.MOVE_TELEPORT),
    ],
)
def test_a_move_is_plausible_up_to_the_maximum_speed(moved_m: float, gap_s: float, expected: Reason | None) -> None:
    for north_m, east_m in ((moved_m, 0), (-moved_m, 0), (0, moved_m), (0, -moved_m)):
        assert reason(batch(), previous(north_m, east_m, -gap_s)) is expected


def test_a_move_across_the_antimeridian_or_a_pole_is_short() -> None:
    at = np.array([NOON - SECOND_NS])
    assert reason(batch(10, 179.9995), PreviousReports(np.array([10.0]), np.array([-179.9995]), at)) is None
    assert reason(batch(10, 179.9), PreviousReports(np.array([10.0]), np.array([-179.9]), at)) is Reason.MOVE_TELEPORT
    assert reason(batch(89.9995, 0), PreviousReports(np.array([89.9995]), np.array([180.0]), at)) is None


def test_after_a_false_place_the_true_one_becomes_plausible_again() -> None:
    gaps = [gap for gap in (1, 10, 82, 83, 84, 600) if reason(batch(), previous(10_000, 0, -gap)) is None]
    assert gaps == [83, 84, 600]
    antipodes = PreviousReports(np.array([-50.0]), np.array([-172.0]), np.array([NOON - 2 * 86_400 * SECOND_NS]))
    assert reason(batch(), antipodes) is None


def test_after_a_clock_correction_reports_are_out_of_order_for_as_long_as_it_ran_ahead() -> None:
    last = previous(seen_s=2)
    verdicts = [reason(batch(seen_s=later), last, LIMITS, Instant(NOON + later * SECOND_NS)) for later in (1, 2, 3)]
    assert verdicts == [Reason.REPORT_OUT_OF_ORDER, Reason.REPORT_OUT_OF_ORDER, None]


@pytest.mark.parametrize("course", [0, 45, 90, 180, 270, 359])
@pytest.mark.parametrize("latitude", [0.0, 50.0, -70.0])
def test_a_heading_against_the_movement_is_refused(course: int, latitude: float) -> None:
    came_from = previous(-100 * cos(radians(course)), -100 * cos(radians(course - 90)), -5, latitude=latitude)
    offs = {
        off: reason(batch(latitude, heading=(course + off) % 360, speed=20), came_from)
        for off in (0, 148, 152, 180, 208, 212, 359)
    }
    against = [off for off, found in offs.items() if found is Reason.HEADING_AGAINST_MOVE]
    assert against == [152, 180, 208]
    assert set(offs.values()) == {None, Reason.HEADING_AGAINST_MOVE}


@pytest.mark.parametrize(
    ("moved_m", "gap_s", "speed", "heading", "is_judged"),
    [
        (100, 5, 20, 180, True),
        (49, 5, 20, 180, False),
        (51, 5, 20, 180, True),
        (100, 9.99, 20, 180, True),
        (100, 10, 20, 180, False),
        (100, 5, 3, 180, False),
        (100, 5, 3.01, 180, True),
        (100, 5, nan, 180, False),
        (100, 5, 20, nan, False),
        (100, None, 20, 180, False),
    ],
)
def test_a_heading_is_checked_only_against_a_significant_movement(
    moved_m: float, gap_s: float | None, speed: float, heading: float, is_judged: bool
) -> None:
    last = previous(-moved_m, 0, None if gap_s is None else -gap_s)
    expected = Reason.HEADING_AGAINST_MOVE if is_judged else None
    assert reason(batch(heading=heading, speed=speed), last) is expected


def test_a_true_heading_is_accepted_across_the_antimeridian_and_near_a_pole() -> None:
    at = np.array([NOON - 5 * SECOND_NS])
    eastward = batch(10, -179.9995, heading=90, speed=20)
    assert reason(eastward, PreviousReports(np.array([10.0]), np.array([179.9995]), at)) is None
    over_the_pole = batch(89.9995, 180, heading=180, speed=20)
    assert reason(over_the_pole, PreviousReports(np.array([89.9995]), np.array([0.0]), at)) is None


def test_reports_from_outside_the_coverage_are_refused_only_if_configured() -> None:
    refusing = ReportLimits(outside_coverage=OutsidePolicy.REFUSE)
    inside, outside = batch(50.04), batch(50.05)
    assert reason(outside, coverage=COVERAGE) is None
    assert reason(outside, NEW, refusing) is None
    assert reason(outside, NEW, refusing, coverage=COVERAGE) is Reason.OUTSIDE_COVERAGE
    assert reason(inside, NEW, refusing, coverage=COVERAGE) is None
    assert (are_outside(inside, COVERAGE).tolist(), are_outside(outside, COVERAGE).tolist()) == ([False], [True])


@pytest.mark.parametrize(
    ("key", "report", "last"),
    [
        ("clock_ahead_s_max", batch(seen_s=1e6), NEW),
        ("clock_behind_s_max", batch(seen_s=-1e6), NEW),
        ("speed_mps_max", batch(speed=500), NEW),
        ("move_mps_max", batch(), previous(1e6, 0, -1)),
        ("heading_error_deg_max", batch(heading=180, speed=20), previous(-100, 0, -5)),
    ],
)
def test_a_limit_of_zero_means_no_limit(key: str, report: ReportColumns, last: PreviousReports) -> None:
    assert reason(report, last) is not None
    off: dict[str, Any] = {key: 0.0}
    assert reason(report, last, ReportLimits(**off)) is None


@pytest.mark.parametrize("value", [-1.0, nan, inf, 1.1e9])
def test_invalid_limits_are_refused(value: float) -> None:
    names = [each.name for each in fields(ReportLimits) if each.name != "outside_coverage"]
    assert len(names) == 8
    for name in names:
        given: dict[str, Any] = {name: value}
        with pytest.raises(ValueError, match=f"{name} is {value}"):
            ReportLimits(**given)


def test_the_largest_limits_do_not_overflow_time() -> None:
    widest = ReportLimits(clock_ahead_s_max=1e9, clock_behind_s_max=1e9)
    for seen_at, now in ((FOREVER - 1, FOREVER - 2), (0, 1)):
        assert reason(replace(batch(), seen_at=np.array([seen_at])), NEW, widest, Instant(now)) is None


def test_limits_that_check_nothing_or_noise_are_refused() -> None:
    with pytest.raises(ValueError, match="heading_error_deg_max is 181"):
        ReportLimits(heading_error_deg_max=181)
    with pytest.raises(ValueError, match="heading_gap_s_max is 0"):
        ReportLimits(heading_gap_s_max=0)
    with pytest.raises(ValueError, match=r"heading_move_m_min is 0\.9"):
        ReportLimits(heading_move_m_min=0.9)
    ReportLimits(heading_error_deg_max=0, heading_gap_s_max=0, heading_move_m_min=0)


def test_every_check_can_refuse_and_the_first_that_does_gives_the_reason() -> None:
    """Each row has one fault less: the first has all, the last none."""
    rows = len(CHAIN) + 1
    faulty: dict[str, tuple[str, float]] = {
        "COORDINATE_RANGE": ("latitudes", 91),
        "TIME_RANGE": ("seen_at", -1),
        "HEADING_RANGE": ("headings", 360),
        "SPEED_RANGE": ("speeds", 501),
        "CLOCK_AHEAD": ("seen_at", NOON + 3 * SECOND_NS),
        "CLOCK_BEHIND": ("seen_at", NOON - 61 * SECOND_NS),
        "REPORT_OUT_OF_ORDER": ("seen_at", NOON - 5 * SECOND_NS),
        "MOVE_TOO_FAST": ("speeds", 91),
        "MOVE_TELEPORT": ("latitudes", 51),
        "HEADING_AGAINST_MOVE": ("headings", 180),
        "OUTSIDE_COVERAGE": ("longitudes", 9),
    }
    many = ReportColumns(
        np.arange(rows, dtype=np.int32),
        np.full(rows, 50.0),
        np.full(rows, 8.0),
        np.full(rows, NOON),
        np.full(rows, 0.0),
        np.full(rows, 20.0),
    )
    last = PreviousReports(np.full(rows, 50 - 100 / DEGREE_M), np.full(rows, 8.0), np.full(rows, NOON - 5 * SECOND_NS))
    last.longitudes[rows - 2], last.seen_at[rows - 2] = 9.0, 0  # outside the coverage, but within the plausible distance
    for row, check in reversed(list(enumerate(CHAIN))):
        column, value = faulty[check.reason.name]
        if check.reason is Reason.OUTSIDE_COVERAGE:
            getattr(many, column)[row] = value
        else:
            getattr(many, column)[: row + 1] = value
    verdicts = vet_reports(many, last, ReportLimits(outside_coverage=OutsidePolicy.REFUSE), NOON, COVERAGE)
    assert verdicts.tolist() == [*(check.reason for check in CHAIN), 0]


def test_an_empty_batch_has_no_verdicts() -> None:
    nothing = np.array([], np.intp)
    assert vet_reports(batch().only(nothing), NEW.only(nothing), LIMITS, NOON, COVERAGE).size == 0
