"""MQTT 5, 3.1.2.4 Clean Start, 3.1.2.11.2 Session Expiry Interval, 3.1.4 takeover, 3.2.2.1 session present, 4.1 session state."""

import time
from collections.abc import Callable

import pytest

from live.mqtt.brokers import deviates
from live.mqtt.connections import Connections, ConnectTo, MakeBroker
from live.mqtt.packets import V4, V5, Kind, P, Properties, Will, connect, disconnect, publish
from live.mqtt.raw_client import RawClient

TAKEN_OVER, PROTOCOL_ERROR = 0x8E, 0x82
NEVER = 0xFFFFFFFF
LASTING = [(P.SESSION_EXPIRY, 300)]
NOT_TOLD = deviates("does not send the old client a reason")
BOTH = pytest.mark.parametrize("level", [V4, V5])


def late_will(connections: Connections) -> Will:
    """Return a will delayed by 100 s, unless its session ends before."""
    return Will(f"{connections.name}/end", props=[(P.WILL_DELAY, 100)])


def durable(connections: Connections, suffix: str, level: int) -> RawClient:
    """Open a client with a durable session, in either version."""
    return connections.join(suffix, level, clean=False, props=LASTING)


@BOTH
def test_a_new_session_is_not_present(connections: Connections, level: int) -> None:
    """[MQTT-3.2.2-2]"""
    client = connections.dial(level)
    assert not client.join(connections.client_id("a"), clean=False, props=LASTING).session_present


@BOTH
def test_a_durable_session_is_present_after_a_reconnect_with_its_subscriptions(connections: Connections, level: int) -> None:
    """[MQTT-3.1.2-5], [MQTT-3.2.2-3]"""
    topic = connections.name
    first = durable(connections, "a", level)
    first.subscribe((topic, 1))
    first.leave()
    second = connections.dial(level)
    assert second.join(connections.client_id("a"), clean=False, props=LASTING).session_present
    connections.join("p", level).publish(topic, b"still here", qos=1)
    assert second.message().payload == b"still here"


@BOTH
def test_clean_start_discards_the_old_session(connections: Connections, level: int) -> None:
    """[MQTT-3.1.2-4]: its subscriptions and its waiting messages."""
    topic = connections.name
    first = durable(connections, "a", level)
    first.subscribe((topic, 1))
    first.leave()
    publisher = connections.join("p", level)
    publisher.publish(topic, b"waiting", qos=1)
    second = connections.dial(level)
    assert not second.join(connections.client_id("a"), clean=True, props=LASTING).session_present
    publisher.publish(topic, b"not subscribed", qos=1)
    assert second.drain() == []


@BOTH
def test_messages_of_qos_1_and_2_are_queued_for_a_durable_session(connections: Connections, level: int) -> None:
    """[MQTT-4.1.0-1], 3.1.2.11.2: in the order they came."""
    topic = connections.name
    first = durable(connections, "a", level)
    first.subscribe((topic, 2))
    first.leave()
    publisher = connections.join("p", level)
    for number in range(10):
        publisher.publish(topic, b"%d" % number, qos=1 + number % 2)
    second = durable(connections, "a", level)
    found = second.messages(10)
    assert [one.payload for one in found] == [b"%d" % number for number in range(10)]
    assert [one.qos for one in found] == [1 + number % 2 for number in range(10)]
    assert not any(one.is_dup for one in found)


def test_a_session_of_version_5_without_expiry_ends_with_its_connection(connections: Connections) -> None:
    """3.1.2.11.2: absent is 0."""
    first = connections.join("a", clean=False)
    first.subscribe((connections.name, 1))
    first.leave()
    assert not connections.dial().join(connections.client_id("a"), clean=False).session_present


def test_a_clean_session_of_3_1_1_ends_with_its_connection(connections: Connections) -> None:
    """3.1.1 [MQTT-3.1.2-6]"""
    first = connections.join("a", V4, clean=True)
    first.subscribe((connections.name, 1))
    first.leave()
    assert not connections.dial(V4).join(connections.client_id("a"), clean=False).session_present


def test_clean_start_with_an_expiry_creates_a_durable_session(connections: Connections) -> None:
    """3.1.2.4: unlike the Clean Session of 3.1.1 it does not affect the end of the session."""
    connections.join("a", clean=True, props=LASTING).leave()
    assert connections.dial().join(connections.client_id("a"), clean=False).session_present


def test_a_session_expires_after_its_interval(connections: Connections) -> None:
    """[MQTT-3.1.2-23]: not before one second, and within a few. The end shows by the will, which waits no longer (3.1.3.2.2)."""
    watcher = connections.join("w")
    watcher.subscribe((f"{connections.name}/end", 0))
    connections.join("a", props=[(P.SESSION_EXPIRY, 1)], will=late_will(connections)).drop()
    back = connections.dial()
    assert back.join(
        connections.client_id("a"), clean=False, props=[(P.SESSION_EXPIRY, 1)], will=late_will(connections)
    ).session_present
    dropped_at = time.monotonic()
    back.drop()
    watcher.message()
    assert time.monotonic() - dropped_at > 0.9
    assert not connections.dial().join(connections.client_id("a"), clean=False).session_present


