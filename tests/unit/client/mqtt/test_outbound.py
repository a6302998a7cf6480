"""Messages to the server: receive maximum, acknowledgements, reconnections."""

from dataclasses import replace

import pytest

from milepost.client.errors import RefusedByEdge
from milepost.client.events import Done
from milepost.client.mqtt.outbound import PACKET_ID_MAX, PacketIds
from milepost.model import SECOND_NS, Instant, Reason, Refused
from milepost.wire.mqtt import Acknowledge, Code, PacketType, Properties, Publish
from unit.client.scripted_server import NOW, ClientHarness, summary_of


def refused_in(events: list[object]) -> RefusedByEdge:
    (done,) = events
    assert isinstance(done, Done)
    assert done.refused is not None
    return done.refused


def test_qos_0_is_done_when_it_was_sent() -> None:
    client = ClientHarness()
    client.begin()
    ticket = client.publish(0)
    packets, events = client.take()
    assert summary_of(packets) == [("PUBLISH", None, False)]
    assert events == [Done(ticket)]


def test_qos_1_is_done_when_it_was_acknowledged() -> None:
    client = ClientHarness()
    client.begin()
    ticket = client.publish(1)
    packets, events = client.take()
    assert summary_of(packets) == [("PUBLISH", 1, False)]
    assert events == []
    assert client.receive(Acknowledge(PacketType.PUBACK, 1)) == [Done(ticket)]
    assert client.receive(Acknowledge(PacketType.PUBACK, 1)) == []


def test_qos_2_is_done_when_it_was_completed() -> None:
    client = ClientHarness()
    client.begin()
    ticket = client.publish(2)
    client.sent()
    assert client.receive(Acknowledge(PacketType.PUBREC, 1)) == []
    assert summary_of(client.sent()) == [("PUBREL", 1, False)]
    assert client.receive(Acknowledge(PacketType.PUBCOMP, 1)) == [Done(ticket)]


@pytest.mark.parametrize(("qos", "kind"), [(1, PacketType.PUBACK), (2, PacketType.PUBREC)])
def test_a_refusal_carries_number_name_and_advice(qos: int, kind: PacketType) -> None:
    client = ClientHarness()
    client.begin()
    client.publish(qos)
    client.sent()
    sent = Properties(reason_string=str(Refused(Reason.NOT_ALLOWED, "the rule `publish a`")))
    refused = refused_in([*client.receive(Acknowledge(kind, 1, Code.NOT_AUTHORIZED, sent))])
    assert (refused.number, refused.name, refused.detail) == (220, "NOT_ALLOWED", "the rule `publish a`")
    assert refused.advice == Reason.NOT_ALLOWED.advice
    assert str(refused) == sent.reason_string
    assert client.sent() == []


def test_the_receive_maximum_of_the_server_is_respected_and_order_is_kept() -> None:
    client = ClientHarness()
    client.begin(Properties(receive_maximum=2))
    for number in range(4):
        client.publish(1, b"%d" % number)
    client.publish(0, b"last")
    assert summary_of(client.sent()) == [("PUBLISH", 1, False), ("PUBLISH", 2, False)]
    client.receive(Acknowledge(PacketType.PUBACK, 2))
    assert summary_of(client.sent()) == [("PUBLISH", 3, False)]
    client.receive(Acknowledge(PacketType.PUBACK, 1), Acknowledge(PacketType.PUBACK, 3))
    packets = client.sent()
    assert [packet.payload for packet in packets if isinstance(packet, Publish)] == [b"3", b"last"]


def test_unanswered_messages_of_a_resumed_session_are_resent_with_their_packet_ids() -> None:
    client = ClientHarness()
    client.begin()
    tickets = [client.publish(1), client.publish(2), client.publish(2), client.publish(0)]
    client.sent()
    client.receive(Acknowledge(PacketType.PUBREC, 2))
    client.sent()
    client.reconnect(present=True)
    assert summary_of(client.sent()) == [("PUBLISH", 1, True), ("PUBREL", 2, False), ("PUBLISH", 3, True)]
    events = client.receive(
        Acknowledge(PacketType.PUBCOMP, 2, Code.PACKET_IDENTIFIER_NOT_FOUND), Acknowledge(PacketType.PUBACK, 1)
    )
    assert events == [Done(tickets[1]), Done(tickets[0])]


def test_resent_messages_respect_the_receive_maximum_of_the_new_connection() -> None:
    client = ClientHarness()
    client.begin()
    for _ in range(3):
        client.publish(1)
    client.sent()
    client.lose()
    client.begin(Properties(receive_maximum=1), present=True)
    assert summary_of(client.sent()) == [("PUBLISH", 1, True)]
    client.receive(Acknowledge(PacketType.PUBACK, 1))
    assert summary_of(client.sent()) == [("PUBLISH", 2, True)]


