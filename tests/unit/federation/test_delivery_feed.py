"""The delivery feed: the states of messages to areas, and of no others: matched, sent, acknowledged, or dropped with a reason."""

from typing import Any

import orjson
import pytest

from edge_in_memory import START, EdgeInMemory
from milepost.broker.broker import Broker, ConnectResult
from milepost.broker.limits import BrokerLimits
from milepost.broker.presence import PlausibilityRules
from milepost.broker.publication import Publication
from milepost.broker.session import Connection, Session
from milepost.federation.limits import SiteLimits
from milepost.federation.member import SiteMember
from milepost.federation.outbox import TRANSIENT_BYTES_MAX, Append
from milepost.federation.pipeline_feed import DELIVERIES_GATHERED_MAX, DELIVERIES_RECORD_MAX, TICK_DELIVERIES_MAX
from milepost.model.addresses import Address, ToArea, ToContent, ToEndpoint, ToEveryone
from milepost.model.areas import Circle
from milepost.model.endpoints import EndpointId
from milepost.model.instants import FOREVER, SECOND_NS, Instant
from milepost.model.pipeline_records import DELIVERIES, DeliveryState
from milepost.model.places import Place, moved
from milepost.model.reasons import Reason
from milepost.model.reports import Report
from milepost.model.site_records import SUBSCRIPTION_INFO, VEHICLE_INFO, EdgeRef
from milepost.vetting import ReportLimits
from milepost.vetting.access import ClientIdentity
from milepost.vetting.rates import UNLIMITED

HOME = Place(40.7608, -111.891)
AREA = ToArea(Circle(HOME, 500))
SECOND = 1_000_000


class Edge:
    """An edge of a site with endpoints in the area, and its delivery feed."""

    def __init__(self, *, feed_interval_s: float = 0.2, limits: BrokerLimits | None = None) -> None:
        self.now = START
        self.broker = Broker(limits or BrokerLimits(sessions_max=64, subscriptions_max=16))
        self.broker.presence.plausibility_rules = PlausibilityRules(None, ReportLimits(move_mps_max=0))
        self.member = SiteMember(self.broker, EdgeRef("north", "a"), SiteLimits(feed_interval_s=feed_interval_s))
        self.member.begin_at(0, 0)
        for topic in (SUBSCRIPTION_INFO, VEHICLE_INFO):
            self.member.caught_up(topic, self.now)

    def open(self, name: str, *, place: Place = HOME, expiry_s: int = 0, window: int = 8) -> Session:
        """Open a session in the area."""
        opened = self.broker.connect(
            EndpointId(name),
            identity=ClientIdentity(EndpointId(name)),
            rates=UNLIMITED,
            connection=Connection(),
            clean_start=False,
            expiry_ns=expiry_s * SECOND_NS,
            window=window,
            encoding=1,
            will=None,
            now=self.now,
        )
        assert isinstance(opened, ConnectResult)
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

    def end_tick(self, after_s: float = 0.0) -> None:
        self.now = Instant(self.now + int(after_s * SECOND_NS))
        self.member.delivery_feed.end_tick(self.now)

    def sent_records(self) -> list[dict[str, Any]]:
        """Return the records sent to the log until the next interval has passed."""
        self.end_tick()
        self.end_tick(1.0)
        appends = self.member.state.outbox.take_batch()
        self.member.appended(appends, self.now)
        return [orjson.loads(one.value or b"") for one in appends if one.topic == DELIVERIES]

    def rows(self) -> list[tuple[str, str]]:
        return [row for one in self.sent_records() for row in zip(one["endpoints"], one["states"], strict=True)]

    def reasons(self) -> list[tuple[str, int]]:
        """Return the states and reasons of dropped deliveries."""
        return [
            (state, reason)
            for one in self.sent_records()
            for state, reason in zip(one["states"], one["reasons"], strict=True)
            if state == "dropped"
        ]


def number_of(session: Session) -> int:
    return next(iter(session.in_flight))


