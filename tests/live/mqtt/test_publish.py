"""MQTT 5, 3.3 PUBLISH to 3.7 PUBCOMP, 4.3 QoS, 4.6 ordering. Messages go straight to their topic's takers here (M18, D2, D9)."""

from collections import Counter

import pytest

from live.mqtt.brokers import deviates
from live.mqtt.packets import V4, V5, Kind, P, Properties, ack, publish, short, text
from live.mqtt.packets import packet as packet_of
from live.mqtt.raw import Raw
from live.mqtt.visitors import Visitors

MALFORMED, PROTOCOL_ERROR, TOPIC_INVALID, ID_UNKNOWN = 0x81, 0x82, 0x90, 0x92
BOTH = pytest.mark.parametrize("level", [V4, V5])


def taker_of(visitors: Visitors, level: int = V5, qos: int = 2) -> Raw:
    taker = visitors.join("t", level)
    taker.subscribe((f"{visitors.name}/#", qos))
    return taker


@BOTH
@pytest.mark.parametrize("published", [0, 1, 2])
@pytest.mark.parametrize("granted", [0, 1, 2])
def test_a_message_arrives_with_the_lower_qos(visitors: Visitors, level: int, published: int, granted: int) -> None:
    """[MQTT-3.8.4-8]"""
    # M18
    taker = taker_of(visitors, level, granted)
    visitors.join("p", level).publish(f"{visitors.name}/x", b"\x00payload\xff", qos=published)
    found = taker.message()
    assert (found.topic, found.payload) == (f"{visitors.name}/x", b"\x00payload\xff")
    assert (found.qos, found.is_dup, found.is_retained) == (min(published, granted), False, False)


@BOTH
def test_puback_carries_the_identifier_and_says_success(visitors: Visitors, level: int) -> None:
    """[MQTT-4.3.2-4]; with no subscriber 0x10 is allowed in version 5 (3.4.2.1)."""
    publisher = visitors.join("p", level)
    publisher.send(publish(f"{visitors.name}/nobody", b"x", level, qos=1, packet_id=65535))
    found = publisher.expect(Kind.PUBACK)
    assert found.packet_id == 65535
    assert found.reason in ((0,) if level == V4 else (0, 0x10))
    assert level == V5 or len(found.body) == 2


@BOTH
def test_the_whole_exchange_of_qos_2_in_both_directions(visitors: Visitors, level: int) -> None:
    """4.3.3"""
    taker = taker_of(visitors, level)
    publisher = visitors.join("p", level)
    publisher.send(publish(f"{visitors.name}/x", b"x", level, qos=2, packet_id=5))
    assert publisher.expect(Kind.PUBREC).packet_id == 5
    publisher.acknowledge(Kind.PUBREL, 5)
    found = publisher.expect(Kind.PUBCOMP)
    assert (found.packet_id, found.reason) == (5, 0)
    message = taker.message()
    taker.acknowledge(Kind.PUBREC, message.packet_id)
    assert taker.expect(Kind.PUBREL).packet_id == message.packet_id
    taker.acknowledge(Kind.PUBCOMP, message.packet_id)
    assert taker.settle() == []


@BOTH
@deviates("ends the connection on a repetition within it")
def test_a_publish_of_qos_2_sent_twice_before_pubrel_is_delivered_once(visitors: Visitors, level: int) -> None:
    """[MQTT-4.3.3-10]: each is answered by PUBREC."""
    taker = taker_of(visitors, level)
    publisher = visitors.join("p", level)
    first = publish(f"{visitors.name}/x", b"once", level, qos=2, packet_id=9)
    again = publish(f"{visitors.name}/x", b"once", level, qos=2, packet_id=9, dup=True)
    publisher.send(first, again, again)
    assert [publisher.expect(Kind.PUBREC).packet_id for _ in range(3)] == [9, 9, 9]
    publisher.acknowledge(Kind.PUBREL, 9)
    assert publisher.expect(Kind.PUBCOMP).packet_id == 9
    visitors.join("q", level).publish(f"{visitors.name}/x", b"last", qos=1)
    assert [one.payload for one in taker.messages(2)] == [b"once", b"last"]


@BOTH
def test_an_identifier_is_free_again_after_pubcomp(visitors: Visitors, level: int) -> None:
    """[MQTT-4.3.3-12]: the same number then begins a new message."""
    taker = taker_of(visitors, level)
    publisher = visitors.join("p", level)
    for payload in (b"one", b"two"):
        publisher.publish(f"{visitors.name}/x", payload, qos=2, packet_id=3)
    assert [one.payload for one in taker.messages(2)] == [b"one", b"two"]


@deviates("answers 0x00")
def test_pubrel_for_an_unknown_identifier_is_answered_0x92(visitors: Visitors) -> None:
    """3.7.2.1"""
    publisher = visitors.join("p")
    publisher.acknowledge(Kind.PUBREL, 4711)
    found = publisher.expect(Kind.PUBCOMP)
    assert (found.packet_id, found.reason) == (4711, ID_UNKNOWN)


