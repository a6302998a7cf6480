"""MQTT 5, 3.3.1.3 RETAIN and 3.8.3.1 retain handling."""

import pytest

from live.mqtt.packets import V4, V5, P, Properties
from live.mqtt.raw import Raw
from live.mqtt.visitors import MakeBroker, Visit, Visitors

BOTH = pytest.mark.parametrize("level", [V4, V5])
IF_NEW, NEVER = 0x10, 0x20


def kept(visitors: Visitors, *ends: str, level: int = V5) -> Raw:
    """A publisher that has left a retained message on each topic."""
    publisher = visitors.join("p", level)
    for end in ends:
        publisher.publish(f"{visitors.name}/{end}", end.encode(), qos=1, retain=True)
    return publisher


def payloads(client: Raw) -> list[bytes]:
    return sorted(one.payload for one in client.settle())


@BOTH
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_retained_message_is_sent_to_a_new_subscriber(visitors: Visitors, level: int, qos: int) -> None:
    """[MQTT-3.3.1-5], [MQTT-3.3.1-8]: with RETAIN, and with the lower QoS."""
    visitors.join("p", level).publish(visitors.name, b"kept", qos=2, retain=True)
    taker = visitors.join("t", level)
    taker.subscribe((visitors.name, qos))
    found = taker.message()
    assert (found.topic, found.payload, found.qos, found.is_retained) == (visitors.name, b"kept", qos, True)


@BOTH
def test_a_retained_message_of_qos_0_is_kept_too(visitors: Visitors, level: int) -> None:
    publisher = visitors.join("p", level)
    publisher.publish(visitors.name, b"kept", retain=True)
    publisher.settle()
    taker = visitors.join("t", level)
    taker.subscribe((visitors.name, 2))
    found = taker.message()
    assert (found.payload, found.qos) == (b"kept", 0)


@BOTH
def test_a_present_subscriber_gets_it_without_the_flag(visitors: Visitors, level: int) -> None:
    """[MQTT-3.3.1-12]; 3.1.1 [MQTT-3.3.1-9]"""
    taker = visitors.join("t", level)
    taker.subscribe((visitors.name, 1))
    visitors.join("p", level).publish(visitors.name, b"live", qos=1, retain=True)
    assert not taker.message().is_retained


@BOTH
def test_a_newer_retained_message_replaces_the_older(visitors: Visitors, level: int) -> None:
    """[MQTT-3.3.1-5]"""
    publisher = visitors.join("p", level)
    for payload in (b"old", b"new"):
        publisher.publish(visitors.name, payload, qos=1, retain=True)
    taker = visitors.join("t", level)
    taker.subscribe((visitors.name, 1))
    assert payloads(taker) == [b"new"]


@BOTH
def test_a_message_that_is_not_retained_leaves_the_retained_one(visitors: Visitors, level: int) -> None:
    """[MQTT-3.3.1-8]"""
    publisher = kept(visitors, "x", level=level)
    publisher.publish(f"{visitors.name}/x", b"passing", qos=1)
    taker = visitors.join("t", level)
    taker.subscribe((f"{visitors.name}/x", 1))
    assert payloads(taker) == [b"x"]


@BOTH
def test_an_empty_retained_message_removes_it_and_is_not_kept(visitors: Visitors, level: int) -> None:
    """[MQTT-3.3.1-6], [MQTT-3.3.1-7]: those who are there get the empty message."""
    publisher = kept(visitors, "x", level=level)
    present = visitors.join("t", level)
    present.subscribe((f"{visitors.name}/x", 1))
    assert payloads(present) == [b"x"]
    publisher.publish(f"{visitors.name}/x", b"", qos=1, retain=True)
    assert payloads(present) == [b""]
    later = visitors.join("l", level)
    later.subscribe((f"{visitors.name}/x", 1))
    assert payloads(later) == []


