"""Delivery: messages sent, queued and dropped; every message is accounted for at every receiver."""

from dataclasses import replace

import pytest

from edge_in_memory import SMALL
from milepost.broker.broker import Broker, ConnectResult
from milepost.broker.effects import CloseConnection, Deliver, Release
from milepost.broker.limits import BrokerLimits, SlowPolicy
from milepost.broker.session import PACKET_ID_MAX, Connection, Session
from milepost.model.endpoints import EndpointId
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.priorities import Priority
from milepost.model.queries import OnTopic
from milepost.model.reasons import Reason
from milepost.model.subscriptions import Subscription
from milepost.vetting.access import ClientIdentity
from milepost.vetting.rates import UNLIMITED
from publications import at, delivery, publication

EVERYTHING = 1 << 30


class BrokerUnderTest:
    """A broker, with sessions whose readiness the test controls."""

    def __init__(self, limits: BrokerLimits = SMALL) -> None:
        self.broker = Broker(limits)
        self.deliveries = self.broker.deliveries
        self.counts = self.broker.counts

    def open(self, name: str, *, is_durable: bool = False, window: int = 10, now: Instant | None = None) -> Session:
        opened = self.broker.connect(
            EndpointId(name),
            identity=ClientIdentity(EndpointId(name)),
            rates=UNLIMITED,
            connection=Connection(),
            clean_start=not is_durable,
            expiry_ns=100 * SECOND_NS if is_durable else 0,
            window=window,
            encoding=5,
            will=None,
            now=now or at(0),
        )
        assert isinstance(opened, ConnectResult), opened
        return opened.session

    def subscriber(self, name: str, *, qos: int = 1, is_durable: bool = False, window: int = 10) -> Session:
        session = self.open(name, is_durable=is_durable, window=window)
        refused = self.broker.subscribe(session, "t", Subscription(session.name, OnTopic("t"), qos=qos), at(0))
        assert refused is None
        return session

    def publish(
        self, body: bytes = b"x", *, qos: int = 1, priority: Priority = Priority.CONVENIENCE, valid_s: float | None = None
    ) -> None:
        self.broker.accept(publication(body, qos=qos, priority=priority, valid_s=valid_s), None, at(0))

    def sent(self) -> list[tuple[bytes, int, list[str], bool]]:
        """Return the deliveries of the tick: body, packet id, receivers, and whether it is a duplicate."""
        actions = [one for one in self.broker.take_actions() if isinstance(one, Deliver)]
        return [
            (one.delivery.publication.body, one.packet_id, [to.name for to in one.sessions], one.is_duplicate) for one in actions
        ]

    def end_tick(self) -> None:
        self.broker.take_actions()
        self.broker.take_changes()


def queued_bodies(session: Session) -> list[bytes]:
    return [one.publication.body for _, one in session.queue.all()] if session.queue is not None else []


def test_all_ready_receivers_get_a_message_under_one_packet_id() -> None:
    edge = BrokerUnderTest()
    edge.subscriber("a")
    edge.subscriber("b")
    edge.publish()
    assert edge.sent() == [(b"x", 1, ["a", "b"], False)]
    assert edge.counts.delivered == 2


def test_a_receiver_with_that_packet_id_in_use_gets_the_message_under_another() -> None:
    edge = BrokerUnderTest()
    first = edge.subscriber("a")
    edge.subscriber("b")
    first.in_flight[1] = first.in_flight[2] = delivery(b"old")
    edge.publish()
    assert sorted(edge.sent(), key=str) == [(b"x", 1, ["b"], False), (b"x", 3, ["a"], False)]


def test_packet_ids_wrap_around_and_skip_those_in_use() -> None:
    edge = BrokerUnderTest(replace(SMALL, in_flight_max=2))
    session = edge.subscriber("a")
    for _ in range(PACKET_ID_MAX):
        edge.publish()
        if len(session.in_flight) == 2:
            edge.deliveries.acknowledge(session, max(session.in_flight))
        edge.end_tick()
    assert list(session.in_flight) == [1]
    edge.publish()
    assert set(session.in_flight) == {1, 2}


