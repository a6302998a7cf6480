"""Handover prediction: an endpoint that reports from the coverage of another edge is redirected there, once, if possible."""

from itertools import count

import pytest

from edge_in_memory import Client, EdgeInMemory
from milepost.broker.presence import PlausibilityRules
from milepost.federation.handover_prediction import REDIRECT_AGAIN_NS
from milepost.federation.limits import SiteLimits
from milepost.federation.member import SiteMember
from milepost.model.areas import Area, Circle
from milepost.model.instants import SECOND_NS
from milepost.model.places import Place
from milepost.model.reports import Report
from milepost.model.site_records import (
    CROSS_HUB,
    SUBSCRIPTION_INFO,
    VEHICLE_INFO,
    EdgeInfo,
    EdgeRef,
    HubInfo,
    LoggedRecord,
    PrepareHandover,
    edge_key,
)
from milepost.vetting import ReportLimits
from milepost.wire.mqtt import Code, Disconnect, Version
from milepost.wire.records import from_record, to_record

ROUND_S = 5.0
MINE, OTHER, THIRD, FAR = (EdgeRef(*name.split("/")) for name in ("north/mine", "north/other", "north/third", "south/far"))
HERE, THERE, BETWEEN = Place(40.0, -111.0), Place(40.0, -110.9), Place(40.0, -110.95)
AROUND_HERE, AROUND_THERE = Circle(HERE, 3_000), Circle(THERE, 3_000)
ADDRESS = "mqtt://10.0.0.7:1884"


class ObservedEdge:
    """An edge of a site with a listener in memory, and a log that accepts all appends or none."""

    def __init__(self, *, coverage: Area | None = AROUND_HERE) -> None:
        self.edge = EdgeInMemory()
        self.edge.broker.presence.plausibility_rules = PlausibilityRules(coverage, ReportLimits(move_mps_max=0))
        self.member = SiteMember(self.edge.broker, MINE, SiteLimits(position_interval_s=ROUND_S, prediction_s=0))
        self.prepared: list[str] = []
        self.is_log_available = True
        self._offsets = count()
        self.member.begin_at(0, 0)
        for topic in (SUBSCRIPTION_INFO, VEHICLE_INFO):
            self.member.caught_up(topic, self.edge.now)
        self.flush()

    def read_info(self, info: EdgeInfo | HubInfo) -> None:
        key = edge_key(info.edge) if isinstance(info, EdgeInfo) else "hub"
        record = LoggedRecord(next(self._offsets), key, to_record(info), self.edge.now)
        self.member.on_records(SUBSCRIPTION_INFO, [record], self.edge.now)

    def flush(self) -> None:
        if self.is_log_available and (appends := self.member.state.outbox.take_batch()):
            addressed = [one for one in appends if one.topic == CROSS_HUB and one.value is not None]
            self.prepared += [one.key for one in addressed if isinstance(from_record(one.value or b""), PrepareHandover)]
            self.member.appended(appends, self.edge.now)

    def report_and_check(self, client: Client, place: Place) -> None:
        """Report a position, then run one round of checks."""
        assert client.connection.session is not None
        session = client.connection.session
        assert self.edge.broker.report(session, Report(session.name, place, self.edge.now), self.edge.now) is None
        self.check()

    def check(self) -> None:
        """Run one round of checks."""
        self.member.tick(self.edge.now)
        self.edge.run_ticks()
        self.flush()
        self.edge.pass_time(ROUND_S)

    def redirected(self) -> int:
        return self.member.state.counts["redirected"]


@pytest.fixture
def observed() -> ObservedEdge:
    made = ObservedEdge()
    made.read_info(EdgeInfo(OTHER, AROUND_THERE, address=ADDRESS))
    return made


def test_an_endpoint_seen_twice_in_another_edges_coverage_is_redirected_and_announced(observed: ObservedEdge) -> None:
    client = observed.edge.connect("car", expiry_s=60)
    observed.report_and_check(client, HERE)
    observed.report_and_check(client, THERE)
    assert (client.take(), observed.prepared) == ([], [str(OTHER)]), (
        "one report prepares the other edge, and does not redirect yet"
    )
    observed.report_and_check(client, THERE)
    (last,) = client.take()
    assert isinstance(last, Disconnect)
    assert (last.code, last.properties.server_reference) == (Code.USE_ANOTHER_SERVER, "10.0.0.7:1884")
    assert observed.redirected() == 1
    assert observed.edge.broker.sessions.find("car") is not None, "its session waits to be handed over"


def test_two_checks_of_the_same_report_count_once(observed: ObservedEdge) -> None:
    client = observed.edge.connect("car")
    observed.report_and_check(client, THERE)
    for _ in range(3):
        observed.check()
    assert not observed.redirected()
    observed.report_and_check(client, THERE)
    assert observed.redirected() == 1


