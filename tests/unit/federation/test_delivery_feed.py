"""The delivery feed: of messages to areas, and of no others, pipelines get who was matched, sent, has it, or has not, and why."""

from typing import Any

import orjson
import pytest

from edge_in_memory import START, EdgeInMemory
from milepost.broker.broker import Broker, Opened
from milepost.broker.limits import Limits
from milepost.broker.presence import Ground
from milepost.broker.publication import Publication
from milepost.broker.session import Link, Session
from milepost.federation.limits import SiteLimits
from milepost.federation.member import SiteMember
from milepost.federation.outbox import TELLING_BYTES_MAX, Append
from milepost.federation.pipeline_feed import DELIVERIES_GATHERED_MAX, DELIVERIES_RECORD_MAX, TURN_MAX
from milepost.model.addresses import Address, ToArea, ToContent, ToEndpoint, ToEveryone
from milepost.model.areas import Circle
from milepost.model.endpoints import EndpointId
from milepost.model.instants import FOREVER, SECOND_NS, Instant
from milepost.model.pipeline_records import DELIVERIES, Fate
from milepost.model.places import Place, moved
from milepost.model.reasons import Reason
from milepost.model.reports import Report
from milepost.model.sites import SUBSCRIPTION_INFO, VEHICLE_INFO, EdgeRef
from milepost.vetting import ReportLimits
from milepost.vetting.access import ClientIdentity
from milepost.vetting.rates import UNLIMITED

HOME = Place(40.7608, -111.891)
AREA = ToArea(Circle(HOME, 500))
SECOND = 1_000_000


class Edge:
    """An edge of a site with endpoints in the area, and what it tells of messages to them."""

    def __init__(self, *, reports_s: float = 0.2, limits: Limits | None = None) -> None:
        self.now = START
        self.broker = Broker(limits or Limits(sessions_max=64, subscriptions_max=16))
        self.broker.watch.ground = Ground(None, ReportLimits(move_mps_max=0))
        self.member = SiteMember(self.broker, EdgeRef("north", "a"), SiteLimits(reports_s=reports_s))
        self.member.begin_at(0, 0)
        for topic in (SUBSCRIPTION_INFO, VEHICLE_INFO):
            self.member.caught_up(topic, self.now)

    def open(self, name: str, *, place: Place = HOME, expiry_s: int = 0, window: int = 8) -> Session:
        """A session that is in the area."""
        opened = self.broker.connect(
            EndpointId(name),
            who=ClientIdentity(EndpointId(name)),
            rates=UNLIMITED,
            link=Link(),
            is_fresh=False,
            expiry_ns=expiry_s * SECOND_NS,
            window=window,
            encoding=1,
            will=None,
            now=self.now,
        )
        assert isinstance(opened, Opened)
        assert self.broker.report(opened.session, Report(EndpointId(name), place, self.now), self.now) is None
        return opened.session

    def publish(
        self, *, address: Address = AREA, qos: int = 1, number: int = 7, source: str = "town", valid_until: Instant = FOREVER
    ) -> None:
        publication = Publication(
            "Alert", b"x", self.now, source=EndpointId(source), origin=99, qos=qos, address=address, valid_until=valid_until
        )
        publication.id = number
        assert not isinstance(self.broker.accept(publication, None, self.now), Reason)

    def turn(self, after_s: float = 0.0) -> None:
        self.now = Instant(self.now + int(after_s * SECOND_NS))
        self.member.delivered.settle(self.now)

    def told(self) -> list[dict[str, Any]]:
        """What the log gets of it until a while from now."""
        self.turn()
        self.turn(1.0)
        appends = self.member.state.outbox.take()
        self.member.appended(appends, self.now)
        return [orjson.loads(one.value or b"") for one in appends if one.topic == DELIVERIES]

    def rows(self) -> list[tuple[str, str]]:
        return [row for one in self.told() for row in zip(one["endpoints"], one["states"], strict=True)]

    def reasons(self) -> list[tuple[str, int]]:
        """Of what was dropped."""
        return [
            (state, reason)
            for one in self.told()
            for state, reason in zip(one["states"], one["reasons"], strict=True)
            if state == "dropped"
        ]


