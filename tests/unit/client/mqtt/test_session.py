"""A session as a whole: beginning, going on, ending."""

import json

import pytest

from milepost.client.carrier import Motion
from milepost.client.errors import RefusedByEdge
from milepost.client.events import Arrival, Connected, Done, Ended
from milepost.client.mqtt.session import Phase
from milepost.model import Instant, Malformed, Place, Reason
from milepost.wire.mqtt import (
    Acknowledge,
    Auth,
    Code,
    Connack,
    Connect,
    Disconnect,
    Kind,
    Packet,
    Ping,
    Pong,
    Properties,
    Publish,
    Suback,
    Version,
    encode,
)
from unit.client.talk import NOW, Talk, arrived, numbers_of


def test_the_first_connection_alone_starts_clean() -> None:
    talk = Talk(clean_start=True)
    assert talk.session.hello().clean_start
    assert talk.begin() == [Connected(is_resumed=False)]
    assert not talk.session.hello().clean_start


def test_limits_are_announced() -> None:
    hello = Talk(receive_max=7).session.hello()
    assert (hello.properties.receive_maximum, hello.properties.session_expiry_s) == (7, 3_600)
    assert hello.properties.maximum_packet_size == 4_000_000
    assert hello.properties.topic_alias_maximum is None


@pytest.mark.parametrize(
    ("code", "is_final"),
    [
        (Code.BAD_USER_NAME_OR_PASSWORD, True),
        (Code.NOT_AUTHORIZED, True),
        (Code.CLIENT_IDENTIFIER_NOT_VALID, True),
        (Code.SERVER_BUSY, False),
        (Code.SERVER_UNAVAILABLE, False),
        (Code.QUOTA_EXCEEDED, False),
    ],
)
def test_a_connection_that_is_refused_is_tried_again_only_where_that_makes_sense(code: Code, is_final: bool) -> None:
    talk = Talk()
    talk.session.begin()
    (event,) = talk.hear(Connack(False, code))
    assert isinstance(event, Ended)
    assert isinstance(event.fault, RefusedByEdge)
    assert (event.is_final, event.fault.number, event.fault.name) == (is_final, code.value, code.name)
    assert talk.session.phase is Phase.OFF


@pytest.mark.parametrize(
    ("code", "is_final"),
    [
        (Code.SESSION_TAKEN_OVER, True),
        (Code.NOT_AUTHORIZED, True),
        (Code.PROTOCOL_ERROR, True),
        (Code.SERVER_MOVED, True),
        (Code.SERVER_SHUTTING_DOWN, False),
        (Code.KEEP_ALIVE_TIMEOUT, False),
        (Code.MESSAGE_RATE_TOO_HIGH, False),
    ],
)
def test_a_server_that_says_goodbye_is_gone_back_to_only_where_that_makes_sense(code: Code, is_final: bool) -> None:
    talk = Talk()
    talk.begin()
    (event,) = talk.hear(Disconnect(code))
    assert isinstance(event, Ended)
    assert isinstance(event.fault, RefusedByEdge)
    assert (event.is_final, event.fault.name) == (is_final, code.name)


@pytest.mark.parametrize("is_open", [False, True])
def test_which_servers_a_server_names_instead_is_passed_on(is_open: bool) -> None:
    talk = Talk()
    said = Properties(server_reference="other:1884 third")
    if is_open:
        talk.begin()
        (event,) = talk.hear(Disconnect(Code.USE_ANOTHER_SERVER, said))
    else:
        talk.session.begin()
        (event,) = talk.hear(Connack(False, Code.SERVER_MOVED, said))
    assert isinstance(event, Ended)
    assert (event.reference, talk.session.phase) == ("other:1884 third", Phase.OFF)


def test_an_edge_that_cannot_keep_anything_is_gone_back_to() -> None:
    talk = Talk()
    talk.begin()
    said = Properties(reason_string="230 STORAGE_UNAVAILABLE: the disk is full. Send it again later.")
    (event,) = talk.hear(Disconnect(Code.IMPLEMENTATION_SPECIFIC_ERROR, said))
    assert isinstance(event, Ended)
    assert not event.is_final


@pytest.mark.parametrize(
    "packet",
    [Connack(False), Connect("a", Version.V5), Ping(), Auth(), Publish("a", b"", properties=Properties(topic_alias=1))],
)
def test_what_a_server_may_not_say_ends_the_connection(packet: Packet) -> None:
    talk = Talk()
    talk.begin()
    with pytest.raises(Malformed) as fault:
        talk.hear(packet)
    talk.publish(1)
    talk.session.object_to(fault.value)
    (last,) = talk.said()
    assert isinstance(last, Disconnect)
    assert last.code in (Code.PROTOCOL_ERROR, Code.TOPIC_ALIAS_INVALID)


def test_nothing_may_come_before_the_answer_to_the_first_packet() -> None:
    talk = Talk()
    talk.session.begin()
    with pytest.raises(Malformed) as fault:
        talk.hear(Publish("a", b""))
    talk.session.object_to(fault.value)
    assert [type(packet) for packet in talk.said()] == []


