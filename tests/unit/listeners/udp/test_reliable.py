"""Reliable messages to endpoints: repeated until they are answered, or given up; and what storage has to do with it (M29)."""

from itertools import pairwise

import pytest

from faulty_storage import FaultyStorage
from milepost.listeners.udp.listener import FIRST_NS, LONGEST_NS, TRIES_MAX
from milepost.listeners.udp.settings import UdpSettings
from milepost.model.addresses import ToEndpoint
from milepost.model.instants import SECOND_NS
from milepost.model.messages import Message
from milepost.model.priorities import Priority
from milepost.model.reasons import Reason
from milepost.model.sessions import Publish, Received, Refusal
from milepost.wire.mqtt import Publish as MqttPublish
from simulation.invariants import check_door
from storage_in_memory import KeptInMemory
from udp_edge_in_memory import UdpEdge


class Two:
    """A sender and a taker."""

    def __init__(self, edge: UdpEdge) -> None:
        self.edge = edge
        self.taker, self.sender = edge.vehicle("a"), edge.vehicle("b")

    def send(self, body: bytes = b"x", *, priority: Priority = Priority.CONVENIENCE, valid_s: float = 3_600) -> None:
        to = ToEndpoint(self.taker.name)
        self.sender.publish(self.sender.message("t", body, to=to, reliable=True, priority=priority, valid_s=valid_s))

    def live(self, seconds: float, by: float = 0.1) -> list[tuple[float, Message]]:
        """Let time pass; gives what the taker was sent, and when."""
        found = []
        for step in range(1, round(seconds / by) + 1):
            is_reporting = step % round(1 / by) == 0
            self.edge.step(by, by=by, alive=[self.taker, self.sender] if is_reporting else [])
            found += [(step * by, message) for message in self.taker.messages()]
        return found


@pytest.fixture
def two(edge: UdpEdge) -> Two:
    return Two(edge)


def test_what_is_not_answered_is_repeated_with_growing_gaps_and_then_given_up(two: Two) -> None:
    two.send()
    assert [message.reliable for message in two.taker.messages()] == [True]
    sent = two.live(75)
    times = [0.0, *(at for at, _ in sent)]
    assert len(times) == TRIES_MAX
    gaps = [later - earlier for earlier, later in pairwise(times)]
    wanted = [min(FIRST_NS << number, LONGEST_NS) / SECOND_NS for number in range(TRIES_MAX - 1)]
    assert gaps == pytest.approx(wanted, abs=0.11)
    assert {message.body for _, message in sent} == {b"x"}
    assert two.edge.broker.counts.dropped == {Reason.UNANSWERED: 1}
    assert two.edge.broker.counts.delivered == 0
    assert two.edge.session("a").in_flight == {}


def test_what_is_answered_is_not_repeated(two: Two) -> None:
    two.send()
    (message,) = two.taker.messages()
    two.taker.answer(message)
    assert two.live(2) == []
    assert two.edge.broker.counts.delivered == 1
    two.taker.answer(message)
    assert not two.edge.broker.counts.refused, "an answer that comes again is nothing new"


def test_of_many_takers_only_those_who_have_not_answered_are_sent_it_again(edge: UdpEdge) -> None:
    takers, sender = [edge.vehicle(name) for name in "abcd"], edge.vehicle("s")
    for taker in takers:
        taker.subscribe("topic:t")
    sender.publish(sender.message("t", b"x", reliable=True))
    for number, taker in enumerate(takers):
        (message,) = taker.messages()
        if number % 2:
            taker.answer(message)
    edge.pass_time(0.3)
    assert [taker.bodies() for taker in takers] == [[b"x"], [], [b"x"], []]


def test_what_is_not_valid_any_more_is_not_repeated(two: Two) -> None:
    # M29
    two.send(valid_s=1)
    two.taker.taken_raw()
    times = [at for at, _ in two.live(5)]
    assert times == pytest.approx([0.3, 0.9])
    assert two.edge.broker.counts.dropped == {Reason.EXPIRED: 1}


def test_a_full_window_lets_the_rest_wait_and_answers_resume_it_the_most_urgent_first(edge: UdpEdge) -> None:
    # M29
    two = Two(UdpEdge(is_sealed=edge.identity is not None, udp=UdpSettings(window=2)))
    for number in range(4):
        two.send(bytes((number,)))
    two.send(b"urgent", priority=Priority.EMERGENCY)
    first, second = two.taker.messages()
    assert (first.body, second.body) == (b"\0", b"\1")
    two.taker.answer(second)
    (third,) = two.taker.messages()
    assert third.body == b"urgent"
    for message in (first, third):
        two.taker.answer(message)
    assert two.taker.bodies() == [b"\2", b"\3"]
    check_door(two.edge)


