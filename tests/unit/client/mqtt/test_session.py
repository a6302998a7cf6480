"""An MQTT session as a whole: connecting, resuming, disconnecting."""

import json

import pytest

from milepost.client.errors import RefusedByEdge
from milepost.client.events import Arrival, Connected, Done, Ended
from milepost.client.mqtt.session import MqttPhase
from milepost.client.transport import PositionFix
from milepost.model import Instant, Malformed, Place, Reason
from milepost.wire.mqtt import (
    Acknowledge,
    Auth,
    Code,
    Connack,
    Connect,
    Disconnect,
    Packet,
    PacketType,
    Ping,
    Pong,
    Properties,
    Publish,
    Suback,
    Version,
    encode,
)
from unit.client.scripted_server import NOW, ClientHarness, bodies_of, summary_of


def test_clean_start_applies_to_the_first_connection_only() -> None:
    client = ClientHarness(clean_start=True)
    assert client.session.connect_packet().clean_start
    assert client.begin() == [Connected(is_resumed=False)]
    assert not client.session.connect_packet().clean_start


def test_connect_announces_the_limits_of_the_client() -> None:
    connect = ClientHarness(receive_max=7).session.connect_packet()
    assert (connect.properties.receive_maximum, connect.properties.session_expiry_s) == (7, 3_600)
    assert connect.properties.maximum_packet_size == 4_000_000
    assert connect.properties.topic_alias_maximum is None


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
def test_a_refused_connection_is_retried_only_for_transient_reasons(code: Code, is_final: bool) -> None:
    client = ClientHarness()
    client.session.begin()
    (event,) = client.receive(Connack(False, code))
    assert isinstance(event, Ended)
    assert isinstance(event.fault, RefusedByEdge)
    assert (event.is_final, event.fault.number, event.fault.name) == (is_final, code.value, code.name)
    assert client.session.phase is MqttPhase.DISCONNECTED


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
def test_after_disconnect_the_client_reconnects_only_for_transient_reasons(code: Code, is_final: bool) -> None:
    client = ClientHarness()
    client.begin()
    (event,) = client.receive(Disconnect(code))
    assert isinstance(event, Ended)
    assert isinstance(event.fault, RefusedByEdge)
    assert (event.is_final, event.fault.name) == (is_final, code.name)


@pytest.mark.parametrize("is_open", [False, True])
def test_a_server_reference_is_reported(is_open: bool) -> None:
    client = ClientHarness()
    sent = Properties(server_reference="other:1884 third")
    if is_open:
        client.begin()
        (event,) = client.receive(Disconnect(Code.USE_ANOTHER_SERVER, sent))
    else:
        client.session.begin()
        (event,) = client.receive(Connack(False, Code.SERVER_MOVED, sent))
    assert isinstance(event, Ended)
    assert (event.reference, client.session.phase) == ("other:1884 third", MqttPhase.DISCONNECTED)


def test_an_edge_without_storage_is_retried() -> None:
    client = ClientHarness()
    client.begin()
    sent = Properties(reason_string="230 STORAGE_UNAVAILABLE: the disk is full. Send it again later.")
    (event,) = client.receive(Disconnect(Code.IMPLEMENTATION_SPECIFIC_ERROR, sent))
    assert isinstance(event, Ended)
    assert not event.is_final


@pytest.mark.parametrize(
    "packet",
    [Connack(False), Connect("a", Version.V5), Ping(), Auth(), Publish("a", b"", properties=Properties(topic_alias=1))],
)
def test_packets_that_only_clients_send_end_the_connection(packet: Packet) -> None:
    client = ClientHarness()
    client.begin()
    with pytest.raises(Malformed) as fault:
        client.receive(packet)
    client.publish(1)
    client.session.reject(fault.value)
    (last,) = client.sent()
    assert isinstance(last, Disconnect)
    assert last.code in (Code.PROTOCOL_ERROR, Code.TOPIC_ALIAS_INVALID)


def test_a_packet_before_connack_ends_the_connection() -> None:
    client = ClientHarness()
    client.session.begin()
    with pytest.raises(Malformed) as fault:
        client.receive(Publish("a", b""))
    client.session.reject(fault.value)
    assert [type(packet) for packet in client.sent()] == []


def test_packets_may_arrive_byte_by_byte() -> None:
    client = ClientHarness()
    client.begin()
    data = encode(Publish("a", b"first"), Version.V5) + encode(Publish("a", b"second"), Version.V5)
    events = [event for byte in data for event in client.session.on_bytes(bytes([byte]), NOW)]
    assert bodies_of(events) == [b"first", b"second"]


