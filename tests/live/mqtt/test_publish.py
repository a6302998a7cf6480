"""MQTT 5, 3.3 PUBLISH to 3.7 PUBCOMP, 4.3 QoS, 4.6 ordering. Delivery is direct, by topic (M18, D2, D9)."""

from collections import Counter

import pytest

from live.mqtt.brokers import deviates
from live.mqtt.connections import Connections
from live.mqtt.packets import V4, V5, Kind, P, Properties, ack, publish, short, text
from live.mqtt.packets import packet as packet_of
from live.mqtt.raw_client import RawClient

MALFORMED, PROTOCOL_ERROR, TOPIC_INVALID, ID_UNKNOWN = 0x81, 0x82, 0x90, 0x92
BOTH = pytest.mark.parametrize("level", [V4, V5])


def subscriber_of(connections: Connections, level: int = V5, qos: int = 2) -> RawClient:
    subscriber = connections.join("t", level)
    subscriber.subscribe((f"{connections.name}/#", qos))
    return subscriber


@BOTH
@pytest.mark.parametrize("published", [0, 1, 2])
@pytest.mark.parametrize("granted", [0, 1, 2])
def test_a_message_arrives_with_the_lower_qos(connections: Connections, level: int, published: int, granted: int) -> None:
    """[MQTT-3.8.4-8]"""
    # M18
    subscriber = subscriber_of(connections, level, granted)
    connections.join("p", level).publish(f"{connections.name}/x", b"\x00payload\xff", qos=published)
    found = subscriber.message()
    assert (found.topic, found.payload) == (f"{connections.name}/x", b"\x00payload\xff")
    assert (found.qos, found.is_dup, found.is_retained) == (min(published, granted), False, False)


@BOTH
def test_puback_carries_the_packet_identifier_and_success(connections: Connections, level: int) -> None:
    """[MQTT-4.3.2-4]; with no subscriber 0x10 is allowed in version 5 (3.4.2.1)."""
    publisher = connections.join("p", level)
    publisher.send(publish(f"{connections.name}/nobody", b"x", level, qos=1, packet_id=65535))
    found = publisher.expect(Kind.PUBACK)
    assert found.packet_id == 65535
    assert found.reason in ((0,) if level == V4 else (0, 0x10))
    assert level == V5 or len(found.body) == 2


@BOTH
def test_the_whole_exchange_of_qos_2_in_both_directions(connections: Connections, level: int) -> None:
    """4.3.3"""
    subscriber = subscriber_of(connections, level)
    publisher = connections.join("p", level)
    publisher.send(publish(f"{connections.name}/x", b"x", level, qos=2, packet_id=5))
    assert publisher.expect(Kind.PUBREC).packet_id == 5
    publisher.acknowledge(Kind.PUBREL, 5)
    found = publisher.expect(Kind.PUBCOMP)
    assert (found.packet_id, found.reason) == (5, 0)
    message = subscriber.message()
    subscriber.acknowledge(Kind.PUBREC, message.packet_id)
    assert subscriber.expect(Kind.PUBREL).packet_id == message.packet_id
    subscriber.acknowledge(Kind.PUBCOMP, message.packet_id)
    assert subscriber.drain() == []


@BOTH
@deviates("ends the connection on a repetition within it")
def test_a_publish_of_qos_2_sent_twice_before_pubrel_is_delivered_once(connections: Connections, level: int) -> None:
    """[MQTT-4.3.3-10]: each is answered by PUBREC."""
    subscriber = subscriber_of(connections, level)
    publisher = connections.join("p", level)
    first = publish(f"{connections.name}/x", b"once", level, qos=2, packet_id=9)
    again = publish(f"{connections.name}/x", b"once", level, qos=2, packet_id=9, dup=True)
    publisher.send(first, again, again)
    assert [publisher.expect(Kind.PUBREC).packet_id for _ in range(3)] == [9, 9, 9]
    publisher.acknowledge(Kind.PUBREL, 9)
    assert publisher.expect(Kind.PUBCOMP).packet_id == 9
    connections.join("q", level).publish(f"{connections.name}/x", b"last", qos=1)
    assert [one.payload for one in subscriber.messages(2)] == [b"once", b"last"]


@BOTH
def test_a_packet_identifier_is_free_again_after_pubcomp(connections: Connections, level: int) -> None:
    """[MQTT-4.3.3-12]: the same number then begins a new message."""
    subscriber = subscriber_of(connections, level)
    publisher = connections.join("p", level)
    for payload in (b"one", b"two"):
        publisher.publish(f"{connections.name}/x", payload, qos=2, packet_id=3)
    assert [one.payload for one in subscriber.messages(2)] == [b"one", b"two"]


@deviates("answers 0x00")
def test_pubrel_for_an_unknown_identifier_is_answered_0x92(connections: Connections) -> None:
    """3.7.2.1"""
    publisher = connections.join("p")
    publisher.acknowledge(Kind.PUBREL, 4711)
    found = publisher.expect(Kind.PUBCOMP)
    assert (found.packet_id, found.reason) == (4711, ID_UNKNOWN)


