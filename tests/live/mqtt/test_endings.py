"""MQTT 5, 3.1.2.10 keep alive, 3.14 DISCONNECT, 4.13 errors, and the reasons that the broker sends when it refuses or stops."""

import time
from collections.abc import Callable

import pytest

from live.mqtt.brokers import deviates, ours_only
from live.mqtt.connections import Connections, ConnectTo, MakeBroker
from live.mqtt.packets import PINGREQ, V4, V5, Kind, P, Packet, Properties, connect, disconnect, packet, publish, short, subscribe
from live.mqtt.raw_client import Closed, RawClient

KEEP_ALIVE_TIMEOUT, SHUTTING_DOWN, MALFORMED, PROTOCOL_ERROR = 0x8D, 0x8B, 0x81, 0x82
LASTING = [(P.SESSION_EXPIRY, 300)]
BOTH = pytest.mark.parametrize("level", [V4, V5])


def wait_closed(client: RawClient, meanwhile: Callable[[], object]) -> None:
    """Wait until the broker closes a connection; call *meanwhile* a few times a second."""
    until = time.monotonic() + 15
    while time.monotonic() < until:
        meanwhile()
        try:
            client.receive(within_s=0.3)
        except TimeoutError:
            continue
        except Closed:
            return
    pytest.fail("the broker never closed it")


@BOTH
@ours_only("Mosquitto looks every few seconds only")
def test_a_silent_client_is_closed_after_one_and_a_half_keep_alives(connections: Connections, level: int) -> None:
    """[MQTT-3.1.2-22]: 0x8D in version 5."""
    joined_at = time.monotonic()
    client = connections.join("a", level, keep_alive=2)
    assert client.close_reason() == (KEEP_ALIVE_TIMEOUT if level == V5 else None)
    assert 2.9 < time.monotonic() - joined_at < 6


@BOTH
@pytest.mark.parametrize("sign", ["ping", "publish", "puback"])
def test_any_packet_keeps_a_client_alive(connections: Connections, level: int, sign: str) -> None:
    """[MQTT-3.1.2-20]: another client that is silent marks the time."""
    packet_bytes = {"ping": PINGREQ, "publish": publish("x", b"", level), "puback": packet(0x40, short(9))}[sign]
    alive = connections.join("a", level, keep_alive=1)
    silent = connections.join("b", level, keep_alive=1)
    wait_closed(silent, lambda: alive.send(packet_bytes))
    assert alive.is_open()


@BOTH
def test_packets_from_the_broker_do_not_keep_a_client_alive(connections: Connections, level: int) -> None:
    """[MQTT-3.1.2-22] counts packets from the client only."""
    silent = connections.join("a", level, keep_alive=1)
    silent.subscribe((connections.name, 0))
    publisher = connections.join("p", level)
    wait_closed(silent, lambda: publisher.publish(connections.name, b"x"))


@BOTH
def test_half_a_packet_does_not_keep_a_client_alive(connections: Connections, level: int) -> None:
    """[MQTT-3.1.2-22] counts whole packets; slow bytes must not keep a connection open for ever."""
    client = connections.join("a", level, keep_alive=1)
    client.send(b"\x30\x7f\x00\x01x")
    client.until_closed(within_s=15)


@BOTH
def test_a_keep_alive_of_zero_never_times_out(connections: Connections, level: int) -> None:
    """3.1.2.10"""
    forever = connections.join("a", level, keep_alive=0)
    connections.join("b", level, keep_alive=1).until_closed(within_s=15)
    assert forever.is_open()


@BOTH
def test_the_broker_closes_after_disconnect(connections: Connections, level: int) -> None:
    """[MQTT-3.14.4-1]: and ignores later packets."""
    subscriber = connections.join("t", level)
    subscriber.subscribe((connections.name, 0))
    client = connections.join("a", level)
    client.send(disconnect(level=level), publish(connections.name, b"too late", level))
    assert client.until_closed() == []
    connections.join("p", level).publish(connections.name, b"last")
    assert subscriber.message().payload == b"last"


