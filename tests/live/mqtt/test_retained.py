"""MQTT 5, 3.3.1.3 RETAIN and 3.8.3.1 retain handling."""

import pytest

from live.mqtt.connections import Connections, ConnectTo, MakeBroker
from live.mqtt.packets import V4, V5, P, Properties
from live.mqtt.raw_client import RawClient

BOTH = pytest.mark.parametrize("level", [V4, V5])
IF_NEW, NEVER = 0x10, 0x20


def retained(connections: Connections, *ends: str, level: int = V5) -> RawClient:
    """Return a publisher that has left a retained message on each topic."""
    publisher = connections.join("p", level)
    for end in ends:
        publisher.publish(f"{connections.name}/{end}", end.encode(), qos=1, retain=True)
    return publisher


def payloads(client: RawClient) -> list[bytes]:
    return sorted(one.payload for one in client.drain())


@BOTH
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_retained_message_is_sent_to_a_new_subscriber(connections: Connections, level: int, qos: int) -> None:
    """[MQTT-3.3.1-5], [MQTT-3.3.1-8]: with RETAIN, and with the lower QoS."""
    connections.join("p", level).publish(connections.name, b"kept", qos=2, retain=True)
    subscriber = connections.join("t", level)
    subscriber.subscribe((connections.name, qos))
    found = subscriber.message()
    assert (found.topic, found.payload, found.qos, found.is_retained) == (connections.name, b"kept", qos, True)


@BOTH
def test_a_retained_message_of_qos_0_is_stored_too(connections: Connections, level: int) -> None:
    publisher = connections.join("p", level)
    publisher.publish(connections.name, b"kept", retain=True)
    publisher.drain()
    subscriber = connections.join("t", level)
    subscriber.subscribe((connections.name, 2))
    found = subscriber.message()
    assert (found.payload, found.qos) == (b"kept", 0)


@BOTH
def test_a_connected_subscriber_receives_it_without_the_retain_flag(connections: Connections, level: int) -> None:
    """[MQTT-3.3.1-12]; 3.1.1 [MQTT-3.3.1-9]"""
    subscriber = connections.join("t", level)
    subscriber.subscribe((connections.name, 1))
    connections.join("p", level).publish(connections.name, b"live", qos=1, retain=True)
    assert not subscriber.message().is_retained


@BOTH
def test_a_newer_retained_message_replaces_the_older(connections: Connections, level: int) -> None:
    """[MQTT-3.3.1-5]"""
    publisher = connections.join("p", level)
    for payload in (b"old", b"new"):
        publisher.publish(connections.name, payload, qos=1, retain=True)
    subscriber = connections.join("t", level)
    subscriber.subscribe((connections.name, 1))
    assert payloads(subscriber) == [b"new"]


@BOTH
def test_a_message_that_is_not_retained_leaves_the_retained_one(connections: Connections, level: int) -> None:
    """[MQTT-3.3.1-8]"""
    publisher = retained(connections, "x", level=level)
    publisher.publish(f"{connections.name}/x", b"passing", qos=1)
    subscriber = connections.join("t", level)
    subscriber.subscribe((f"{connections.name}/x", 1))
    assert payloads(subscriber) == [b"x"]


@BOTH
def test_an_empty_retained_message_removes_it_and_is_not_stored(connections: Connections, level: int) -> None:
    """[MQTT-3.3.1-6], [MQTT-3.3.1-7]: connected subscribers receive the empty message."""
    publisher = retained(connections, "x", level=level)
    present = connections.join("t", level)
    present.subscribe((f"{connections.name}/x", 1))
    assert payloads(present) == [b"x"]
    publisher.publish(f"{connections.name}/x", b"", qos=1, retain=True)
    assert payloads(present) == [b""]
    later = connections.join("l", level)
    later.subscribe((f"{connections.name}/x", 1))
    assert payloads(later) == []