def test_a_packet_id_freed_in_a_tick_is_not_reused_in_that_tick_by_a_durable_session() -> None:
    edge = BrokerUnderTest()
    session = edge.subscriber("a", is_durable=True)
    for body in (b"1", b"2"):
        edge.publish(body)
    edge.end_tick()
    edge.deliveries._last_packet_id = 0
    edge.deliveries.acknowledge(session, 1)
    edge.publish(b"3")
    assert set(session.in_flight) == {2, 3}
    assert edge.broker.changes.queued[session.number, 1] is None


@pytest.mark.parametrize("qos", [1, 2])
def test_messages_beyond_the_window_wait_for_an_acknowledgement(qos: int) -> None:
    edge = BrokerUnderTest()
    session = edge.subscriber("a", window=2, qos=qos)
    for body in (b"1", b"2", b"3", b"4"):
        edge.publish(body, qos=qos)
    assert [body for body, *_ in edge.sent()] == [b"1", b"2"]
    assert queued_bodies(session) == [b"3", b"4"]
    if qos == 2:
        assert edge.deliveries.release(session, 1)
        assert edge.deliveries.drain(session, at(0), EVERYTHING) == 0, "an open exchange occupies the window"
        assert edge.deliveries.complete(session, 1)
    else:
        assert edge.deliveries.acknowledge(session, 1)
    assert edge.deliveries.drain(session, at(0), EVERYTHING) > 0
    assert [body for body, *_ in edge.sent()] == [b"3"]
    assert queued_bodies(session) == [b"4"]


def test_qos_0_messages_do_not_wait_for_the_window() -> None:
    edge = BrokerUnderTest()
    edge.subscriber("a", window=1)
    edge.publish(b"1")
    edge.publish(b"2")
    edge.publish(b"0", qos=0)
    assert [body for body, *_ in edge.sent()] == [b"1", b"0"]


def test_an_acknowledgement_of_an_unknown_packet_id_is_ignored() -> None:
    edge = BrokerUnderTest()
    session = edge.subscriber("a")
    assert not edge.deliveries.acknowledge(session, 9)
    assert not edge.deliveries.release(session, 9)
    assert not edge.deliveries.complete(session, 9)


def test_messages_for_a_busy_receiver_are_queued_and_sent_most_urgent_first() -> None:
    edge = BrokerUnderTest()
    session = edge.subscriber("a")
    session.is_ready = False
    edge.publish(b"plain", qos=0)
    edge.publish(b"numbered")
    edge.publish(b"now", qos=0, priority=Priority.EMERGENCY)
    assert edge.sent() == []
    edge.deliveries.drain(session, at(0), EVERYTHING)
    assert [(body, number > 0) for body, number, *_ in edge.sent()] == [(b"now", False), (b"plain", False), (b"numbered", True)]
    assert session.is_ready
    assert session.queue is None


def test_the_bytes_sent_at_a_time_are_limited() -> None:
    edge = BrokerUnderTest()
    session = edge.subscriber("a")
    session.is_ready = False
    for _ in range(3):
        edge.publish(b"x" * 10, qos=0)
    assert edge.deliveries.drain(session, at(0), 1) == 12
    assert len(edge.sent()) == 1
    assert not session.is_ready, "a new message must not overtake queued ones"
    edge.publish(b"later", qos=0)
    edge.deliveries.drain(session, at(0), EVERYTHING)
    assert [body for body, *_ in edge.sent()] == [b"x" * 10, b"x" * 10, b"later"]


