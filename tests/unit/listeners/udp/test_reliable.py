"""Reliable messages to endpoints: retransmitted until acknowledged or dropped; and storage failures (M29)."""

from itertools import pairwise

import pytest

from faulty_storage import FaultyStorage
from milepost.broker.admission import AdmissionRules
from milepost.listeners.udp.listener import RETRY_FIRST_NS, RETRY_LONGEST_NS, TRIES_MAX
from milepost.listeners.udp.settings import UdpSettings
from milepost.model.addresses import ToEndpoint
from milepost.model.instants import SECOND_NS
from milepost.model.messages import Message
from milepost.model.priorities import Priority
from milepost.model.reasons import Reason
from milepost.model.session_datagrams import PublishDatagram, ReceivedDatagram, Refusal
from milepost.vetting import AccessAction, AccessList, AccessRule
from milepost.wire.mqtt import Publish as MqttPublish
from simulation.invariants import check_udp_listener
from storage_in_memory import StorageInMemory
from udp_edge_in_memory import UdpEdge


class Two:
    """A sender and a receiver."""

    def __init__(self, edge: UdpEdge) -> None:
        self.edge = edge
        self.receiver, self.sender = edge.vehicle("a"), edge.vehicle("b")

    def send(self, body: bytes = b"x", *, priority: Priority = Priority.CONVENIENCE, valid_s: float = 3_600) -> None:
        to = ToEndpoint(self.receiver.name)
        self.sender.publish(self.sender.message("t", body, to=to, reliable=True, priority=priority, valid_s=valid_s))

    def live(self, seconds: float, by: float = 0.1) -> list[tuple[float, Message]]:
        """Let time pass; return the messages that the receiver was sent, with their times."""
        found = []
        for step in range(1, round(seconds / by) + 1):
            is_reporting = step % round(1 / by) == 0
            self.edge.step(by, by=by, alive=[self.receiver, self.sender] if is_reporting else [])
            found += [(step * by, message) for message in self.receiver.messages()]
        return found


@pytest.fixture
def two(edge: UdpEdge) -> Two:
    return Two(edge)


def test_an_unacknowledged_message_is_retransmitted_with_backoff_and_then_dropped(two: Two) -> None:
    two.send()
    assert [message.reliable for message in two.receiver.messages()] == [True]
    sent = two.live(75)
    times = [0.0, *(at for at, _ in sent)]
    assert len(times) == TRIES_MAX
    gaps = [later - earlier for earlier, later in pairwise(times)]
    expected = [min(RETRY_FIRST_NS << number, RETRY_LONGEST_NS) / SECOND_NS for number in range(TRIES_MAX - 1)]
    assert gaps == pytest.approx(expected, abs=0.11)
    assert {message.body for _, message in sent} == {b"x"}
    assert two.edge.broker.counts.dropped == {Reason.UNACKNOWLEDGED: 1}
    assert two.edge.broker.counts.delivered == 0
    assert two.edge.session("a").in_flight == {}


def test_a_message_that_may_no_longer_be_read_is_not_retransmitted(two: Two) -> None:
    two.send()
    assert len(two.receiver.messages()) == 1
    two.edge.broker.use_rules(AdmissionRules(AccessList([AccessRule(False, AccessAction.SUBSCRIBE, "t")])))
    assert two.live(5) == []
    assert two.edge.broker.counts.dropped == {Reason.NOT_ALLOWED: 1}
    assert two.edge.session("a").in_flight == {}


def test_an_acknowledged_message_is_not_retransmitted(two: Two) -> None:
    two.send()
    (message,) = two.receiver.messages()
    two.receiver.acknowledge(message)
    assert two.live(2) == []
    assert two.edge.broker.counts.delivered == 1
    two.receiver.acknowledge(message)
    assert not two.edge.broker.counts.refused, "a repeated acknowledgement is ignored"


def test_only_receivers_that_have_not_acknowledged_get_a_retransmission(edge: UdpEdge) -> None:
    receivers, sender = [edge.vehicle(name) for name in "abcd"], edge.vehicle("s")
    for receiver in receivers:
        receiver.subscribe("topic:t")
    sender.publish(sender.message("t", b"x", reliable=True))
    for number, receiver in enumerate(receivers):
        (message,) = receiver.messages()
        if number % 2:
            receiver.acknowledge(message)
    edge.pass_time(0.3)
    assert [receiver.bodies() for receiver in receivers] == [[b"x"], [], [b"x"], []]


def test_an_expired_message_is_not_retransmitted(two: Two) -> None:
    # M29
    two.send(valid_s=1)
    two.receiver.received_raw()
    times = [at for at, _ in two.live(5)]
    assert times == pytest.approx([0.3, 0.9])
    assert two.edge.broker.counts.dropped == {Reason.EXPIRED: 1}


