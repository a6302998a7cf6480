"""Checks of batches against the same rules applied one by one: reports, buckets, rounds."""

from collections import defaultdict
from dataclasses import dataclass, replace
from math import asin, atan2, cos, degrees, isfinite, isnan, nan, radians, sin
from typing import Any

import numpy as np
from hypothesis import event, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from milepost.model.areas import Circle
from milepost.model.endpoints import EndpointId
from milepost.model.instants import FOREVER, SECOND_NS, Instant
from milepost.model.places import EARTH_RADIUS_M, Place, distance_m
from milepost.model.reasons import Malformed, Reason
from milepost.model.reports import Report
from milepost.vetting import Bucket, Buckets, OutsidePolicy, PreviousReports, ReportColumns, ReportLimits, in_rounds, vet_reports

NOON = Instant(1_893_499_200 * SECOND_NS)
COVERAGE = Circle(Place(50.0, 8.0), 3_000_000)
NEAR_LIMIT_M = 0.001
NEAR_LIMIT_DEG = 3.0


@dataclass(frozen=True)
class ReportPair:
    """A report and the previous one."""

    latitude: float
    longitude: float
    seen_at: int
    heading: float
    speed: float
    last: Place
    last_at: int


def destination(start: Place, course_deg: float, way_m: float) -> Place:
    angle, course = way_m / EARTH_RADIUS_M, radians(course_deg)
    latitude, longitude = radians(start.latitude), radians(start.longitude)
    up = sin(latitude) * cos(angle) + cos(latitude) * sin(angle) * cos(course)
    turned = atan2(sin(course) * sin(angle) * cos(latitude), cos(angle) - sin(latitude) * up)
    return Place(degrees(asin(max(-1.0, min(1.0, up)))), (degrees(longitude + turned) + 180) % 360 - 180)


def course_on_arrival(start: Place, end: Place) -> float:
    """Return the bearing on arrival: the bearing of the way back, reversed."""
    here, there, turned = radians(end.latitude), radians(start.latitude), radians(start.longitude - end.longitude)
    back = atan2(sin(turned) * cos(there), cos(here) * sin(there) - sin(here) * cos(there) * cos(turned))
    return degrees(back) + 180


def deviating_heading(course_deg: float, off_deg: float) -> float:
    return min((course_deg + off_deg) % 360, 359.999)  # slightly below 0 gives 360


places = st.builds(Place, st.floats(-90, 90) | st.floats(40, 60), st.floats(-180, 180) | st.sampled_from([180.0, 179.9999]))
ways_m = st.floats(0, 400) | st.sampled_from([60.0, 150.0, 300.0, 600.0]) | st.floats(0, 20_000) | st.floats(0, 2e7)
odd_numbers = st.sampled_from([nan, float("inf"), -float("inf"), -1.0, 1e308, 360.0, 500.5])
odd_times = st.sampled_from([-(2**63), -1, 0, FOREVER, FOREVER - 1])


@st.composite
def report_pairs(draw: st.DrawFn) -> ReportPair:
    start, course, way_m = draw(places), draw(st.floats(0, 359.9)), draw(ways_m)
    end = destination(start, course, way_m)
    gap_s = draw(st.sampled_from([-1, 0, 1, 1, 5, 5, 5, 9, 11, 600, 10**5]) | st.floats(0, 20))
    seen_at = NOON + draw(st.sampled_from([0, 0, -SECOND_NS, 3 * SECOND_NS, -61 * SECOND_NS]))
    heading = deviating_heading(course_on_arrival(start, end), draw(st.integers(-180, 180)))
    pair = ReportPair(
        end.latitude,
        end.longitude,
        seen_at,
        draw(st.sampled_from([heading, heading, nan])),
        draw(st.sampled_from([20.0, 20.0, 20.0, 3.0, 91.0, nan])),
        start,
        draw(st.sampled_from([*[seen_at - round(gap_s * SECOND_NS)] * 4, 0])),
    )
    if draw(st.integers(0, 5)) == 0:
        field = draw(st.sampled_from(["latitude", "longitude", "heading", "speed", "seen_at"]))
        odd: dict[str, Any] = {field: draw(odd_times if field == "seen_at" else odd_numbers)}
        return replace(pair, **odd)
    return pair


