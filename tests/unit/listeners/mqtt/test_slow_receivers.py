"""Slow receivers: what they cannot take waits by urgency and within limits, and nobody else waits for them."""

from dataclasses import replace

import pytest

from edge_in_memory import SMALL, Client, EdgeInMemory
from milepost.broker.admission import Rules
from milepost.broker.limits import SlowPolicy
from milepost.listeners.event_loop import READABLE, WRITABLE
from milepost.listeners.limits import MqttLimits
from milepost.listeners.mqtt.connection import State
from milepost.listeners.mqtt.context import MqttSettings
from milepost.model.priorities import Priority
from milepost.model.reasons import Reason
from milepost.wire.mqtt import Acknowledge, Code, Connect, Kind, Ping, Pong, Properties, Publish, Version, encode

SETTINGS = MqttSettings(limits=MqttLimits(unsent_bytes_max=100))
RULES = Rules(priorities=(("urgent", Priority.EMERGENCY),))


def with_stuck_taker(version: Version = Version.V5, *, expiry_s: int = 0, qos: int = 0) -> tuple[EdgeInMemory, Client, Client]:
    edge = EdgeInMemory(settings=SETTINGS, rules=RULES, limits=replace(SMALL, queue_messages_max=50))
    taker = edge.connect("taker", version, expiry_s=expiry_s)
    taker.subscribe("#", qos=qos)
    taker.stream.room = 0
    return edge, taker, edge.connect("sender")


@pytest.mark.parametrize("version", list(Version))
def test_everything_arrives_in_order_however_little_is_taken_at_a_time(version: Version) -> None:
    edge, taker, sender = with_stuck_taker(version)
    bodies = [str(number).encode() * 9 for number in range(40)]
    taker.stream.room = 7
    for body in bodies:
        sender.publish("t", body)
    for _ in range(400):
        taker.take_more(7)
    assert taker.bodies() == bodies
    assert edge.broker.counts.delivered == 40
    assert taker.link.unsent_size == 0
    assert edge.session("taker").is_clear


def test_what_is_not_taken_is_limited_and_the_rest_waits_in_the_queue() -> None:
    edge, taker, sender = with_stuck_taker()
    for _ in range(40):
        sender.publish("t", b"x" * 20)
    session = edge.session("taker")
    assert 100 < taker.link.unsent_size < 200
    assert not session.is_clear
    assert session.waiting is not None
    assert len(session.waiting) == 40 - edge.broker.counts.delivered


def test_what_is_not_taken_is_counted_to_the_byte() -> None:
    _, taker, sender = with_stuck_taker(Version.V3)
    taker.stream.room = 3
    sender.publish("t", b"x" * 20)
    assert taker.link.unsent_size == len(encode(Publish("t", b"x" * 20), Version.V3)) - 3
    taker.take_more(4)
    assert taker.link.unsent_size == 18
    taker.take_more()
    assert taker.link.unsent_size == 0


@pytest.mark.parametrize("qos", [0, 1])
def test_the_urgent_leaves_before_all_that_waits(qos: int) -> None:
    _, taker, sender = with_stuck_taker(qos=1)
    for number in range(30):
        sender.publish("t", b"%d" % number, qos)
    sender.publish("urgent", b"now", qos)
    taker.take_more()
    bodies = taker.bodies()
    waited = bodies[bodies.index(b"now") + 1 :]
    assert len(waited) > 10, "only what was handed over before is in front"
    assert bodies.index(b"now") + len(waited) == 30


def test_the_urgent_leaves_first_within_a_turn_too() -> None:
    edge, taker, sender = with_stuck_taker()
    taker.stream.room = None
    sender.send(Publish("t", b"1"), Publish("urgent", b"2"))
    edge.settle()
    assert taker.bodies() == [b"2", b"1"]


def test_others_get_theirs_while_one_takes_nothing() -> None:
    edge, _, sender = with_stuck_taker()
    other = edge.connect("other")
    other.subscribe("t")
    for _ in range(100):
        sender.publish("t", b"x" * 50)
    assert len(other.bodies()) == 100
    dropped = edge.broker.counts.dropped
    assert set(dropped) == {Reason.QUEUE_FULL}
    waiting = edge.session("taker").waiting
    assert waiting is not None
    assert len(waiting) == 50
    assert edge.broker.counts.delivered + len(waiting) + dropped.total() == 200