def test_in_a_new_session_unanswered_messages_start_over_and_those_with_pubrec_are_done() -> None:
    client = ClientHarness()
    client.begin()
    first, second, third = client.publish(2), client.publish(1), client.publish(1)
    client.sent()
    client.receive(Acknowledge(PacketType.PUBREC, 1))
    events = client.reconnect(present=False)
    assert Done(first) in events
    assert summary_of(client.sent()) == [("PUBLISH", 4, False), ("PUBLISH", 5, False)]
    assert client.receive(Acknowledge(PacketType.PUBACK, 5), Acknowledge(PacketType.PUBACK, 4)) == [Done(third), Done(second)]


def test_a_message_that_starts_over_has_no_dup_even_after_a_resend() -> None:
    client = ClientHarness()
    client.begin()
    client.publish(1)
    client.sent()
    client.reconnect(present=True)
    client.sent()
    client.reconnect(present=False)
    assert summary_of(client.sent()) == [("PUBLISH", 2, False)]


def test_messages_published_while_disconnected_are_queued() -> None:
    client = ClientHarness()
    client.begin()
    client.lose()
    client.publish(0, b"first")
    client.publish(1, b"second")
    assert client.take() == ([], [])
    client.begin(present=True)
    assert [packet.payload for packet in client.sent() if isinstance(packet, Publish)] == [b"first", b"second"]


def test_a_withdrawn_message_is_not_sent() -> None:
    client = ClientHarness()
    client.session.withdraw(client.publish(1))
    client.begin()
    assert client.sent() == []


def test_a_queued_message_that_expires_is_refused_and_others_carry_their_remaining_expiry() -> None:
    client = ClientHarness()
    client.publish(1, b"late", valid_until=Instant(NOW - 1))
    client.publish(1, b"good", valid_until=Instant(NOW + 90 * SECOND_NS - 5))
    client.begin()
    packets, events = client.take()
    assert refused_in([*events]).name == "EXPIRED"
    (packet,) = packets
    assert isinstance(packet, Publish)
    assert (packet.payload, packet.properties.message_expiry_s) == (b"good", 90)


@pytest.mark.parametrize(
    ("allowed", "name"),
    [
        (Properties(maximum_qos=1), "QOS_NOT_SUPPORTED"),
        (Properties(retain_available=False), "RETAIN_NOT_SUPPORTED"),
        (Properties(maximum_packet_size=20), "PACKET_TOO_LARGE"),
    ],
)
def test_a_message_beyond_the_servers_limits_is_refused_by_the_client(allowed: Properties, name: str) -> None:
    client = ClientHarness()
    client.begin(allowed)
    client.session.publish(Publish("a", b"x" * 20, 2, retain=True), None)
    packets, events = client.take()
    assert packets == []
    assert refused_in([*events]).name == name


def test_a_packet_that_just_fits_is_sent() -> None:
    client = ClientHarness()
    client.begin(Properties(maximum_packet_size=50))
    client.session.publish(Publish("a", b"x" * 30, 1), None)
    assert len(client.sent()) == 1


def test_in_an_inherited_session_a_packet_id_is_released_before_its_first_use_with_qos_2() -> None:
    client = ClientHarness()
    client.begin(present=True)
    ticket = client.publish(2)
    client.publish(1)
    assert summary_of(client.sent()) == [("PUBREL", 1, False), ("PUBLISH", 1, False), ("PUBLISH", 2, False)]
    assert client.receive(Acknowledge(PacketType.PUBCOMP, 1, Code.PACKET_IDENTIFIER_NOT_FOUND)) == []
    client.receive(Acknowledge(PacketType.PUBREC, 1))
    client.sent()
    assert client.receive(Acknowledge(PacketType.PUBCOMP, 1)) == [Done(ticket)]


def test_a_pubrec_for_an_unknown_packet_id_is_answered_with_identifier_not_found() -> None:
    client = ClientHarness()
    client.begin()
    client.receive(Acknowledge(PacketType.PUBREC, 7))
    assert client.sent() == [Acknowledge(PacketType.PUBREL, 7, Code.PACKET_IDENTIFIER_NOT_FOUND)]


def test_packet_ids_wrap_around_and_skip_those_in_use() -> None:
    numbers = PacketIds()
    assert [numbers.take() for _ in range(3)] == [1, 2, 3]
    numbers.release(2)
    rest = [numbers.take() for _ in range(PACKET_ID_MAX - 2)]
    assert (rest[0], rest[-1]) == (4, 2)
    assert not numbers.has_free
    numbers.release(9)
    assert numbers.take() == 9


def test_sending_does_not_change_the_message() -> None:
    packet = Publish("a", b"x", 1)
    client = ClientHarness()
    client.begin()
    client.session.publish(packet, None)
    client.sent()
    assert packet == replace(packet, packet_id=None, dup=False)