limits = st.builds(
    ReportLimits,
    st.sampled_from([0.0, 2.0]),
    st.sampled_from([0.0, 60.0]),
    st.sampled_from([0.0, 90.0]),
    st.sampled_from([0.0, 120.0, 120.0]),
    st.sampled_from([0.0, 100.0]),
    st.sampled_from([0.0, 80.0, 150.0, 150.0]),
    st.sampled_from([1.0, 50.0]),
    st.just(10.0),
    st.sampled_from(OutsidePolicy),
)


def maybe_range_fault(pair: ReportPair) -> Reason | None:
    """Return the fault that the model reports; its order of checks differs."""
    heading, speed = (None if isnan(value) else value for value in (pair.heading, pair.speed))
    try:
        place = Place(pair.latitude, pair.longitude)
        Report(EndpointId("x"), place, Instant(pair.seen_at), heading, speed)
    except Malformed as fault:
        return fault.reason
    return None


def maybe_fault(pair: ReportPair, rules: ReportLimits) -> set[Reason | None]:
    """Return the verdict in the simplest form; two where the limit is so near that rounding decides."""
    if fault := maybe_range_fault(pair):
        return {fault}
    ahead_ns, gap_s, is_first = pair.seen_at - NOON, (pair.seen_at - pair.last_at) / SECOND_NS, pair.last_at == 0
    if rules.clock_ahead_s_max and ahead_ns > rules.clock_ahead_s_max * SECOND_NS:
        return {Reason.CLOCK_AHEAD}
    if rules.clock_behind_s_max and -ahead_ns > rules.clock_behind_s_max * SECOND_NS:
        return {Reason.CLOCK_BEHIND}
    if not is_first and pair.seen_at <= pair.last_at:
        return {Reason.REPORT_OUT_OF_ORDER}
    if rules.speed_mps_max and pair.speed > rules.speed_mps_max:
        return {Reason.MOVE_TOO_FAST}
    possible: set[Reason | None] = set()
    here = Place(pair.latitude, pair.longitude)
    moved_m, allowed_m = distance_m(here, pair.last), rules.move_mps_max * gap_s + rules.position_error_m
    if rules.move_mps_max and not is_first:
        if moved_m > allowed_m + NEAR_LIMIT_M:
            return {Reason.MOVE_TELEPORT}
        if moved_m > allowed_m - NEAR_LIMIT_M:
            possible.add(Reason.MOVE_TELEPORT)
    against = set() if is_first else _maybe_contrary_heading(pair, here, moved_m, gap_s, rules)
    if against == {True}:
        return possible | {Reason.HEADING_AGAINST_MOVE}
    if True in against:
        possible.add(Reason.HEADING_AGAINST_MOVE)
    if rules.outside_coverage is OutsidePolicy.REFUSE:
        from_rim_m = distance_m(here, COVERAGE.centre) - COVERAGE.radius_m
        if abs(from_rim_m) < 1:
            possible.add(Reason.OUTSIDE_COVERAGE)
        elif from_rim_m > 0:
            return possible | {Reason.OUTSIDE_COVERAGE}
    return possible | {None}


def _maybe_contrary_heading(pair: ReportPair, here: Place, moved_m: float, gap_s: float, rules: ReportLimits) -> set[bool]:
    is_judged = rules.heading_error_deg_max and pair.speed > 3 and isfinite(pair.heading) and gap_s < rules.heading_gap_s_max
    if not is_judged or moved_m < rules.heading_move_m_min - NEAR_LIMIT_M:
        return {False}
    off = abs((pair.heading - course_on_arrival(pair.last, here) + 180) % 360 - 180)
    if off < rules.heading_error_deg_max - 0.001:
        return {False}
    is_flat_there = moved_m < 20_000 and abs(here.latitude) < 80 and abs(here.longitude) < 179
    is_clear = off > rules.heading_error_deg_max + NEAR_LIMIT_DEG and moved_m > rules.heading_move_m_min + NEAR_LIMIT_M
    return {True} if is_flat_there and is_clear else {False, True}


def columns(pair: list[ReportPair]) -> tuple[ReportColumns, PreviousReports]:
    def floats(name: str) -> NDArray[np.float64]:
        return np.array([getattr(one, name) for one in pair], np.float64)

    seen_at, last_at = (np.array([getattr(one, name) for one in pair], np.int64) for name in ("seen_at", "last_at"))
    numbers = np.arange(len(pair), dtype=np.int32)
    batch = ReportColumns(numbers, floats("latitude"), floats("longitude"), seen_at, floats("heading"), floats("speed"))
    last_latitudes = np.array([one.last.latitude for one in pair], np.float64)
    last_longitudes = np.array([one.last.longitude for one in pair], np.float64)
    return batch, PreviousReports(last_latitudes, last_longitudes, last_at)


