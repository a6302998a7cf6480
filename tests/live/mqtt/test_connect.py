"""MQTT 5, 3.1 CONNECT and 3.2 CONNACK, and the same chapters of 3.1.1."""

import pytest

from live.mqtt.brokers import PACKET_BYTES_MAX, RECEIVE_MAXIMUM, TOPIC_ALIAS_MAXIMUM, deviates, ours_only
from live.mqtt.connections import Connections
from live.mqtt.packets import PINGREQ, V4, V5, Kind, P, Will, connect, publish, short, subscribe, text
from live.mqtt.packets import packet as packet_of

MALFORMED, PROTOCOL_ERROR, UNSUPPORTED_VERSION, BAD_CLIENT_ID = 0x81, 0x82, 0x84, 0x85
# 4.13.1: on a faulty CONNECT the connection is closed; a CONNACK with the reason may come before that, and need not.
FAULTY = (None, MALFORMED, PROTOCOL_ERROR)
SILENT = deviates("closes without a reason, which 4.13.1 allows and advises against")
BOTH = pytest.mark.parametrize("level", [V4, V5])


@pytest.mark.parametrize("level", [V4, pytest.param(V5, marks=SILENT)])
def test_a_second_connect_closes_the_connection(connections: Connections, level: int) -> None:
    """[MQTT-3.1.0-2]"""
    client = connections.join("a", level)
    client.send(connect(connections.client_id("a"), level))
    assert client.close_reason() in ((PROTOCOL_ERROR,) if level == V5 else (None,))


@BOTH
@pytest.mark.parametrize("first", [PINGREQ, publish("a", b"x"), subscribe(1, ("a", 0)), b"\xe0\x00", b"\x00\x00"])
def test_a_first_packet_that_is_not_connect_closes_the_connection(connections: Connections, level: int, first: bytes) -> None:
    """[MQTT-3.1.0-1]"""
    client = connections.dial(level)
    client.send(first)
    assert client.close_reason() in FAULTY


@BOTH
@pytest.mark.parametrize("name", [b"MQTX", b"mqtt", b"MQT", b"", b"MQTTT"])
def test_a_wrong_protocol_name_gets_no_session(connections: Connections, level: int, name: bytes) -> None:
    """[MQTT-3.1.2-1]: closed; a CONNACK with 0x84 is allowed."""
    client = connections.dial(level)
    client.send(connect("a", level, protocol=name))
    assert client.close_reason() in (None, 1, MALFORMED, PROTOCOL_ERROR, UNSUPPORTED_VERSION)


@deviates("answers in the form of 3.1.1")
def test_a_future_version_is_refused_as_unsupported(connections: Connections) -> None:
    """[MQTT-3.1.2-2]: 0x84, in the form of version 5."""
    client = connections.dial(V5)
    client.send(connect("a", V5, level_byte=6))
    assert client.close_reason() == UNSUPPORTED_VERSION


def test_an_old_version_is_refused_with_return_code_one(connections: Connections) -> None:
    """3.1.1 [MQTT-3.1.2-2]: level 2 never was."""
    client = connections.dial(V4)
    client.send(connect("a", V4, level_byte=2))
    found = client.until_closed()
    assert [(one.kind, one.body) for one in found] == [(Kind.CONNACK, b"\x00\x01")]


@BOTH
def test_the_reserved_connect_flag_must_be_zero(connections: Connections, level: int) -> None:
    """[MQTT-3.1.2-3]"""
    client = connections.dial(level)
    client.send(connect("a", level, flags=0x03))
    assert client.close_reason() in FAULTY


@BOTH
@pytest.mark.parametrize(
    ("flags", "why"),
    [(0x0A, "QoS without a will"), (0x22, "retain without a will"), (0x1E, "will of QoS 3")],
    ids=lambda value: str(value).replace(" ", "-"),
)
def test_will_flags_that_contradict_each_other_are_malformed(connections: Connections, level: int, flags: int, why: str) -> None:
    """[MQTT-3.1.2-11] to [MQTT-3.1.2-14]"""
    client = connections.dial(level)
    will = Will("w", b"x") if flags & 4 else None
    client.send(connect("a", level, flags=flags, will=will))
    assert client.close_reason() in FAULTY, why


