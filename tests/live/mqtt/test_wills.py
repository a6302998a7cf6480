"""MQTT 5, 3.1.2.5 Will Flag and 3.1.3.2 Will Properties."""

import time

import pytest

from live.mqtt.brokers import deviates
from live.mqtt.connections import Connections
from live.mqtt.packets import V4, V5, Kind, P, Properties, Will, connect, publish
from live.mqtt.raw_client import RawClient

LASTING = [(P.SESSION_EXPIRY, 300)]
BOTH = pytest.mark.parametrize("level", [V4, V5])


def watcher_of(connections: Connections, level: int = V5) -> RawClient:
    watcher = connections.join("w", level)
    watcher.subscribe((f"{connections.name}/#", 2))
    return watcher


def payloads_until(connections: Connections, watcher: RawClient, last: bytes) -> list[bytes]:
    """Return the payloads that the watcher receives before a message published now."""
    connections.join("p").publish(f"{connections.name}/last", last, qos=1)
    found = []
    while (payload := watcher.message().payload) != last:
        found.append(payload)
    return found


@BOTH
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_will_is_published_when_the_connection_breaks(connections: Connections, level: int, qos: int) -> None:
    """[MQTT-3.1.2-8], [MQTT-3.1.2-12]: with its QoS."""
    watcher = watcher_of(connections, level)
    connections.join("a", level, will=Will(f"{connections.name}/will", b"lost", qos=qos)).reset()
    found = watcher.message()
    assert (found.topic, found.payload, found.qos, found.is_retained) == (f"{connections.name}/will", b"lost", qos, False)


@BOTH
def test_a_will_is_published_after_a_protocol_error(connections: Connections, level: int) -> None:
    """3.1.2.5: the server closes because of a fault of the client."""
    watcher = watcher_of(connections, level)
    client = connections.join("a", level, will=Will(f"{connections.name}/will", b"lost"))
    client.send(publish("x", b"", level, qos=3, packet_id=1))
    client.until_closed()
    assert watcher.message().payload == b"lost"


@BOTH
def test_a_will_is_not_published_after_a_normal_disconnect(connections: Connections, level: int) -> None:
    """[MQTT-3.14.4-3]"""
    watcher = watcher_of(connections, level)
    connections.join("a", level, will=Will(f"{connections.name}/will", b"lost")).leave()
    assert payloads_until(connections, watcher, b"last") == []


def test_a_disconnect_with_will_message_publishes_it(connections: Connections) -> None:
    """3.14.2.1: reason 0x04."""
    watcher = watcher_of(connections)
    connections.join("a", will=Will(f"{connections.name}/will", b"on purpose")).leave(0x04)
    assert watcher.message().payload == b"on purpose"


@deviates("publishes it for reason 0x04 alone")
def test_a_disconnect_with_an_error_publishes_the_will(connections: Connections) -> None:
    """[MQTT-3.14.4-3] spares only reason 0x00."""
    watcher = watcher_of(connections)
    connections.join("a", will=Will(f"{connections.name}/will", b"fault")).leave(0x80)
    assert watcher.message().payload == b"fault"


@BOTH
def test_a_retained_will_is_delivered_to_later_subscribers(connections: Connections, level: int) -> None:
    """[MQTT-3.1.2-15]"""
    watcher = watcher_of(connections, level)
    topic = f"{connections.name}/will"
    connections.join("a", level, will=Will(topic, b"kept", retain=True)).reset()
    assert not watcher.message().is_retained
    later = connections.join("l", level)
    later.subscribe((topic, 0))
    found = later.message()
    assert (found.payload, found.is_retained) == (b"kept", True)


@BOTH
def test_a_will_with_an_empty_payload_is_published(connections: Connections, level: int) -> None:
    """[MQTT-3.1.3-10] of 3.1.1: a payload of zero length is a payload."""
    watcher = watcher_of(connections, level)
    connections.join("a", level, will=Will(f"{connections.name}/will", b"")).reset()
    assert watcher.message().payload == b""


def test_the_properties_of_a_will_are_forwarded(connections: Connections) -> None:
    """3.1.3.2: unaltered, user properties in order [MQTT-3.1.3-10]."""
    watcher = watcher_of(connections)
    sent_properties: Properties = [
        (P.PAYLOAD_FORMAT, 1),
        (P.CONTENT_TYPE, "text/plain"),
        (P.RESPONSE_TOPIC, "answers"),
        (P.CORRELATION_DATA, b"\x00\xff"),
        (P.USER_PROPERTY, ("b", "2")),
        (P.USER_PROPERTY, ("a", "1")),
        (P.USER_PROPERTY, ("b", "1")),
    ]
    connections.join("a", will=Will(f"{connections.name}/will", b"x", props=sent_properties)).reset()
    found = watcher.message()
    assert found.all(P.USER_PROPERTY) == [("b", "2"), ("a", "1"), ("b", "1")]
    assert set(found.properties) == set(sent_properties)


