"""MQTT 5, 3.1 CONNECT and 3.2 CONNACK, and the same chapters of 3.1.1."""

import pytest

from live.mqtt.brokers import PACKET_BYTES_MAX, RECEIVE_MAXIMUM, TOPIC_ALIAS_MAXIMUM, deviates, ours_only
from live.mqtt.packets import PINGREQ, V4, V5, Kind, P, Will, connect, publish, short, subscribe, text
from live.mqtt.packets import packet as packet_of
from live.mqtt.visitors import Visitors

MALFORMED, PROTOCOL_ERROR, UNSUPPORTED_VERSION, BAD_CLIENT_ID = 0x81, 0x82, 0x84, 0x85
# 4.13.1: on a faulty CONNECT the connection is closed; a CONNACK with the reason may come before that, and need not.
FAULTY = (None, MALFORMED, PROTOCOL_ERROR)
SILENT = deviates("closes without saying why, which 4.13.1 allows and advises against")
BOTH = pytest.mark.parametrize("level", [V4, V5])


@pytest.mark.parametrize("level", [V4, pytest.param(V5, marks=SILENT)])
def test_a_second_connect_closes_the_connection(visitors: Visitors, level: int) -> None:
    """[MQTT-3.1.0-2]"""
    client = visitors.join("a", level)
    client.send(connect(visitors.client_id("a"), level))
    assert client.last_words() in ((PROTOCOL_ERROR,) if level == V5 else (None,))


@BOTH
@pytest.mark.parametrize("first", [PINGREQ, publish("a", b"x"), subscribe(1, ("a", 0)), b"\xe0\x00", b"\x00\x00"])
def test_a_first_packet_that_is_not_connect_closes_the_connection(visitors: Visitors, level: int, first: bytes) -> None:
    """[MQTT-3.1.0-1]"""
    client = visitors.dial(level)
    client.send(first)
    assert client.last_words() in FAULTY


@BOTH
@pytest.mark.parametrize("name", [b"MQTX", b"mqtt", b"MQT", b"", b"MQTTT"])
def test_a_wrong_protocol_name_gets_no_session(visitors: Visitors, level: int, name: bytes) -> None:
    """[MQTT-3.1.2-1]: closed, and a CONNACK that says 0x84 is allowed."""
    client = visitors.dial(level)
    client.send(connect("a", level, protocol=name))
    assert client.last_words() in (None, 1, MALFORMED, PROTOCOL_ERROR, UNSUPPORTED_VERSION)


@deviates("answers in the form of 3.1.1")
def test_a_future_version_is_refused_as_unsupported(visitors: Visitors) -> None:
    """[MQTT-3.1.2-2]: 0x84, in the form of version 5."""
    client = visitors.dial(V5)
    client.send(connect("a", V5, level_byte=6))
    assert client.last_words() == UNSUPPORTED_VERSION


def test_an_old_version_is_refused_with_return_code_one(visitors: Visitors) -> None:
    """3.1.1 [MQTT-3.1.2-2]: level 2 never was."""
    client = visitors.dial(V4)
    client.send(connect("a", V4, level_byte=2))
    found = client.until_closed()
    assert [(one.kind, one.body) for one in found] == [(Kind.CONNACK, b"\x00\x01")]


@BOTH
def test_the_reserved_connect_flag_must_be_zero(visitors: Visitors, level: int) -> None:
    """[MQTT-3.1.2-3]"""
    client = visitors.dial(level)
    client.send(connect("a", level, flags=0x03))
    assert client.last_words() in FAULTY


@BOTH
@pytest.mark.parametrize(
    ("flags", "why"),
    [(0x0A, "QoS without a will"), (0x22, "retain without a will"), (0x1E, "will of QoS 3")],
    ids=lambda value: str(value).replace(" ", "-"),
)
def test_will_flags_that_contradict_each_other_are_malformed(visitors: Visitors, level: int, flags: int, why: str) -> None:
    """[MQTT-3.1.2-11] to [MQTT-3.1.2-14]"""
    client = visitors.dial(level)
    will = Will("w", b"x") if flags & 4 else None
    client.send(connect("a", level, flags=flags, will=will))
    assert client.last_words() in FAULTY, why


