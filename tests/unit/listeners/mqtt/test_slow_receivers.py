"""Slow receivers: their messages queue by urgency and within limits, without delaying others."""

from dataclasses import replace

import pytest

from edge_in_memory import SMALL, Client, EdgeInMemory
from milepost.broker.admission import AdmissionRules
from milepost.broker.limits import SlowPolicy
from milepost.listeners.event_loop import READABLE, WRITABLE
from milepost.listeners.limits import MqttLimits
from milepost.listeners.mqtt.connection import MqttConnectionState
from milepost.listeners.mqtt.context import MqttSettings
from milepost.model.priorities import Priority
from milepost.model.reasons import Reason
from milepost.wire.mqtt import Acknowledge, Code, Connect, PacketType, Ping, Pong, Properties, Publish, Version, encode

SETTINGS = MqttSettings(limits=MqttLimits(unsent_bytes_max=100))
RULES = AdmissionRules(priorities=(("urgent", Priority.EMERGENCY),))


def with_stalled_receiver(
    version: Version = Version.V5, *, expiry_s: int = 0, qos: int = 0
) -> tuple[EdgeInMemory, Client, Client]:
    edge = EdgeInMemory(settings=SETTINGS, rules=RULES, limits=replace(SMALL, queue_messages_max=50))
    receiver = edge.connect("receiver", version, expiry_s=expiry_s)
    receiver.subscribe("#", qos=qos)
    receiver.stream.capacity = 0
    return edge, receiver, edge.connect("sender")


@pytest.mark.parametrize("version", list(Version))
def test_all_messages_arrive_in_order_however_little_the_client_reads_at_a_time(version: Version) -> None:
    edge, receiver, sender = with_stalled_receiver(version)
    bodies = [str(number).encode() * 9 for number in range(40)]
    receiver.stream.capacity = 7
    for body in bodies:
        sender.publish("t", body)
    for _ in range(400):
        receiver.read_more(7)
    assert receiver.bodies() == bodies
    assert edge.broker.counts.delivered == 40
    assert receiver.connection.unsent_size == 0
    assert edge.session("receiver").is_ready


def test_unsent_bytes_are_limited_and_further_messages_are_queued() -> None:
    edge, receiver, sender = with_stalled_receiver()
    for _ in range(40):
        sender.publish("t", b"x" * 20)
    session = edge.session("receiver")
    assert 100 < receiver.connection.unsent_size < 200
    assert not session.is_ready
    assert session.queue is not None
    assert len(session.queue) == 40 - edge.broker.counts.delivered


def test_unsent_bytes_are_counted_exactly() -> None:
    _, receiver, sender = with_stalled_receiver(Version.V3)
    receiver.stream.capacity = 3
    sender.publish("t", b"x" * 20)
    assert receiver.connection.unsent_size == len(encode(Publish("t", b"x" * 20), Version.V3)) - 3
    receiver.read_more(4)
    assert receiver.connection.unsent_size == 18
    receiver.read_more()
    assert receiver.connection.unsent_size == 0


@pytest.mark.parametrize("qos", [0, 1])
def test_an_urgent_message_overtakes_queued_messages(qos: int) -> None:
    _, receiver, sender = with_stalled_receiver(qos=1)
    for number in range(30):
        sender.publish("t", b"%d" % number, qos)
    sender.publish("urgent", b"now", qos)
    receiver.read_more()
    bodies = receiver.bodies()
    waited = bodies[bodies.index(b"now") + 1 :]
    assert len(waited) > 10, "only messages sent before are ahead of it"
    assert bodies.index(b"now") + len(waited) == 30


def test_an_urgent_message_is_sent_first_within_a_tick() -> None:
    edge, receiver, sender = with_stalled_receiver()
    receiver.stream.capacity = None
    sender.send(Publish("t", b"1"), Publish("urgent", b"2"))
    edge.run_ticks()
    assert receiver.bodies() == [b"2", b"1"]


def test_a_stalled_receiver_does_not_delay_others() -> None:
    edge, _, sender = with_stalled_receiver()
    other = edge.connect("other")
    other.subscribe("t")
    for _ in range(100):
        sender.publish("t", b"x" * 50)
    assert len(other.bodies()) == 100
    dropped = edge.broker.counts.dropped
    assert set(dropped) == {Reason.QUEUE_FULL}
    waiting = edge.session("receiver").queue
    assert waiting is not None
    assert len(waiting) == 50
    assert edge.broker.counts.delivered + len(waiting) + dropped.total() == 200


