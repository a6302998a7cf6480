"""Robustness: packets that are truncated, too long, out of order, or not text; 1.5.4 UTF-8, 1.5.5 lengths, 2.1.3 flags."""

from collections.abc import Callable

import pytest

from live.mqtt.brokers import IS_REFERENCE, deviates
from live.mqtt.connections import Connections
from live.mqtt.packets import (
    PINGREQ,
    V4,
    V5,
    Kind,
    P,
    Will,
    ack,
    connect,
    disconnect,
    packet,
    publish,
    short,
    subscribe,
    text,
    unsubscribe,
)

MALFORMED, PROTOCOL_ERROR, TOO_LARGE, TOPIC_INVALID, FILTER_INVALID = 0x81, 0x82, 0x95, 0x90, 0x8F
# 4.13.1: version 5 sends a reason before it closes; Mosquitto often does not, which is allowed.
FAULT: dict[int, tuple[int | None, ...]] = {V4: (None,), V5: (MALFORMED, PROTOCOL_ERROR, *([None] if IS_REFERENCE else []))}
BOTH = pytest.mark.parametrize("level", [V4, V5])

# One of each kind that a client may send, and the only flags that 2.1.3 allows for it; PUBLISH has no reserved flags.
GOOD: dict[Kind, bytes] = {
    Kind.CONNECT: connect("x"),
    Kind.PUBACK: ack(Kind.PUBACK, 1),
    Kind.PUBREC: ack(Kind.PUBREC, 1),
    Kind.PUBREL: ack(Kind.PUBREL, 1),
    Kind.PUBCOMP: ack(Kind.PUBCOMP, 1),
    Kind.SUBSCRIBE: subscribe(1, ("a", 0)),
    Kind.UNSUBSCRIBE: unsubscribe(1, "a"),
    Kind.PINGREQ: PINGREQ,
    Kind.DISCONNECT: disconnect(),
}
LENIENT = (Kind.PUBACK, Kind.PUBREC, Kind.PUBCOMP, Kind.PINGREQ, Kind.SUBACK, Kind.UNSUBACK, Kind.PINGRESP)


def kinds(*wanted: Kind) -> list[object]:
    return [pytest.param(one, marks=deviates("takes it")) if one in LENIENT else one for one in wanted]


@pytest.mark.parametrize("kind", kinds(*GOOD))
def test_reserved_flags_of_every_packet_must_have_the_specified_value(connections: Connections, kind: Kind) -> None:
    """[MQTT-2.1.3-1]: all combinations."""
    for flags in range(16):
        if flags != GOOD[kind][0] & 15:
            client = connections.dial() if kind == Kind.CONNECT else connections.join(f"{flags}")
            client.send(bytes([kind << 4 | flags]) + GOOD[kind][1:])
            assert client.close_reason() in (FAULT[V5] if kind != Kind.CONNECT else (None, *FAULT[V5])), flags


@BOTH
@pytest.mark.parametrize("first", [0x00, 0x0F, 0xF0, 0xF1])
def test_a_reserved_packet_type_is_malformed(connections: Connections, level: int, first: int) -> None:
    """2.1.2: 0 in both versions; 15 in 3.1.1 (in 5 it is an unsolicited AUTH)."""
    client = connections.join("a", level)
    client.send(bytes([first, 0]))
    assert client.close_reason() in FAULT[level]


@BOTH
@pytest.mark.parametrize("kind", kinds(Kind.CONNACK, Kind.SUBACK, Kind.UNSUBACK, Kind.PINGRESP))
def test_a_packet_that_only_servers_send_is_a_fault(connections: Connections, level: int, kind: Kind) -> None:
    client = connections.join("a", level)
    client.send(packet(kind << 4, {Kind.CONNACK: b"\x00\x00\x00", Kind.PINGRESP: b""}.get(kind, b"\x00\x01\x00\x00")))
    assert client.close_reason() in FAULT[level]


@BOTH
def test_a_length_of_five_bytes_is_malformed(connections: Connections, level: int) -> None:
    """1.5.5: four bytes are the most."""
    client = connections.join("a", level)
    client.send(b"\x30\xff\xff\xff\xff\x01")
    assert client.close_reason() in (*FAULT[level], TOO_LARGE)


