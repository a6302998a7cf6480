"""Messages from the server: acknowledged when the application has taken them, delivered once."""

import pytest

from milepost.client.events import Arrival, Event
from milepost.client.mqtt.inbound import OVERRUN_MAX
from milepost.client.mqtt.session import MqttPhase
from milepost.model import Malformed
from milepost.wire.mqtt import Acknowledge, Code, Disconnect, PacketType, Publish
from unit.client.scripted_server import ClientHarness, bodies_of, summary_of


def message(number: int, qos: int, *, dup: bool = False, body: bytes = b"x") -> Publish:
    return Publish("a", body, qos, packet_id=number, dup=dup)


def take_all(client: ClientHarness, events: list[Event]) -> None:
    for event in events:
        if isinstance(event, Arrival) and event.receipt is not None:
            client.session.acknowledge(event.receipt)


@pytest.mark.parametrize(("qos", "answer"), [(1, "PUBACK"), (2, "PUBREC")])
def test_a_message_is_acknowledged_when_the_application_has_taken_it(qos: int, answer: str) -> None:
    client = ClientHarness()
    client.begin()
    events = client.receive(message(7, qos))
    assert bodies_of(events) == [b"x"]
    assert client.sent() == []
    take_all(client, events)
    assert summary_of(client.sent()) == [(answer, 7, False)]


def test_qos_2_ends_with_pubrel_and_pubcomp() -> None:
    client = ClientHarness()
    client.begin()
    take_all(client, client.receive(message(7, 2)))
    client.sent()
    assert client.receive(message(7, 2, dup=True)) == []
    client.receive(Acknowledge(PacketType.PUBREL, 7))
    assert summary_of(client.sent()) == [("PUBREC", 7, False), ("PUBCOMP", 7, False)]
    client.receive(Acknowledge(PacketType.PUBREL, 7))
    assert client.sent() == [Acknowledge(PacketType.PUBCOMP, 7, Code.PACKET_IDENTIFIER_NOT_FOUND)]
    assert bodies_of(client.receive(message(7, 2))) == [b"x"]


@pytest.mark.parametrize("qos", [1, 2])
def test_a_message_redelivered_before_it_was_taken_is_delivered_once_and_acknowledged_once(qos: int) -> None:
    client = ClientHarness()
    client.begin()
    events = client.receive(message(7, qos))
    client.reconnect(present=True)
    take_all(client, events)  # before the redelivery: an acknowledgement now would cross with it
    assert client.sent() == []
    assert client.receive(message(7, qos, dup=True)) == []
    assert summary_of(client.sent()) == [("PUBACK" if qos == 1 else "PUBREC", 7, False)]


@pytest.mark.parametrize("qos", [1, 2])
def test_a_message_taken_while_disconnected_is_acknowledged_on_redelivery(qos: int) -> None:
    client = ClientHarness()
    client.begin()
    events = client.receive(message(7, qos))
    client.lose()
    take_all(client, events)
    client.begin(present=True)
    assert client.sent() == []
    assert client.receive(message(7, qos, dup=True)) == []
    assert summary_of(client.sent()) == [("PUBACK" if qos == 1 else "PUBREC", 7, False)]


def test_an_acknowledgement_lost_with_its_connection_is_repeated_on_redelivery() -> None:
    client = ClientHarness()
    client.begin()
    take_all(client, client.receive(message(7, 2)))
    client.lose()
    assert client.sent() == []
    client.begin(present=True)
    assert client.receive(message(7, 2, dup=True)) == []
    assert summary_of(client.sent()) == [("PUBREC", 7, False)]


def test_a_packet_id_reused_after_a_reconnection_is_a_new_message() -> None:
    client = ClientHarness()
    client.begin()
    previous = client.receive(message(7, 1, body=b"old"))
    client.reconnect(present=True)
    events = client.receive(message(7, 1, body=b"new"))
    assert bodies_of(events) == [b"new"]
    take_all(client, previous)
    assert client.sent() == []
    take_all(client, events)
    assert summary_of(client.sent()) == [("PUBACK", 7, False)]


def test_messages_of_a_discarded_session_are_not_acknowledged() -> None:
    client = ClientHarness()
    client.begin()
    events = client.receive(message(7, 1), message(8, 2))
    client.reconnect(present=False)
    take_all(client, events)
    assert client.sent() == []


def test_a_server_far_beyond_the_receive_maximum_is_disconnected() -> None:
    client = ClientHarness(receive_max=2)
    client.begin()
    assert len(client.receive(*(message(number, 1) for number in range(1, OVERRUN_MAX + 3)))) == OVERRUN_MAX + 2
    with pytest.raises(Malformed) as fault:
        client.receive(message(OVERRUN_MAX + 3, 1))
    client.session.reject(fault.value)
    assert client.sent() == [Disconnect(Code.RECEIVE_MAXIMUM_EXCEEDED)]
    assert client.session.phase is MqttPhase.DISCONNECTED
