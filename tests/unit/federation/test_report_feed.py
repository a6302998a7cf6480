"""The report feed: every report with its verdict and the coverage of its position; floods are thinned."""

from typing import Any

import numpy as np
import orjson
import pytest

from edge_in_memory import START
from milepost.broker.broker import Broker, ConnectResult
from milepost.broker.limits import BrokerLimits
from milepost.broker.presence import PlausibilityRules
from milepost.broker.session import Connection
from milepost.federation.limits import SiteLimits
from milepost.federation.member import SiteMember
from milepost.federation.outbox import TRANSIENT_BYTES_MAX, TRANSIENT_MAX, Append
from milepost.federation.pipeline_feed import REPORTS_GATHERED_MAX, REPORTS_RECORD_MAX
from milepost.model.areas import Circle
from milepost.model.endpoints import EndpointId
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.pipeline_records import REPORTS
from milepost.model.places import Place, moved
from milepost.model.reasons import Reason
from milepost.model.reports import Report
from milepost.model.site_records import EdgeInfo, EdgeRef
from milepost.vetting import ReportColumns, ReportLimits
from milepost.vetting.access import ClientIdentity
from milepost.vetting.rates import UNLIMITED

ME, OTHER = EdgeRef("north", "a"), EdgeRef("north", "b")
HOME = Place(40.7608, -111.891)
FAR = moved(HOME, 90, 50_000)
FARTHER = moved(HOME, 90, 500_000)
NAN = float("nan")


class Edge:
    """An edge of a site whose sessions report, and its report feed."""

    def __init__(self, *, feed_interval_s: float = 0.2, sessions: int = 4, limits: BrokerLimits | None = None) -> None:
        self.now = START
        fast = BrokerLimits(sessions_max=4096, subscriptions_max=16, reports_per_s=10**6, reports_burst=10**6)
        self.broker = Broker(limits or fast)
        self.broker.presence.plausibility_rules = PlausibilityRules(None, ReportLimits(move_mps_max=0))
        self.member = SiteMember(self.broker, ME, SiteLimits(feed_interval_s=feed_interval_s))
        self.sessions = [self._open(f"car-{number}") for number in range(sessions)]

    def _open(self, name: str) -> Any:
        opened = self.broker.connect(
            EndpointId(name),
            identity=ClientIdentity(EndpointId(name)),
            rates=UNLIMITED,
            connection=Connection(),
            clean_start=True,
            expiry_ns=0,
            window=1,
            encoding=1,
            will=None,
            now=self.now,
        )
        assert isinstance(opened, ConnectResult)
        return opened.session

    def report(
        self, number: int = 0, place: Place = HOME, *, after_s: float = 0.0, ago_s: float = 0.0, **known: float
    ) -> Reason | None:
        self.now = Instant(self.now + int(after_s * SECOND_NS))
        session, seen_at = self.sessions[number], Instant(self.now - int(ago_s * SECOND_NS))
        refused = self.broker.report(session, Report(session.name, place, seen_at, **known), self.now)
        return None if refused is None else refused.reason

    def add_batch(self, numbers: list[int], latitudes: list[float] | None = None) -> list[int]:
        """Add a batch of reports by session number; return the verdicts."""
        size = len(numbers)
        batch = ReportColumns(
            np.array(numbers, np.int32),
            np.array(latitudes) if latitudes else np.full(size, HOME.latitude),
            np.full(size, HOME.longitude),
            self.now + np.arange(size, dtype=np.int64),
            np.full(size, NAN),
            np.full(size, NAN),
        )
        found: list[int] = self.broker.presence.process(batch, self.now).tolist()
        return found

    def sent_records(self, *, wait_s: float = 0.3) -> list[dict[str, Any]]:
        """Return the records sent to the log after a while."""
        self.now = Instant(self.now + int(wait_s * SECOND_NS))
        self.member.tick(self.now)
        appends = self.member.state.outbox.take_batch()
        self.member.appended(appends, self.now)
        return [orjson.loads(one.value or b"") for one in appends if one.topic == REPORTS]

    def count(self, what: str) -> int:
        return self.member.state.counts[what]


def columns(records: list[dict[str, Any]], name: str) -> list[Any]:
    return [value for record in records for value in record[name]]


