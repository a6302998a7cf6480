"""MQTT 5, 3.1.2.11 and 3.2.2.3: limits both ways, Receive Maximum, Maximum Packet Size, Topic Alias; 3.3.2.3.3 expiry; 4.9."""

import time

import pytest

from live.mqtt.brokers import PACKET_BYTES_MAX, RECEIVE_MAXIMUM, TOPIC_ALIAS_MAXIMUM, deviates, ours_only
from live.mqtt.connections import Connections
from live.mqtt.packets import PINGREQ, V4, V5, Kind, P, Will, ack, connect, packet, publish, text, varint
from live.mqtt.raw_client import RawClient

TOO_LARGE, ALIAS_INVALID, TOO_MANY, PROTOCOL_ERROR = 0x95, 0x94, 0x93, 0x82
NOT_COUNTED = deviates("does not count the fixed header")
LASTING = (P.SESSION_EXPIRY, 300)


def subscriber_of(connections: Connections, *props: tuple[P, int], qos: int = 2) -> RawClient:
    subscriber = connections.join("t", props=props)
    subscriber.subscribe((f"{connections.name}/#", qos))
    return subscriber


@pytest.mark.parametrize(
    "maximum", [1, *(pytest.param(one, marks=deviates("sends more after the first PUBACK")) for one in (2, 7))]
)
@pytest.mark.parametrize("qos", [1, 2])
def test_in_flight_messages_never_exceed_the_client_s_receive_maximum(connections: Connections, maximum: int, qos: int) -> None:
    """[MQTT-3.3.4-9]: the rest waits, and follows one for one as the client acknowledges."""
    subscriber = subscriber_of(connections, (P.RECEIVE_MAXIMUM, maximum))
    publisher = connections.join("p")
    for number in range(20):
        publisher.publish(f"{connections.name}/x", b"%d" % number, qos=qos)
    waiting = subscriber.drain()
    assert [one.payload for one in waiting] == [b"%d" % number for number in range(maximum)]
    for number in range(20):
        message = waiting.pop(0)
        assert message.payload == b"%d" % number
        subscriber.finish(message)
        if number + maximum < 20:
            waiting.append(subscriber.message())
        waiting += subscriber.drain()
        assert len(waiting) == min(maximum, 19 - number)


def test_a_pubrec_with_an_error_frees_send_quota_and_one_without_does_not(connections: Connections) -> None:
    """4.9: the quota grows by PUBACK, PUBCOMP, or a PUBREC of 0x80 and more."""
    subscriber = subscriber_of(connections, (P.RECEIVE_MAXIMUM, 1))
    publisher = connections.join("p")
    for payload in (b"one", b"two", b"three"):
        publisher.publish(f"{connections.name}/x", payload, qos=2)
    first = subscriber.message().packet_id
    subscriber.acknowledge(Kind.PUBREC, first)
    assert [one.kind for one in subscriber.drain()] == [Kind.PUBREL]
    subscriber.acknowledge(Kind.PUBCOMP, first)
    second = subscriber.message()
    subscriber.acknowledge(Kind.PUBREC, second.packet_id, 0x80)
    assert subscriber.message().payload == b"three"


def test_a_full_receive_maximum_holds_back_messages_only(connections: Connections) -> None:
    """[MQTT-4.9.0-3]: all other packets are answered; QoS 0 may pass or wait, and is delivered in the end."""
    subscriber = subscriber_of(connections, (P.RECEIVE_MAXIMUM, 1))
    publisher = connections.join("p")
    for _ in range(3):
        publisher.publish(f"{connections.name}/x", b"waits", qos=1)
    publisher.publish(f"{connections.name}/x", b"passes")
    assert subscriber.subscribe(("other", 0)).codes == (0,)
    assert subscriber.publish("another", b"x", qos=1) is not None
    found = []
    for _ in range(4):
        message = subscriber.message()
        subscriber.finish(message)
        found.append(message.payload)
    assert sorted(found) == [b"passes", b"waits", b"waits", b"waits"]