def test_a_slow_receiver_is_disconnected_if_the_policy_says_so() -> None:
    limits = replace(SMALL, queue_messages_max=5, slow_consumer=SlowPolicy.DISCONNECT)
    edge = EdgeInMemory(settings=SETTINGS, limits=limits)
    receiver, sender = edge.connect("receiver"), edge.connect("sender")
    receiver.subscribe("t")
    receiver.stream.capacity = 0
    for _ in range(30):
        sender.publish("t", b"x" * 50)
    assert receiver.connection.state is MqttConnectionState.CLOSING
    receiver.read_more()
    assert receiver.ended_with() is Code.QUOTA_EXCEEDED
    assert receiver.stream.is_finished


def test_a_client_that_reads_no_replies_is_not_read_until_it_does() -> None:
    edge, receiver, _ = with_stalled_receiver()
    seen = []
    edge.listener.watch = lambda connection: seen.append(connection.mask)
    for _ in range(100):
        receiver.send(Ping())
        edge.run_ticks()
    assert seen == [READABLE | WRITABLE, WRITABLE]
    receiver.read_more()
    assert seen[-1] == READABLE
    assert receiver.take() == [Pong()] * 100


def test_messages_in_flight_to_a_durable_session_are_resent_after_a_reconnect() -> None:
    edge, receiver, sender = with_stalled_receiver(expiry_s=100, qos=1)
    bodies = [b"%d" % number for number in range(30)]
    for body in bodies:
        sender.publish("t", body, 1)
    receiver.drop_connection()
    receiver = edge.connect("receiver", clean=False, expiry_s=100)
    messages = receiver.messages()
    assert [message.payload for message in messages] == bodies
    assert any(message.dup for message in messages)
    assert not all(message.dup for message in messages), "queued messages were not sent before"
    for message in messages:
        receiver.acknowledge(PacketType.PUBACK, message.packet_id)
    assert edge.stored.load().queued == {}


def test_the_last_packet_is_sent_once_the_connection_is_writable() -> None:
    edge, receiver, _ = with_stalled_receiver()
    receiver.send(Connect("receiver", Version.V5))
    edge.run_ticks()
    assert not receiver.stream.is_finished
    receiver.read_more()
    assert receiver.ended_with() is Code.PROTOCOL_ERROR
    assert receiver.stream.is_finished


def test_a_packet_above_the_client_s_maximum_size_is_skipped_and_the_next_one_is_delivered() -> None:
    edge = EdgeInMemory()
    receiver = edge.connect("t", properties=Properties(maximum_packet_size=60, topic_alias_maximum=2))
    receiver.subscribe("#", qos=1)
    sender = edge.connect("s")
    for qos in (0, 1):
        sender.publish("t", b"x" * 80, qos)
    sender.publish("t", b"fits", 1)
    (message,) = receiver.messages()
    assert (message.topic, message.payload, message.properties.topic_alias) == ("t", b"fits", 1)
    assert edge.broker.counts.dropped == {Reason.PACKET_OVER_RECEIVER_LIMIT: 2}
    assert len(edge.session("t").in_flight) == 1


def test_topic_aliases_are_assigned_up_to_the_client_s_maximum() -> None:
    edge = EdgeInMemory()
    receiver = edge.connect("t", properties=Properties(topic_alias_maximum=1))
    receiver.subscribe("#")
    sender = edge.connect("s")
    for topic in ("a", "a", "b", "b"):
        sender.publish(topic, b"x")
    told = [(message.topic, message.properties.topic_alias) for message in receiver.messages()]
    assert told == [("a", 1), ("", 1), ("b", None), ("b", None)]


def test_properties_added_by_the_edge_do_not_exceed_the_client_s_maximum_packet_size() -> None:
    edge = EdgeInMemory(settings=MqttSettings(packet_bytes_max=100))
    receiver = edge.connect("t", properties=Properties(maximum_packet_size=100))
    receiver.subscribe("t", subscription_id=7)
    before = len(receiver.stream.written)
    edge.connect("s", Version.V3).publish("t", b"x" * 95)
    assert len(receiver.stream.written) - before <= 100


def test_a_session_resumed_in_another_version_within_a_tick_receives_no_bytes_of_the_old_version() -> None:
    edge = EdgeInMemory()
    edge.connect("a", expiry_s=100).subscribe("t")
    sender = edge.connect("s")
    sender.publish("t", b"1")
    sender.send(Publish("t", b"2"))
    later = edge.open_connection(Version.V3)
    later.send(Connect("a", Version.V3, False))
    edge.run_ticks()
    assert later.bodies() in ([], [b"2"])


def test_an_acknowledgement_has_the_packet_id_of_its_publish() -> None:
    edge = EdgeInMemory()
    sender = edge.connect("s")
    edge.connect("t").subscribe("t")
    sender.send(Publish("t", b"", 1, packet_id=65_535), Publish("t", b"", 2, packet_id=256))
    edge.run_ticks()
    assert sender.take() == [Acknowledge(PacketType.PUBACK, 65_535), Acknowledge(PacketType.PUBREC, 256)]