def test_a_report_is_sent_with_all_its_fields() -> None:
    edge = Edge()
    assert edge.report(heading_deg=90.0, speed_mps=12.5) is None
    assert edge.sent_records() == [
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


def test_missing_and_impossible_values_are_null() -> None:
    edge = Edge()
    edge.add_batch([0, 1], [NAN, HOME.latitude])
    (record,) = edge.sent_records()
    assert record["latitudes"] == [None, HOME.latitude]
    assert record["headings_deg"] == record["speeds_mps"] == [None, None]
    assert record["verdicts"][0] != 0
    assert record["verdicts"][1] == 0


def test_reports_are_batched_and_sent_in_order() -> None:
    edge = Edge()
    for number in (3, 1, 0, 2):
        edge.report(number, after_s=0.01)
    records = edge.sent_records()
    assert [record["endpoints"] for record in records] == [["car-3"], ["car-1", "car-0", "car-2"]], "the first at once"
    assert edge.sent_records() == []


def test_refused_reports_are_sent_with_the_reason() -> None:
    edge = Edge()
    edge.report()
    assert edge.report(ago_s=0.5) is Reason.REPORT_OUT_OF_ORDER
    assert columns(edge.sent_records(), "verdicts") == [0, Reason.REPORT_OUT_OF_ORDER]


def test_of_a_flood_one_report_per_endpoint_and_second_is_sent() -> None:
    edge = Edge(limits=BrokerLimits(sessions_max=16, subscriptions_max=16, reports_per_s=1, reports_burst=2))
    verdicts = edge.add_batch([0] * 10 + [1] * 3 + [0] * 10)
    assert verdicts.count(Reason.RATE_TOO_HIGH) == 19
    edge.add_batch([0] * 10)
    records = edge.sent_records()
    sent = list(zip(columns(records, "endpoints"), columns(records, "verdicts"), strict=True))
    too_fast = int(Reason.RATE_TOO_HIGH)
    assert sent == [("car-0", 0), ("car-0", 0), ("car-0", too_fast), ("car-1", 0), ("car-1", 0), ("car-1", too_fast)]
    edge.now = Instant(edge.now + SECOND_NS)
    edge.add_batch([0] * 10)
    assert columns(edge.sent_records(), "verdicts").count(too_fast) == 1


def test_a_report_names_whether_this_edge_another_or_none_covers_the_position() -> None:
    edge = Edge()
    edge.broker.presence.plausibility_rules = PlausibilityRules(Circle(HOME, 5_000), ReportLimits(move_mps_max=0))
    edge.member.state.edges[OTHER] = EdgeInfo(OTHER, Circle(FAR, 5_000))
    for number, place in enumerate((HOME, FAR, FARTHER)):
        edge.report(number, place)
    edge.add_batch([3], [NAN])
    assert columns(edge.sent_records(), "covered") == [0, 1, 2, 2]


def test_an_edge_that_covers_everything_covers_what_this_one_does_not() -> None:
    edge = Edge()
    edge.broker.presence.plausibility_rules = PlausibilityRules(Circle(HOME, 5_000), ReportLimits(move_mps_max=0))
    edge.member.state.edges[OTHER] = EdgeInfo(OTHER)
    edge.report(0, FARTHER)
    assert columns(edge.sent_records(), "covered") == [1]


def test_an_edge_without_coverage_covers_every_place() -> None:
    edge = Edge()
    edge.member.state.edges[OTHER] = EdgeInfo(OTHER, Circle(FAR, 5_000))
    edge.report(0, FAR)
    assert columns(edge.sent_records(), "covered") == [0]


def test_a_report_has_the_name_of_its_session_even_after_that_has_ended() -> None:
    edge = Edge()
    edge.report(1)
    edge.sent_records()
    edge.report(2)
    edge.broker.disconnect(edge.sessions[2], edge.now, publishes_will=False)
    edge._open("another")
    assert columns(edge.sent_records(), "endpoints") == ["car-2"]


def test_many_reports_are_sent_at_once_in_records_of_limited_size() -> None:
    edge = Edge(sessions=8)
    edge.report()
    edge.sent_records()
    edge.add_batch([number % 8 for number in range(REPORTS_RECORD_MAX + 500)])
    appends = [one for one in edge.member.state.outbox.take_batch() if one.topic == REPORTS]
    assert [len(orjson.loads(one.value or b"")["endpoints"]) for one in appends] == [REPORTS_RECORD_MAX, 500]


def test_a_batch_below_the_limit_waits_for_the_interval() -> None:
    edge = Edge(feed_interval_s=60.0)
    edge.report()
    assert len(edge.sent_records()) == 1, "the first is sent at once"
    edge.add_batch([0] * (REPORTS_GATHERED_MAX - 1))
    assert edge.sent_records() == []
    edge.add_batch([0])
    assert len(columns(edge.sent_records(wait_s=0), "endpoints")) == REPORTS_GATHERED_MAX


def test_reports_for_which_the_outbox_has_no_room_are_dropped_and_counted() -> None:
    edge = Edge()
    outbox = edge.member.state.outbox
    assert outbox.add_transient(Append(-1, "t", "", b"x" * TRANSIENT_BYTES_MAX))
    edge.report()
    assert edge.sent_records() == []
    assert (edge.count("reports_sent"), edge.count("reports_dropped")) == (0, 1)
    edge.report(after_s=1)
    assert len(edge.sent_records()) == 1
    assert (edge.count("reports_sent"), edge.count("reports_dropped")) == (1, 1)


def test_messages_have_room_in_the_outbox_where_reports_have_none() -> None:
    edge = Edge()
    outbox = edge.member.state.outbox
    for _ in range(TRANSIENT_MAX // 2):
        assert outbox.add_transient(Append(-1, "t", "", b"x"))
    edge.report()
    assert edge.count("reports_dropped") == 1
    assert outbox.add_transient(Append(-1, "t", "", b"x"))


def test_reports_are_sent_after_the_clock_was_set_back() -> None:
    edge = Edge()
    edge.report()
    edge.sent_records()
    edge.now = Instant(edge.now - 3_600 * SECOND_NS)
    edge.report()
    assert len(edge.sent_records()) == 1


@pytest.mark.parametrize("feed_interval_s", [0, 0.0])
def test_an_interval_of_zero_turns_the_feed_off(feed_interval_s: float) -> None:
    edge = Edge(feed_interval_s=feed_interval_s)
    edge.report()
    assert edge.sent_records() == []
    assert edge.broker.presence.observer is None
