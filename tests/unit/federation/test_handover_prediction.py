"""Handover prediction: an endpoint that reports from the coverage of another edge is sent there, once, if that is possible."""

from itertools import count

import pytest

from edge_in_memory import Client, EdgeInMemory
from milepost.broker.presence import Ground
from milepost.federation.handover_prediction import AGAIN_NS
from milepost.federation.limits import SiteLimits
from milepost.federation.member import SiteMember
from milepost.model.areas import Area, Circle
from milepost.model.instants import SECOND_NS
from milepost.model.places import Place
from milepost.model.reports import Report
from milepost.model.sites import (
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


class Watched:
    """An edge of a site with a door in memory, and a log that takes everything it is given, or nothing."""

    def __init__(self, *, coverage: Area | None = AROUND_HERE) -> None:
        self.edge = EdgeInMemory()
        self.edge.broker.watch.ground = Ground(coverage, ReportLimits(move_mps_max=0))
        self.member = SiteMember(self.edge.broker, MINE, SiteLimits(places_s=ROUND_S, ahead_s=0))
        self.prepared: list[str] = []
        self.is_log_there = True
        self._offsets = count()
        self.member.begin_at(0, 0)
        for topic in (SUBSCRIPTION_INFO, VEHICLE_INFO):
            self.member.caught_up(topic, self.edge.now)
        self.flush()

    def hear(self, info: EdgeInfo | HubInfo) -> None:
        key = edge_key(info.edge) if isinstance(info, EdgeInfo) else "centre"
        heard = LoggedRecord(next(self._offsets), key, to_record(info), self.edge.now)
        self.member.on_records(SUBSCRIPTION_INFO, [heard], self.edge.now)

    def flush(self) -> None:
        if self.is_log_there and (appends := self.member.state.outbox.take()):
            letters = [one for one in appends if one.topic == CROSS_HUB and one.value is not None]
            self.prepared += [one.key for one in letters if isinstance(from_record(one.value or b""), PrepareHandover)]
            self.member.appended(appends, self.edge.now)

    def see(self, client: Client, place: Place) -> None:
        """A round in which a client is looked at, just after it reported."""
        assert client.link.session is not None
        session = client.link.session
        assert self.edge.broker.report(session, Report(session.name, place, self.edge.now), self.edge.now) is None
        self.look()

    def look(self) -> None:
        """A round."""
        self.member.tick(self.edge.now)
        self.edge.settle()
        self.flush()
        self.edge.pass_time(ROUND_S)

    def redirected(self) -> int:
        return self.member.state.counts["redirected"]


@pytest.fixture
def watched() -> Watched:
    made = Watched()
    made.hear(EdgeInfo(OTHER, AROUND_THERE, address=ADDRESS))
    return made


def test_who_is_seen_twice_in_another_edges_coverage_is_sent_there_and_announced(watched: Watched) -> None:
    client = watched.edge.connect("car", expiry_s=60)
    watched.see(client, HERE)
    watched.see(client, THERE)
    assert (client.take(), watched.prepared) == ([], [str(OTHER)]), "once is not enough to send it, but to announce it"
    watched.see(client, THERE)
    (last,) = client.take()
    assert isinstance(last, Disconnect)
    assert (last.code, last.properties.server_reference) == (Code.USE_ANOTHER_SERVER, "10.0.0.7:1884")
    assert watched.redirected() == 1
    assert watched.edge.broker.sessions.maybe("car") is not None, "its session waits to be fetched"


def test_two_looks_at_one_report_are_one(watched: Watched) -> None:
    client = watched.edge.connect("car")
    watched.see(client, THERE)
    for _ in range(3):
        watched.look()
    assert not watched.redirected()
    watched.see(client, THERE)
    assert watched.redirected() == 1


@pytest.mark.parametrize("back", [HERE, BETWEEN], ids=["here", "where nobody is"])
def test_who_was_elsewhere_between_two_looks_is_left_alone(watched: Watched, back: Place) -> None:
    client = watched.edge.connect("car")
    for place in (THERE, back, THERE, back):
        watched.see(client, place)
    assert not watched.redirected()


def test_who_does_not_go_is_told_again_only_after_a_while_even_if_its_session_ended(watched: Watched) -> None:
    first = watched.edge.connect("car")
    watched.see(first, THERE)
    watched.see(first, THERE)
    assert not first.is_open
    watched.look()
    assert watched.edge.broker.sessions.maybe("car") is None
    again = watched.edge.connect("car")
    for _ in range(int(AGAIN_NS / (ROUND_S * SECOND_NS)) - 2):
        watched.see(again, THERE)
    assert (again.is_open, watched.redirected()) == (True, 1)
    watched.see(again, THERE)
    assert (again.is_open, watched.redirected()) == (False, 2)


def test_who_crosses_one_coverage_on_the_way_to_another_is_sent_to_none_of_them_yet(watched: Watched) -> None:
    watched.hear(EdgeInfo(THIRD, Circle(BETWEEN, 1_000), address=ADDRESS))
    client = watched.edge.connect("car")
    for place in (BETWEEN, THERE, BETWEEN):
        watched.see(client, place)
    assert (client.is_open, watched.redirected()) == (True, 0)


def test_it_may_be_told_of_another_edge_meanwhile(watched: Watched) -> None:
    first = watched.edge.connect("car")
    watched.see(first, THERE)
    watched.see(first, THERE)
    watched.hear(EdgeInfo(THIRD, Circle(BETWEEN, 1_000), address=ADDRESS))
    again = watched.edge.connect("car")
    watched.see(again, BETWEEN)
    watched.see(again, BETWEEN)
    assert (again.is_open, watched.redirected()) == (False, 2)


@pytest.mark.parametrize("address", ["", "mqtts://10.0.0.7:8884", "udp://10.0.0.7:4242", "10.0.0.7:1884"])
def test_nobody_is_sent_to_an_edge_that_it_cannot_reach_the_way_it_came(address: str) -> None:
    watched = Watched()
    watched.hear(EdgeInfo(OTHER, AROUND_THERE, address=address))
    client = watched.edge.connect("car")
    for _ in range(4):
        watched.see(client, THERE)
    assert (client.is_open, watched.redirected()) == (True, 0)


def test_who_can_be_told_of_no_other_edge_is_left_alone(watched: Watched) -> None:
    client = watched.edge.connect("car", Version.V3)
    for _ in range(4):
        watched.see(client, THERE)
    assert (client.is_open, watched.redirected()) == (True, 0)


def test_an_edge_that_covers_everything_keeps_its_endpoints_and_gets_none() -> None:
    everywhere, bounded = Watched(coverage=None), Watched()
    everywhere.hear(EdgeInfo(OTHER, AROUND_THERE, address=ADDRESS))
    bounded.hear(EdgeInfo(OTHER, None, address=ADDRESS))
    for watched in (everywhere, bounded):
        client = watched.edge.connect("car")
        for _ in range(4):
            watched.see(client, THERE)
        assert (client.is_open, watched.redirected()) == (True, 0)


def test_nobody_is_sent_away_while_the_log_takes_nothing(watched: Watched) -> None:
    client = watched.edge.connect("car")
    watched.is_log_there = False
    for _ in range(4):
        watched.see(client, THERE)
    assert not watched.redirected()
    watched.is_log_there = True
    watched.see(client, THERE)
    watched.see(client, THERE)
    assert watched.redirected() == 1


def test_to_another_site_only_while_a_centre_can_bring_the_session_there() -> None:
    watched = Watched()
    watched.hear(EdgeInfo(FAR, AROUND_THERE, address=ADDRESS))
    client = watched.edge.connect("car")
    for _ in range(4):
        watched.see(client, THERE)
    assert not watched.redirected()
    for _ in range(3):
        watched.hear(HubInfo("centre", ("north", "south"), watched.edge.now))
        if client.is_open:
            watched.see(client, THERE)
    assert watched.redirected() == 1
