"""MQTT 5, 3.8 SUBSCRIBE to 3.11 UNSUBACK, 4.7 topic names and filters."""

import pytest

from live.mqtt.brokers import deviates
from live.mqtt.connections import Connections
from live.mqtt.packets import V4, V5, Kind, P, packet, properties, publish, short, subscribe, text, unsubscribe
from live.mqtt.raw_client import Closed

MALFORMED, PROTOCOL_ERROR, FILTER_INVALID, NO_SUBSCRIPTION = 0x81, 0x82, 0x8F, 0x11
NO_LOCAL, AS_PUBLISHED = 0x04, 0x08
BOTH = pytest.mark.parametrize("level", [V4, V5])


@BOTH
def test_suback_grants_each_filter_its_qos_in_order(connections: Connections, level: int) -> None:
    """[MQTT-3.8.4-5], [MQTT-3.8.4-6]"""
    client = connections.join("a", level)
    found = client.subscribe(("a", 2), ("b/+", 0), ("c/#", 1), ("a", 1))
    assert found.codes == (2, 0, 1, 1)


@BOTH
@pytest.mark.parametrize(
    ("topic_filter", "topic", "is_match"),
    [
        ("{}/a/b", "{}/a/b", True),
        ("{}/a", "{}/a/b", False),
        ("{}/a/b", "{}/a", False),
        ("{}/A", "{}/a", False),
        ("{}/#", "{}", True),
        ("{}/#", "{}/a", True),
        ("{}/#", "{}/a/b/c", True),
        ("{}/#", "{}/", True),
        ("{}/+", "{}", False),
        ("{}/+", "{}/a", True),
        ("{}/+", "{}/a/b", False),
        ("{}/+", "{}/", True),
        ("{}/+/+", "{}//", True),
        ("{}/+/c", "{}/b/c", True),
        ("{}/+/c", "{}//c", True),
        ("{}/+/#", "{}/b", True),
        ("{}/+/#", "{}/b/c/d", True),
        ("{}/+/#", "{}", False),
        ("+/{}", "/{}", True),
        ("/{}", "/{}", True),
        ("/+", "{}/x", False),
        ("{}/a b", "{}/a b", True),
        ("{}/ü/€", "{}/ü/€", True),
    ],
)  # fmt: skip
def test_filters_match_level_by_level(
    connections: Connections, level: int, topic_filter: str, topic: str, is_match: bool
) -> None:
    """4.7"""
    subscriber = connections.join("t", level)
    subscriber.subscribe((topic_filter.format(connections.name), 0))
    publisher = connections.join("p", level)
    publisher.publish(topic.format(connections.name), b"x", qos=1)
    found = [one.payload for one in subscriber.drain()]
    assert found == ([b"x"] if is_match else [])


@BOTH
@pytest.mark.parametrize("topic_filter", ["#", "+/#", "+/broker/#"])
def test_leading_wildcards_do_not_match_topics_that_begin_with_a_dollar(
    connections: Connections, level: int, topic_filter: str
) -> None:
    """[MQTT-4.7.2-1]: only a filter that names the $ matches, for retained and live messages."""
    subscriber, witness = connections.join("t", level), connections.join("w", level)
    subscriber.subscribe((topic_filter, 0))
    witness.subscribe(("$SYS/#", 0))
    while (seen := witness.take(Kind.PUBLISH)).is_retained:
        assert seen.topic.startswith("$SYS/")
    assert [one.topic for one in subscriber.drain() if one.topic.startswith("$")] == []


@BOTH
@pytest.mark.parametrize("wrong", ["a/#/b", "#a", "a#", "a+", "+a/b", "a/b+", "a/##", "++", ""])
def test_a_filter_with_a_misplaced_wildcard_is_refused(connections: Connections, level: int, wrong: str) -> None:
    """[MQTT-4.7.1-1], [MQTT-4.7.1-2], [MQTT-4.7.3-1]: closed as malformed, or refused in the SUBACK."""
    client = connections.join("a", level)
    client.send(subscribe(7, (wrong, 0), level=level))
    try:
        found = client.receive()
    except Closed:
        assert level == V4, "version 5 sends a reason"
        return
    answer = found.codes if found.kind == Kind.SUBACK else (found.reason,)
    assert answer[0] in ((0x80,) if level == V4 else (MALFORMED, PROTOCOL_ERROR, FILTER_INVALID))