def test_a_password_without_a_user_name_is_malformed_in_3_1_1(visitors: Visitors) -> None:
    """3.1.1 [MQTT-3.1.2-22]; version 5 allows it."""
    client = visitors.dial(V4)
    client.send(connect("a", V4, flags=0x42, password=b"secret"))
    assert client.last_words() is None


@BOTH
@pytest.mark.parametrize("present", ["user", "password"])
def test_a_flag_without_its_field_is_malformed(visitors: Visitors, level: int, present: str) -> None:
    """[MQTT-3.1.2-16] to [MQTT-3.1.2-19]"""
    client = visitors.dial(level)
    client.send(connect("a", level, flags=0x82 if present == "user" else 0xC2, user=None if present == "user" else "u"))
    assert client.last_words() in FAULTY


@BOTH
def test_bytes_after_the_last_field_are_malformed(visitors: Visitors, level: int) -> None:
    client = visitors.dial(level)
    whole = connect("a", level)
    client.send(packet_of(0x10, whole[2:] + b"\x00\x01x"))
    assert client.last_words() in FAULTY


def test_an_empty_client_identifier_is_given_a_name_in_version_5(visitors: Visitors) -> None:
    """[MQTT-3.1.3-6], [MQTT-3.2.2-16]: every time another one, also without Clean Start."""
    names = set()
    for clean in (True, True, False):
        client = visitors.dial()
        assigned = client.join("", clean=clean).one(P.ASSIGNED_CLIENT_ID)
        assert isinstance(assigned, str)
        names.add(assigned)
    assert len(names) == 3
    assert all(names)


def test_a_client_that_has_a_name_is_not_given_another(visitors: Visitors) -> None:
    assert visitors.dial().join(visitors.client_id("a")).one(P.ASSIGNED_CLIENT_ID) is None


def test_an_assigned_name_leads_back_to_the_session(visitors: Visitors) -> None:
    first = visitors.dial()
    assigned = first.join("", props=[(P.SESSION_EXPIRY, 60)]).one(P.ASSIGNED_CLIENT_ID)
    assert isinstance(assigned, str)
    first.leave()
    assert visitors.dial().join(assigned, clean=False).session_present


def test_an_empty_client_identifier_needs_a_clean_session_in_3_1_1(visitors: Visitors) -> None:
    """3.1.1 [MQTT-3.1.3-7] and [MQTT-3.1.3-8]: return code 2, identifier rejected."""
    assert visitors.dial(V4).ask("", clean=True).reason == 0
    client = visitors.dial(V4)
    client.send(connect("", V4, clean=False))
    assert client.last_words() == 2


@BOTH
@pytest.mark.parametrize("length", [1, 23, 24, 128])
def test_client_identifiers_may_be_longer_than_23_bytes(visitors: Visitors, level: int, length: int) -> None:
    """[MQTT-3.1.3-5] asks for 23; common clients use more, ours takes 128 bytes."""
    assert visitors.dial(level).ask((visitors.client_id("-") * 5000)[-length:]).reason == 0


@ours_only("the figures are ours")
def test_connack_begins_with_alias_maximum_packet_size_and_receive_maximum(visitors: Visitors) -> None:
    """The DPSMD paper's brokers announce these three, in this order."""
    found = visitors.dial().join(visitors.client_id("a"))
    assert found.properties[:3] == (
        (P.TOPIC_ALIAS_MAXIMUM, TOPIC_ALIAS_MAXIMUM),
        (P.MAXIMUM_PACKET_SIZE, PACKET_BYTES_MAX),
        (P.RECEIVE_MAXIMUM, RECEIVE_MAXIMUM),
    )


def test_connack_of_3_1_1_has_two_bytes(visitors: Visitors) -> None:
    assert visitors.dial(V4).join(visitors.client_id("a")).body == b"\x00\x00"


def test_connack_denies_nothing_that_the_broker_can_do(visitors: Visitors) -> None:
    """3.2.2.3: absent means yes for QoS 2, retained messages, wildcards, subscription identifiers and shared subscriptions."""
    found = visitors.dial().join(visitors.client_id("a"))
    assert found.one(P.MAXIMUM_QOS) is None
    abilities = (P.RETAIN_AVAILABLE, P.WILDCARD_AVAILABLE, P.SUBSCRIPTION_ID_AVAILABLE, P.SHARED_AVAILABLE)
    assert [found.one(one) for one in abilities if found.one(one) not in (None, 1)] == []