def test_what_waits_goes_when_what_was_before_it_is_given_up(edge: UdpEdge) -> None:
    two = Two(UdpEdge(is_sealed=edge.identity is not None, udp=UdpSettings(window=1)))
    two.send(b"1", valid_s=1)
    two.send(b"2")
    assert two.taker.bodies() == [b"1"]
    assert [message.body for _, message in two.live(3)][-1] == b"2"


def test_a_message_larger_than_a_datagram_is_dropped_and_what_waits_behind_it_goes(edge: UdpEdge) -> None:
    two = Two(UdpEdge(is_sealed=edge.identity is not None, udp=UdpSettings(window=1)))
    two.taker.subscribe("topic:t")
    two.taker.taken_raw()
    client = two.edge.connect("mqtt")
    client.publish("t", bytes(70_000))
    client.send(*(MqttPublish("t", body, 1, number=client.next_number()) for body in (bytes(70_000), b"small")))
    two.edge.settle()
    assert two.taker.bodies() == [b"small"]
    assert two.edge.broker.counts.dropped == {Reason.MESSAGE_TOO_LARGE: 2}
    check_door(two.edge)


def test_who_is_gone_is_sent_nothing_again(two: Two) -> None:
    two.send()
    two.taker.taken_raw()
    two.taker.leave()
    two.edge.step(2, alive=[two.sender])
    assert two.taker.taken_raw() == []
    assert two.edge.broker.counts.dropped == {Reason.SESSION_EXPIRED: 1}
    two.send()
    assert two.edge.broker.counts.dropped == {Reason.SESSION_EXPIRED: 1}, "there is nobody of that name"


class Failing:
    """An edge whose storage fails when told to, and a client of MQTT that is away and for whom messages are kept."""

    def __init__(self, *, is_sealed: bool) -> None:
        self.storage = FaultyStorage(KeptInMemory())
        self.edge = UdpEdge(self.storage, is_sealed=is_sealed)
        client = self.edge.connect("away", expiry_s=1_000)
        client.subscribe("t", qos=1)
        client.lose()
        self.vehicle = self.edge.vehicle("a")
        self.message = self.vehicle.message("t", b"x", reliable=True)

    def answers(self) -> list[object]:
        return [one.name if isinstance(one, Received | Refusal) else one for one in self.vehicle.taken()]


@pytest.fixture
def failing(edge: UdpEdge) -> Failing:
    return Failing(is_sealed=edge.identity is not None)


def test_nothing_is_confirmed_that_is_not_kept_and_the_repeat_is_when_storage_is_back(failing: Failing) -> None:
    failing.storage.fail_with("disk full")
    failing.vehicle.publish(failing.message)
    assert failing.answers() == []
    failing.storage.heal()
    failing.edge.pass_time(1)
    failing.vehicle.publish(failing.message)
    assert len(failing.vehicle.take(Received)) == 1
    bodies = failing.edge.restarted().connect("away", clean=False, expiry_s=1_000).bodies()
    assert set(bodies) == {b"x"}


def test_while_storage_fails_what_must_be_kept_is_refused_and_the_rest_goes_on(failing: Failing) -> None:
    failing.storage.fail_with("disk full")
    failing.vehicle.publish(failing.message)
    failing.vehicle.publish(failing.message)
    assert failing.answers() == ["STORAGE_UNAVAILABLE"]
    failing.vehicle.publish(failing.vehicle.message("u", reliable=True))
    failing.vehicle.subscribe("topic:u")
    assert len(failing.vehicle.take(Received)) == 2


def test_what_was_kept_before_counts_once_though_its_repeat_comes_when_storage_fails(failing: Failing) -> None:
    failing.vehicle.publish(failing.message)
    failing.storage.fail_with("disk full")
    other = failing.vehicle.message("t", b"y", reliable=True)
    failing.edge.hear(failing.vehicle.letter(Publish(other)), failing.vehicle.letter(Publish(failing.message)))
    failing.storage.heal()
    failing.edge.pass_time(1)
    accepted = failing.edge.broker.counts.accepted
    failing.vehicle.publish(failing.message)
    assert failing.edge.broker.counts.accepted == accepted
    failing.vehicle.publish(other)
    assert failing.edge.broker.counts.accepted == accepted + 1