@pytest.mark.parametrize("reason", [0x00, 0x04, 0x80, 0x81, 0x82, 0x83, 0x90, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99])
def test_every_disconnect_reason_of_a_client_is_accepted(connections: Connections, reason: int) -> None:
    """3.14.2.1"""
    client = connections.join("a")
    pairs: Properties = [(P.REASON_STRING, "because"), (P.USER_PROPERTY, ("a", "b"))]
    client.send(disconnect(reason, props=pairs))
    assert client.until_closed() == []


@pytest.mark.parametrize("level", [V4, pytest.param(V5, marks=deviates("closes without a reason"))])
def test_the_broker_sends_disconnect_when_it_is_stopped(make_broker: MakeBroker, connect_to: ConnectTo, level: int) -> None:
    """3.14.2.1: 0x8B to clients of version 5; the exit status is 0."""
    broker = make_broker()
    own = connect_to(broker)
    clients = [own.join(f"c{number}", level) for number in range(20)]
    assert broker.stop() == 0
    assert [one.close_reason() for one in clients] == [SHUTTING_DOWN if level == V5 else None] * 20


REFUSED: dict[str, tuple[bytes, int]] = {
    "malformed": (publish("x", b"", qos=3, packet_id=1), MALFORMED),
    "protocol-error": (connect("again"), PROTOCOL_ERROR),
    "alias": (publish("x", b"", props=[(P.TOPIC_ALIAS, 100)]), 0x94),
    "too-large": (b"\x30\xff\xff\xff\x7f", 0x95),
}


@ours_only("Mosquitto gives no reason strings")
@pytest.mark.parametrize("case", REFUSED)
def test_a_disconnect_by_the_broker_carries_a_reason_string(connections: Connections, case: str) -> None:
    """3.14.2.2.3"""
    packet_bytes, reason = REFUSED[case]
    client = connections.join("a")
    client.send(packet_bytes)
    (found,) = client.until_closed()
    assert (found.kind, found.reason) == (Kind.DISCONNECT, reason)
    assert has_reason_string(found)


def has_reason_string(found: Packet) -> bool:
    reason_string = found.one(P.REASON_STRING)
    return isinstance(reason_string, str) and len(reason_string) > 5


@ours_only("Mosquitto gives no reason strings")
def test_a_refusing_connack_carries_a_reason_string(connections: Connections) -> None:
    """3.2.2.3.9"""
    client = connections.dial()
    client.send(connect("a", props=[(P.AUTH_METHOD, "x")]))
    (found,) = client.until_closed()
    assert (found.kind, found.reason) == (Kind.CONNACK, 0x8C)
    assert has_reason_string(found)


@ours_only("Mosquitto gives no reason strings")
def test_a_refusing_suback_carries_a_reason_string(connections: Connections) -> None:
    """3.9.2.1.2: the paper's own topics are not for clients."""
    client = connections.join("a")
    found = client.subscribe(("$reserved/x", 0))
    assert found.codes[0] >= 0x80
    assert has_reason_string(found)


@ours_only("$reserved is the paper's")
@pytest.mark.parametrize("qos", [1, 2])
def test_publishing_below_reserved_is_refused_with_a_reason(connections: Connections, qos: int) -> None:
    """3.4.2.1, 3.5.2.1: 0x87 in the acknowledgement, and the connection stays."""
    client = connections.join("a")
    found = client.publish("$reserved/x", b"x", qos=qos)
    assert found is not None
    assert (found.kind, found.reason) == (Kind.PUBACK if qos == 1 else Kind.PUBREC, 0x87)
    assert has_reason_string(found)
    assert client.is_open()


@ours_only("Mosquitto gives no reason strings")
def test_a_client_without_problem_information_receives_reason_codes_without_reason_strings(connections: Connections) -> None:
    """[MQTT-3.1.2-29]: only PUBLISH, CONNACK and DISCONNECT may still carry a reason string or user properties."""
    client = connections.join("a", props=[(P.REQUEST_PROBLEM_INFORMATION, 0)])
    suback = client.subscribe(("$reserved/x", 0))
    puback = client.publish("$reserved/x", b"x", qos=1)
    assert puback is not None
    assert suback.codes[0] >= 0x80
    assert puback.reason >= 0x80
    assert (suback.properties, puback.properties) == ((), ())