@pytest.mark.parametrize(
    ("which", "value"),
    [(P.RECEIVE_MAXIMUM, 0), (P.MAXIMUM_PACKET_SIZE, 0), (P.REQUEST_PROBLEM_INFORMATION, 2), (P.REQUEST_RESPONSE_INFORMATION, 2)],
)
def test_a_connect_property_out_of_range_is_a_protocol_error(visitors: Visitors, which: P, value: int) -> None:
    """3.1.2.11.3, .4, .6 and .7"""
    client = visitors.dial()
    client.send(connect(visitors.client_id("a"), props=[(which, value)]))
    assert client.last_words() in FAULTY


@pytest.mark.parametrize("which", [P.SESSION_EXPIRY, P.RECEIVE_MAXIMUM, P.MAXIMUM_PACKET_SIZE, P.TOPIC_ALIAS_MAXIMUM])
def test_a_connect_property_given_twice_is_a_protocol_error(visitors: Visitors, which: P) -> None:
    """3.1.2.11"""
    client = visitors.dial()
    client.send(connect(visitors.client_id("a"), props=[(which, 7), (which, 7)]))
    assert client.last_words() in FAULTY


@pytest.mark.parametrize("which", [P.TOPIC_ALIAS, P.SUBSCRIPTION_ID, P.REASON_STRING, P.SERVER_KEEP_ALIVE, P.WILL_DELAY])
def test_a_property_of_another_packet_is_a_protocol_error_in_connect(visitors: Visitors, which: P) -> None:
    """2.2.2.2"""
    client = visitors.dial()
    client.send(connect(visitors.client_id("a"), props=[(which, "x" if which == P.REASON_STRING else 1)]))
    assert client.last_words() in FAULTY


def test_user_properties_may_come_many_times(visitors: Visitors) -> None:
    """3.1.2.11.8"""
    pairs = [(P.USER_PROPERTY, ("fleet", str(number))) for number in range(50)]
    assert visitors.dial().ask(visitors.client_id("a"), props=[*pairs, (P.SESSION_EXPIRY, 0)]).reason == 0


def test_enhanced_authentication_is_refused_as_a_bad_method(visitors: Visitors) -> None:
    """4.12: 0x8C, as no method is known here."""
    client = visitors.dial()
    client.send(connect(visitors.client_id("a"), props=[(P.AUTH_METHOD, "SCRAM-SHA-1"), (P.AUTH_DATA, b"n,,n=user")]))
    assert client.last_words() == 0x8C


@deviates("takes it")
def test_authentication_data_without_a_method_is_a_protocol_error(visitors: Visitors) -> None:
    """3.1.2.11.10"""
    client = visitors.dial()
    client.send(connect(visitors.client_id("a"), props=[(P.AUTH_DATA, b"n,,n=user")]))
    assert client.last_words() in FAULTY


@SILENT
def test_an_auth_packet_nobody_asked_for_ends_the_connection(visitors: Visitors) -> None:
    """[MQTT-4.12.0-6]"""
    client = visitors.join("a")
    client.send(packet_of(0xF0, b"\x19" + b"\x04\x15" + text("x")))
    assert client.last_words() in (PROTOCOL_ERROR, 0x8C)


def test_packets_may_follow_connect_before_its_connack(visitors: Visitors) -> None:
    """3.1.4: a client need not wait."""
    topic = visitors.name
    client = visitors.dial()
    client.send(connect(visitors.client_id("a")), subscribe(1, (topic, 1)), publish(topic, b"early", qos=1, packet_id=2))
    kinds = [client.receive().kind for _ in range(4)]
    assert kinds[0] == Kind.CONNACK
    assert sorted(kinds[1:]) == [Kind.PUBLISH, Kind.PUBACK, Kind.SUBACK]


def test_a_connect_that_arrives_byte_by_byte_is_understood(visitors: Visitors) -> None:
    client = visitors.dial()
    for byte in connect(visitors.client_id("a")):
        client.send(bytes([byte]))
    assert client.expect(Kind.CONNACK).reason == 0


@BOTH
def test_an_unfinished_client_identifier_is_malformed(visitors: Visitors, level: int) -> None:
    client = visitors.dial(level)
    head = connect("", level)[2:-2]
    client.send(packet_of(0x10, head + short(9) + b"four"))
    assert client.last_words() in (*FAULTY, BAD_CLIENT_ID)
