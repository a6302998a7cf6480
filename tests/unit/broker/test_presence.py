"""Presence: reports checked against the previous one, rates by reputation, positions, and clocks that are set back (M7)."""

import numpy as np
import pytest

from edge_in_memory import SMALL, START
from milepost.broker.broker_counters import BrokerCounters
from milepost.broker.limits import BrokerLimits
from milepost.broker.presence import PlausibilityRules, Presence
from milepost.broker.session import Session
from milepost.matching.matcher import Matcher
from milepost.model.areas import Circle, Stretch, Union, Upstream
from milepost.model.endpoints import EndpointId
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.places import Place, moved
from milepost.model.reasons import Reason
from milepost.model.reports import Report
from milepost.vetting import OutsidePolicy, ReportColumns, ReportLimits

HOME = Place(40.7608, -111.891)
NAN = float("nan")


class Reporter:
    """The presence of an edge, and an endpoint that reports."""

    def __init__(self, limits: BrokerLimits = SMALL) -> None:
        self.counts, self.matcher = BrokerCounters(), Matcher()
        self.presence = Presence(limits, self.matcher, self.counts)
        self.session = Session(EndpointId("a"), 1)
        self.now = START

    def report(self, place: Place = HOME, *, after_s: float = 0.0, seen_s: float = 0.0) -> Reason | None:
        """Report a position, seen *seen_s* from now."""
        self.now = Instant(self.now + int(after_s * SECOND_NS))
        seen_at = Instant(self.now + int(seen_s * SECOND_NS))
        refused = self.presence.process_report(self.session, Report(self.session.name, place, seen_at), self.now)
        return None if refused is None else refused.reason

    def is_at(self, place: Place) -> bool:
        return 1 in self.matcher.find_inside(Circle(place, 1.0))


def test_an_accepted_report_updates_the_position_of_its_endpoint() -> None:
    # M7
    reporter = Reporter()
    assert reporter.report() is None
    assert reporter.is_at(HOME)
    north = moved(HOME, 0, 50)
    assert reporter.report(north, after_s=1) is None
    assert reporter.is_at(north)
    assert not reporter.is_at(HOME)
    assert reporter.counts.reports == 2


def test_a_refused_report_changes_nothing_but_counters() -> None:
    reporter = Reporter()
    reporter.report()
    assert reporter.report(moved(HOME, 0, 5_000), after_s=1) is Reason.MOVE_TELEPORT
    assert reporter.report(moved(HOME, 0, 10), seen_s=-0.5) is None, "it was seen after the last accepted one"
    assert reporter.report(seen_s=-0.9) is Reason.REPORT_OUT_OF_ORDER
    assert reporter.is_at(moved(HOME, 0, 10))
    assert reporter.counts.refused == {Reason.MOVE_TELEPORT: 1, Reason.REPORT_OUT_OF_ORDER: 1}