def test_pubrel_for_an_unknown_identifier_is_completed_in_3_1_1(visitors: Visitors) -> None:
    """4.3.3 of 3.1.1 knows no reason: a lost PUBCOMP looks the same."""
    publisher = visitors.join("p", V4)
    publisher.acknowledge(Kind.PUBREL, 4711)
    assert publisher.expect(Kind.PUBCOMP).packet_id == 4711


@deviates("answers 0x00")
def test_pubrec_for_an_unknown_identifier_is_answered_0x92(visitors: Visitors) -> None:
    """3.6.2.1"""
    client = visitors.join("a")
    client.acknowledge(Kind.PUBREC, 4711)
    found = client.expect(Kind.PUBREL)
    assert (found.packet_id, found.reason) == (4711, ID_UNKNOWN)


@BOTH
@pytest.mark.parametrize("kind", [Kind.PUBACK, Kind.PUBCOMP])
def test_an_acknowledgement_nobody_waits_for_does_no_harm(visitors: Visitors, level: int, kind: Kind) -> None:
    client = visitors.join("a", level)
    client.acknowledge(kind, 4711)
    assert client.is_open()


def test_a_pubrec_with_an_error_ends_the_exchange(visitors: Visitors) -> None:
    """[MQTT-4.3.3-4]: no PUBREL follows, and the identifier is free."""
    taker = taker_of(visitors)
    publisher = visitors.join("p")
    publisher.publish(f"{visitors.name}/x", b"refused", qos=2)
    taker.acknowledge(Kind.PUBREC, taker.message().packet_id, 0x97)
    publisher.publish(f"{visitors.name}/x", b"taken", qos=2)
    found = taker.settle()
    assert [(one.kind, one.payload) for one in found] == [(Kind.PUBLISH, b"taken")]


@BOTH
@deviates("takes it")
def test_a_publish_of_qos_0_with_dup_is_malformed(visitors: Visitors, level: int) -> None:
    """[MQTT-3.3.1-2]"""
    client = visitors.join("a", level)
    client.send(publish(visitors.name, b"x", level, dup=True))
    assert client.last_words() in ((None,) if level == V4 else (MALFORMED, PROTOCOL_ERROR))


@BOTH
def test_qos_3_is_malformed(visitors: Visitors, level: int) -> None:
    """[MQTT-3.3.1-4]"""
    client = visitors.join("a", level)
    client.send(publish(visitors.name, b"x", level, qos=3, packet_id=1))
    assert client.last_words() in ((None,) if level == V4 else (MALFORMED, PROTOCOL_ERROR))


@BOTH
@pytest.mark.parametrize("qos", [1, 2])
def test_a_packet_identifier_of_zero_is_a_fault(visitors: Visitors, level: int, qos: int) -> None:
    """[MQTT-2.2.1-3]"""
    client = visitors.join("a", level)
    client.send(publish(visitors.name, b"x", level, qos=qos, packet_id=0))
    assert client.last_words() in ((None,) if level == V4 else (MALFORMED, PROTOCOL_ERROR))


@BOTH
@pytest.mark.parametrize("topic", ["a/+", "#", "a/#/b", "+"])
def test_a_topic_with_wildcards_cannot_be_published_to(visitors: Visitors, level: int, topic: str) -> None:
    """[MQTT-3.3.2-2]"""
    client = visitors.join("a", level)
    client.send(publish(topic, b"x", level))
    assert client.last_words() in ((None,) if level == V4 else (MALFORMED, PROTOCOL_ERROR, TOPIC_INVALID))


@BOTH
def test_a_topic_of_no_characters_cannot_be_published_to(visitors: Visitors, level: int) -> None:
    """[MQTT-4.7.3-1]; in version 5 without an alias (3.3.2.1)."""
    client = visitors.join("a", level)
    client.send(publish("", b"x", level))
    assert client.last_words() in ((None,) if level == V4 else (MALFORMED, PROTOCOL_ERROR, TOPIC_INVALID))


@BOTH
@pytest.mark.parametrize("payload", [b"", b"\x00", bytes(range(256)), b"x" * 70_000])
@pytest.mark.parametrize("qos", [0, 1])
def test_payloads_arrive_byte_for_byte(visitors: Visitors, level: int, qos: int, payload: bytes) -> None:
    taker = taker_of(visitors, level)
    visitors.join("p", level).publish(f"{visitors.name}/x", payload, qos=qos)
    assert taker.message().payload == payload


@BOTH
@pytest.mark.parametrize("length", [0, 1, 110, 127, 128, 16_000, 16_384, 1_999_000])
def test_lengths_of_one_to_four_bytes_are_read_and_written(visitors: Visitors, level: int, length: int) -> None:
    """2.1.4"""
    taker = taker_of(visitors, level)
    visitors.join("p", level).publish(f"{visitors.name}/x", b"m" * length, qos=1)
    assert len(taker.message().payload) == length


