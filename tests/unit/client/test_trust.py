"""A client with a certificate authority delivers verified messages once, and unsigned ones on topics without a requirement."""

from dataclasses import replace

import pytest

from milepost.client.events import Arrival, Suppressed, Suppression
from milepost.client.messages import OutgoingMessage
from milepost.client.mqtt.session import MqttSession, MqttSetup
from milepost.client.trust import NAMES_MAX, ClientTrust, signed_message_of
from milepost.client.urls import connect
from milepost.model import EndpointId, Place
from milepost.model.endpoints import edge_source
from milepost.model.incidents import ALERT_TOPICS
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.messages import Message, MessageId
from milepost.model.reasons import Malformed, Reason, Refused
from milepost.trust.certificates import revoke, revoke_signers
from milepost.trust.signing import Signer
from milepost.wire.datagrams import envelope_of
from milepost.wire.mqtt import Acknowledge, Connack, PacketType, Properties, Publish, Version, encode
from milepost.wire.requests import REVOCATIONS_TOPIC
from milepost.wire.user_properties import signed_property
from unit.trust.sample_certificates import AUTHORITY_PUBLIC, CA_KEY, NOW, edge_certificate, key_of

SIGNER = Signer(key_of("edge-3 signs"), edge_certificate())
ALERT = SIGNER.sign(
    Message(
        MessageId(1),
        edge_source("edge-3"),
        "Alert",
        NOW,
        place=Place(48.1, 11.6),
        valid_until=Instant(NOW + 60 * SECOND_NS),
        fields={"raised_by": "car-1"},
        body=b"rocks",
    )
)


def packet_of(message: Message, *, more: tuple[tuple[str, str], ...] = (), qos: int = 0, retain: bool = False) -> Publish:
    user = (*more, *(signed_property(envelope_of(message)) if message.signature else ()))
    number = message.id if qos else None
    return Publish(message.topic, message.body, qos, retain, packet_id=number, properties=Properties(user=user))


@pytest.fixture
def session() -> MqttSession:
    one = MqttSession(MqttSetup(EndpointId("driver")), ClientTrust(AUTHORITY_PUBLIC, ALERT_TOPICS))
    one.begin()
    one.take(NOW)
    one.on_bytes(encode(Connack(False), Version.V5), NOW)
    return one


def receive(session: MqttSession, packet: Publish) -> list[object]:
    return list(session.on_bytes(encode(packet, Version.V5), NOW))


def test_only_signed_values_of_a_message_are_delivered(session: MqttSession) -> None:
    forged = (("milepost-place", "0,0"), ("milepost-source", "@edge/edge-4"), ("phase", "cleared"))
    (arrival,) = receive(session, packet_of(ALERT, more=forged))
    assert isinstance(arrival, Arrival)
    received = arrival.received
    assert (received.place, received.source, received.properties) == (ALERT.place, ALERT.source, (("raised_by", "car-1"),))
    assert (received.signer, received.message) == (("edge", "edge-3"), ALERT)
    assert str(received.signer) == "edge edge-3"


def test_a_repeated_signed_message_is_acknowledged_and_not_delivered_unless_it_is_retained(session: MqttSession) -> None:
    assert len(receive(session, packet_of(ALERT))) == 1
    session.take(NOW)
    assert receive(session, packet_of(ALERT, qos=1)) == []
    assert session.take(NOW)[0] == encode(Acknowledge(PacketType.PUBACK, 1), Version.V5)
    (arrival,) = receive(session, packet_of(ALERT, retain=True))
    assert isinstance(arrival, Arrival)
    assert arrival.received.is_retained


def test_a_suppressed_message_is_acknowledged_and_does_not_block_the_genuine_one(session: MqttSession) -> None:
    (event,) = receive(session, packet_of(replace(ALERT, body=b"all clear"), qos=1))
    assert isinstance(event, Suppressed)
    assert (event.reason, event.topic) == (Suppression.FORGED, "Alert")
    assert "the signature is not one of 'edge-3'" in event.detail
    assert session.take(NOW)[0] == encode(Acknowledge(PacketType.PUBACK, 1), Version.V5)
    assert isinstance(receive(session, packet_of(ALERT))[0], Arrival)


def test_unsigned_messages_are_suppressed_on_alert_topics_only(session: MqttSession) -> None:
    topics = ("Alert", "Alert/Ice", "Alerts", "news")
    events = [receive(session, Publish(topic, b"x"))[0] for topic in topics]
    assert [type(event) for event in events] == [Suppressed, Suppressed, Arrival, Arrival]


def test_a_newer_list_of_revoked_signers_is_used_and_any_other_refused(session: MqttSession) -> None:
    newer = revoke_signers(CA_KEY, None, [edge_certificate().serial], NOW)
    older = revoke_signers(CA_KEY, None, [], Instant(NOW - 1))
    assert receive(session, Publish(REVOCATIONS_TOPIC, newer.data)) == []
    wrong = (older.data, b"", revoke_signers(key_of("another"), newer, [], NOW).data, revoke(CA_KEY, newer, [], NOW).data)
    assert [type(receive(session, Publish(REVOCATIONS_TOPIC, data))[0]) for data in wrong] == [Suppressed] * 4
    (event,) = receive(session, packet_of(ALERT))
    assert isinstance(event, Suppressed)
    assert "is revoked" in event.detail


def test_the_memory_of_signed_messages_is_bounded() -> None:
    trust = ClientTrust(AUTHORITY_PUBLIC)
    for number in range(1, NAMES_MAX + 2):
        trust.remember(replace(ALERT, id=MessageId(number)))
    assert not trust.was_delivered(ALERT)
    assert trust.was_delivered(replace(ALERT, id=MessageId(2)))


def test_a_message_is_signed_only_with_an_end_of_validity() -> None:
    operator, room = Signer(key_of("room signs"), edge_certificate("room", role="operator")), EndpointId("room")
    for unsigned, reason in (
        (OutgoingMessage("a"), Reason.FIELD_MISSING),
        (OutgoingMessage("a", valid_for_s=86_401.0), Reason.FIELD_RANGE),
        (OutgoingMessage("a", valid_until=Instant(NOW + 86_401_000_000_000)), Reason.FIELD_RANGE),
    ):
        with pytest.raises(Malformed, match="a signed message is valid for at most 24 hours") as caught:
            signed_message_of(unsigned, operator, room, MessageId(1), NOW)
        assert caught.value.reason is reason
    signed = signed_message_of(OutgoingMessage("a", valid_for_s=60.0, qos=2), operator, room, MessageId(1), NOW)
    assert not isinstance(ClientTrust(AUTHORITY_PUBLIC).verify(signed, NOW), Refused)
    assert signed.reliable


def test_options_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(
        Malformed, match="signed_topics: signatures are verified under a certificate authority; give ca"
    ) as caught:
        connect("mqtt://h", signed_topics=("a",))
    assert caught.value.reason is Reason.FIELD_MISSING
    with pytest.raises(Malformed, match="public key of the certificate authority has 5 bytes"):
        connect("mqtt://h", ca=b"short")
    with pytest.raises(Malformed):
        connect("mqtt://h", ca=AUTHORITY_PUBLIC, signed_topics=("a/#/b",))