@BOTH
def test_a_length_of_five_bytes_before_connect_is_malformed(connections: Connections, level: int) -> None:
    client = connections.dial(level)
    client.send(b"\x10\xff\xff\xff\xff\x01")
    assert client.close_reason() in (None, *FAULT[level], TOO_LARGE)


@BOTH
@pytest.mark.parametrize("kind", [kind for kind in GOOD if kind not in (Kind.CONNECT, Kind.PINGREQ, Kind.DISCONNECT)])
def test_a_body_that_is_too_short_for_its_packet_type_is_malformed(connections: Connections, level: int, kind: Kind) -> None:
    """Every shorter length of a packet identifier and what must follow it."""
    for length in (0, 1):
        client = connections.join(f"a{length}", level)
        client.send(packet(GOOD[kind][0], bytes(length)))
        assert client.close_reason() in FAULT[level]


CUT = {
    "publish": publish("a/b", b"payload", qos=1, packet_id=1, props=[(P.USER_PROPERTY, ("key", "value"))])[2:-7],
    "subscribe": subscribe(1, ("a/b", 1), props=[(P.SUBSCRIPTION_ID, 200)])[2:],
    "unsubscribe": unsubscribe(1, "a/b", props=[(P.USER_PROPERTY, ("key", "value"))])[2:],
    "puback": ack(Kind.PUBACK, 1, 0, [(P.REASON_STRING, "thanks")])[2:],
    "disconnect": disconnect(0x04, [(P.SESSION_EXPIRY, 1)])[2:],
}
FIRST = {"publish": 0x32, "subscribe": 0x82, "unsubscribe": 0xA2, "puback": 0x40, "disconnect": 0xE0}
# Lengths at which what is left happens to be a whole packet of its kind.
WHOLE = {"publish": (), "subscribe": (), "unsubscribe": (), "puback": (2, 3), "disconnect": (0, 1)}


@pytest.mark.parametrize("name", CUT)
def test_a_body_cut_off_anywhere_is_malformed(connections: Connections, name: str) -> None:
    """No field may extend beyond the remaining length."""
    for length in range(len(CUT[name])):
        client = connections.join("", V5)
        client.send(packet(FIRST[name], CUT[name][:length]), PINGREQ)
        if length not in WHOLE[name]:
            assert client.close_reason() in (*FAULT[V5], TOPIC_INVALID), (length, CUT[name][:length])


@BOTH
def test_a_connect_cut_off_anywhere_is_malformed(connections: Connections, level: int) -> None:
    whole = connect("client", level, will=Will("w", b"gone"), user="u", password=b"p")[2:]
    for length in range(len(whole)):
        client = connections.dial(level)
        client.send(packet(0x10, whole[:length]))
        assert client.close_reason() in (None, 1, *FAULT[level], 0x84), (length, whole[:length])


@BOTH
@pytest.mark.parametrize("length", range(1, 12))
def test_a_connection_that_breaks_in_the_middle_of_a_packet_is_dropped(connections: Connections, level: int, length: int) -> None:
    client = connections.dial(level)
    client.send(connect(connections.client_id("a"), level)[:length])
    client.reset()
    assert connections.join("a", level).is_open()


NOT_TEXT = {
    "overlong": b"\xc0\x80",
    "surrogate": b"\xed\xa0\x80",
    "alone": b"\x80",
    "cut": b"\xe2\x82",
    "beyond": b"\xf4\x90\x80\x80",
    "never": b"\xff",
    "null": b"a\x00b",
}
# Fields by what they are in: each is given bytes that are no text.
FIELDS: dict[str, Callable[[bytes, int], bytes]] = {
    "topic": lambda bad, level: publish(bad, b"x", level),
    "filter": lambda bad, level: subscribe(1, (bad, 0), level=level),
    "unsubscribed": lambda bad, level: unsubscribe(1, bad, level=level),
}


@BOTH
@pytest.mark.parametrize("bad", NOT_TEXT)
@pytest.mark.parametrize("field", ["topic", "filter", "unsubscribed"])
def test_invalid_utf_8_is_malformed(connections: Connections, level: int, field: str, bad: str) -> None:
    """[MQTT-1.5.4-1], [MQTT-1.5.4-2]: no ill-formed sequences, no surrogates, no U+0000."""
    client = connections.join("a", level)
    client.send(FIELDS[field](NOT_TEXT[bad], level))
    assert client.close_reason() in (*FAULT[level], TOPIC_INVALID, FILTER_INVALID)