def test_matched_sent_and_acknowledged_are_reported_with_their_times() -> None:
    edge = Edge()
    session = edge.open("car")
    edge.open("far", place=moved(HOME, 0, 5_000))
    edge.publish()
    edge.end_tick()
    edge.now = Instant(edge.now + SECOND_NS // 10)
    edge.broker.deliveries.acknowledge(session, number_of(session))
    start = START // 1_000
    first, second = edge.sent_records()
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


def test_at_qos_0_sent_is_the_last_fate() -> None:
    edge = Edge()
    edge.open("car")
    edge.publish(qos=0)
    assert edge.rows() == [("car", "matched"), ("car", "sent")]


def test_at_qos_2_a_message_is_acknowledged_by_pubrec() -> None:
    edge = Edge()
    session = edge.open("car")
    edge.publish(qos=2)
    number = number_of(session)
    assert edge.broker.deliveries.release(session, number)
    assert edge.broker.deliveries.complete(session, number)
    assert edge.rows() == [("car", "matched"), ("car", "sent"), ("car", "acknowledged")]


@pytest.mark.parametrize("address", [ToContent(), ToEndpoint(EndpointId("car")), ToEveryone()])
def test_only_messages_to_areas_are_reported(address: Address) -> None:
    edge = Edge()
    session = edge.open("car")
    edge.publish(address=address)
    for number in list(session.in_flight):
        edge.broker.deliveries.acknowledge(session, number)
    assert edge.sent_records() == []
    assert not session.is_traced


def test_for_an_offline_receiver_a_message_is_matched_and_dropped_or_queued() -> None:
    edge = Edge()
    away = edge.open("away", expiry_s=600)
    edge.broker.disconnect(away, edge.now, publishes_will=False)
    edge.publish(qos=0)
    assert edge.reasons() == [("dropped", Reason.RECEIVER_OFFLINE)]
    edge.publish(qos=1)
    assert edge.rows() == [("away", "matched")]
    edge.open("away", expiry_s=600)
    edge.broker.deliveries.drain(away, edge.now, 1_000_000)
    assert edge.rows() == [("away", "sent")]


def test_a_message_that_expires_in_the_queue_is_dropped_with_that_reason() -> None:
    edge = Edge()
    busy = edge.open("busy", window=1)
    edge.publish()
    edge.publish(valid_until=Instant(edge.now + SECOND_NS))
    edge.sent_records()
    edge.broker.deliveries.acknowledge(busy, number_of(busy))
    edge.broker.deliveries.drain(busy, Instant(edge.now + 10 * SECOND_NS), 1_000_000)
    assert edge.reasons() == [("dropped", Reason.EXPIRED)]


def test_a_message_that_overflows_the_queue_is_dropped_with_that_reason() -> None:
    edge = Edge(limits=BrokerLimits(sessions_max=8, subscriptions_max=8, queue_messages_max=1))
    edge.open("busy", window=1)
    for _ in range(3):
        edge.publish()
    assert edge.reasons() == [("dropped", Reason.QUEUE_FULL)]


def test_messages_left_at_the_end_of_a_session_are_dropped_with_that_reason() -> None:
    edge = Edge()
    session = edge.open("car", window=1)
    edge.publish()
    edge.publish(number=8)
    edge.broker.disconnect(session, edge.now, publishes_will=False)
    assert edge.reasons() == [("dropped", Reason.SESSION_EXPIRED)] * 2


def test_a_message_that_a_listener_could_not_send_is_dropped_and_not_acknowledged() -> None:
    edge = Edge()
    session = edge.open("car")
    edge.publish()
    number, delivery = next(iter(session.in_flight.items()))
    edge.broker.deliveries.fail(session, number, delivery, Reason.PACKET_OVER_RECEIVER_LIMIT)
    assert edge.rows() == [("car", "matched"), ("car", "sent"), ("car", "dropped")]
    assert not session.in_flight
    assert edge.broker.counts.delivered == 0


def test_the_fates_of_handed_over_messages_are_reported_by_the_new_edge() -> None:
    edge, other = Edge(), Edge()
    leaving, arrived = edge.open("car", expiry_s=600), other.open("car", expiry_s=600)
    edge.publish()
    number, delivery = next(iter(leaving.in_flight.items()))
    delivery.publication.observer, delivery.publication.stored_references = None, 0
    other.broker.deliveries.add(arrived, number, delivery, is_released=False)
    other.broker.deliveries.acknowledge(arrived, number)
    assert other.rows() == [("car", "sent"), ("car", "acknowledged")]


def test_a_message_to_an_area_without_an_id_gets_one_before_it_is_forwarded() -> None:
    edge = Edge()
    edge.open("car")
    edge.publish(number=0)
    edge.publish(number=0)
    ids = [one["id"] for one in edge.sent_records()]
    assert "0" not in ids
    assert len(set(ids)) == 2


def test_many_deliveries_are_sent_at_once_in_records_of_limited_size() -> None:
    edge = Edge(feed_interval_s=60.0)
    edge.open("car")
    edge.publish()
    edge.sent_records()
    publication = Publication("Alert", b"", edge.now, source=EndpointId("town"), address=AREA)
    edge.member.delivery_feed.note(publication, [EndpointId("car")] * (DELIVERIES_GATHERED_MAX - 1), DeliveryState.SENT, None)
    assert edge.sent_records() == []
    edge.member.delivery_feed.note(publication, [EndpointId("car")] * (DELIVERIES_RECORD_MAX + 1), DeliveryState.SENT, None)
    edge.end_tick()
    assert [len(one["endpoints"]) for one in edge.sent_records()] == [DELIVERIES_RECORD_MAX, DELIVERIES_GATHERED_MAX]


def test_deliveries_without_room_are_dropped_and_counted() -> None:
    edge = Edge()
    edge.open("car")
    publication = Publication("Alert", b"", edge.now, source=EndpointId("town"), address=AREA)
    edge.member.delivery_feed.note(publication, [EndpointId("car")] * TICK_DELIVERIES_MAX, DeliveryState.SENT, None)
    edge.member.delivery_feed.note(publication, [EndpointId("car")], DeliveryState.SENT, None)
    assert edge.member.state.counts["deliveries_dropped"] == 1
    edge.sent_records()
    edge.member.state.outbox.add_transient(Append(-1, "t", "", b"x" * TRANSIENT_BYTES_MAX))
    edge.publish()
    assert edge.sent_records() == []
    assert edge.member.state.counts["deliveries_dropped"] == 3


def test_an_interval_of_zero_turns_the_feed_off() -> None:
    edge = Edge(feed_interval_s=0)
    edge.open("car")
    edge.publish()
    assert edge.sent_records() == []


def test_mqtt_acknowledgements_of_area_messages_are_reported_also_on_the_fast_path() -> None:
    edge = EdgeInMemory()
    edge.broker.presence.plausibility_rules = PlausibilityRules(None, ReportLimits(move_mps_max=0))
    member = SiteMember(edge.broker, EdgeRef("north", "a"), SiteLimits())
    client = edge.connect("car")
    session = client.connection.session
    assert session is not None
    assert edge.broker.report(session, Report(session.name, HOME, edge.now), edge.now) is None
    publication = Publication("Alert", b"x", edge.now, source=EndpointId("town"), origin=9, qos=1, address=AREA)
    assert edge.broker.accept(publication, None, edge.now) == 1
    edge.run_ticks()
    (message,) = client.messages()
    assert message.packet_id is not None
    client.send_bytes(bytes((0x40, 2, message.packet_id >> 8, message.packet_id & 0xFF)))
    assert not session.in_flight
    noted = [(one.names, one.state) for one in member.delivery_feed._noted]
    assert noted == [(["car"], state) for state in (DeliveryState.MATCHED, DeliveryState.SENT, DeliveryState.ACKNOWLEDGED)]
    assert not session.is_traced