def test_messages_that_expire_in_the_queue_are_dropped_and_counted() -> None:
    edge = BrokerUnderTest()
    session = edge.subscriber("a", is_durable=True)
    session.is_ready = False
    edge.publish(b"short", valid_s=1)
    edge.publish(b"long", valid_s=3)
    edge.deliveries.drain(session, at(2), EVERYTHING)
    assert [body for body, *_ in edge.sent()] == [b"long"]
    assert edge.counts.dropped == {Reason.EXPIRED: 1}
    assert len([queued for queued in edge.broker.changes.queued.values() if queued]) == 1


def test_a_message_valid_until_now_is_still_sent() -> None:
    edge = BrokerUnderTest()
    session = edge.subscriber("a")
    session.is_ready = False
    edge.publish(b"x", valid_s=2)
    edge.deliveries.drain(session, at(2), EVERYTHING)
    assert len(edge.sent()) == 1


def test_a_full_queue_drops_the_oldest_message_of_the_lowest_class() -> None:
    edge = BrokerUnderTest(replace(SMALL, queue_messages_max=2))
    session = edge.subscriber("a", is_durable=True)
    session.is_ready = False
    low, high = Priority.CONVENIENCE, Priority.SAFETY
    for body, priority in ((b"1", high), (b"2", low), (b"3", low), (b"4", high)):
        edge.publish(body, priority=priority)
    assert queued_bodies(session) == [b"1", b"4"]
    assert edge.counts.dropped == {Reason.QUEUE_FULL: 2}
    stored = [queued for queued in edge.broker.changes.queued.values() if queued is not None]
    assert len(stored) == 2
    assert not [one for one in edge.broker.take_actions() if isinstance(one, CloseConnection)]


@pytest.mark.parametrize("limits", [replace(SMALL, queue_bytes_max=25), replace(SMALL, total_queue_bytes_max=25)])
def test_a_queue_is_limited_in_bytes_for_one_and_for_all(limits: BrokerLimits) -> None:
    edge = BrokerUnderTest(limits)
    session = edge.subscriber("a")
    session.is_ready = False
    for number in range(4):
        edge.publish(bytes([number]) * 10)
    assert queued_bodies(session) == [b"\2" * 10, b"\3" * 10]
    assert edge.deliveries.queued_bytes == 22
    assert edge.counts.dropped == {Reason.QUEUE_FULL: 2}


def test_a_full_queue_disconnects_the_receiver_under_that_policy_and_keeps_the_messages_that_fit() -> None:
    edge = BrokerUnderTest(replace(SMALL, queue_messages_max=1, slow_consumer=SlowPolicy.DISCONNECT))
    session = edge.subscriber("a", is_durable=True)
    connection, session.is_ready = session.connection, False
    edge.publish(b"1")
    assert not edge.broker.take_actions()
    edge.publish(b"2")
    (close,) = edge.broker.take_actions()
    assert isinstance(close, CloseConnection)
    assert (close.connection, close.refused.reason) == (connection, Reason.QUEUE_FULL)
    assert queued_bodies(session) == [b"2"]


def test_only_qos_1_and_2_messages_are_queued_for_a_disconnected_durable_session() -> None:
    edge = BrokerUnderTest()
    session = edge.subscriber("a", is_durable=True)
    edge.broker.disconnect(session, at(0), publishes_will=True)
    edge.publish(b"0", qos=0)
    edge.publish(b"1")
    assert queued_bodies(session) == [b"1"]
    assert edge.counts.dropped == {Reason.RECEIVER_OFFLINE: 1}


def test_queued_qos_0_messages_are_dropped_and_counted_when_the_receiver_disconnects() -> None:
    edge = BrokerUnderTest()
    session = edge.subscriber("a", is_durable=True)
    session.is_ready = False
    edge.publish(b"0", qos=0)
    edge.publish(b"1")
    edge.broker.disconnect(session, at(0), publishes_will=True)
    assert queued_bodies(session) == [b"1"]
    assert edge.counts.dropped == {Reason.RECEIVER_OFFLINE: 1}
    assert edge.deliveries.queued_bytes == 2