@deviates("closes without a reason")
def test_a_client_that_exceeds_the_receive_maximum_is_disconnected(connections: Connections) -> None:
    """[MQTT-3.3.4-7], [MQTT-3.3.4-8]: 0x93. PUBREC frees no place."""
    publisher = connections.join("p")
    publisher.send(*(publish(connections.name, b"x", qos=2, packet_id=1 + one) for one in range(RECEIVE_MAXIMUM)))
    assert [one.kind for one in publisher.drain()] == [Kind.PUBREC] * RECEIVE_MAXIMUM
    publisher.send(publish(connections.name, b"x", qos=2, packet_id=100))
    assert publisher.close_reason() == TOO_MANY


def test_the_receive_maximum_counts_unfinished_exchanges_only(connections: Connections) -> None:
    publisher = connections.join("p")
    for _ in range(3):
        ids = range(1, RECEIVE_MAXIMUM + 1)
        publisher.send(*(publish(connections.name, b"x", qos=2, packet_id=one) for one in ids))
        publisher.send(*(ack(Kind.PUBREL, one) for one in ids))
        found = publisher.drain()
        assert [one.packet_id for one in found if one.kind == Kind.PUBCOMP] == list(ids)


def test_a_3_1_1_client_may_have_many_messages_in_flight(connections: Connections) -> None:
    """3.1.1 has no Receive Maximum: a client that pipelines a hundred is not disconnected."""
    publisher = connections.join("p", V4)
    publisher.send(*(publish(connections.name, b"x", V4, qos=1, packet_id=1 + one) for one in range(100)))
    assert [one.packet_id for one in publisher.drain()] == list(range(1, 101))


def test_a_topic_alias_stands_for_its_topic(connections: Connections) -> None:
    """[MQTT-3.3.2-8] to [MQTT-3.3.2-12]: each alias of the allowed range, until it is assigned anew."""
    subscriber = subscriber_of(connections)
    publisher = connections.join("p")
    aliases = range(1, TOPIC_ALIAS_MAXIMUM + 1)
    for alias in aliases:
        publisher.publish(f"{connections.name}/{alias}", b"named", props=[(P.TOPIC_ALIAS, alias)])
    for alias in aliases:
        publisher.publish("", b"short", qos=1, props=[(P.TOPIC_ALIAS, alias)])
    publisher.publish(f"{connections.name}/other", b"renamed", props=[(P.TOPIC_ALIAS, 1)])
    publisher.publish("", b"again", qos=1, props=[(P.TOPIC_ALIAS, 1)])
    found = subscriber.messages(2 * len(aliases) + 2)
    topics = [f"{connections.name}/{alias}" for alias in aliases]
    assert [one.topic for one in found] == [*topics, *topics, f"{connections.name}/other", f"{connections.name}/other"]
    assert all(one.one(P.TOPIC_ALIAS) is None for one in found)  # [MQTT-3.1.2-27]: this client allowed none


@pytest.mark.parametrize("alias", [pytest.param(0, marks=deviates("says 0x81")), TOPIC_ALIAS_MAXIMUM + 1, 65535])
@pytest.mark.parametrize("topic", ["named", ""])
def test_an_alias_out_of_range_is_refused(connections: Connections, alias: int, topic: str) -> None:
    """[MQTT-3.3.2-8], [MQTT-3.3.2-9]: 0x94"""
    publisher = connections.join("p")
    publisher.send(publish(topic, b"x", props=[(P.TOPIC_ALIAS, alias)]))
    assert publisher.close_reason() == ALIAS_INVALID


def test_an_unassigned_alias_is_a_protocol_error(connections: Connections) -> None:
    """3.3.4"""
    publisher = connections.join("p")
    publisher.send(publish("", b"x", props=[(P.TOPIC_ALIAS, 3)]))
    assert publisher.close_reason() in (PROTOCOL_ERROR, ALIAS_INVALID)


def test_an_alias_does_not_outlive_its_connection(connections: Connections) -> None:
    """[MQTT-3.3.2-7]"""
    first = connections.join("p", props=[LASTING])
    first.publish("x", b"x", qos=1, props=[(P.TOPIC_ALIAS, 3)])
    first.leave()
    second = connections.join("p", clean=False, props=[LASTING])
    second.send(publish("", b"x", props=[(P.TOPIC_ALIAS, 3)]))
    assert second.close_reason() in (PROTOCOL_ERROR, ALIAS_INVALID)