def test_buffered_bytes_of_a_lost_connection_are_discarded() -> None:
    client = ClientHarness()
    client.begin()
    client.session.on_bytes(encode(Publish("a", b"cut short"), Version.V5)[:5], NOW)
    assert client.reconnect(present=True) == [Connected(is_resumed=True)]


def test_the_server_keepalive_overrides_the_clients() -> None:
    client = ClientHarness()
    client.begin(Properties(server_keep_alive_s=7))
    assert client.session.keep_alive_s == 7
    client.lose()
    client.begin()
    assert client.session.keep_alive_s == 30
    client.session.ping()
    assert client.sent() == [Ping()]
    assert client.receive(Pong()) == []


def test_disconnect_follows_pending_acknowledgements_and_precedes_queued_messages() -> None:
    client = ClientHarness()
    client.begin()
    (event,) = client.receive(Publish("a", b"", 1, packet_id=3))
    assert isinstance(event, Arrival)
    client.session.acknowledge(event.receipt)
    client.publish(1)
    client.session.disconnect(discard_session=True)
    assert client.sent() == [Acknowledge(PacketType.PUBACK, 3), Disconnect(properties=Properties(session_expiry_s=0))]


def test_replies_of_the_service_are_not_delivered() -> None:
    client = ClientHarness()
    client.begin()
    assert client.receive(Publish("$milepost/reply", b"{}")) == []
    assert client.receive(Publish("$milepost/reply", b"{}", 1, packet_id=4)) == []
    assert summary_of(client.sent()) == [("PUBACK", 4, False)]


def test_messages_are_assigned_by_their_subscription_identifiers() -> None:
    client = ClientHarness()
    client.begin()
    subscription_id = client.subscribe("a/#")
    packet = Publish("a/b", b"", properties=Properties(subscription_ids=(subscription_id, 9)))
    assert client.session.subscription_ids_of(packet) == (subscription_id, 9)
    assert client.session.subscription_ids_of(Publish("a/b", b"")) == ()  # addressed to this endpoint


def test_without_subscription_identifiers_messages_are_assigned_by_filter() -> None:
    client = ClientHarness()
    client.begin(Properties(subscription_ids_available=False))
    subscription_id = client.subscribe("a/#")
    client.subscribe("b")
    assert client.session.subscription_ids_of(Publish("a/b", b"")) == (subscription_id,)


def test_a_report_is_a_service_request_and_is_resent_after_a_reconnection() -> None:
    client = ClientHarness()
    client.begin()
    ticket = client.session.report(PositionFix(Place(48.1, 11.6), heading_deg=90.0), NOW)
    (packet,) = client.sent()
    assert isinstance(packet, Publish)
    assert packet.topic == "$milepost/report"
    sent = json.loads(packet.payload)
    assert sent["place"] == {"latitude": 48.1, "longitude": 11.6}
    assert sent["heading_deg"] == 90.0
    assert "seen_at" not in sent
    assert client.receive(Acknowledge(PacketType.PUBACK, 1)) == [Done(ticket)]
    client.reconnect(present=True)
    (packet,) = client.sent()
    assert isinstance(packet, Publish)
    assert (packet.qos, json.loads(packet.payload)["seen_at"]) == (0, "2030-03-17T17:46:40Z")


@pytest.mark.parametrize("present", [False, True])
def test_an_unanswered_report_is_resent_once(present: bool) -> None:
    client = ClientHarness()
    client.begin()
    client.session.report(PositionFix(Place(48.1, 11.6)), NOW)
    client.sent()
    client.reconnect(present=present)
    assert [(packet.topic, packet.qos) for packet in client.sent() if isinstance(packet, Publish)] == [("$milepost/report", 1)]


def test_a_report_to_a_server_other_than_milepost_is_refused() -> None:
    client = ClientHarness()
    client.begin()
    client.session.report(PositionFix(Place(0, 0)), Instant(NOW))
    client.sent()
    (done,) = client.receive(Acknowledge(PacketType.PUBACK, 1, Code.NO_MATCHING_SUBSCRIBERS))
    assert isinstance(done, Done)
    assert done.refused is not None


def test_an_acknowledgement_of_an_unknown_packet_id_is_ignored() -> None:
    client = ClientHarness()
    client.begin()
    assert client.receive(Suback(9, (Code.SUCCESS,)), Acknowledge(PacketType.PUBACK, 9), Acknowledge(PacketType.PUBCOMP, 9)) == []


def test_undecodable_bytes_are_malformed() -> None:
    client = ClientHarness()
    client.begin()
    with pytest.raises(Malformed) as fault:
        client.session.on_bytes(b"\x00\x00", NOW)
    assert fault.value.reason is Reason.PACKET_MALFORMED