def test_a_password_without_a_user_name_is_malformed_in_3_1_1(connections: Connections) -> None:
    """3.1.1 [MQTT-3.1.2-22]; version 5 allows it."""
    client = connections.dial(V4)
    client.send(connect("a", V4, flags=0x42, password=b"secret"))
    assert client.close_reason() is None


@BOTH
@pytest.mark.parametrize("present", ["user", "password"])
def test_a_flag_without_its_field_is_malformed(connections: Connections, level: int, present: str) -> None:
    """[MQTT-3.1.2-16] to [MQTT-3.1.2-19]"""
    client = connections.dial(level)
    client.send(connect("a", level, flags=0x82 if present == "user" else 0xC2, user=None if present == "user" else "u"))
    assert client.close_reason() in FAULTY


@BOTH
def test_bytes_after_the_last_field_are_malformed(connections: Connections, level: int) -> None:
    client = connections.dial(level)
    whole = connect("a", level)
    client.send(packet_of(0x10, whole[2:] + b"\x00\x01x"))
    assert client.close_reason() in FAULTY


def test_an_empty_client_identifier_is_assigned_one_in_version_5(connections: Connections) -> None:
    """[MQTT-3.1.3-6], [MQTT-3.2.2-16]: every time another one, also without Clean Start."""
    names = set()
    for clean in (True, True, False):
        client = connections.dial()
        assigned = client.join("", clean=clean).one(P.ASSIGNED_CLIENT_ID)
        assert isinstance(assigned, str)
        names.add(assigned)
    assert len(names) == 3
    assert all(names)


def test_a_client_with_an_identifier_is_not_assigned_another(connections: Connections) -> None:
    assert connections.dial().join(connections.client_id("a")).one(P.ASSIGNED_CLIENT_ID) is None


def test_an_assigned_client_identifier_resumes_its_session(connections: Connections) -> None:
    first = connections.dial()
    assigned = first.join("", props=[(P.SESSION_EXPIRY, 60)]).one(P.ASSIGNED_CLIENT_ID)
    assert isinstance(assigned, str)
    first.leave()
    assert connections.dial().join(assigned, clean=False).session_present


def test_an_empty_client_identifier_needs_a_clean_session_in_3_1_1(connections: Connections) -> None:
    """3.1.1 [MQTT-3.1.3-7] and [MQTT-3.1.3-8]: return code 2, identifier rejected."""
    assert connections.dial(V4).try_join("", clean=True).reason == 0
    client = connections.dial(V4)
    client.send(connect("", V4, clean=False))
    assert client.close_reason() == 2


@BOTH
@pytest.mark.parametrize("length", [1, 23, 24, 128])
def test_client_identifiers_may_be_longer_than_23_bytes(connections: Connections, level: int, length: int) -> None:
    """[MQTT-3.1.3-5] requires 23; common clients use more, Milepost accepts 128 bytes."""
    assert connections.dial(level).try_join((connections.client_id("-") * 5000)[-length:]).reason == 0


@ours_only("the limits are Milepost's")
def test_connack_begins_with_alias_maximum_packet_size_and_receive_maximum(connections: Connections) -> None:
    """The DPSMD paper's brokers announce these three, in this order."""
    found = connections.dial().join(connections.client_id("a"))
    assert found.properties[:3] == (
        (P.TOPIC_ALIAS_MAXIMUM, TOPIC_ALIAS_MAXIMUM),
        (P.MAXIMUM_PACKET_SIZE, PACKET_BYTES_MAX),
        (P.RECEIVE_MAXIMUM, RECEIVE_MAXIMUM),
    )


def test_connack_of_3_1_1_has_two_bytes(connections: Connections) -> None:
    assert connections.dial(V4).join(connections.client_id("a")).body == b"\x00\x00"


def test_connack_reports_every_optional_feature_as_available(connections: Connections) -> None:
    """3.2.2.3: absent means yes for QoS 2, retained messages, wildcards, subscription identifiers and shared subscriptions."""
    found = connections.dial().join(connections.client_id("a"))
    assert found.one(P.MAXIMUM_QOS) is None
    abilities = (P.RETAIN_AVAILABLE, P.WILDCARD_AVAILABLE, P.SUBSCRIPTION_ID_AVAILABLE, P.SHARED_AVAILABLE)
    assert [found.one(one) for one in abilities if found.one(one) not in (None, 1)] == []


