"""The report feed: pipelines get every report, with its verdict and who covers its position; floods are not passed on."""

from typing import Any

import numpy as np
import orjson
import pytest

from edge_in_memory import START
from milepost.broker.broker import Broker, Opened
from milepost.broker.limits import Limits
from milepost.broker.presence import Ground
from milepost.broker.session import Link
from milepost.federation.limits import SiteLimits
from milepost.federation.member import SiteMember
from milepost.federation.outbox import PASSING_MAX, TELLING_BYTES_MAX, Append
from milepost.federation.pipeline_feed import REPORTS_GATHERED_MAX, REPORTS_RECORD_MAX
from milepost.model.areas import Circle
from milepost.model.endpoints import EndpointId
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.pipeline_records import REPORTS
from milepost.model.places import Place, moved
from milepost.model.reasons import Reason
from milepost.model.reports import Report
from milepost.model.sites import EdgeInfo, EdgeRef
from milepost.vetting import Batch, ReportLimits
from milepost.vetting.access import ClientIdentity
from milepost.vetting.rates import UNLIMITED

ME, OTHER = EdgeRef("north", "a"), EdgeRef("north", "b")
HOME = Place(40.7608, -111.891)
FAR = moved(HOME, 90, 50_000)
FARTHER = moved(HOME, 90, 500_000)
NAN = float("nan")


class Edge:
    """An edge of a site whose sessions report, and what it wants appended to the topic of reports."""

    def __init__(self, *, reports_s: float = 0.2, sessions: int = 4, limits: Limits | None = None) -> None:
        self.now = START
        fast = Limits(sessions_max=4096, subscriptions_max=16, reports_per_s=10**6, reports_burst=10**6)
        self.broker = Broker(limits or fast)
        self.broker.watch.ground = Ground(None, ReportLimits(move_mps_max=0))
        self.member = SiteMember(self.broker, ME, SiteLimits(reports_s=reports_s))
        self.sessions = [self._open(f"car-{number}") for number in range(sessions)]

    def _open(self, name: str) -> Any:
        opened = self.broker.connect(
            EndpointId(name),
            who=ClientIdentity(EndpointId(name)),
            rates=UNLIMITED,
            link=Link(),
            is_fresh=True,
            expiry_ns=0,
            window=1,
            encoding=1,
            will=None,
            now=self.now,
        )
        assert isinstance(opened, Opened)
        return opened.session

    def report(
        self, number: int = 0, place: Place = HOME, *, after_s: float = 0.0, ago_s: float = 0.0, **known: float
    ) -> Reason | None:
        self.now = Instant(self.now + int(after_s * SECOND_NS))
        session, seen_at = self.sessions[number], Instant(self.now - int(ago_s * SECOND_NS))
        refused = self.broker.report(session, Report(session.name, place, seen_at, **known), self.now)
        return None if refused is None else refused.reason

    def take(self, numbers: list[int], latitudes: list[float] | None = None) -> list[int]:
        """A batch of reports by session number."""
        size = len(numbers)
        batch = Batch(
            np.array(numbers, np.int32),
            np.array(latitudes) if latitudes else np.full(size, HOME.latitude),
            np.full(size, HOME.longitude),
            self.now + np.arange(size, dtype=np.int64),
            np.full(size, NAN),
            np.full(size, NAN),
        )
        found: list[int] = self.broker.watch.take(batch, self.now).tolist()
        return found

    def told(self, *, wait_s: float = 0.3) -> list[dict[str, Any]]:
        """What the log gets after a while."""
        self.now = Instant(self.now + int(wait_s * SECOND_NS))
        self.member.tick(self.now)
        appends = self.member.state.outbox.take()
        self.member.appended(appends, self.now)
        return [orjson.loads(one.value or b"") for one in appends if one.topic == REPORTS]

    def count(self, what: str) -> int:
        return self.member.state.counts[what]


def columns(records: list[dict[str, Any]], name: str) -> list[Any]:
    return [value for record in records for value in record[name]]


