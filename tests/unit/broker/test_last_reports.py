"""Tracks: the last report of every endpoint (M13)."""

import numpy as np
import pytest

from milepost.broker.presence import LONG_AGO, Tracks
from milepost.model.places import Place
from milepost.vetting import Batch

NAN = float("nan")


def batch(*reports: tuple[int, float, float, int, float, float]) -> Batch:
    numbers, latitudes, longitudes, seen_at, headings, speeds = zip(*reports, strict=True)
    return Batch(
        np.array(numbers, np.int32),
        np.array(latitudes),
        np.array(longitudes),
        np.array(seen_at, np.int64),
        np.array(headings),
        np.array(speeds),
    )


def test_nothing_is_known_of_who_has_not_reported() -> None:
    tracks = Tracks(4)
    assert not tracks.is_known(2)
    assert (tracks.maybe_place(2), tracks.maybe_heading(2), tracks.seen_at(2), tracks.reports_of(2)) == (None, None, 0, 0)


def test_the_last_report_of_each_is_known() -> None:
    # M13
    tracks = Tracks(4)
    tracks.put(batch((1, 10.0, 20.0, 100, 90.0, 5.0), (3, -1.0, -2.0, 101, NAN, NAN)))
    tracks.put(batch((1, 11.0, 21.0, 200, 91.0, 5.0)))
    assert (tracks.maybe_place(1), tracks.maybe_place(3)) == (Place(11.0, 21.0), Place(-1.0, -2.0))
    assert (tracks.maybe_heading(1), tracks.maybe_heading(3)) == (91.0, None)
    assert [tracks.seen_at(number) for number in range(4)] == [0, 200, 0, 101]
    assert [tracks.reports_of(number) for number in range(4)] == [0, 2, 0, 1]
    before = tracks.before(np.array([3, 0, 1], np.int32))
    assert before.seen_at.tolist() == [101, 0, 200]
    assert (before.latitudes.tolist(), before.longitudes.tolist()) == ([-1.0, 0.0, 11.0], [-2.0, 0.0, 21.0])


def test_what_was_asked_for_is_no_view_of_what_changes() -> None:
    tracks = Tracks(4)
    tracks.put(batch((1, 10.0, 20.0, 100, 90.0, 5.0)))
    before = tracks.before(np.array([1], np.int32))
    before.seen_at[0] = 7
    assert tracks.seen_at(1) == 100


def test_who_is_forgotten_begins_anew() -> None:
    tracks = Tracks(4)
    tracks.put(batch((1, 10.0, 20.0, 100, 90.0, 5.0)))
    tracks.forget(1)
    assert not tracks.is_known(1)
    assert (tracks.maybe_place(1), tracks.maybe_heading(1), tracks.reports_of(1)) == (None, None, 0)


def test_of_a_place_from_an_earlier_process_nothing_else_is_known() -> None:
    tracks = Tracks(4)
    tracks.put(batch((1, 10.0, 20.0, 100, 90.0, 5.0)))
    tracks.put_place(1, Place(1.0, 2.0))
    assert (tracks.maybe_place(1), tracks.maybe_heading(1), tracks.seen_at(1)) == (Place(1.0, 2.0), None, LONG_AGO)


@pytest.mark.parametrize("heading", [0.0, -0.0, 359.99, 359.999_999_9, np.nextafter(360.0, 0.0)])
def test_a_heading_is_always_one(heading: float) -> None:
    tracks = Tracks(4)
    tracks.put(batch((1, 10.0, 20.0, 100, heading, 5.0)))
    found = tracks.maybe_heading(1)
    assert found is not None
    assert 0.0 <= found < 360.0
    assert min(abs(found - heading), 360.0 - abs(found - heading)) < 0.01