def number_of(session: Session) -> int:
    return next(iter(session.in_flight))


def test_who_is_in_the_area_is_matched_sent_and_acknowledges_and_it_is_told_when() -> None:
    edge = Edge()
    session = edge.open("car")
    edge.open("far", place=moved(HOME, 0, 5_000))
    edge.publish()
    edge.turn()
    edge.now = Instant(edge.now + SECOND_NS // 10)
    edge.broker.deliveries.acknowledge(session, number_of(session))
    start = START // 1_000
    first, second = edge.told()
    assert first == {
        "v": 1,
        "type": "deliveries",
        "edge": "north/a",
        "source": "town",
        "id": "7",
        "topic": "Alert",
        "endpoints": ["car", "car"],
        "states": ["matched", "sent"],
        "at_us": [start, start],
        "reasons": [0, 0],
    }
    assert (second["states"], second["at_us"]) == (["acknowledged"], [start + SECOND // 10])


def test_at_quality_0_sent_is_the_last_that_is_known() -> None:
    edge = Edge()
    edge.open("car")
    edge.publish(qos=0)
    assert edge.rows() == [("car", "matched"), ("car", "sent")]


def test_at_quality_2_it_is_acknowledged_when_the_receiver_has_it() -> None:
    edge = Edge()
    session = edge.open("car")
    edge.publish(qos=2)
    number = number_of(session)
    assert edge.broker.deliveries.release(session, number)
    assert edge.broker.deliveries.complete(session, number)
    assert edge.rows() == [("car", "matched"), ("car", "sent"), ("car", "acknowledged")]


@pytest.mark.parametrize("address", [ToContent(), ToEndpoint(EndpointId("car")), ToEveryone()])
def test_of_other_messages_nothing_is_told(address: Address) -> None:
    edge = Edge()
    session = edge.open("car")
    edge.publish(address=address)
    for number in list(session.in_flight):
        edge.broker.deliveries.acknowledge(session, number)
    assert edge.told() == []
    assert not session.is_heeded


def test_who_is_away_is_matched_and_dropped_or_waits() -> None:
    edge = Edge()
    away = edge.open("away", expiry_s=600)
    edge.broker.disconnect(away, edge.now, is_willed=False)
    edge.publish(qos=0)
    assert edge.reasons() == [("dropped", Reason.RECEIVER_AWAY)]
    edge.publish(qos=1)
    assert edge.rows() == [("away", "matched")]
    edge.open("away", expiry_s=600)
    edge.broker.deliveries.resume(away, edge.now, 1_000_000)
    assert edge.rows() == [("away", "sent")]


def test_what_expires_while_it_waits_is_dropped_for_that() -> None:
    edge = Edge()
    busy = edge.open("busy", window=1)
    edge.publish()
    edge.publish(valid_until=Instant(edge.now + SECOND_NS))
    edge.told()
    edge.broker.deliveries.acknowledge(busy, number_of(busy))
    edge.broker.deliveries.resume(busy, Instant(edge.now + 10 * SECOND_NS), 1_000_000)
    assert edge.reasons() == [("dropped", Reason.EXPIRED)]


def test_what_finds_the_queue_full_is_dropped_for_that() -> None:
    edge = Edge(limits=Limits(sessions_max=8, subscriptions_max=8, queue_messages_max=1))
    edge.open("busy", window=1)
    for _ in range(3):
        edge.publish()
    assert edge.reasons() == [("dropped", Reason.QUEUE_FULL)]


def test_what_a_session_did_not_get_until_its_end_is_dropped_for_that() -> None:
    edge = Edge()
    session = edge.open("car", window=1)
    edge.publish()
    edge.publish(number=8)
    edge.broker.disconnect(session, edge.now, is_willed=False)
    assert edge.reasons() == [("dropped", Reason.SESSION_EXPIRED)] * 2


def test_what_a_door_could_not_send_is_dropped_and_not_acknowledged() -> None:
    edge = Edge()
    session = edge.open("car")
    edge.publish()
    number, delivery = next(iter(session.in_flight.items()))
    edge.broker.deliveries.lose(session, number, delivery, Reason.PACKET_OVER_RECEIVER_LIMIT)
    assert edge.rows() == [("car", "matched"), ("car", "sent"), ("car", "dropped")]
    assert not session.in_flight
    assert edge.broker.counts.delivered == 0


def test_what_comes_with_an_endpoint_from_another_edge_is_told_from_then_on() -> None:
    edge, other = Edge(), Edge()
    leaving, arrived = edge.open("car", expiry_s=600), other.open("car", expiry_s=600)
    edge.publish()
    number, delivery = next(iter(leaving.in_flight.items()))
    delivery.publication.heed, delivery.publication.holders = None, 0
    other.broker.deliveries.add(arrived, number, delivery, is_released=False)
    other.broker.deliveries.acknowledge(arrived, number)
    assert other.rows() == [("car", "sent"), ("car", "acknowledged")]


def test_a_message_to_an_area_without_an_id_gets_one_before_it_leaves() -> None:
    edge = Edge()
    edge.open("car")
    edge.publish(number=0)
    edge.publish(number=0)
    ids = [one["id"] for one in edge.told()]
    assert "0" not in ids
    assert len(set(ids)) == 2


def test_many_rows_are_told_at_once_in_records_of_a_limited_size() -> None:
    edge = Edge(reports_s=60.0)
    edge.open("car")
    edge.publish()
    edge.told()
    publication = Publication("Alert", b"", edge.now, source=EndpointId("town"), address=AREA)
    edge.member.delivered.note(publication, [EndpointId("car")] * (DELIVERIES_GATHERED_MAX - 1), Fate.SENT, None)
    assert edge.told() == []
    edge.member.delivered.note(publication, [EndpointId("car")] * (DELIVERIES_RECORD_MAX + 1), Fate.SENT, None)
    edge.turn()
    assert [len(one["endpoints"]) for one in edge.told()] == [DELIVERIES_RECORD_MAX, DELIVERIES_GATHERED_MAX]


def test_what_there_is_no_room_for_is_dropped_and_counted() -> None:
    edge = Edge()
    edge.open("car")
    publication = Publication("Alert", b"", edge.now, source=EndpointId("town"), address=AREA)
    edge.member.delivered.note(publication, [EndpointId("car")] * TURN_MAX, Fate.SENT, None)
    edge.member.delivered.note(publication, [EndpointId("car")], Fate.SENT, None)
    assert edge.member.state.counts["deliveries_dropped"] == 1
    edge.told()
    edge.member.state.outbox.let_pass(Append(-1, "t", "", b"x" * TELLING_BYTES_MAX))
    edge.publish()
    assert edge.told() == []
    assert edge.member.state.counts["deliveries_dropped"] == 3


def test_nothing_is_told_if_that_is_what_is_wanted() -> None:
    edge = Edge(reports_s=0)
    edge.open("car")
    edge.publish()
    assert edge.told() == []


def test_over_mqtt_acknowledgements_of_area_messages_are_told_also_those_that_are_read_in_the_short_way() -> None:
    edge = EdgeInMemory()
    edge.broker.watch.ground = Ground(None, ReportLimits(move_mps_max=0))
    member = SiteMember(edge.broker, EdgeRef("north", "a"), SiteLimits())
    client = edge.connect("car")
    session = client.link.session
    assert session is not None
    assert edge.broker.report(session, Report(session.name, HOME, edge.now), edge.now) is None
    publication = Publication("Alert", b"x", edge.now, source=EndpointId("town"), origin=9, qos=1, address=AREA)
    assert edge.broker.accept(publication, None, edge.now) == 1
    edge.settle()
    (message,) = client.messages()
    assert message.number is not None
    client.send_bytes(bytes((0x40, 2, message.number >> 8, message.number & 0xFF)))
    assert not session.in_flight
    noted = [(one.names, one.fate) for one in member.delivered._noted]
    assert noted == [(["car"], fate) for fate in (Fate.MATCHED, Fate.SENT, Fate.ACKNOWLEDGED)]
    assert not session.is_heeded