def test_a_reason_string_never_exceeds_the_client_s_maximum_packet_size(connections: Connections) -> None:
    """[MQTT-3.2.2-19], [MQTT-3.14.2-3]"""
    client = connections.join("a", props=[(P.MAXIMUM_PACKET_SIZE, 20)])
    client.send(publish("x", b"", qos=3, packet_id=1))
    found = client.until_closed()
    assert [one.reason for one in found] == [MALFORMED]
    assert all(one.size <= 20 for one in found)


@BOTH
def test_the_durable_session_of_a_disconnected_client_remains(connections: Connections, level: int) -> None:
    """4.13.1: the connection ends, not the session; subscriptions before the fault remain."""
    client = connections.join("a", level, clean=False, props=LASTING)
    client.send(subscribe(1, (connections.name, 1), level=level), publish("x", b"", level, qos=3, packet_id=1))
    client.until_closed()
    connections.join("p", level).publish(connections.name, b"kept", qos=1)
    back = connections.dial(level)
    assert back.join(connections.client_id("a"), clean=False, props=LASTING).session_present
    assert back.message().payload == b"kept"


@BOTH
@pytest.mark.parametrize("how", ["disconnect", "close", "fault", "take over"])
def test_a_client_that_disconnects_with_messages_in_flight_does_not_affect_others(
    connections: Connections, level: int, how: str
) -> None:
    """The broker is paused, so that it reads both at once; after a reconnect unacknowledged messages are resent."""
    topic = connections.name
    publisher, again = connections.join("p", level), connections.dial(level)
    leaving = connections.join("a", level, clean=False, props=LASTING)
    others = [connections.join("", one) for one in (V4, V5, V4, V5)]
    for place, one in enumerate([leaving, *others]):
        one.subscribe((topic, 1 + place % 2))
    hello = connect(connections.client_id("a"), level, clean=False, props=LASTING)
    with connections.broker.paused():
        publisher.send(*(publish(topic, b"%d" % number, level, qos=1, packet_id=1 + number) for number in range(3)))
        match how:
            case "disconnect":
                leaving.send(disconnect(level=level))
            case "close":
                leaving.close()
            case "fault":
                leaving.send(publish("x", b"", level, qos=3, packet_id=1))
            case _:
                again.send(hello)
        publisher.send(publish(topic, b"3", level, qos=1, packet_id=4))
    assert [publisher.expect(Kind.PUBACK).packet_id for _ in range(4)] == [1, 2, 3, 4]
    for one in others:
        assert [message.payload for message in one.messages(4)] == [b"0", b"1", b"2", b"3"]
    if how != "take over":
        again.send(hello)
    assert again.expect(Kind.CONNACK).session_present
    assert [message.payload for message in again.messages(4)] == [b"0", b"1", b"2", b"3"]


@BOTH
@pytest.mark.parametrize("is_away", [True, False])
def test_a_client_that_connects_and_disconnects_in_one_write_loses_nothing(
    connections: Connections, level: int, is_away: bool
) -> None:
    """CONNECT and DISCONNECT in one write, right after a message for its session. Found by the fuzz test."""
    topic = connections.name
    publisher, other, brief = connections.join("p", level), connections.join("o", level), connections.dial(level)
    leaving = connections.join("a", level, clean=False, props=LASTING)
    for one in (leaving, other):
        one.subscribe((topic, 1))
    if is_away:
        leaving.leave()
    hello = connect(connections.client_id("a"), level, clean=False, props=LASTING)
    with connections.broker.paused():
        publisher.send(publish(topic, b"x", level, qos=1, packet_id=1))
        brief.send(hello, disconnect(level=level))
    assert publisher.expect(Kind.PUBACK).packet_id == 1
    assert other.message().payload == b"x"
    brief.until_closed()
    back = connections.dial(level)
    back.send(hello)
    assert back.expect(Kind.CONNACK).session_present
    assert back.message().payload == b"x"