@BOTH
def test_a_wildcard_matches_every_retained_message_below_it(connections: Connections, level: int) -> None:
    retained(connections, "a", "b", "a/c", level=level)
    for topic_filter, expected in (("#", [b"a", b"a/c", b"b"]), ("+", [b"a", b"b"]), ("+/c", [b"a/c"]), ("a/#", [b"a", b"a/c"])):
        subscriber = connections.join("", level)
        subscriber.subscribe((f"{connections.name}/{topic_filter}", 0))
        assert payloads(subscriber) == expected


def test_hundreds_of_retained_messages_all_arrive_despite_a_small_receive_maximum(connections: Connections) -> None:
    publisher = connections.join("p")
    for number in range(300):
        publisher.publish(f"{connections.name}/{number}", b"%d" % number, qos=1, retain=True)
    subscriber = connections.join("t", props=[(P.RECEIVE_MAXIMUM, 5)])
    subscriber.subscribe((f"{connections.name}/+", 1))
    found = []
    for _ in range(300):
        message = subscriber.message()
        found.append(int(message.payload))
        subscriber.finish(message)
    assert sorted(found) == list(range(300))


@BOTH
def test_subscribing_again_sends_retained_messages_again(connections: Connections, level: int) -> None:
    """[MQTT-3.8.4-4] with retain handling 0; 3.1.1 [MQTT-3.8.4-3]"""
    retained(connections, "x", level=level)
    subscriber = connections.join("t", level)
    for _ in range(3):
        subscriber.subscribe((f"{connections.name}/x", 0))
        assert payloads(subscriber) == [b"x"]


def test_retain_handling_1_sends_them_only_for_a_new_subscription(connections: Connections) -> None:
    """[MQTT-3.3.1-10]; after UNSUBSCRIBE it is new again."""
    retained(connections, "x")
    subscriber = connections.join("t")
    found = []
    for unsubscribe in (False, True, False):
        subscriber.subscribe((f"{connections.name}/x", IF_NEW))
        found.append(payloads(subscriber))
        if unsubscribe:
            subscriber.unsubscribe(f"{connections.name}/x")
    assert found == [[b"x"], [], [b"x"]]


def test_retain_handling_2_never_sends_them(connections: Connections) -> None:
    """[MQTT-3.3.1-11]: live messages come."""
    publisher = retained(connections, "x")
    subscriber = connections.join("t")
    subscriber.subscribe((f"{connections.name}/x", NEVER))
    assert payloads(subscriber) == []
    publisher.publish(f"{connections.name}/x", b"live", qos=1)
    assert payloads(subscriber) == [b"live"]


def test_a_retained_message_keeps_its_properties(connections: Connections) -> None:
    sent_properties: Properties = [(P.CONTENT_TYPE, "text/plain"), (P.USER_PROPERTY, ("a", "1")), (P.USER_PROPERTY, ("a", "2"))]
    connections.join("p").publish(connections.name, b"x", qos=1, retain=True, props=sent_properties)
    subscriber = connections.join("t")
    subscriber.subscribe((connections.name, 1), props=[(P.SUBSCRIPTION_ID, 9)])
    assert set(subscriber.message().properties) == {*sent_properties, (P.SUBSCRIPTION_ID, 9)}


def test_no_local_does_not_suppress_retained_messages_of_others(connections: Connections) -> None:
    """3.8.3.1: no clause says whether a client's own retained messages are sent; those of others must be."""
    retained(connections, "x")
    subscriber = connections.join("t")
    subscriber.subscribe((f"{connections.name}/x", 0x04))
    assert payloads(subscriber) == [b"x"]


@BOTH
def test_retained_messages_survive_a_restart(make_broker: MakeBroker, connect_to: ConnectTo, level: int) -> None:
    broker = make_broker()
    own = connect_to(broker)
    retained(own, "stays", "goes", level=level).publish(f"{own.name}/goes", b"", qos=1, retain=True)
    assert broker.stop() == 0
    broker.start()
    subscriber = own.join("t", level)
    subscriber.subscribe((f"{own.name}/#", 1))
    assert payloads(subscriber) == [b"stays"]