def test_a_resumed_session_first_gets_its_in_flight_messages_again_under_their_packet_ids() -> None:
    edge = BrokerUnderTest()
    session = edge.subscriber("a", is_durable=True, window=2)
    for body in (b"1", b"2", b"3"):
        edge.publish(body)
    edge.deliveries.release(session, 1)
    edge.broker.disconnect(session, at(0), publishes_will=True)
    edge.end_tick()
    edge.open("a", is_durable=True, window=3)
    edge.deliveries.drain(session, at(0), EVERYTHING)
    first, *rest = edge.broker.take_actions()
    assert isinstance(first, Release)
    assert first.packet_id == 1
    found = [(one.delivery.publication.body, one.packet_id, one.is_duplicate) for one in rest if isinstance(one, Deliver)]
    assert found == [(b"2", 2, True), (b"3", 3, False)]


def test_an_expired_in_flight_message_is_not_sent_again() -> None:
    edge = BrokerUnderTest()
    session = edge.subscriber("a", is_durable=True)
    edge.publish(b"1", valid_s=1)
    edge.broker.disconnect(session, at(0), publishes_will=True)
    edge.end_tick()
    edge.open("a", is_durable=True, now=at(2))
    assert edge.sent() == []
    assert not session.in_flight
    assert edge.counts.dropped == {Reason.EXPIRED: 1}
    assert edge.broker.changes.queued == {(session.number, 1): None}


def test_a_session_resumed_with_a_smaller_window_is_not_sent_more_than_it_allows() -> None:
    edge = BrokerUnderTest()
    session = edge.subscriber("a", is_durable=True, window=5)
    for _ in range(5):
        edge.publish()
    edge.broker.disconnect(session, at(0), publishes_will=True)
    edge.end_tick()
    edge.open("a", is_durable=True, window=2)
    assert len(edge.sent()) == 2


def test_messages_held_back_by_a_smaller_window_are_sent_before_queued_ones_and_counted_once() -> None:
    edge = BrokerUnderTest()
    session = edge.subscriber("a", is_durable=True, window=3)
    bodies = [b"1", b"2", b"3", b"4", b"5"]
    for body in bodies:
        edge.publish(body)
    edge.broker.disconnect(session, at(0), publishes_will=True)
    edge.end_tick()
    edge.open("a", is_durable=True, window=1)
    found = edge.sent()
    while session.in_flight:
        edge.deliveries.acknowledge(session, next(iter(session.in_flight)))
        edge.deliveries.drain(session, at(0), EVERYTHING)
        found += edge.sent()
    assert [(body, is_duplicate) for body, *_, is_duplicate in found] == [(body, body < b"4") for body in bodies]
    assert edge.counts.delivered == 5


def test_a_session_taken_over_twice_in_the_tick_of_a_message_gets_it_once() -> None:
    edge = BrokerUnderTest()
    edge.subscriber("a", is_durable=True)
    edge.publish()
    for _ in range(2):
        edge.open("a", is_durable=True)
    assert [(body, names) for body, _, names, _ in edge.sent() if names] == [(b"x", ["a"])]


def test_a_message_is_stored_once_for_all_receivers_and_deleted_with_the_last() -> None:
    edge = BrokerUnderTest()
    sessions = [edge.subscriber(name, is_durable=True) for name in "ab"]
    edge.publish()
    (number,) = edge.broker.changes.messages
    edge.end_tick()
    edge.deliveries.acknowledge(sessions[0], 1)
    assert edge.broker.changes.messages == {}
    edge.deliveries.acknowledge(sessions[1], 1)
    assert edge.broker.changes.messages == {number: None}


def test_undelivered_messages_of_a_session_that_ends_are_counted() -> None:
    edge = BrokerUnderTest()
    session = edge.subscriber("a", window=1)
    for _ in range(3):
        edge.publish()
    edge.broker.disconnect(session, at(0), publishes_will=True)
    assert edge.counts.dropped == {Reason.SESSION_EXPIRED: 3}
    assert edge.deliveries.queued_bytes == 0
