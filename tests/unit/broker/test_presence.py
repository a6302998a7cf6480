"""Watching: reports vetted against the one before, rates by reputation, the map, and clocks that are set (M7)."""

import numpy as np
import pytest

from edge_in_memory import SMALL, START
from milepost.broker.counts import Counts
from milepost.broker.limits import Limits
from milepost.broker.presence import Ground, Presence
from milepost.broker.session import Session
from milepost.matching.matcher import Matcher
from milepost.model.areas import Circle, Stretch, Union, Upstream
from milepost.model.endpoints import EndpointId
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.places import Place, moved
from milepost.model.reasons import Reason
from milepost.model.reports import Report
from milepost.vetting import Batch, Outside, ReportLimits

HOME = Place(40.7608, -111.891)
NAN = float("nan")


class Watched:
    """A watch, and one who reports."""

    def __init__(self, limits: Limits = SMALL) -> None:
        self.counts, self.matcher = Counts(), Matcher()
        self.watch = Presence(limits, self.matcher, self.counts)
        self.session = Session(EndpointId("a"), 1)
        self.now = START

    def report(self, place: Place = HOME, *, after_s: float = 0.0, seen_s: float = 0.0) -> Reason | None:
        """Somebody says where he is; `seen_s` from now."""
        self.now = Instant(self.now + int(after_s * SECOND_NS))
        seen_at = Instant(self.now + int(seen_s * SECOND_NS))
        refused = self.watch.take_one(self.session, Report(self.session.name, place, seen_at), self.now)
        return None if refused is None else refused.reason

    def is_at(self, place: Place) -> bool:
        return 1 in self.matcher.who_is_in(Circle(place, 1.0))


def test_a_report_that_is_let_in_moves_its_endpoint_on_the_map() -> None:
    # M7
    watched = Watched()
    assert watched.report() is None
    assert watched.is_at(HOME)
    north = moved(HOME, 0, 50)
    assert watched.report(north, after_s=1) is None
    assert watched.is_at(north)
    assert not watched.is_at(HOME)
    assert watched.counts.reports == 2


def test_a_report_that_is_refused_changes_nothing_but_counts() -> None:
    watched = Watched()
    watched.report()
    assert watched.report(moved(HOME, 0, 5_000), after_s=1) is Reason.MOVE_TELEPORT
    assert watched.report(moved(HOME, 0, 10), seen_s=-0.5) is None, "it was seen after the last one that was let in"
    assert watched.report(seen_s=-0.9) is Reason.REPORT_OUT_OF_ORDER
    assert watched.is_at(moved(HOME, 0, 10))
    assert watched.counts.refused == {Reason.MOVE_TELEPORT: 1, Reason.REPORT_OUT_OF_ORDER: 1}