def test_the_expiry_given_at_disconnect_replaces_the_one_at_connect(connections: Connections) -> None:
    """3.14.2.2.2: shortened to nothing, and made longer than another session that has meanwhile expired."""
    connections.join("a", props=LASTING).leave(props=[(P.SESSION_EXPIRY, 0)])
    assert not connections.dial().join(connections.client_id("a"), clean=False).session_present
    watcher = connections.join("w")
    watcher.subscribe((f"{connections.name}/end", 0))
    connections.join("b", props=[(P.SESSION_EXPIRY, 1)]).leave(props=LASTING)
    connections.join("c", props=[(P.SESSION_EXPIRY, 1)], will=late_will(connections)).drop()
    watcher.message()
    assert connections.dial().join(connections.client_id("b"), clean=False).session_present


def test_an_expiry_at_disconnect_after_none_at_connect_is_a_protocol_error(connections: Connections) -> None:
    """3.14.2.2.2"""
    client = connections.join("a", props=[(P.SESSION_EXPIRY, 0)])
    client.send(disconnect(0, props=[(P.SESSION_EXPIRY, 5)]))
    assert client.close_reason() == PROTOCOL_ERROR


@pytest.mark.parametrize("seconds", [2**31, NEVER - 1, NEVER])
def test_the_longest_session_expiries_are_accepted(connections: Connections, seconds: int) -> None:
    """3.1.2.11.2: 0xFFFFFFFF never expires, unless the CONNACK says otherwise."""
    client = connections.dial()
    granted = client.join(connections.client_id("a"), props=[(P.SESSION_EXPIRY, seconds)]).one(P.SESSION_EXPIRY)
    assert granted is None or (isinstance(granted, int) and 86_400 <= granted <= seconds)
    client.leave()
    assert connections.dial().join(connections.client_id("a"), clean=False).session_present


@pytest.mark.parametrize("level", [V4, pytest.param(V5, marks=NOT_TOLD)])
@pytest.mark.parametrize("clean", [True, False])
def test_a_client_with_the_same_identifier_takes_over(connections: Connections, level: int, clean: bool) -> None:
    """[MQTT-3.1.4-3]: the old connection receives 0x8E in version 5 and is closed in both."""
    old = connections.join("a", level, clean=clean, props=LASTING)
    old.subscribe((connections.name, 0))
    new = connections.dial(level)
    assert new.join(connections.client_id("a"), clean=clean, props=LASTING).session_present is not clean
    assert old.close_reason() == (TAKEN_OVER if level == V5 else None)
    assert new.is_open()


@pytest.mark.parametrize(("old_level", "new_level"), [(V4, V5), pytest.param(V5, V4, marks=NOT_TOLD)])
def test_a_session_is_taken_over_across_versions(connections: Connections, old_level: int, new_level: int) -> None:
    """Bytes encoded for the old client's version must not reach the new one."""
    topic = connections.name
    publisher = connections.join("p")
    sent_properties: Properties = [(P.USER_PROPERTY, ("a", "b"))]
    old = durable(connections, "a", old_level)
    old.subscribe((topic, 1))
    publisher.publish(topic, b"before", props=sent_properties)
    assert old.message().payload == b"before"
    new = connections.dial(new_level)
    assert new.join(connections.client_id("a"), clean=False, props=LASTING).session_present
    assert old.close_reason() == (TAKEN_OVER if old_level == V5 else None)
    for qos in (0, 1):
        publisher.publish(topic, b"over", qos=qos, props=sent_properties)
        assert new.message().payload == b"over"


@pytest.mark.parametrize("old_level", [V4, V5])
@pytest.mark.parametrize("is_publisher_first", [True, False])
def test_a_takeover_in_another_version_does_not_affect_deliveries_to_others(
    connections: Connections, old_level: int, is_publisher_first: bool
) -> None:
    """Both happen while the broker is paused, so that it reads them at the same time. Found by the fuzz test."""
    topic = connections.name
    sent_properties: Properties = [(P.USER_PROPERTY, ("a", "b"))]
    publisher, new = connections.dial(), connections.dial(V4 if old_level == V5 else V5)
    publisher.join("")
    subscribers = [durable(connections, "a", old_level), *(connections.join("", level) for level in (V4, V5, V4, V5))]
    for one in subscribers:
        one.subscribe((topic, 1))
    sends: list[Callable[[], None]] = [
        lambda: publisher.send(*(publish(topic, b"x", qos=qos, packet_id=7 + qos, props=sent_properties) for qos in (0, 1))),
        lambda: new.send(connect(connections.client_id("a"), new.level, clean=False, props=LASTING)),
    ]
    with connections.broker.paused():
        for send in sends if is_publisher_first else sends[::-1]:
            send()
    assert new.expect(Kind.CONNACK).session_present
    for one in subscribers[1:]:
        assert [message.payload for message in one.messages(2)] == [b"x", b"x"]
    new.drain()  # each packet is decoded in its own version


def test_identifiers_that_differ_only_in_case_are_two_clients(connections: Connections) -> None:
    first, second = connections.join("a"), connections.join("A")
    assert first.is_open()
    assert second.is_open()