def test_pubrel_for_an_unknown_identifier_is_completed_in_3_1_1(connections: Connections) -> None:
    """4.3.3 of 3.1.1 knows no reason: a lost PUBCOMP looks the same."""
    publisher = connections.join("p", V4)
    publisher.acknowledge(Kind.PUBREL, 4711)
    assert publisher.expect(Kind.PUBCOMP).packet_id == 4711


@deviates("answers 0x00")
def test_pubrec_for_an_unknown_identifier_is_answered_0x92(connections: Connections) -> None:
    """3.6.2.1"""
    client = connections.join("a")
    client.acknowledge(Kind.PUBREC, 4711)
    found = client.expect(Kind.PUBREL)
    assert (found.packet_id, found.reason) == (4711, ID_UNKNOWN)


@BOTH
@pytest.mark.parametrize("kind", [Kind.PUBACK, Kind.PUBCOMP])
def test_an_unexpected_acknowledgement_is_ignored(connections: Connections, level: int, kind: Kind) -> None:
    client = connections.join("a", level)
    client.acknowledge(kind, 4711)
    assert client.is_open()


def test_a_pubrec_with_an_error_ends_the_exchange(connections: Connections) -> None:
    """[MQTT-4.3.3-4]: no PUBREL follows, and the identifier is free."""
    subscriber = subscriber_of(connections)
    publisher = connections.join("p")
    publisher.publish(f"{connections.name}/x", b"refused", qos=2)
    subscriber.acknowledge(Kind.PUBREC, subscriber.message().packet_id, 0x97)
    publisher.publish(f"{connections.name}/x", b"taken", qos=2)
    found = subscriber.drain()
    assert [(one.kind, one.payload) for one in found] == [(Kind.PUBLISH, b"taken")]


@BOTH
@deviates("takes it")
def test_a_publish_of_qos_0_with_dup_is_malformed(connections: Connections, level: int) -> None:
    """[MQTT-3.3.1-2]"""
    client = connections.join("a", level)
    client.send(publish(connections.name, b"x", level, dup=True))
    assert client.close_reason() in ((None,) if level == V4 else (MALFORMED, PROTOCOL_ERROR))


@BOTH
def test_qos_3_is_malformed(connections: Connections, level: int) -> None:
    """[MQTT-3.3.1-4]"""
    client = connections.join("a", level)
    client.send(publish(connections.name, b"x", level, qos=3, packet_id=1))
    assert client.close_reason() in ((None,) if level == V4 else (MALFORMED, PROTOCOL_ERROR))


@BOTH
@pytest.mark.parametrize("qos", [1, 2])
def test_a_packet_identifier_of_zero_is_a_fault(connections: Connections, level: int, qos: int) -> None:
    """[MQTT-2.2.1-3]"""
    client = connections.join("a", level)
    client.send(publish(connections.name, b"x", level, qos=qos, packet_id=0))
    assert client.close_reason() in ((None,) if level == V4 else (MALFORMED, PROTOCOL_ERROR))


@BOTH
@pytest.mark.parametrize("topic", ["a/+", "#", "a/#/b", "+"])
def test_a_topic_with_wildcards_cannot_be_published_to(connections: Connections, level: int, topic: str) -> None:
    """[MQTT-3.3.2-2]"""
    client = connections.join("a", level)
    client.send(publish(topic, b"x", level))
    assert client.close_reason() in ((None,) if level == V4 else (MALFORMED, PROTOCOL_ERROR, TOPIC_INVALID))


@BOTH
def test_a_topic_of_no_characters_cannot_be_published_to(connections: Connections, level: int) -> None:
    """[MQTT-4.7.3-1]; in version 5 without an alias (3.3.2.1)."""
    client = connections.join("a", level)
    client.send(publish("", b"x", level))
    assert client.close_reason() in ((None,) if level == V4 else (MALFORMED, PROTOCOL_ERROR, TOPIC_INVALID))


@BOTH
@pytest.mark.parametrize("payload", [b"", b"\x00", bytes(range(256)), b"x" * 70_000])
@pytest.mark.parametrize("qos", [0, 1])
def test_payloads_arrive_byte_for_byte(connections: Connections, level: int, qos: int, payload: bytes) -> None:
    subscriber = subscriber_of(connections, level)
    connections.join("p", level).publish(f"{connections.name}/x", payload, qos=qos)
    assert subscriber.message().payload == payload


@BOTH
@pytest.mark.parametrize("length", [0, 1, 110, 127, 128, 16_000, 16_384, 1_999_000])
def test_lengths_of_one_to_four_bytes_are_read_and_written(connections: Connections, level: int, length: int) -> None:
    """2.1.4"""
    subscriber = subscriber_of(connections, level)
    connections.join("p", level).publish(f"{connections.name}/x", b"m" * length, qos=1)
    assert len(subscriber.message().payload) == length