def test_packets_may_come_byte_by_byte() -> None:
    talk = Talk()
    talk.begin()
    data = encode(Publish("a", b"first"), Version.V5) + encode(Publish("a", b"second"), Version.V5)
    events = [event for byte in data for event in talk.session.on_bytes(bytes([byte]), NOW)]
    assert arrived(events) == [b"first", b"second"]


def test_what_was_left_of_a_lost_connection_is_not_read_into_the_next() -> None:
    talk = Talk()
    talk.begin()
    talk.session.on_bytes(encode(Publish("a", b"cut short"), Version.V5)[:5], NOW)
    assert talk.again(present=True) == [Connected(is_resumed=True)]


def test_the_keep_alive_is_the_servers_if_it_says_one() -> None:
    talk = Talk()
    talk.begin(Properties(server_keep_alive_s=7))
    assert talk.session.keep_alive_s == 7
    talk.lose()
    talk.begin()
    assert talk.session.keep_alive_s == 30
    talk.session.ping()
    assert talk.said() == [Ping()]
    assert talk.hear(Pong()) == []


def test_a_goodbye_comes_after_what_is_owed_and_before_what_waits() -> None:
    talk = Talk()
    talk.begin()
    (event,) = talk.hear(Publish("a", b"", 1, number=3))
    assert isinstance(event, Arrival)
    talk.session.acknowledge(event.receipt)
    talk.publish(1)
    talk.session.leave(forget=True)
    assert talk.said() == [Acknowledge(Kind.PUBACK, 3), Disconnect(properties=Properties(session_expiry_s=0))]


def test_answers_of_the_service_are_not_shown() -> None:
    talk = Talk()
    talk.begin()
    assert talk.hear(Publish("$milepost/reply", b"{}")) == []
    assert talk.hear(Publish("$milepost/reply", b"{}", 1, number=4)) == []
    assert numbers_of(talk.said()) == [("PUBACK", 4, False)]


def test_messages_come_for_the_labels_that_the_server_names() -> None:
    talk = Talk()
    talk.begin()
    subscription_id = talk.subscribe("a/#")
    packet = Publish("a/b", b"", properties=Properties(subscription_ids=(subscription_id, 9)))
    assert talk.session.subscription_ids_of(packet) == (subscription_id, 9)
    assert talk.session.subscription_ids_of(Publish("a/b", b"")) == ()  # addressed to this endpoint


def test_a_server_without_labels_is_done_without() -> None:
    talk = Talk()
    talk.begin(Properties(subscription_ids_available=False))
    subscription_id = talk.subscribe("a/#")
    talk.subscribe("b")
    assert talk.session.subscription_ids_of(Publish("a/b", b"")) == (subscription_id,)


def test_a_report_is_a_request_and_is_said_again_after_a_reconnection() -> None:
    talk = Talk()
    talk.begin()
    ticket = talk.session.report(Motion(Place(48.1, 11.6), heading_deg=90.0), NOW)
    (packet,) = talk.said()
    assert isinstance(packet, Publish)
    assert packet.topic == "$milepost/report"
    said = json.loads(packet.payload)
    assert said["place"] == {"latitude": 48.1, "longitude": 11.6}
    assert said["heading_deg"] == 90.0
    assert "seen_at" not in said
    assert talk.hear(Acknowledge(Kind.PUBACK, 1)) == [Done(ticket)]
    talk.again(present=True)
    (packet,) = talk.said()
    assert isinstance(packet, Publish)
    assert (packet.qos, json.loads(packet.payload)["seen_at"]) == (0, "2030-03-17T17:46:40Z")


@pytest.mark.parametrize("present", [False, True])
def test_a_report_that_was_not_answered_is_said_again_once(present: bool) -> None:
    talk = Talk()
    talk.begin()
    talk.session.report(Motion(Place(48.1, 11.6)), NOW)
    talk.said()
    talk.again(present=present)
    assert [(packet.topic, packet.qos) for packet in talk.said() if isinstance(packet, Publish)] == [("$milepost/report", 1)]


def test_a_report_to_another_server_is_refused() -> None:
    talk = Talk()
    talk.begin()
    talk.session.report(Motion(Place(0, 0)), Instant(NOW))
    talk.said()
    (done,) = talk.hear(Acknowledge(Kind.PUBACK, 1, Code.NO_MATCHING_SUBSCRIBERS))
    assert isinstance(done, Done)
    assert done.refused is not None


def test_an_answer_to_nothing_is_passed_over() -> None:
    talk = Talk()
    talk.begin()
    assert talk.hear(Suback(9, (Code.SUCCESS,)), Acknowledge(Kind.PUBACK, 9), Acknowledge(Kind.PUBCOMP, 9)) == []


def test_bytes_that_are_no_packet_are_malformed() -> None:
    talk = Talk()
    talk.begin()
    with pytest.raises(Malformed) as fault:
        talk.session.on_bytes(b"\x00\x00", NOW)
    assert fault.value.reason is Reason.PACKET_MALFORMED