@pytest.mark.parametrize("bad", NOT_TEXT)
def test_a_property_that_is_not_utf_8_is_malformed(connections: Connections, bad: str) -> None:
    client = connections.join("a")
    pair = bytes([P.USER_PROPERTY]) + text(NOT_TEXT[bad]) + text("value")
    client.send(packet(0x30, text("a") + bytes([len(pair)]) + pair + b"payload"))
    assert client.close_reason() in FAULT[V5]


@BOTH
@pytest.mark.parametrize("bad", NOT_TEXT)
def test_a_client_identifier_that_is_not_utf_8_is_refused(connections: Connections, level: int, bad: str) -> None:
    """[MQTT-3.1.3-4]"""
    client = connections.dial(level)
    client.send(connect(NOT_TEXT[bad], level))
    assert client.close_reason() in (None, 2, *FAULT[level], 0x85)


@BOTH
@pytest.mark.parametrize("character", ["\ufeff", "\U0001f600", "\u00a0", "é", "\U0010fffd"])
def test_any_valid_utf_8_is_a_topic(connections: Connections, level: int, character: str) -> None:
    """[MQTT-1.5.4-3]: U+FEFF is a character like any other."""
    topic = f"{connections.name}/{character}"
    client = connections.join("a", level)
    client.subscribe((topic, 0))
    client.publish(topic, b"x")
    assert client.message().topic == topic


@pytest.mark.parametrize("length", [b"\x80\x00", b"\x80\x80\x00", b"\x82\x80\x00"])
def test_a_property_length_of_more_bytes_than_it_needs_or_has_is_malformed(connections: Connections, length: bytes) -> None:
    """[MQTT-1.5.5-1]"""
    client = connections.join("a")
    client.send(packet(0x30, text("a") + length + b"x"))
    assert client.close_reason() in FAULT[V5]


@pytest.mark.parametrize("identifier", [0, 4, 10, 43, 127, 128, 16_384])
def test_an_unknown_property_is_malformed(connections: Connections, identifier: int) -> None:
    """2.2.2.2"""
    client = connections.join("a")
    body = (
        bytes([identifier]) if identifier < 128 else bytes([identifier & 0x7F | 0x80, identifier >> 7 & 0x7F])
    ) + b"\x00\x00\x00\x00"
    client.send(packet(0x30, text("a") + bytes([len(body)]) + body))
    assert client.close_reason() in FAULT[V5]


@BOTH
@pytest.mark.parametrize("order", [[Kind.PUBCOMP], [Kind.PUBREC, Kind.PUBREC], [Kind.PUBACK], [Kind.PUBREL, Kind.PUBREL]])
def test_acknowledgements_out_of_order_leave_a_session_that_works(
    connections: Connections, level: int, order: list[Kind]
) -> None:
    """A QoS 2 message answered in the wrong order: whether the connection ends or not, the next client is well."""
    subscriber = connections.join("t", level)
    subscriber.subscribe((connections.name, 2))
    connections.join("p", level).publish(connections.name, b"x", qos=2)
    packet_id = subscriber.message().packet_id
    subscriber.send(*(ack(kind, packet_id, level=level) for kind in order))
    subscriber.is_open()
    again = connections.join("t", level)
    again.subscribe((connections.name, 2))
    connections.join("q", level).publish(connections.name, b"y", qos=2)
    message = again.message()
    assert message.payload == b"y"
    again.finish(message)


def test_an_unknown_reason_code_in_an_acknowledgement_does_no_harm(connections: Connections) -> None:
    for kind in (Kind.PUBACK, Kind.PUBREC, Kind.PUBREL, Kind.PUBCOMP):
        client = connections.join("")
        client.send(packet(kind << 4 | (2 if kind == Kind.PUBREL else 0), short(1) + b"\x7f"))
        client.is_open()
    assert connections.join("a").is_open()


@BOTH
def test_a_connection_that_does_not_speak_mqtt_is_closed(connections: Connections, level: int) -> None:
    for noise in (
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
        b"\xff" * 100,
    ):
        client = connections.dial(level)
        client.send(noise)
        assert client.close_reason() in (None, *FAULT[level], TOO_LARGE)