@given(st.lists(report_pairs(), max_size=12), limits)
def test_a_batch_gets_the_verdicts_of_its_reports_one_by_one(pair: list[ReportPair], rules: ReportLimits) -> None:
    verdicts = vet_reports(*columns(pair), rules, NOON, COVERAGE).tolist()
    for one, verdict in zip(pair, verdicts, strict=True):
        expected = maybe_fault(one, rules)
        event(f"verdict: {Reason(verdict).name if verdict else 'let in'}{', sure' if len(expected) == 1 else ''}")
        assert (Reason(verdict) if verdict else None) in expected


inland = st.builds(Place, st.floats(-79, 79), st.floats(-178, 178))


@given(inland, st.floats(0, 359.9), st.floats(51, 1150), st.integers(-180, 180), st.sampled_from([100.5, 150.5, 170.5]))
def test_a_heading_is_refused_exactly_if_it_deviates_from_the_movement(
    start: Place, course: float, way_m: float, off: int, most: float
) -> None:
    end = destination(start, course, way_m)
    heading = deviating_heading(course_on_arrival(start, end), off)
    pair = ReportPair(end.latitude, end.longitude, NOON, heading, 20.0, start, NOON - 9 * SECOND_NS)
    verdict = vet_reports(*columns([pair]), ReportLimits(heading_error_deg_max=most), NOON)[0]
    event(f"verdict: {Reason(verdict).name if verdict else 'let in'}")
    assert verdict == (Reason.HEADING_AGAINST_MOVE if abs(off) > most else 0)


@given(st.lists(report_pairs(), min_size=1, max_size=12), limits)
def test_a_verdict_does_not_depend_on_what_else_is_in_the_batch(pair: list[ReportPair], rules: ReportLimits) -> None:
    batch, previous = columns(pair)
    together = vet_reports(batch, previous, rules, NOON, COVERAGE).tolist()
    alone = [np.array([row]) for row in range(len(pair))]
    assert [int(vet_reports(batch.only(row), previous.only(row), rules, NOON, COVERAGE)[0]) for row in alone] == together


@given(st.lists(st.integers(0, 5), max_size=30))
def test_rounds_contain_every_row_once_in_order_and_are_minimal(numbers: list[int]) -> None:
    rounds = [rows.tolist() for rows in in_rounds(np.array(numbers, np.int32))]
    assert sorted(row for rows in rounds for row in rows) == list(range(len(numbers)))
    assert all(rows == sorted(rows) for rows in rounds)
    for number in set(numbers):
        in_order = [[row for row in rows if numbers[row] == number] for rows in rounds]
        assert all(len(rows) <= 1 for rows in in_order)
        assert [row for rows in in_order for row in rows] == [row for row, each in enumerate(numbers) if each == number]
    assert len(rounds) == max([numbers.count(number) for number in set(numbers)], default=1)


# A token in a power of two of nanoseconds, so that no sum is rounded and equal means equal.
rates = st.sampled_from([SECOND_NS / 2**20, SECOND_NS / 2**28, SECOND_NS / 2**32, 0.0])
shares = st.lists(st.sampled_from([1.0, 0.5, 0.125]), min_size=4, max_size=4)
calls = st.lists(st.tuples(st.integers(-(2**30), 2**33), st.lists(st.integers(0, 3), max_size=12)), max_size=12)


@given(rates, st.sampled_from([0.5, 1.0, 3.0, 8.0]), st.none() | shares, calls, st.sampled_from([2**40, NOON]))
def test_many_buckets_grant_what_each_alone_would_grant(
    rate: float, burst: float, share: list[float] | None, calls: list[tuple[int, list[int]]], start: int
) -> None:
    each = share or [1.0] * 4
    alone = [Bucket(rate * part, burst * part) for part in each]
    many = Buckets(rate, burst, spent=np.zeros(4), at=np.zeros(4, np.int64))
    now = start
    seen: dict[bool, int] = defaultdict(int)
    for step_ns, who in calls:
        now = Instant(now + step_ns)
        given_share = None if share is None else np.array([share[number] for number in who])
        together = many.take(np.array(who, np.int32), now, share=given_share).tolist()
        assert together == [alone[number].take(1, now) for number in who]
        for is_given in together:
            seen[is_given] += 1
    event(f"some refused: {seen[False] > 0}, some given: {seen[True] > 0}")