def test_aliases_to_a_client_stay_within_its_maximum_and_map_to_the_right_topics(connections: Connections) -> None:
    """[MQTT-3.1.2-26], [MQTT-3.1.2-27]: whether any are used is the server's choice; they must map to the right topic."""
    subscriber = subscriber_of(connections, (P.TOPIC_ALIAS_MAXIMUM, 3))
    publisher = connections.join("p")
    topics = [f"{connections.name}/{number % 5}" for number in range(50)]
    for topic in topics:
        publisher.publish(topic, topic.encode(), qos=1)
    known: dict[int, str] = {}
    for topic in topics:
        message = subscriber.message()
        subscriber.finish(message)
        alias = message.one(P.TOPIC_ALIAS)
        if alias is not None:
            assert isinstance(alias, int)
            assert 1 <= alias <= 3
            known[alias] = message.topic or known[alias]
            assert known[alias] == topic
        else:
            assert message.topic == topic
        assert message.payload == topic.encode()


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_message_above_the_client_s_maximum_packet_size_is_skipped(connections: Connections, qos: int) -> None:
    """[MQTT-3.1.2-24], [MQTT-3.1.2-25]: as if it had been sent; the next one follows."""
    subscriber = subscriber_of(connections, (P.MAXIMUM_PACKET_SIZE, 200))
    publisher = connections.join("p")
    publisher.publish(f"{connections.name}/x", b"x" * 200, qos=qos)
    publisher.publish(f"{connections.name}/x", b"small", qos=qos)
    found = subscriber.message()
    assert found.payload == b"small"
    subscriber.finish(found)
    assert subscriber.drain() == []


@deviates("sends one byte more")
def test_the_client_s_maximum_packet_size_is_exact_to_the_byte(connections: Connections) -> None:
    """3.1.2.11.4: the whole packet, with its fixed header."""
    subscriber = subscriber_of(connections, (P.MAXIMUM_PACKET_SIZE, 200))
    publisher = connections.join("p")
    topic = f"{connections.name}/x"
    publisher.publish(topic, b"", qos=0)
    room = 200 - subscriber.message().size - 1  # one more for a length of two bytes
    for length in range(room - 3, room + 4):
        publisher.publish(topic, b"y" * length, qos=0)
    publisher.publish(topic, b"end", qos=0)
    publisher.drain()
    found = subscriber.drain()
    assert [one.size for one in found[:-1]] == [197, 198, 199, 200]


def test_a_skipped_message_does_not_change_the_send_quota(connections: Connections) -> None:
    """[MQTT-3.1.2-25] with Receive Maximum: the quota stays right."""
    subscriber = subscriber_of(connections, (P.MAXIMUM_PACKET_SIZE, 100), (P.RECEIVE_MAXIMUM, 2))
    publisher = connections.join("p")
    for number in range(12):
        publisher.publish(f"{connections.name}/x", b"%d" % number + b"." * (200 if number % 2 else 1), qos=1)
    found = []
    for _ in range(6):
        found.append(subscriber.message())
        subscriber.finish(found[-1])
    assert [one.payload for one in found] == [b"%d." % number for number in range(0, 12, 2)]


@pytest.mark.parametrize("level", [V4, V5])
def test_a_packet_of_the_maximum_size_is_accepted(connections: Connections, level: int) -> None:
    """3.2.2.3.6: to the byte."""
    subscriber = connections.join("t", level)
    subscriber.subscribe((f"{connections.name}/#", 0))
    publisher = connections.join("p", level)
    head = len(publish(f"{connections.name}/x", b"", level, qos=1, packet_id=1)) + 3  # a length of four bytes instead of one
    publisher.publish(f"{connections.name}/x", b"z" * (PACKET_BYTES_MAX - head), qos=1)
    assert len(subscriber.message().payload) == PACKET_BYTES_MAX - head


@pytest.mark.parametrize("size", [pytest.param(PACKET_BYTES_MAX + 1, marks=NOT_COUNTED), 100_000_000, 268_435_460])
def test_a_packet_above_the_maximum_size_is_refused_by_its_length_alone(connections: Connections, size: int) -> None:
    """[MQTT-3.2.2-15]: 0x95, before the body has come."""
    publisher = connections.join("p")
    whole = packet(0x30, text("x") + b"\x00" + b"")
    header = 1 + len(varint(size - 4))
    publisher.send(whole[:1] + varint(size - header) + whole[2:])
    assert publisher.close_reason() == TOO_LARGE