def test_a_report_is_told_with_all_that_it_says() -> None:
    edge = Edge()
    assert edge.report(heading_deg=90.0, speed_mps=12.5) is None
    assert edge.told() == [
        {
            "v": 1,
            "type": "reports",
            "edge": "north/a",
            "endpoints": ["car-0"],
            "seen_at_us": [START // 1_000],
            "latitudes": [HOME.latitude],
            "longitudes": [HOME.longitude],
            "headings_deg": [90.0],
            "speeds_mps": [12.5],
            "verdicts": [0],
            "covered": [0],
        }
    ]


def test_what_was_not_said_and_what_cannot_be_is_null() -> None:
    edge = Edge()
    edge.take([0, 1], [NAN, HOME.latitude])
    (record,) = edge.told()
    assert record["latitudes"] == [None, HOME.latitude]
    assert record["headings_deg"] == record["speeds_mps"] == [None, None]
    assert record["verdicts"][0] != 0
    assert record["verdicts"][1] == 0


def test_reports_are_gathered_and_told_together_in_their_order() -> None:
    edge = Edge()
    for number in (3, 1, 0, 2):
        edge.report(number, after_s=0.01)
    records = edge.told()
    assert [record["endpoints"] for record in records] == [["car-3"], ["car-1", "car-0", "car-2"]], "the first at once"
    assert edge.told() == []


def test_what_is_refused_is_told_with_its_reason() -> None:
    edge = Edge()
    edge.report()
    assert edge.report(ago_s=0.5) is Reason.REPORT_OUT_OF_ORDER
    assert columns(edge.told(), "verdicts") == [0, Reason.REPORT_OUT_OF_ORDER]


def test_of_a_flood_one_report_for_each_endpoint_and_second_is_told() -> None:
    edge = Edge(limits=Limits(sessions_max=16, subscriptions_max=16, reports_per_s=1, reports_burst=2))
    verdicts = edge.take([0] * 10 + [1] * 3 + [0] * 10)
    assert verdicts.count(Reason.RATE_TOO_HIGH) == 19
    edge.take([0] * 10)
    records = edge.told()
    told = list(zip(columns(records, "endpoints"), columns(records, "verdicts"), strict=True))
    too_fast = int(Reason.RATE_TOO_HIGH)
    assert told == [("car-0", 0), ("car-0", 0), ("car-0", too_fast), ("car-1", 0), ("car-1", 0), ("car-1", too_fast)]
    edge.now = Instant(edge.now + SECOND_NS)
    edge.take([0] * 10)
    assert columns(edge.told(), "verdicts").count(too_fast) == 1


def test_it_is_told_who_covers_the_place() -> None:
    edge = Edge()
    edge.broker.watch.ground = Ground(Circle(HOME, 5_000), ReportLimits(move_mps_max=0))
    edge.member.state.edges[OTHER] = EdgeInfo(OTHER, Circle(FAR, 5_000))
    for number, place in enumerate((HOME, FAR, FARTHER)):
        edge.report(number, place)
    edge.take([3], [NAN])
    assert columns(edge.told(), "covered") == [0, 1, 2, 2]


def test_an_edge_that_covers_everything_covers_what_this_one_does_not() -> None:
    edge = Edge()
    edge.broker.watch.ground = Ground(Circle(HOME, 5_000), ReportLimits(move_mps_max=0))
    edge.member.state.edges[OTHER] = EdgeInfo(OTHER)
    edge.report(0, FARTHER)
    assert columns(edge.told(), "covered") == [1]


def test_an_edge_without_coverage_covers_every_place() -> None:
    edge = Edge()
    edge.member.state.edges[OTHER] = EdgeInfo(OTHER, Circle(FAR, 5_000))
    edge.report(0, FAR)
    assert columns(edge.told(), "covered") == [0]


def test_the_name_is_that_of_the_session_that_reported_though_it_is_over() -> None:
    edge = Edge()
    edge.report(1)
    edge.told()
    edge.report(2)
    edge.broker.disconnect(edge.sessions[2], edge.now, is_willed=False)
    edge._open("another")
    assert columns(edge.told(), "endpoints") == ["car-2"]


def test_many_reports_are_told_at_once_in_records_of_a_limited_size() -> None:
    edge = Edge(sessions=8)
    edge.report()
    edge.told()
    edge.take([number % 8 for number in range(REPORTS_RECORD_MAX + 500)])
    appends = [one for one in edge.member.state.outbox.take() if one.topic == REPORTS]
    assert [len(orjson.loads(one.value or b"")["endpoints"]) for one in appends] == [REPORTS_RECORD_MAX, 500]


def test_less_than_that_waits_for_its_time() -> None:
    edge = Edge(reports_s=60.0)
    edge.report()
    assert len(edge.told()) == 1, "the first is told at once"
    edge.take([0] * (REPORTS_GATHERED_MAX - 1))
    assert edge.told() == []
    edge.take([0])
    assert len(columns(edge.told(wait_s=0), "endpoints")) == REPORTS_GATHERED_MAX


def test_what_the_outbox_has_no_room_for_is_dropped_and_counted() -> None:
    edge = Edge()
    outbox = edge.member.state.outbox
    assert outbox.let_pass(Append(-1, "t", "", b"x" * TELLING_BYTES_MAX))
    edge.report()
    assert edge.told() == []
    assert (edge.count("reports_told"), edge.count("reports_dropped")) == (0, 1)
    edge.report(after_s=1)
    assert len(edge.told()) == 1
    assert (edge.count("reports_told"), edge.count("reports_dropped")) == (1, 1)


def test_messages_find_room_where_reports_do_not() -> None:
    edge = Edge()
    outbox = edge.member.state.outbox
    for _ in range(PASSING_MAX // 2):
        assert outbox.let_pass(Append(-1, "t", "", b"x"))
    edge.report()
    assert edge.count("reports_dropped") == 1
    assert outbox.let_pass(Append(-1, "t", "", b"x"))


def test_after_the_clock_was_set_back_reports_are_told_all_the_same() -> None:
    edge = Edge()
    edge.report()
    edge.told()
    edge.now = Instant(edge.now - 3_600 * SECOND_NS)
    edge.report()
    assert len(edge.told()) == 1


@pytest.mark.parametrize("reports_s", [0, 0.0])
def test_nothing_is_told_if_that_is_what_is_wanted(reports_s: float) -> None:
    edge = Edge(reports_s=reports_s)
    edge.report()
    assert edge.told() == []
    assert edge.broker.watch.heed is None