def test_a_receiver_too_slow_is_disconnected_where_that_is_the_policy() -> None:
    limits = replace(SMALL, queue_messages_max=5, when_slow=SlowPolicy.DISCONNECT)
    edge = EdgeInMemory(settings=SETTINGS, limits=limits)
    taker, sender = edge.connect("taker"), edge.connect("sender")
    taker.subscribe("t")
    taker.stream.room = 0
    for _ in range(30):
        sender.publish("t", b"x" * 50)
    assert taker.link.state is State.CLOSING
    taker.take_more()
    assert taker.ended_with() is Code.QUOTA_EXCEEDED
    assert taker.stream.is_finished


def test_who_takes_no_answers_is_not_read_any_more_until_it_does() -> None:
    edge, taker, _ = with_stuck_taker()
    seen = []
    edge.door.watch = lambda link: seen.append(link.mask)
    for _ in range(100):
        taker.send(Ping())
        edge.settle()
    assert seen == [READABLE | WRITABLE, WRITABLE]
    taker.take_more()
    assert seen[-1] == READABLE
    assert taker.take() == [Pong()] * 100


def test_what_was_on_its_way_to_a_kept_session_comes_again_after_the_connection_broke() -> None:
    edge, taker, sender = with_stuck_taker(expiry_s=100, qos=1)
    bodies = [b"%d" % number for number in range(30)]
    for body in bodies:
        sender.publish("t", body, 1)
    taker.lose()
    taker = edge.connect("taker", clean=False, expiry_s=100)
    messages = taker.messages()
    assert [message.payload for message in messages] == bodies
    assert any(message.dup for message in messages)
    assert not all(message.dup for message in messages), "what waited was not sent before"
    for message in messages:
        taker.acknowledge(Kind.PUBACK, message.number)
    assert edge.kept.load().queued == {}


def test_the_last_words_are_sent_when_the_connection_takes_them() -> None:
    edge, taker, _ = with_stuck_taker()
    taker.send(Connect("taker", Version.V5))
    edge.settle()
    assert not taker.stream.is_finished
    taker.take_more()
    assert taker.ended_with() is Code.PROTOCOL_ERROR
    assert taker.stream.is_finished


def test_a_client_gets_no_packet_larger_than_it_takes_and_the_next_one_all_the_same() -> None:
    edge = EdgeInMemory()
    taker = edge.connect("t", properties=Properties(maximum_packet_size=60, topic_alias_maximum=2))
    taker.subscribe("#", qos=1)
    sender = edge.connect("s")
    for qos in (0, 1):
        sender.publish("t", b"x" * 80, qos)
    sender.publish("t", b"fits", 1)
    (message,) = taker.messages()
    assert (message.topic, message.payload, message.properties.topic_alias) == ("t", b"fits", 1)
    assert edge.broker.counts.dropped == {Reason.PACKET_OVER_RECEIVER_LIMIT: 2}
    assert len(edge.session("t").in_flight) == 1


def test_topics_are_named_once_and_then_stand_for_their_alias_up_to_what_the_client_takes() -> None:
    edge = EdgeInMemory()
    taker = edge.connect("t", properties=Properties(topic_alias_maximum=1))
    taker.subscribe("#")
    sender = edge.connect("s")
    for topic in ("a", "a", "b", "b"):
        sender.publish(topic, b"x")
    told = [(message.topic, message.properties.topic_alias) for message in taker.messages()]
    assert told == [("a", 1), ("", 1), ("b", None), ("b", None)]


def test_what_the_edge_adds_to_a_packet_does_not_make_it_larger_than_the_client_takes() -> None:
    edge = EdgeInMemory(settings=MqttSettings(packet_bytes_max=100))
    taker = edge.connect("t", properties=Properties(maximum_packet_size=100))
    taker.subscribe("t", label=7)
    before = len(taker.stream.taken)
    edge.connect("s", Version.V3).publish("t", b"x" * 95)
    assert len(taker.stream.taken) - before <= 100


def test_a_session_that_comes_back_in_another_version_within_a_turn_is_not_sent_bytes_of_the_former() -> None:
    edge = EdgeInMemory()
    edge.connect("a", expiry_s=100).subscribe("t")
    sender = edge.connect("s")
    sender.publish("t", b"1")
    sender.send(Publish("t", b"2"))
    later = edge.enter(Version.V3)
    later.send(Connect("a", Version.V3, False))
    edge.settle()
    assert later.bodies() in ([], [b"2"])


def test_an_answer_is_an_acknowledgement_of_the_same_number() -> None:
    edge = EdgeInMemory()
    sender = edge.connect("s")
    edge.connect("t").subscribe("t")
    sender.send(Publish("t", b"", 1, number=65_535), Publish("t", b"", 2, number=256))
    edge.settle()
    assert sender.take() == [Acknowledge(Kind.PUBACK, 65_535), Acknowledge(Kind.PUBREC, 256)]