@BOTH
def test_a_subscribe_without_filters_is_a_protocol_error(connections: Connections, level: int) -> None:
    """[MQTT-3.8.3-2]"""
    client = connections.join("a", level)
    client.send(subscribe(1, level=level))
    assert client.close_reason() in ((None,) if level == V4 else (MALFORMED, PROTOCOL_ERROR))


@BOTH
def test_an_unsubscribe_without_filters_is_a_protocol_error(connections: Connections, level: int) -> None:
    """[MQTT-3.10.3-2]"""
    client = connections.join("a", level)
    client.send(unsubscribe(1, level=level))
    assert client.close_reason() in ((None,) if level == V4 else (MALFORMED, PROTOCOL_ERROR))


@BOTH
def test_a_subscribe_with_identifier_zero_is_a_fault(connections: Connections, level: int) -> None:
    """[MQTT-2.2.1-3]"""
    client = connections.join("a", level)
    client.send(subscribe(0, ("a", 0), level=level))
    assert client.close_reason() in ((None,) if level == V4 else (MALFORMED, PROTOCOL_ERROR))


@pytest.mark.parametrize("options", [3, 0x30, 0x40, 0x80])
def test_wrong_subscription_options_are_a_fault(connections: Connections, options: int) -> None:
    """[MQTT-3.8.3-5] and 3.8.3.1: QoS 3, retain handling 3, reserved bits."""
    client = connections.join("a")
    client.send(subscribe(1, ("a", options)))
    assert client.close_reason() in (MALFORMED, PROTOCOL_ERROR)


@pytest.mark.parametrize("options", [3, 0x04, 0x10, 0x80])
def test_wrong_subscription_options_are_a_fault_in_3_1_1(connections: Connections, options: int) -> None:
    """3.1.1 [MQTT-3-8.3-4]: the upper six bits are reserved."""
    client = connections.join("a", V4)
    client.send(subscribe(1, ("a", options), level=V4))
    assert client.close_reason() is None


@BOTH
def test_unsubscribing_ends_delivery(connections: Connections, level: int) -> None:
    """[MQTT-3.10.4-1] to [MQTT-3.10.4-4]: the filter is compared character by character."""
    topic = f"{connections.name}/x"
    subscriber, publisher = connections.join("t", level), connections.join("p", level)
    subscriber.subscribe((topic, 1))
    subscriber.unsubscribe(f"{connections.name}/+")
    publisher.publish(topic, b"still", qos=1)
    message = subscriber.message()
    assert message.payload == b"still"
    subscriber.finish(message)
    subscriber.unsubscribe(topic)
    publisher.publish(topic, b"no more", qos=1)
    assert subscriber.drain() == []


def test_unsuback_tells_for_each_filter_whether_it_existed(connections: Connections) -> None:
    """3.11.3: 0x00 and 0x11"""
    client = connections.join("a")
    client.subscribe((connections.name, 1), (f"{connections.name}/+", 0))
    found = client.unsubscribe(f"{connections.name}/+", "never/was", connections.name, connections.name)
    assert found.codes == (0, NO_SUBSCRIPTION, 0, NO_SUBSCRIPTION)


def test_unsuback_of_3_1_1_has_no_payload(connections: Connections) -> None:
    client = connections.join("a", V4)
    assert client.unsubscribe("never/was", "nor/this").codes == ()


@BOTH
def test_a_qos_2_exchange_begun_before_unsubscribe_is_finished(connections: Connections, level: int) -> None:
    """[MQTT-3.10.4-3]: a QoS 2 exchange that has begun continues."""
    subscriber = connections.join("t", level)
    subscriber.subscribe((connections.name, 2))
    connections.join("p", level).publish(connections.name, b"x", qos=2)
    message = subscriber.message()
    subscriber.unsubscribe(connections.name)
    subscriber.finish(message)
    assert subscriber.drain() == []