@BOTH
def test_unacknowledged_messages_are_resent_in_order_with_dup_and_the_same_identifiers(
    connections: Connections, level: int
) -> None:
    """[MQTT-4.4.0-1], [MQTT-3.3.1-1], [MQTT-4.6.0-1]; those not yet sent follow without DUP."""
    topic = connections.name
    first = durable(connections, "a", level)
    first.subscribe((topic, 2))
    publisher = connections.join("p", level)
    for number in range(6):
        publisher.publish(topic, b"%d" % number, qos=1 + number % 2)
    sent = first.messages(6)
    first.acknowledge(Kind.PUBACK, sent[0].packet_id)
    assert first.drain() == []
    first.drop()
    second = durable(connections, "a", level)
    publisher.publish(topic, b"new", qos=1)
    again = second.messages(6)
    assert [(one.payload, one.packet_id, one.qos) for one in again[:5]] == [
        (one.payload, one.packet_id, one.qos) for one in sent[1:]
    ]
    assert [one.is_dup for one in again] == [True] * 5 + [False]
    assert again[5].payload == b"new"


@BOTH
def test_an_acknowledged_message_is_not_sent_again(connections: Connections, level: int) -> None:
    topic = connections.name
    first = durable(connections, "a", level)
    first.subscribe((topic, 2))
    publisher = connections.join("p", level)
    publisher.publish(topic, b"one", qos=1)
    publisher.publish(topic, b"two", qos=2)
    for message in first.messages(2):
        first.finish(message)
    assert first.drain() == []
    first.drop()
    assert durable(connections, "a", level).drain() == []


@BOTH
def test_after_pubrec_only_pubrel_is_sent_again(connections: Connections, level: int) -> None:
    """[MQTT-4.3.3-7], [MQTT-4.4.0-1]"""
    topic = connections.name
    first = durable(connections, "a", level)
    first.subscribe((topic, 2))
    connections.join("p", level).publish(topic, b"x", qos=2)
    packet_id = first.message().packet_id
    first.acknowledge(Kind.PUBREC, packet_id)
    assert first.expect(Kind.PUBREL).packet_id == packet_id
    first.drop()
    second = durable(connections, "a", level)
    assert second.expect(Kind.PUBREL).packet_id == packet_id
    second.acknowledge(Kind.PUBCOMP, packet_id)
    assert second.drain() == []


@BOTH
def test_a_publisher_finishes_qos_2_after_a_reconnect_without_duplicates(connections: Connections, level: int) -> None:
    """4.3.3: the PUBLISH is resent with DUP, then PUBREL; one delivery."""
    topic = connections.name
    subscriber = connections.join("t", level)
    subscriber.subscribe((topic, 2))
    first = durable(connections, "p", level)
    publish_and_stop(first, topic)
    first.drop()
    second = durable(connections, "p", level)
    publish_and_stop(second, topic, dup=True)
    second.acknowledge(Kind.PUBREL, 77)
    assert second.expect(Kind.PUBCOMP).reason == 0
    connections.join("q", level).publish(topic, b"last", qos=1)
    assert [one.payload for one in subscriber.messages(2)] == [b"once", b"last"]


def publish_and_stop(client: RawClient, topic: str, *, dup: bool = False) -> None:
    client.send(publish(topic, b"once", client.level, qos=2, packet_id=77, dup=dup))
    assert client.expect(Kind.PUBREC).packet_id == 77


@BOTH
def test_a_pubrel_after_a_reconnect_is_completed(connections: Connections, level: int) -> None:
    first = durable(connections, "p", level)
    publish_and_stop(first, connections.name)
    first.drop()
    second = durable(connections, "p", level)
    second.acknowledge(Kind.PUBREL, 77)
    assert second.expect(Kind.PUBCOMP).reason == 0


def test_subscriptions_sent_again_on_a_present_session_replace_the_old(connections: Connections) -> None:
    """[MQTT-3.8.4-3]: one delivery."""
    topic = connections.name
    first = durable(connections, "a", V5)
    first.subscribe((topic, 0))
    first.drop()
    second = durable(connections, "a", V5)
    second.subscribe((topic, 1))
    connections.join("p").publish(topic, b"x", qos=1)
    assert [(one.payload, one.qos) for one in second.drain()] == [(b"x", 1)]


@BOTH
def test_sessions_and_their_messages_survive_a_restart_of_the_broker(
    make_broker: MakeBroker, connect_to: ConnectTo, level: int
) -> None:
    """4.1: with Session Expiry the state is stored; a stop by SIGTERM loses nothing."""
    broker = make_broker()
    own = connect_to(broker)
    durable(own, "a", level).subscribe(("news", 2))
    own.opened[-1].leave()
    own.join("p", level).publish("news", b"waited", qos=2)
    assert broker.stop() == 0
    broker.start()
    back = own.dial(level)
    assert back.join(own.client_id("a"), clean=False, props=LASTING).session_present
    assert back.message().payload == b"waited"
    own.join("q", level).publish("news", b"fresh", qos=1)
    assert back.message().payload == b"fresh"