def test_of_one_endpoint_in_one_batch_each_report_is_judged_by_the_one_before_it() -> None:
    watched = Watched()
    places = [moved(HOME, 0, 80.0 * step) for step in (0, 1, 2, 50, 3)]
    seen = [START + step * SECOND_NS // 2 for step in range(5)]
    batch = Batch(
        np.full(5, 1, np.int32),
        np.array([place.latitude for place in places]),
        np.array([place.longitude for place in places]),
        np.array(seen, np.int64),
        np.full(5, NAN),
        np.full(5, NAN),
    )
    verdicts = watched.watch.take(batch, Instant(seen[-1]))
    assert verdicts.tolist() == [0, 0, 0, Reason.MOVE_TELEPORT, 0]
    assert watched.is_at(places[-1])


def test_of_two_reports_without_a_time_in_one_turn_the_later_one_counts() -> None:
    watched = Watched()
    watched.report()
    north = moved(HOME, 0, 20)
    assert watched.report(north) is None
    assert watched.is_at(north)


@pytest.mark.parametrize("back_s", [3, 3_600, 86_400])
def test_after_the_clock_was_set_back_reports_without_a_time_are_taken(back_s: int) -> None:
    watched = Watched()
    watched.report()
    north = moved(HOME, 0, 20)
    assert watched.report(north, after_s=-back_s) is None
    assert watched.is_at(north)


def test_a_clock_set_back_by_less_than_a_report_may_be_ahead_keeps_their_order() -> None:
    watched = Watched()
    watched.report()
    assert watched.report(after_s=-1, seen_s=-0.5) is Reason.REPORT_OUT_OF_ORDER
    assert watched.report(moved(HOME, 0, 20)) is None, "said without a time"


def test_each_endpoint_has_a_rate_and_a_share_of_it_by_its_reputation() -> None:
    limits = Limits(sessions_max=8, reports_per_s=1, reports_burst=8)
    for share, allowed in ((1.0, 8), (0.25, 2)):
        watched = Watched(limits)
        if share < 1:
            watched.watch.trust_less({1: share})
        assert watched.watch.share_of(1) == share
        verdicts = [watched.report() for _ in range(12)]
        assert verdicts == [None] * allowed + [Reason.RATE_TOO_HIGH] * (12 - allowed)


def test_who_is_forgotten_is_off_the_map_and_its_number_is_as_new() -> None:
    watched = Watched(Limits(sessions_max=8, reports_per_s=1, reports_burst=2))
    watched.watch.trust_less({1: 0.5})
    for _ in range(3):
        watched.report()
    watched.watch.forget(watched.session)
    assert watched.matcher.who_is_in(Circle(HOME, 1_000.0)).size == 0
    assert watched.watch.share_of(1) == 1.0
    assert watched.report(Place(-30.0, 30.0)) is None, "nothing is known of where it was"
    watched.watch.forget(watched.session)
    watched.watch.forget(watched.session)


def test_a_place_from_an_earlier_process_is_on_the_map_and_anything_can_follow_it() -> None:
    watched = Watched()
    watched.watch.put_place(watched.session, HOME)
    assert watched.is_at(HOME)
    far = Place(-30.0, 30.0)
    assert watched.report(far) is None
    assert watched.is_at(far)


@pytest.mark.parametrize(("outside", "verdict"), [(Outside.REFUSE, Reason.OUTSIDE_COVERAGE), (Outside.COUNT, None)])
def test_reports_from_outside_are_refused_or_counted(outside: Outside, verdict: Reason | None) -> None:
    watched = Watched()
    watched.watch.ground = Ground(Circle(HOME, 100.0), ReportLimits(outside_coverage=outside))
    assert watched.report() is None
    assert watched.report(moved(HOME, 0, 150), after_s=5) is verdict
    assert watched.counts.reports_outside == (outside is Outside.COUNT)


def test_m26_on_roads_who_is_in_goes_the_way_of_the_road_or_stands() -> None:
    watched = Watched()
    road = Upstream((Stretch((HOME, moved(HOME, 90, 1_000)), 15.0, 60.0, 0.0, 1_000.0, 0.0),))
    halfway = moved(HOME, 90, 500)
    for number, (place, heading, speed) in enumerate(
        (
            (halfway, 90.0, 15.0),
            (halfway, 270.0, 15.0),
            (halfway, 270.0, 0.5),
            (halfway, None, None),
            (moved(halfway, 0, 40), 90.0, 15.0),
        )
    ):
        name = EndpointId(str(number))
        assert watched.watch.take_one(Session(name, number), Report(name, place, START, heading, speed), START) is None
    watched.watch.put_place(Session(EndpointId("5"), 5), halfway)  # known from before a restart, without a heading
    assert set(watched.watch.who_is_in(road).tolist()) == {0, 2, 3, 5}
    assert set(watched.watch.who_is_in(Union((road, Circle(moved(halfway, 0, 40), 5.0)))).tolist()) == {0, 2, 3, 4, 5}
    assert set(watched.watch.who_is_in(Circle(halfway, 50.0)).tolist()) == {0, 1, 2, 3, 4, 5}