def test_an_oversized_connect_is_refused(connections: Connections) -> None:
    """3.2.2.2 names 0x95 for CONNACK too."""
    client = connections.dial()
    whole = connect("x")
    client.send(whole[:1] + varint(PACKET_BYTES_MAX) + whole[2:] + b"x" * 1000)
    assert client.close_reason() in (None, TOO_LARGE)


def test_the_expiry_of_a_message_is_counted_down_while_it_waits(connections: Connections) -> None:
    """[MQTT-3.3.2-6]: the remaining time, in whole seconds."""
    subscriber = subscriber_of(connections, LASTING)
    subscriber.leave()
    publisher = connections.join("p")
    published_at = time.monotonic()
    publisher.publish(f"{connections.name}/x", b"x", qos=1, props=[(P.MESSAGE_EXPIRY, 100)])
    publisher.publish(f"{connections.name}/x", b"short", qos=1, props=[(P.MESSAGE_EXPIRY, 1)])
    publisher.publish(f"{connections.name}/x", b"forever", qos=1)
    wait_seconds(connections, 2)
    back = connections.join("t", clean=False, props=[LASTING])
    first, second = back.messages(2)
    waited_s = time.monotonic() - published_at
    assert 100 - waited_s - 1 <= first.number(P.MESSAGE_EXPIRY) <= 98
    assert (second.payload, second.one(P.MESSAGE_EXPIRY)) == (b"forever", None)


def wait_seconds(connections: Connections, seconds: int) -> None:
    """Wait for a will with this delay: the time passes by the broker's own clock."""
    watcher = connections.join("clock")
    watcher.subscribe((f"{connections.name}-clock", 0))
    will = Will(f"{connections.name}-clock", props=[(P.WILL_DELAY, seconds)])
    connections.join("ticks", props=[LASTING], will=will).drop()
    watcher.message(within_s=seconds + 10)


def test_a_message_that_is_delivered_at_once_keeps_its_whole_expiry(connections: Connections) -> None:
    subscriber = subscriber_of(connections)
    connections.join("p").publish(f"{connections.name}/x", b"x", qos=1, props=[(P.MESSAGE_EXPIRY, 50)])
    assert subscriber.message().number(P.MESSAGE_EXPIRY) in (49, 50)


@deviates("sends nothing more once the message at the front has expired")
def test_a_message_behind_a_full_receive_maximum_expires_too(connections: Connections) -> None:
    """[MQTT-3.3.2-5]: if delivery has not begun."""
    subscriber = subscriber_of(connections, (P.RECEIVE_MAXIMUM, 1))
    publisher = connections.join("p")
    publisher.publish(f"{connections.name}/x", b"first", qos=1)
    publisher.publish(f"{connections.name}/x", b"expires", qos=1, props=[(P.MESSAGE_EXPIRY, 1)])
    publisher.publish(f"{connections.name}/x", b"last", qos=1)
    wait_seconds(connections, 2)
    first = subscriber.message()
    subscriber.finish(first)
    assert subscriber.message().payload == b"last"


def test_a_retained_message_expires(connections: Connections) -> None:
    """[MQTT-3.3.2-5] for retained messages; the remaining time is sent (3.3.2.3.3)."""
    publisher = connections.join("p")
    publisher.publish(f"{connections.name}/a", b"short", qos=1, retain=True, props=[(P.MESSAGE_EXPIRY, 1)])
    publisher.publish(f"{connections.name}/b", b"long", qos=1, retain=True, props=[(P.MESSAGE_EXPIRY, 100)])
    wait_seconds(connections, 2)
    subscriber = subscriber_of(connections)
    found = subscriber.drain()
    assert [one.payload for one in found] == [b"long"]
    assert 80 < found[0].number(P.MESSAGE_EXPIRY) <= 98


@ours_only("Mosquitto does not announce it")
def test_the_requested_keep_alive_is_granted(connections: Connections) -> None:
    """3.2.2.3.14: no Server Keep Alive means the client's own holds."""
    assert connections.dial().join(connections.client_id("a"), keep_alive=65535).one(P.SERVER_KEEP_ALIVE) in (None, 65535)


def test_a_ping_is_answered_between_other_packets(connections: Connections) -> None:
    """[MQTT-3.12.4-1]: one PINGRESP each."""
    client = connections.join("a")
    client.send(PINGREQ * 5)
    assert [client.receive().kind for _ in range(5)] == [Kind.PINGRESP] * 5