@pytest.mark.parametrize("back", [HERE, BETWEEN], ids=["here", "outside every coverage"])
def test_an_endpoint_that_was_elsewhere_between_two_checks_is_not_redirected(observed: ObservedEdge, back: Place) -> None:
    client = observed.edge.connect("car")
    for place in (THERE, back, THERE, back):
        observed.report_and_check(client, place)
    assert not observed.redirected()


def test_an_endpoint_that_ignores_a_redirect_is_redirected_again_only_after_a_while(observed: ObservedEdge) -> None:
    first = observed.edge.connect("car")
    observed.report_and_check(first, THERE)
    observed.report_and_check(first, THERE)
    assert not first.is_open
    observed.check()
    assert observed.edge.broker.sessions.find("car") is None
    again = observed.edge.connect("car")
    for _ in range(int(REDIRECT_AGAIN_NS / (ROUND_S * SECOND_NS)) - 2):
        observed.report_and_check(again, THERE)
    assert (again.is_open, observed.redirected()) == (True, 1)
    observed.report_and_check(again, THERE)
    assert (again.is_open, observed.redirected()) == (False, 2)


def test_an_endpoint_that_crosses_a_coverage_on_its_way_is_not_redirected_yet(observed: ObservedEdge) -> None:
    observed.read_info(EdgeInfo(THIRD, Circle(BETWEEN, 1_000), address=ADDRESS))
    client = observed.edge.connect("car")
    for place in (BETWEEN, THERE, BETWEEN):
        observed.report_and_check(client, place)
    assert (client.is_open, observed.redirected()) == (True, 0)


def test_an_endpoint_may_be_redirected_to_a_different_edge_meanwhile(observed: ObservedEdge) -> None:
    first = observed.edge.connect("car")
    observed.report_and_check(first, THERE)
    observed.report_and_check(first, THERE)
    observed.read_info(EdgeInfo(THIRD, Circle(BETWEEN, 1_000), address=ADDRESS))
    again = observed.edge.connect("car")
    observed.report_and_check(again, BETWEEN)
    observed.report_and_check(again, BETWEEN)
    assert (again.is_open, observed.redirected()) == (False, 2)


@pytest.mark.parametrize("address", ["", "mqtts://10.0.0.7:8884", "udp://10.0.0.7:4242", "10.0.0.7:1884"])
def test_no_redirect_to_an_edge_with_another_scheme(address: str) -> None:
    observed = ObservedEdge()
    observed.read_info(EdgeInfo(OTHER, AROUND_THERE, address=address))
    client = observed.edge.connect("car")
    for _ in range(4):
        observed.report_and_check(client, THERE)
    assert (client.is_open, observed.redirected()) == (True, 0)


def test_clients_without_redirects_in_their_protocol_are_not_redirected(observed: ObservedEdge) -> None:
    client = observed.edge.connect("car", Version.V3)
    for _ in range(4):
        observed.report_and_check(client, THERE)
    assert (client.is_open, observed.redirected()) == (True, 0)


def test_no_redirect_from_or_to_an_edge_that_covers_everything() -> None:
    everywhere, bounded = ObservedEdge(coverage=None), ObservedEdge()
    everywhere.read_info(EdgeInfo(OTHER, AROUND_THERE, address=ADDRESS))
    bounded.read_info(EdgeInfo(OTHER, None, address=ADDRESS))
    for observed in (everywhere, bounded):
        client = observed.edge.connect("car")
        for _ in range(4):
            observed.report_and_check(client, THERE)
        assert (client.is_open, observed.redirected()) == (True, 0)


def test_no_redirect_while_the_log_accepts_nothing(observed: ObservedEdge) -> None:
    client = observed.edge.connect("car")
    observed.is_log_available = False
    for _ in range(4):
        observed.report_and_check(client, THERE)
    assert not observed.redirected()
    observed.is_log_available = True
    observed.report_and_check(client, THERE)
    observed.report_and_check(client, THERE)
    assert observed.redirected() == 1


def test_redirects_to_another_site_only_while_the_hub_is_available() -> None:
    observed = ObservedEdge()
    observed.read_info(EdgeInfo(FAR, AROUND_THERE, address=ADDRESS))
    client = observed.edge.connect("car")
    for _ in range(4):
        observed.report_and_check(client, THERE)
    assert not observed.redirected()
    for _ in range(3):
        observed.read_info(HubInfo("hub", ("north", "south"), observed.edge.now))
        if client.is_open:
            observed.report_and_check(client, THERE)
    assert observed.redirected() == 1