@pytest.mark.parametrize(
    ("which", "value"),
    [(P.RECEIVE_MAXIMUM, 0), (P.MAXIMUM_PACKET_SIZE, 0), (P.REQUEST_PROBLEM_INFORMATION, 2), (P.REQUEST_RESPONSE_INFORMATION, 2)],
)
def test_a_connect_property_out_of_range_is_a_protocol_error(connections: Connections, which: P, value: int) -> None:
    """3.1.2.11.3, .4, .6 and .7"""
    client = connections.dial()
    client.send(connect(connections.client_id("a"), props=[(which, value)]))
    assert client.close_reason() in FAULTY


@pytest.mark.parametrize("which", [P.SESSION_EXPIRY, P.RECEIVE_MAXIMUM, P.MAXIMUM_PACKET_SIZE, P.TOPIC_ALIAS_MAXIMUM])
def test_a_connect_property_given_twice_is_a_protocol_error(connections: Connections, which: P) -> None:
    """3.1.2.11"""
    client = connections.dial()
    client.send(connect(connections.client_id("a"), props=[(which, 7), (which, 7)]))
    assert client.close_reason() in FAULTY


@pytest.mark.parametrize("which", [P.TOPIC_ALIAS, P.SUBSCRIPTION_ID, P.REASON_STRING, P.SERVER_KEEP_ALIVE, P.WILL_DELAY])
def test_a_property_of_another_packet_is_a_protocol_error_in_connect(connections: Connections, which: P) -> None:
    """2.2.2.2"""
    client = connections.dial()
    client.send(connect(connections.client_id("a"), props=[(which, "x" if which == P.REASON_STRING else 1)]))
    assert client.close_reason() in FAULTY


def test_user_properties_may_occur_many_times(connections: Connections) -> None:
    """3.1.2.11.8"""
    pairs = [(P.USER_PROPERTY, ("fleet", str(number))) for number in range(50)]
    assert connections.dial().try_join(connections.client_id("a"), props=[*pairs, (P.SESSION_EXPIRY, 0)]).reason == 0


def test_enhanced_authentication_is_refused_as_a_bad_method(connections: Connections) -> None:
    """4.12: 0x8C, as no method is known here."""
    client = connections.dial()
    client.send(connect(connections.client_id("a"), props=[(P.AUTH_METHOD, "SCRAM-SHA-1"), (P.AUTH_DATA, b"n,,n=user")]))
    assert client.close_reason() == 0x8C


@deviates("takes it")
def test_authentication_data_without_a_method_is_a_protocol_error(connections: Connections) -> None:
    """3.1.2.11.10"""
    client = connections.dial()
    client.send(connect(connections.client_id("a"), props=[(P.AUTH_DATA, b"n,,n=user")]))
    assert client.close_reason() in FAULTY


@SILENT
def test_an_unsolicited_auth_packet_closes_the_connection(connections: Connections) -> None:
    """[MQTT-4.12.0-6]"""
    client = connections.join("a")
    client.send(packet_of(0xF0, b"\x19" + b"\x04\x15" + text("x")))
    assert client.close_reason() in (PROTOCOL_ERROR, 0x8C)


def test_packets_may_follow_connect_before_its_connack(connections: Connections) -> None:
    """3.1.4: a client need not wait."""
    topic = connections.name
    client = connections.dial()
    client.send(connect(connections.client_id("a")), subscribe(1, (topic, 1)), publish(topic, b"early", qos=1, packet_id=2))
    kinds = [client.receive().kind for _ in range(4)]
    assert kinds[0] == Kind.CONNACK
    assert sorted(kinds[1:]) == [Kind.PUBLISH, Kind.PUBACK, Kind.SUBACK]


def test_a_connect_that_arrives_byte_by_byte_is_understood(connections: Connections) -> None:
    client = connections.dial()
    for byte in connect(connections.client_id("a")):
        client.send(bytes([byte]))
    assert client.expect(Kind.CONNACK).reason == 0


@BOTH
def test_a_truncated_client_identifier_is_malformed(connections: Connections, level: int) -> None:
    client = connections.dial(level)
    head = connect("", level)[2:-2]
    client.send(packet_of(0x10, head + short(9) + b"four"))
    assert client.close_reason() in (*FAULTY, BAD_CLIENT_ID)