def test_a_full_window_queues_messages_and_acknowledgements_release_the_most_urgent_first(edge: UdpEdge) -> None:
    # M29
    two = Two(UdpEdge(is_sealed=edge.identity is not None, udp=UdpSettings(in_flight_max=2)))
    for number in range(4):
        two.send(bytes((number,)))
    two.send(b"urgent", priority=Priority.EMERGENCY)
    first, second = two.receiver.messages()
    assert (first.body, second.body) == (b"\0", b"\1")
    two.receiver.acknowledge(second)
    (third,) = two.receiver.messages()
    assert third.body == b"urgent"
    for message in (first, third):
        two.receiver.acknowledge(message)
    assert two.receiver.bodies() == [b"\2", b"\3"]
    check_udp_listener(two.edge)


def test_a_queued_message_is_sent_once_the_one_before_it_is_dropped(edge: UdpEdge) -> None:
    two = Two(UdpEdge(is_sealed=edge.identity is not None, udp=UdpSettings(in_flight_max=1)))
    two.send(b"1", valid_s=1)
    two.send(b"2")
    assert two.receiver.bodies() == [b"1"]
    assert [message.body for _, message in two.live(3)][-1] == b"2"


def test_a_message_larger_than_a_datagram_is_dropped_and_the_next_one_is_sent(edge: UdpEdge) -> None:
    two = Two(UdpEdge(is_sealed=edge.identity is not None, udp=UdpSettings(in_flight_max=1)))
    two.receiver.subscribe("topic:t")
    two.receiver.received_raw()
    client = two.edge.connect("mqtt")
    client.publish("t", bytes(70_000))
    client.send(*(MqttPublish("t", body, 1, packet_id=client.next_number()) for body in (bytes(70_000), b"small")))
    two.edge.run_ticks()
    assert two.receiver.bodies() == [b"small"]
    assert two.edge.broker.counts.dropped == {Reason.MESSAGE_TOO_LARGE: 2}
    check_udp_listener(two.edge)


def test_nothing_is_retransmitted_to_a_closed_session(two: Two) -> None:
    two.send()
    two.receiver.received_raw()
    two.receiver.close()
    two.edge.step(2, alive=[two.sender])
    assert two.receiver.received_raw() == []
    assert two.edge.broker.counts.dropped == {Reason.SESSION_EXPIRED: 1}
    two.send()
    assert two.edge.broker.counts.dropped == {Reason.SESSION_EXPIRED: 1}, "there is no such session"


class Failing:
    """An edge whose storage fails on demand, and a disconnected MQTT client with a durable session."""

    def __init__(self, *, is_sealed: bool) -> None:
        self.storage = FaultyStorage(StorageInMemory())
        self.edge = UdpEdge(self.storage, is_sealed=is_sealed)
        client = self.edge.connect("away", expiry_s=1_000)
        client.subscribe("t", qos=1)
        client.drop_connection()
        self.vehicle = self.edge.vehicle("a")
        self.message = self.vehicle.message("t", b"x", reliable=True)

    def answers(self) -> list[object]:
        return [one.name if isinstance(one, ReceivedDatagram | Refusal) else one for one in self.vehicle.received()]


@pytest.fixture
def failing(edge: UdpEdge) -> Failing:
    return Failing(is_sealed=edge.identity is not None)


def test_nothing_unstored_is_acknowledged_and_the_repeat_is_once_storage_recovers(failing: Failing) -> None:
    failing.storage.fail_with("disk full")
    failing.vehicle.publish(failing.message)
    assert failing.answers() == []
    failing.storage.heal()
    failing.edge.pass_time(1)
    failing.vehicle.publish(failing.message)
    assert len(failing.vehicle.received_of(ReceivedDatagram)) == 1
    bodies = failing.edge.restarted().connect("away", clean=False, expiry_s=1_000).bodies()
    assert set(bodies) == {b"x"}


def test_while_storage_fails_durable_messages_are_refused_and_others_accepted(failing: Failing) -> None:
    failing.storage.fail_with("disk full")
    failing.vehicle.publish(failing.message)
    failing.vehicle.publish(failing.message)
    assert failing.answers() == ["STORAGE_UNAVAILABLE"]
    failing.vehicle.publish(failing.vehicle.message("u", reliable=True))
    failing.vehicle.subscribe("topic:u")
    assert len(failing.vehicle.received_of(ReceivedDatagram)) == 2


def test_a_stored_message_repeated_during_a_storage_failure_counts_once(failing: Failing) -> None:
    failing.vehicle.publish(failing.message)
    failing.storage.fail_with("disk full")
    other = failing.vehicle.message("t", b"y", reliable=True)
    failing.edge.receive(
        failing.vehicle.datagram_of(PublishDatagram(other)), failing.vehicle.datagram_of(PublishDatagram(failing.message))
    )
    failing.storage.heal()
    failing.edge.pass_time(1)
    accepted = failing.edge.broker.counts.accepted
    failing.vehicle.publish(failing.message)
    assert failing.edge.broker.counts.accepted == accepted
    failing.vehicle.publish(other)
    assert failing.edge.broker.counts.accepted == accepted + 1