def test_a_will_expires_like_any_message(connections: Connections) -> None:
    """3.1.3.2.4: the interval is sent on."""
    watcher = watcher_of(connections)
    connections.join("a", will=Will(f"{connections.name}/will", b"x", props=[(P.MESSAGE_EXPIRY, 100)])).reset()
    assert watcher.message().number(P.MESSAGE_EXPIRY) in (99, 100)


def test_a_delayed_will_is_published_after_its_delay_interval(connections: Connections) -> None:
    """3.1.3.2.2"""
    watcher = watcher_of(connections)
    will = Will(f"{connections.name}/will", b"later", props=[(P.WILL_DELAY, 1)])
    client = connections.join("a", will=will, props=LASTING)
    reset_at = time.monotonic()
    client.reset()
    assert watcher.message().payload == b"later"
    assert time.monotonic() - reset_at > 0.9


def test_a_delayed_will_is_cancelled_by_a_reconnect(connections: Connections) -> None:
    """[MQTT-3.1.3-9]: another will with the same delay, set later, marks when it would have been published."""
    watcher = watcher_of(connections)
    delay = [(P.WILL_DELAY, 1)]
    connections.join("a", will=Will(f"{connections.name}/will", b"cancelled", props=delay), props=LASTING).reset()
    back = connections.join("a", clean=False, props=LASTING)
    connections.join("b", will=Will(f"{connections.name}/will", b"marks", props=delay), props=LASTING).reset()
    assert watcher.message().payload == b"marks"
    assert back.is_open()


@deviates("drops the will of the old connection")
def test_a_will_without_delay_is_published_on_a_takeover(connections: Connections) -> None:
    """3.1.4: the server closes the old connection, and that publishes the will."""
    watcher = watcher_of(connections)
    connections.join("a", will=Will(f"{connections.name}/will", b"old"), props=LASTING)
    connections.join("a", clean=False, props=LASTING)
    assert watcher.message().payload == b"old"


@deviates("drops the will with the session")
def test_a_delayed_will_is_published_when_a_clean_start_ends_the_session(connections: Connections) -> None:
    """3.1.3.2.2: the session ends, the delay with it."""
    watcher = watcher_of(connections)
    will = Will(f"{connections.name}/will", b"ended", props=[(P.WILL_DELAY, 100)])
    connections.join("a", will=will, props=LASTING).reset()
    connections.join("a", clean=True)
    assert watcher.message().payload == b"ended"


@BOTH
def test_a_will_is_removed_by_a_connect_without_one(connections: Connections, level: int) -> None:
    watcher = watcher_of(connections, level)
    connections.join("a", level, clean=False, props=LASTING, will=Will(f"{connections.name}/will", b"first")).leave()
    connections.join("a", level, clean=False, props=LASTING).reset()
    connections.join("b", level, will=Will(f"{connections.name}/will", b"marks")).reset()
    assert watcher.message().payload == b"marks"


def test_a_broken_connection_that_was_refused_publishes_no_will(connections: Connections) -> None:
    """3.1.4: no will is stored before a successful CONNACK."""
    watcher = watcher_of(connections)
    client = connections.dial()
    client.send(connect("", will=Will(f"{connections.name}/will"), props=[(P.AUTH_METHOD, "x")]))
    assert client.close_reason() == 0x8C
    assert payloads_until(connections, watcher, b"last") == []


@BOTH
@pytest.mark.parametrize("topic", ["a/#", "a/+/b", ""])
def test_a_will_topic_must_be_a_valid_publish_topic(connections: Connections, level: int, topic: str) -> None:
    """[MQTT-3.3.2-2] holds for wills too."""
    client = connections.dial(level)
    client.send(connect(connections.client_id("a"), level, will=Will(topic)))
    assert client.close_reason() in (None, 0x81, 0x82, 0x90)


def test_a_will_is_published_on_a_keep_alive_timeout(connections: Connections) -> None:
    """[MQTT-3.1.2-8], [MQTT-3.1.2-22]"""
    watcher = watcher_of(connections)
    silent = connections.join("a", keep_alive=1, will=Will(f"{connections.name}/will", b"silent"))
    assert watcher.message(within_s=10).payload == b"silent"
    assert [one.kind for one in silent.until_closed()] in ([], [Kind.DISCONNECT])
