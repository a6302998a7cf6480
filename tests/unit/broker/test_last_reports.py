"""The last report of every endpoint (M13)."""

import numpy as np
import pytest

from milepost.broker.presence import LONG_AGO, LastReports
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.places import Place
from milepost.vetting import ReportColumns

NAN = float("nan")
START = Instant(1_900_000_000 * SECOND_NS)


def batch(*rows: tuple[int, float, float, int, float, float]) -> ReportColumns:
    numbers, latitudes, longitudes, seen_at, headings, speeds = zip(*rows, strict=True)
    return ReportColumns(
        np.array(numbers, np.int32),
        np.array(latitudes),
        np.array(longitudes),
        np.array(seen_at, np.int64),
        np.array(headings),
        np.array(speeds),
    )


def put(reports: LastReports, rows: ReportColumns, at_s: float = 0.0) -> None:
    reports.put(rows, reports.previous_of(rows.numbers), Instant(START + int(at_s * SECOND_NS)))


def test_an_endpoint_without_reports_has_no_position() -> None:
    reports = LastReports(4)
    assert not reports.is_known(2)
    assert (reports.find_place(2), reports.find_heading(2), reports.seen_at(2), reports.reports_of(2)) == (None, None, 0, 0)


def test_the_last_report_of_each_endpoint_is_known() -> None:
    # M13
    reports = LastReports(4)
    put(reports, batch((1, 10.0, 20.0, 100, 90.0, 5.0), (3, -1.0, -2.0, 101, NAN, NAN)))
    put(reports, batch((1, 11.0, 21.0, 200, 91.0, 5.0)))
    assert (reports.find_place(1), reports.find_place(3)) == (Place(11.0, 21.0), Place(-1.0, -2.0))
    assert (reports.find_heading(1), reports.find_heading(3)) == (91.0, None)
    assert [reports.seen_at(number) for number in range(4)] == [0, 200, 0, 101]
    assert [reports.reports_of(number) for number in range(4)] == [0, 2, 0, 1]
    before = reports.previous_of(np.array([3, 0, 1], np.int32))
    assert before.seen_at.tolist() == [101, 0, 200]
    assert (before.latitudes.tolist(), before.longitudes.tolist()) == ([-1.0, 0.0, 11.0], [-2.0, 0.0, 21.0])


def test_returned_reports_are_no_view_of_later_changes() -> None:
    reports = LastReports(4)
    put(reports, batch((1, 10.0, 20.0, 100, 90.0, 5.0)))
    before = reports.previous_of(np.array([1], np.int32))
    before.seen_at[0] = 7
    assert reports.seen_at(1) == 100


def test_a_forgotten_endpoint_starts_over() -> None:
    reports = LastReports(4)
    put(reports, batch((1, 10.0, 20.0, 100, 90.0, 5.0)))
    reports.forget(1)
    assert not reports.is_known(1)
    assert (reports.find_place(1), reports.find_heading(1), reports.reports_of(1)) == (None, None, 0)


def test_a_restored_position_has_neither_heading_nor_speed() -> None:
    reports = LastReports(4)
    put(reports, batch((1, 10.0, 20.0, 100, 90.0, 5.0)))
    reports.restore_position(1, Place(1.0, 2.0))
    assert (reports.find_place(1), reports.find_heading(1), reports.seen_at(1)) == (Place(1.0, 2.0), None, LONG_AGO)


@pytest.mark.parametrize("heading", [0.0, -0.0, 359.99, 359.999_999_9, np.nextafter(360.0, 0.0)])
def test_a_stored_heading_is_always_a_valid_heading(heading: float) -> None:
    reports = LastReports(4)
    put(reports, batch((1, 10.0, 20.0, 100, heading, 5.0)))
    found = reports.find_heading(1)
    assert found is not None
    assert 0.0 <= found < 360.0
    assert min(abs(found - heading), 360.0 - abs(found - heading)) < 0.01


def test_a_history_begins_with_the_first_report_by_the_clock_of_the_edge() -> None:
    reports = LastReports(4)
    assert reports.history_s(1) == 0.0
    put(reports, batch((1, 10.0, 20.0, 100, 90.0, 5.0)))
    assert reports.history_s(1) == 0.0, "a first report, however old it says it is"
    put(reports, batch((1, 10.0, 20.0, 200, 90.0, 5.0)), at_s=4.0)
    put(reports, batch((3, 10.0, 20.0, 200, 90.0, 5.0), (1, 10.0, 20.0, 300, 90.0, 5.0)), at_s=6.0)
    assert (reports.history_s(1), reports.history_s(3)) == (6.0, 0.0)


@pytest.mark.parametrize(
    ("latitude", "gap_s", "expected_s"), [(10.04, 3_600.0, 3_600.0), (11.0, 3_600.0, 0.0), (10.06, 50.0, 50.0)]
)
def test_a_history_ends_with_a_silence_after_which_the_endpoint_is_elsewhere(
    latitude: float, gap_s: float, expected_s: float
) -> None:
    reports = LastReports(4)
    put(reports, batch((1, 10.0, 20.0, 100, 90.0, 5.0)))
    put(reports, batch((1, latitude, 20.0, 200, 90.0, 5.0)), at_s=gap_s)
    assert reports.history_s(1) == expected_s


def test_a_restored_position_has_no_history() -> None:
    reports = LastReports(4)
    for at_s in (0.0, 10.0):
        put(reports, batch((1, 10.0, 20.0, 100 + int(at_s), 90.0, 5.0)), at_s=at_s)
    reports.restore_position(1, Place(10.0, 20.0))
    assert reports.history_s(1) == 0.0
    put(reports, batch((1, 10.0, 20.0, 300, 90.0, 5.0)), at_s=20.0)
    assert reports.history_s(1) == 0.0