def test_reports_of_one_endpoint_in_one_batch_are_each_checked_against_the_previous_one() -> None:
    reporter = Reporter()
    places = [moved(HOME, 0, 80.0 * step) for step in (0, 1, 2, 50, 3)]
    seen = [START + step * SECOND_NS // 2 for step in range(5)]
    batch = ReportColumns(
        np.full(5, 1, np.int32),
        np.array([place.latitude for place in places]),
        np.array([place.longitude for place in places]),
        np.array(seen, np.int64),
        np.full(5, NAN),
        np.full(5, NAN),
    )
    verdicts = reporter.presence.process(batch, Instant(seen[-1]))
    assert verdicts.tolist() == [0, 0, 0, Reason.MOVE_TELEPORT, 0]
    assert reporter.is_at(places[-1])


def test_of_two_reports_without_a_time_in_one_tick_the_later_one_counts() -> None:
    reporter = Reporter()
    reporter.report()
    north = moved(HOME, 0, 20)
    assert reporter.report(north) is None
    assert reporter.is_at(north)


@pytest.mark.parametrize("back_s", [3, 3_600, 86_400])
def test_reports_without_a_time_are_accepted_after_the_clock_was_set_back(back_s: int) -> None:
    reporter = Reporter()
    reporter.report()
    north = moved(HOME, 0, 20)
    assert reporter.report(north, after_s=-back_s) is None
    assert reporter.is_at(north)


def test_reports_keep_their_order_after_the_clock_was_set_back_by_less_than_the_tolerance() -> None:
    reporter = Reporter()
    reporter.report()
    assert reporter.report(after_s=-1, seen_s=-0.5) is Reason.REPORT_OUT_OF_ORDER
    assert reporter.report(moved(HOME, 0, 20)) is None, "a report without a time"


def test_each_endpoint_has_a_rate_and_a_share_of_it_by_its_reputation() -> None:
    limits = BrokerLimits(sessions_max=8, reports_per_s=1, reports_burst=8)
    for share, allowed in ((1.0, 8), (0.25, 2)):
        reporter = Reporter(limits)
        if share < 1:
            reporter.presence.limit_rates({1: share})
        assert reporter.presence.share_of(1) == share
        verdicts = [reporter.report() for _ in range(12)]
        assert verdicts == [None] * allowed + [Reason.RATE_TOO_HIGH] * (12 - allowed)


def test_a_forgotten_session_has_no_position_and_its_number_can_be_reused() -> None:
    reporter = Reporter(BrokerLimits(sessions_max=8, reports_per_s=1, reports_burst=2))
    reporter.presence.limit_rates({1: 0.5})
    for _ in range(3):
        reporter.report()
    reporter.presence.forget(reporter.session)
    assert reporter.matcher.find_inside(Circle(HOME, 1_000.0)).size == 0
    assert reporter.presence.share_of(1) == 1.0
    assert reporter.report(Place(-30.0, 30.0)) is None, "its former position is not known"
    reporter.presence.forget(reporter.session)
    reporter.presence.forget(reporter.session)


def test_a_position_from_an_earlier_process_is_matched_and_any_report_may_follow_it() -> None:
    reporter = Reporter()
    reporter.presence.restore_position(reporter.session, HOME)
    assert reporter.is_at(HOME)
    far = Place(-30.0, 30.0)
    assert reporter.report(far) is None
    assert reporter.is_at(far)


@pytest.mark.parametrize(("outside", "verdict"), [(OutsidePolicy.REFUSE, Reason.OUTSIDE_COVERAGE), (OutsidePolicy.COUNT, None)])
def test_reports_from_outside_are_refused_or_counted(outside: OutsidePolicy, verdict: Reason | None) -> None:
    reporter = Reporter()
    reporter.presence.plausibility_rules = PlausibilityRules(Circle(HOME, 100.0), ReportLimits(outside_coverage=outside))
    assert reporter.report() is None
    assert reporter.report(moved(HOME, 0, 150), after_s=5) is verdict
    assert reporter.counts.reports_outside == (outside is OutsidePolicy.COUNT)


def test_m26_endpoints_inside_a_road_area_move_along_the_road_or_are_stationary() -> None:
    reporter = Reporter()
    road = Upstream.of((Stretch((HOME, moved(HOME, 90, 1_000)), 15.0, 60.0, 0.0, 1_000.0, 0.0),))
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
        assert reporter.presence.process_report(Session(name, number), Report(name, place, START, heading, speed), START) is None
    reporter.presence.restore_position(Session(EndpointId("5"), 5), halfway)  # known from before a restart, without a heading
    assert set(reporter.presence.find_inside(road).tolist()) == {0, 2, 3, 5}
    assert set(reporter.presence.find_inside(Union((road, Circle(moved(halfway, 0, 40), 5.0)))).tolist()) == {0, 2, 3, 4, 5}
    assert set(reporter.presence.find_inside(Circle(halfway, 50.0)).tolist()) == {0, 1, 2, 3, 4, 5}
