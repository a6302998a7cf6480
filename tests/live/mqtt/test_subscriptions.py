"""MQTT 5, 3.8 SUBSCRIBE to 3.11 UNSUBACK, 4.7 topic names and filters."""

import pytest

from live.mqtt.brokers import deviates
from live.mqtt.packets import V4, V5, Kind, P, packet, properties, publish, short, subscribe, text, unsubscribe
from live.mqtt.raw import Closed
from live.mqtt.visitors import Visitors

MALFORMED, PROTOCOL_ERROR, FILTER_INVALID, NO_SUBSCRIPTION = 0x81, 0x82, 0x8F, 0x11
NO_LOCAL, AS_PUBLISHED = 0x04, 0x08
BOTH = pytest.mark.parametrize("level", [V4, V5])


@BOTH
def test_suback_grants_each_filter_its_qos_in_order(visitors: Visitors, level: int) -> None:
    """[MQTT-3.8.4-5], [MQTT-3.8.4-6]"""
    client = visitors.join("a", level)
    found = client.subscribe(("a", 2), ("b/+", 0), ("c/#", 1), ("a", 1))
    assert found.codes == (2, 0, 1, 1)


@BOTH
@pytest.mark.parametrize(
    ("wanted", "topic", "is_match"),
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
def test_filters_match_level_by_level(visitors: Visitors, level: int, wanted: str, topic: str, is_match: bool) -> None:
    """4.7"""
    taker = visitors.join("t", level)
    taker.subscribe((wanted.format(visitors.name), 0))
    publisher = visitors.join("p", level)
    publisher.publish(topic.format(visitors.name), b"x", qos=1)
    found = [one.payload for one in taker.settle()]
    assert found == ([b"x"] if is_match else [])


@BOTH
@pytest.mark.parametrize("wanted", ["#", "+/#", "+/broker/#"])
def test_wildcards_at_the_front_do_not_match_topics_that_begin_with_a_dollar(visitors: Visitors, level: int, wanted: str) -> None:
    """[MQTT-4.7.2-1]: a filter that names the $ gets what the others must not, retained and live."""
    taker, witness = visitors.join("t", level), visitors.join("w", level)
    taker.subscribe((wanted, 0))
    witness.subscribe(("$SYS/#", 0))
    while (seen := witness.take(Kind.PUBLISH)).is_retained:
        assert seen.topic.startswith("$SYS/")
    assert [one.topic for one in taker.settle() if one.topic.startswith("$")] == []


@BOTH
@pytest.mark.parametrize("wrong", ["a/#/b", "#a", "a#", "a+", "+a/b", "a/b+", "a/##", "++", ""])
def test_a_filter_with_a_misplaced_wildcard_is_not_granted(visitors: Visitors, level: int, wrong: str) -> None:
    """[MQTT-4.7.1-1], [MQTT-4.7.1-2], [MQTT-4.7.3-1]: closed as malformed, or refused in the SUBACK."""
    client = visitors.join("a", level)
    client.send(subscribe(7, (wrong, 0), level=level))
    try:
        found = client.receive()
    except Closed:
        assert level == V4, "version 5 says why"
        return
    answer = found.codes if found.kind == Kind.SUBACK else (found.reason,)
    assert answer[0] in ((0x80,) if level == V4 else (MALFORMED, PROTOCOL_ERROR, FILTER_INVALID))


@BOTH
def test_a_subscribe_without_filters_is_a_protocol_error(visitors: Visitors, level: int) -> None:
    """[MQTT-3.8.3-2]"""
    client = visitors.join("a", level)
    client.send(subscribe(1, level=level))
    assert client.last_words() in ((None,) if level == V4 else (MALFORMED, PROTOCOL_ERROR))


@BOTH
def test_an_unsubscribe_without_filters_is_a_protocol_error(visitors: Visitors, level: int) -> None:
    """[MQTT-3.10.3-2]"""
    client = visitors.join("a", level)
    client.send(unsubscribe(1, level=level))
    assert client.last_words() in ((None,) if level == V4 else (MALFORMED, PROTOCOL_ERROR))


@BOTH
def test_a_subscribe_with_identifier_zero_is_a_fault(visitors: Visitors, level: int) -> None:
    """[MQTT-2.2.1-3]"""
    client = visitors.join("a", level)
    client.send(subscribe(0, ("a", 0), level=level))
    assert client.last_words() in ((None,) if level == V4 else (MALFORMED, PROTOCOL_ERROR))


@pytest.mark.parametrize("options", [3, 0x30, 0x40, 0x80])
def test_wrong_subscription_options_are_a_fault(visitors: Visitors, options: int) -> None:
    """[MQTT-3.8.3-5] and 3.8.3.1: QoS 3, retain handling 3, reserved bits."""
    client = visitors.join("a")
    client.send(subscribe(1, ("a", options)))
    assert client.last_words() in (MALFORMED, PROTOCOL_ERROR)


@pytest.mark.parametrize("options", [3, 0x04, 0x10, 0x80])
def test_wrong_subscription_options_are_a_fault_in_3_1_1(visitors: Visitors, options: int) -> None:
    """3.1.1 [MQTT-3-8.3-4]: the upper six bits are reserved."""
    client = visitors.join("a", V4)
    client.send(subscribe(1, ("a", options), level=V4))
    assert client.last_words() is None


@BOTH
def test_unsubscribing_ends_delivery(visitors: Visitors, level: int) -> None:
    """[MQTT-3.10.4-1] to [MQTT-3.10.4-4]: the filter is compared character by character."""
    topic = f"{visitors.name}/x"
    taker, publisher = visitors.join("t", level), visitors.join("p", level)
    taker.subscribe((topic, 1))
    taker.unsubscribe(f"{visitors.name}/+")
    publisher.publish(topic, b"still", qos=1)
    message = taker.message()
    assert message.payload == b"still"
    taker.finish(message)
    taker.unsubscribe(topic)
    publisher.publish(topic, b"no more", qos=1)
    assert taker.settle() == []


def test_unsuback_says_for_each_filter_whether_there_was_one(visitors: Visitors) -> None:
    """3.11.3: 0x00 and 0x11"""
    client = visitors.join("a")
    client.subscribe((visitors.name, 1), (f"{visitors.name}/+", 0))
    found = client.unsubscribe(f"{visitors.name}/+", "never/was", visitors.name, visitors.name)
    assert found.codes == (0, NO_SUBSCRIPTION, 0, NO_SUBSCRIPTION)


def test_unsuback_of_3_1_1_has_no_payload(visitors: Visitors) -> None:
    client = visitors.join("a", V4)
    assert client.unsubscribe("never/was", "nor/this").codes == ()


@BOTH
def test_what_was_sent_before_unsubscribe_is_still_finished(visitors: Visitors, level: int) -> None:
    """[MQTT-3.10.4-3]: a QoS 2 exchange that has begun goes on."""
    taker = visitors.join("t", level)
    taker.subscribe((visitors.name, 2))
    visitors.join("p", level).publish(visitors.name, b"x", qos=2)
    message = taker.message()
    taker.unsubscribe(visitors.name)
    taker.finish(message)
    assert taker.settle() == []


@BOTH
def test_subscribing_again_replaces_the_qos(visitors: Visitors, level: int) -> None:
    """[MQTT-3.8.4-3]"""
    taker, publisher = visitors.join("t", level), visitors.join("p", level)
    taker.subscribe((visitors.name, 2))
    taker.subscribe((visitors.name, 0))
    publisher.publish(visitors.name, b"x", qos=2)
    assert [one.qos for one in taker.settle()] == [0]


def test_overlapping_subscriptions_deliver_with_the_highest_qos(visitors: Visitors) -> None:
    """[MQTT-3.3.4-2]: once with the highest, or once each with its own."""
    taker, publisher = visitors.join("t"), visitors.join("p")
    taker.subscribe((f"{visitors.name}/#", 0), (f"{visitors.name}/+", 2), (f"{visitors.name}/x", 1))
    publisher.publish(f"{visitors.name}/x", b"x", qos=2)
    found = sorted(one.qos for one in taker.settle())
    assert found in ([2], [0, 1, 2])


def test_a_subscription_identifier_comes_with_its_messages(visitors: Visitors) -> None:
    """[MQTT-3.3.4-3]; the largest is 268,435,455."""
    taker, publisher = visitors.join("t"), visitors.join("p")
    taker.subscribe((f"{visitors.name}/a", 1), (f"{visitors.name}/b", 1), props=[(P.SUBSCRIPTION_ID, 268_435_455)])
    taker.subscribe((f"{visitors.name}/c", 1))
    for end in "abc":
        publisher.publish(f"{visitors.name}/{end}", end.encode(), qos=1)
    assert [one.one(P.SUBSCRIPTION_ID) for one in taker.messages(3)] == [268_435_455, 268_435_455, None]


def test_overlapping_subscriptions_tell_all_their_identifiers(visitors: Visitors) -> None:
    """[MQTT-3.3.4-4], [MQTT-3.3.4-5]: all in one message, or one in each copy."""
    taker, publisher = visitors.join("t"), visitors.join("p")
    for number, wanted in enumerate(("#", "+/x", "a/x", "a/+"), start=1):
        taker.subscribe((f"{visitors.name}/{wanted}", 1), props=[(P.SUBSCRIPTION_ID, number)])
    publisher.publish(f"{visitors.name}/a/x", b"x", qos=1)
    found = taker.settle()
    assert sorted(value for one in found for value in one.all(P.SUBSCRIPTION_ID) if isinstance(value, int)) == [1, 2, 3, 4]
    assert len(found) in (1, 4)


def test_a_subscription_identifier_is_replaced_or_dropped_by_subscribing_again(visitors: Visitors) -> None:
    """3.8.4: an existing subscription is wholly replaced."""
    taker, publisher = visitors.join("t"), visitors.join("p")
    found = []
    for props in ([(P.SUBSCRIPTION_ID, 1)], [(P.SUBSCRIPTION_ID, 2)], []):
        taker.subscribe((visitors.name, 0), props=props)
        publisher.publish(visitors.name, b"x")
        found.append(taker.message().one(P.SUBSCRIPTION_ID))
    assert found == [1, 2, None]


@pytest.mark.parametrize("ids", [(0,), pytest.param((1, 2), marks=deviates("closes without saying why"))])
def test_a_subscription_identifier_of_zero_or_a_second_one_is_a_protocol_error(visitors: Visitors, ids: tuple[int, ...]) -> None:
    """3.8.2.1.2"""
    client = visitors.join("a")
    client.send(subscribe(1, ("a", 0), props=[(P.SUBSCRIPTION_ID, one) for one in ids]))
    assert client.last_words() in (MALFORMED, PROTOCOL_ERROR)


def test_no_local_spares_the_publisher_its_own_messages(visitors: Visitors) -> None:
    """[MQTT-3.8.3-3]: by client identifier; others get them."""
    one, other = visitors.join("a"), visitors.join("b")
    for client in (one, other):
        client.subscribe((visitors.name, 1 | NO_LOCAL))
    one.publish(visitors.name, b"from one", qos=1)
    other.publish(visitors.name, b"from other", qos=1)
    assert [found.payload for found in one.settle()] == [b"from other"]
    assert [found.payload for found in other.settle()] == [b"from one"]


def test_without_no_local_a_publisher_gets_its_own_messages(visitors: Visitors) -> None:
    client = visitors.join("a")
    client.subscribe((visitors.name, 1))
    client.publish(visitors.name, b"mine", qos=1)
    assert [found.payload for found in client.settle()] == [b"mine"]


@pytest.mark.parametrize("options", [0, AS_PUBLISHED])
@pytest.mark.parametrize("retain", [False, True])
def test_retain_as_published_keeps_the_flag(visitors: Visitors, options: int, retain: bool) -> None:
    """[MQTT-3.3.1-12], [MQTT-3.3.1-13]: without it, a message that is not from the store comes without RETAIN."""
    taker, publisher = visitors.join("t"), visitors.join("p")
    taker.subscribe((visitors.name, 1 | options))
    publisher.publish(visitors.name, b"x", qos=1, retain=retain)
    assert taker.message().is_retained is (retain and bool(options))


@BOTH
def test_many_filters_in_one_subscribe_are_all_granted(visitors: Visitors, level: int) -> None:
    client = visitors.join("a", level)
    found = client.subscribe(*((f"{visitors.name}/{number}", number % 3) for number in range(1000)))
    assert found.codes == tuple(number % 3 for number in range(1000))
    assert len(client.unsubscribe(*(f"{visitors.name}/{number}" for number in range(1000))).codes) in (0, 1000)


@BOTH
def test_topics_may_have_many_levels_and_be_long(visitors: Visitors, level: int) -> None:
    """4.7.3: brokers limit both; ours to 1,024 bytes in 32 levels."""
    deep = visitors.name + "/a" * 31
    long = visitors.name + "b" * 1_000
    client = visitors.join("a", level)
    client.subscribe((deep, 0), (long, 0))
    client.publish(deep, b"deep", qos=1)
    client.publish(long, b"long", qos=1)
    assert [one.payload for one in client.settle()] == [b"deep", b"long"]


def test_user_properties_are_allowed_in_subscribe_and_unsubscribe(visitors: Visitors) -> None:
    """3.8.2.1.3, 3.10.2.1.2"""
    client = visitors.join("a")
    pairs = [(P.USER_PROPERTY, ("a", "b")), (P.USER_PROPERTY, ("a", "c"))]
    assert client.subscribe((visitors.name, 1), props=pairs).codes == (1,)
    assert client.unsubscribe(visitors.name, props=pairs).codes == (0,)


@pytest.mark.parametrize("first", [0x82, 0xA2])
def test_a_property_of_another_packet_is_a_fault_in_subscribe_and_unsubscribe(visitors: Visitors, first: int) -> None:
    """2.2.2.2"""
    client = visitors.join("a")
    options = b"\x00" if first == 0x82 else b""
    client.send(packet(first, short(1) + properties([(P.TOPIC_ALIAS, 1)]) + text("a") + options))
    assert client.last_words() in (MALFORMED, PROTOCOL_ERROR)


@BOTH
def test_a_subscribe_and_a_publish_in_one_write_are_taken_in_order(visitors: Visitors, level: int) -> None:
    client = visitors.join("a", level)
    client.send(publish(visitors.name, b"before", level), subscribe(1, (visitors.name, 0), level=level))
    client.send(subscribe(2, (visitors.name, 0), level=level), publish(visitors.name, b"while", level))
    assert client.take(Kind.PUBLISH).payload == b"while"
    client.send(unsubscribe(3, visitors.name, level=level), publish(visitors.name, b"after", level))
    assert [one.kind for one in client.settle()] == [Kind.SUBACK, Kind.SUBACK, Kind.UNSUBACK]