def test_the_properties_of_a_message_are_forwarded(connections: Connections) -> None:
    """[MQTT-3.3.2-4], [MQTT-3.3.2-15], [MQTT-3.3.2-17], [MQTT-3.3.2-18], [MQTT-3.3.2-20]: unaltered, user properties in order."""
    subscriber = subscriber_of(connections)
    sent_properties: Properties = [
        (P.USER_PROPERTY, ("z", "1")),
        (P.PAYLOAD_FORMAT, 1),
        (P.CONTENT_TYPE, "text/plain; charset=utf-8"),
        (P.USER_PROPERTY, ("a", "")),
        (P.RESPONSE_TOPIC, "answers/here"),
        (P.CORRELATION_DATA, b"\x00\x01\xff"),
        (P.USER_PROPERTY, ("z", "ü")),
    ]
    connections.join("p").publish(f"{connections.name}/x", "größe".encode(), qos=1, props=sent_properties)
    found = subscriber.message()
    assert found.all(P.USER_PROPERTY) == [("z", "1"), ("a", ""), ("z", "ü")]
    assert Counter(found.properties) == Counter(sent_properties)


def test_a_3_1_1_client_receives_a_message_without_its_properties(connections: Connections) -> None:
    subscriber = subscriber_of(connections, V4)
    connections.join("p").publish(f"{connections.name}/x", b"plain", qos=1, props=[(P.USER_PROPERTY, ("a", "b"))])
    assert subscriber.message().payload == b"plain"


@pytest.mark.parametrize("topic", ["answers/+", "#"])
@deviates("takes it")
def test_a_response_topic_with_wildcards_is_a_fault(connections: Connections, topic: str) -> None:
    """[MQTT-3.3.2-14]"""
    client = connections.join("a")
    client.send(publish(connections.name, b"x", props=[(P.RESPONSE_TOPIC, topic)]))
    assert client.close_reason() in (MALFORMED, PROTOCOL_ERROR, TOPIC_INVALID)


@deviates("takes it")
def test_a_client_may_not_send_a_subscription_identifier(connections: Connections) -> None:
    """[MQTT-3.3.4-6]"""
    client = connections.join("a")
    client.send(publish(connections.name, b"x", props=[(P.SUBSCRIPTION_ID, 1)]))
    assert client.close_reason() in (MALFORMED, PROTOCOL_ERROR)


@pytest.mark.parametrize(
    "props",
    [
        pytest.param([(P.MESSAGE_EXPIRY, 1)] * 2, marks=deviates("closes without a reason")),
        pytest.param([(P.CONTENT_TYPE, "a")] * 2, marks=deviates("closes without a reason")),
        [(P.SESSION_EXPIRY, 1)],
        pytest.param([(P.PAYLOAD_FORMAT, 2)], marks=deviates("takes it")),
    ],
)
def test_a_wrong_property_in_publish_is_a_fault(connections: Connections, props: Properties) -> None:
    """3.3.2.3: twice, of another packet, out of range."""
    client = connections.join("a")
    client.send(publish(connections.name, b"x", props=props))
    assert client.close_reason() in (MALFORMED, PROTOCOL_ERROR)


@BOTH
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_messages_of_one_publisher_arrive_in_order(connections: Connections, level: int, qos: int) -> None:
    """[MQTT-4.6.0-5], [MQTT-4.6.0-6]"""
    subscriber = subscriber_of(connections, level)
    publisher = connections.join("p", level)
    for start in range(0, 200, 20):
        numbers = range(start, start + 20)
        publisher.send(*(publish(f"{connections.name}/x", b"%d" % one, level, qos=qos, packet_id=one + 1) for one in numbers))
        kind = Kind.PUBACK if qos == 1 else Kind.PUBREC
        assert [publisher.expect(kind).packet_id for _ in numbers if qos] == [one + 1 for one in numbers if qos]
        publisher.send(*(ack(Kind.PUBREL, one + 1, level=level) for one in numbers if qos == 2))
        assert [publisher.expect(Kind.PUBCOMP).packet_id for _ in numbers if qos == 2] == [one + 1 for one in numbers if qos == 2]
        for one in numbers:
            message = subscriber.take(Kind.PUBLISH)
            assert message.payload == b"%d" % one
            subscriber.finish(message)


def test_short_and_long_acknowledgements_are_both_understood(connections: Connections) -> None:
    """3.4.2.1, 3.4.2.2.1: with remaining length 2, 3, or with properties."""
    subscriber = subscriber_of(connections, V5, 1)
    publisher = connections.join("p")
    for number, ending in enumerate([b"", b"\x00", b"\x00\x00", b"\x10", b"\x00\x09\x1f" + text("thanks")]):
        publisher.publish(f"{connections.name}/x", b"%d" % number, qos=1)
        subscriber.send(packet_of(0x40, short(subscriber.message().packet_id) + ending))
        assert subscriber.drain() == []