@BOTH
def test_subscribing_again_replaces_the_qos(connections: Connections, level: int) -> None:
    """[MQTT-3.8.4-3]"""
    subscriber, publisher = connections.join("t", level), connections.join("p", level)
    subscriber.subscribe((connections.name, 2))
    subscriber.subscribe((connections.name, 0))
    publisher.publish(connections.name, b"x", qos=2)
    assert [one.qos for one in subscriber.drain()] == [0]


def test_overlapping_subscriptions_deliver_with_the_highest_qos(connections: Connections) -> None:
    """[MQTT-3.3.4-2]: once with the highest, or once each with its own."""
    subscriber, publisher = connections.join("t"), connections.join("p")
    subscriber.subscribe((f"{connections.name}/#", 0), (f"{connections.name}/+", 2), (f"{connections.name}/x", 1))
    publisher.publish(f"{connections.name}/x", b"x", qos=2)
    found = sorted(one.qos for one in subscriber.drain())
    assert found in ([2], [0, 1, 2])


def test_a_subscription_identifier_is_sent_with_its_messages(connections: Connections) -> None:
    """[MQTT-3.3.4-3]; the largest is 268,435,455."""
    subscriber, publisher = connections.join("t"), connections.join("p")
    subscriber.subscribe((f"{connections.name}/a", 1), (f"{connections.name}/b", 1), props=[(P.SUBSCRIPTION_ID, 268_435_455)])
    subscriber.subscribe((f"{connections.name}/c", 1))
    for end in "abc":
        publisher.publish(f"{connections.name}/{end}", end.encode(), qos=1)
    assert [one.one(P.SUBSCRIPTION_ID) for one in subscriber.messages(3)] == [268_435_455, 268_435_455, None]


def test_overlapping_subscriptions_carry_all_their_identifiers(connections: Connections) -> None:
    """[MQTT-3.3.4-4], [MQTT-3.3.4-5]: all in one message, or one in each copy."""
    subscriber, publisher = connections.join("t"), connections.join("p")
    for number, topic_filter in enumerate(("#", "+/x", "a/x", "a/+"), start=1):
        subscriber.subscribe((f"{connections.name}/{topic_filter}", 1), props=[(P.SUBSCRIPTION_ID, number)])
    publisher.publish(f"{connections.name}/a/x", b"x", qos=1)
    found = subscriber.drain()
    assert sorted(value for one in found for value in one.all(P.SUBSCRIPTION_ID) if isinstance(value, int)) == [1, 2, 3, 4]
    assert len(found) in (1, 4)


def test_a_subscription_identifier_is_replaced_or_dropped_by_subscribing_again(connections: Connections) -> None:
    """3.8.4: an existing subscription is replaced completely."""
    subscriber, publisher = connections.join("t"), connections.join("p")
    found = []
    for props in ([(P.SUBSCRIPTION_ID, 1)], [(P.SUBSCRIPTION_ID, 2)], []):
        subscriber.subscribe((connections.name, 0), props=props)
        publisher.publish(connections.name, b"x")
        found.append(subscriber.message().one(P.SUBSCRIPTION_ID))
    assert found == [1, 2, None]


@pytest.mark.parametrize("ids", [(0,), pytest.param((1, 2), marks=deviates("closes without a reason"))])
def test_a_subscription_identifier_of_zero_or_a_second_one_is_a_protocol_error(
    connections: Connections, ids: tuple[int, ...]
) -> None:
    """3.8.2.1.2"""
    client = connections.join("a")
    client.send(subscribe(1, ("a", 0), props=[(P.SUBSCRIPTION_ID, one) for one in ids]))
    assert client.close_reason() in (MALFORMED, PROTOCOL_ERROR)