@BOTH
def test_a_wildcard_brings_every_retained_message_below_it(visitors: Visitors, level: int) -> None:
    kept(visitors, "a", "b", "a/c", level=level)
    for wanted, expected in (("#", [b"a", b"a/c", b"b"]), ("+", [b"a", b"b"]), ("+/c", [b"a/c"]), ("a/#", [b"a", b"a/c"])):
        taker = visitors.join("", level)
        taker.subscribe((f"{visitors.name}/{wanted}", 0))
        assert payloads(taker) == expected


def test_hundreds_of_retained_messages_come_all_despite_a_small_receive_maximum(visitors: Visitors) -> None:
    publisher = visitors.join("p")
    for number in range(300):
        publisher.publish(f"{visitors.name}/{number}", b"%d" % number, qos=1, retain=True)
    taker = visitors.join("t", props=[(P.RECEIVE_MAXIMUM, 5)])
    taker.subscribe((f"{visitors.name}/+", 1))
    found = []
    for _ in range(300):
        message = taker.message()
        found.append(int(message.payload))
        taker.finish(message)
    assert sorted(found) == list(range(300))


@BOTH
def test_subscribing_again_brings_retained_messages_again(visitors: Visitors, level: int) -> None:
    """[MQTT-3.8.4-4] with retain handling 0; 3.1.1 [MQTT-3.8.4-3]"""
    kept(visitors, "x", level=level)
    taker = visitors.join("t", level)
    for _ in range(3):
        taker.subscribe((f"{visitors.name}/x", 0))
        assert payloads(taker) == [b"x"]


def test_retain_handling_1_sends_them_only_for_a_new_subscription(visitors: Visitors) -> None:
    """[MQTT-3.3.1-10]; after UNSUBSCRIBE it is new again."""
    kept(visitors, "x")
    taker = visitors.join("t")
    found = []
    for unsubscribe in (False, True, False):
        taker.subscribe((f"{visitors.name}/x", IF_NEW))
        found.append(payloads(taker))
        if unsubscribe:
            taker.unsubscribe(f"{visitors.name}/x")
    assert found == [[b"x"], [], [b"x"]]


def test_retain_handling_2_never_sends_them(visitors: Visitors) -> None:
    """[MQTT-3.3.1-11]: live messages come."""
    publisher = kept(visitors, "x")
    taker = visitors.join("t")
    taker.subscribe((f"{visitors.name}/x", NEVER))
    assert payloads(taker) == []
    publisher.publish(f"{visitors.name}/x", b"live", qos=1)
    assert payloads(taker) == [b"live"]


def test_a_retained_message_keeps_its_properties(visitors: Visitors) -> None:
    told: Properties = [(P.CONTENT_TYPE, "text/plain"), (P.USER_PROPERTY, ("a", "1")), (P.USER_PROPERTY, ("a", "2"))]
    visitors.join("p").publish(visitors.name, b"x", qos=1, retain=True, props=told)
    taker = visitors.join("t")
    taker.subscribe((visitors.name, 1), props=[(P.SUBSCRIPTION_ID, 9)])
    assert set(taker.message().properties) == {*told, (P.SUBSCRIPTION_ID, 9)}


def test_no_local_holds_for_retained_messages_of_ones_own(visitors: Visitors) -> None:
    """3.8.3.1: retained messages are sent by the subscription; whether one's own come is said by no clause, others' must."""
    kept(visitors, "x")
    taker = visitors.join("t")
    taker.subscribe((f"{visitors.name}/x", 0x04))
    assert payloads(taker) == [b"x"]


@BOTH
def test_retained_messages_survive_a_restart(make_broker: MakeBroker, visit: Visit, level: int) -> None:
    broker = make_broker()
    own = visit(broker)
    kept(own, "stays", "goes", level=level).publish(f"{own.name}/goes", b"", qos=1, retain=True)
    assert broker.stop() == 0
    broker.start()
    taker = own.join("t", level)
    taker.subscribe((f"{own.name}/#", 1))
    assert payloads(taker) == [b"stays"]