def test_the_properties_of_a_message_go_with_it(visitors: Visitors) -> None:
    """[MQTT-3.3.2-4], [MQTT-3.3.2-15], [MQTT-3.3.2-17], [MQTT-3.3.2-18], [MQTT-3.3.2-20]: unaltered, user properties in order."""
    taker = taker_of(visitors)
    told: Properties = [
        (P.USER_PROPERTY, ("z", "1")),
        (P.PAYLOAD_FORMAT, 1),
        (P.CONTENT_TYPE, "text/plain; charset=utf-8"),
        (P.USER_PROPERTY, ("a", "")),
        (P.RESPONSE_TOPIC, "answers/here"),
        (P.CORRELATION_DATA, b"\x00\x01\xff"),
        (P.USER_PROPERTY, ("z", "ü")),
    ]
    visitors.join("p").publish(f"{visitors.name}/x", "größe".encode(), qos=1, props=told)
    found = taker.message()
    assert found.all(P.USER_PROPERTY) == [("z", "1"), ("a", ""), ("z", "ü")]
    assert Counter(found.properties) == Counter(told)


def test_a_client_of_3_1_1_gets_a_message_without_its_properties(visitors: Visitors) -> None:
    taker = taker_of(visitors, V4)
    visitors.join("p").publish(f"{visitors.name}/x", b"plain", qos=1, props=[(P.USER_PROPERTY, ("a", "b"))])
    assert taker.message().payload == b"plain"


@pytest.mark.parametrize("topic", ["answers/+", "#"])
@deviates("takes it")
def test_a_response_topic_with_wildcards_is_a_fault(visitors: Visitors, topic: str) -> None:
    """[MQTT-3.3.2-14]"""
    client = visitors.join("a")
    client.send(publish(visitors.name, b"x", props=[(P.RESPONSE_TOPIC, topic)]))
    assert client.last_words() in (MALFORMED, PROTOCOL_ERROR, TOPIC_INVALID)


@deviates("takes it")
def test_a_client_may_not_send_a_subscription_identifier(visitors: Visitors) -> None:
    """[MQTT-3.3.4-6]"""
    client = visitors.join("a")
    client.send(publish(visitors.name, b"x", props=[(P.SUBSCRIPTION_ID, 1)]))
    assert client.last_words() in (MALFORMED, PROTOCOL_ERROR)


@pytest.mark.parametrize(
    "props",
    [
        pytest.param([(P.MESSAGE_EXPIRY, 1)] * 2, marks=deviates("closes without saying why")),
        pytest.param([(P.CONTENT_TYPE, "a")] * 2, marks=deviates("closes without saying why")),
        [(P.SESSION_EXPIRY, 1)],
        pytest.param([(P.PAYLOAD_FORMAT, 2)], marks=deviates("takes it")),
    ],
)
def test_a_wrong_property_in_publish_is_a_fault(visitors: Visitors, props: Properties) -> None:
    """3.3.2.3: twice, of another packet, out of range."""
    client = visitors.join("a")
    client.send(publish(visitors.name, b"x", props=props))
    assert client.last_words() in (MALFORMED, PROTOCOL_ERROR)


@BOTH
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_messages_of_one_publisher_arrive_in_order(visitors: Visitors, level: int, qos: int) -> None:
    """[MQTT-4.6.0-5], [MQTT-4.6.0-6]"""
    taker = taker_of(visitors, level)
    publisher = visitors.join("p", level)
    for start in range(0, 200, 20):
        numbers = range(start, start + 20)
        publisher.send(*(publish(f"{visitors.name}/x", b"%d" % one, level, qos=qos, packet_id=one + 1) for one in numbers))
        kind = Kind.PUBACK if qos == 1 else Kind.PUBREC
        assert [publisher.expect(kind).packet_id for _ in numbers if qos] == [one + 1 for one in numbers if qos]
        publisher.send(*(ack(Kind.PUBREL, one + 1, level=level) for one in numbers if qos == 2))
        assert [publisher.expect(Kind.PUBCOMP).packet_id for _ in numbers if qos == 2] == [one + 1 for one in numbers if qos == 2]
        for one in numbers:
            message = taker.take(Kind.PUBLISH)
            assert message.payload == b"%d" % one
            taker.finish(message)


def test_the_short_and_the_long_form_of_an_acknowledgement_are_both_understood(visitors: Visitors) -> None:
    """3.4.2.1, 3.4.2.2.1: with remaining length 2, 3, or with properties."""
    taker = taker_of(visitors, V5, 1)
    publisher = visitors.join("p")
    for number, ending in enumerate([b"", b"\x00", b"\x00\x00", b"\x10", b"\x00\x09\x1f" + text("thanks")]):
        publisher.publish(f"{visitors.name}/x", b"%d" % number, qos=1)
        taker.send(packet_of(0x40, short(taker.message().packet_id) + ending))
        assert taker.settle() == []