def test_no_local_suppresses_the_publisher_s_own_messages(connections: Connections) -> None:
    """[MQTT-3.8.3-3]: by client identifier; others get them."""
    one, other = connections.join("a"), connections.join("b")
    for client in (one, other):
        client.subscribe((connections.name, 1 | NO_LOCAL))
    one.publish(connections.name, b"from one", qos=1)
    other.publish(connections.name, b"from other", qos=1)
    assert [found.payload for found in one.drain()] == [b"from other"]
    assert [found.payload for found in other.drain()] == [b"from one"]


def test_without_no_local_a_publisher_receives_its_own_messages(connections: Connections) -> None:
    client = connections.join("a")
    client.subscribe((connections.name, 1))
    client.publish(connections.name, b"mine", qos=1)
    assert [found.payload for found in client.drain()] == [b"mine"]


@pytest.mark.parametrize("options", [0, AS_PUBLISHED])
@pytest.mark.parametrize("retain", [False, True])
def test_retain_as_published_keeps_the_flag(connections: Connections, options: int, retain: bool) -> None:
    """[MQTT-3.3.1-12], [MQTT-3.3.1-13]: without it, a live message is sent without RETAIN."""
    subscriber, publisher = connections.join("t"), connections.join("p")
    subscriber.subscribe((connections.name, 1 | options))
    publisher.publish(connections.name, b"x", qos=1, retain=retain)
    assert subscriber.message().is_retained is (retain and bool(options))


@BOTH
def test_many_filters_in_one_subscribe_are_all_granted(connections: Connections, level: int) -> None:
    client = connections.join("a", level)
    found = client.subscribe(*((f"{connections.name}/{number}", number % 3) for number in range(1000)))
    assert found.codes == tuple(number % 3 for number in range(1000))
    assert len(client.unsubscribe(*(f"{connections.name}/{number}" for number in range(1000))).codes) in (0, 1000)


@BOTH
def test_topics_may_have_many_levels_and_be_long(connections: Connections, level: int) -> None:
    """4.7.3: brokers limit both; Milepost to 1,024 bytes in 32 levels."""
    deep = connections.name + "/a" * 31
    long = connections.name + "b" * 1_000
    client = connections.join("a", level)
    client.subscribe((deep, 0), (long, 0))
    client.publish(deep, b"deep", qos=1)
    client.publish(long, b"long", qos=1)
    assert [one.payload for one in client.drain()] == [b"deep", b"long"]


def test_user_properties_are_allowed_in_subscribe_and_unsubscribe(connections: Connections) -> None:
    """3.8.2.1.3, 3.10.2.1.2"""
    client = connections.join("a")
    pairs = [(P.USER_PROPERTY, ("a", "b")), (P.USER_PROPERTY, ("a", "c"))]
    assert client.subscribe((connections.name, 1), props=pairs).codes == (1,)
    assert client.unsubscribe(connections.name, props=pairs).codes == (0,)


@pytest.mark.parametrize("first", [0x82, 0xA2])
def test_a_property_of_another_packet_is_a_fault_in_subscribe_and_unsubscribe(connections: Connections, first: int) -> None:
    """2.2.2.2"""
    client = connections.join("a")
    options = b"\x00" if first == 0x82 else b""
    client.send(packet(first, short(1) + properties([(P.TOPIC_ALIAS, 1)]) + text("a") + options))
    assert client.close_reason() in (MALFORMED, PROTOCOL_ERROR)


@BOTH
def test_a_subscribe_and_a_publish_in_one_write_are_handled_in_order(connections: Connections, level: int) -> None:
    client = connections.join("a", level)
    client.send(publish(connections.name, b"before", level), subscribe(1, (connections.name, 0), level=level))
    client.send(subscribe(2, (connections.name, 0), level=level), publish(connections.name, b"while", level))
    assert client.take(Kind.PUBLISH).payload == b"while"
    client.send(unsubscribe(3, connections.name, level=level), publish(connections.name, b"after", level))
    assert [one.kind for one in client.drain()] == [Kind.SUBACK, Kind.SUBACK, Kind.UNSUBACK]
