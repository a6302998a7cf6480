"""Storage that fails: nothing is acknowledged that is not stored, and acknowledged messages are there in the end."""

import pytest

from edge_in_memory import Client, EdgeInMemory
from faulty_storage import FaultyStorage
from milepost.model.reasons import Reason
from milepost.wire.mqtt import (
    Acknowledge,
    Code,
    Connect,
    FilterRequest,
    PacketType,
    Ping,
    Pong,
    Properties,
    Publish,
    Subscribe,
    Version,
)
from storage_in_memory import StorageInMemory


class Failing:
    """An edge whose storage fails on demand, with a disconnected and a connected durable session, and a sender."""

    def __init__(self) -> None:
        self.storage = FaultyStorage(StorageInMemory())
        self.edge = EdgeInMemory(self.storage)
        for name in ("away", "here"):
            client = self.edge.connect(name, expiry_s=100)
            client.subscribe("t", qos=1)
            if name == "away":
                client.drop_connection()
            else:
                self.here: Client = client
        self.sender = self.edge.connect("sender", expiry_s=100)
        self.other = self.edge.connect("other")
        self.other.subscribe("t", "o", qos=1)

    def heal(self) -> None:
        self.storage.heal()
        self.edge.pass_time(1)


def ended(client: Client) -> Code | None:
    return client.ended_with()


def test_in_the_tick_in_which_storage_fails_nothing_is_acknowledged_and_durable_sessions_are_disconnected() -> None:
    failing = Failing()
    failing.storage.fail_with("disk full")
    failing.sender.send(Publish("t", b"x", 1, packet_id=1))
    failing.edge.run_ticks()
    assert failing.storage.refused == 1
    assert ended(failing.sender) is Code.IMPLEMENTATION_SPECIFIC_ERROR
    assert ended(failing.here) is Code.IMPLEMENTATION_SPECIFIC_ERROR
    assert not [one for one in (*failing.sender.inbox, *failing.here.inbox) if isinstance(one, Acknowledge | Publish)]
    assert failing.other.bodies() == [b"x"], "sessions that are not durable are unaffected"
    assert failing.other.is_open


@pytest.mark.parametrize(
    "packet",
    [
        Publish("t", b"x", 2, packet_id=1),
        Publish("r", b"x", 1, retain=True, packet_id=1),
        Subscribe(1, (FilterRequest("new", 1),)),
    ],
)
def test_no_change_is_acknowledged_in_the_tick_in_which_storage_fails(packet: Publish | Subscribe) -> None:
    failing = Failing()
    failing.storage.fail_with("disk full")
    answers = failing.sender.request(packet)
    assert [type(one).__name__ for one in answers] == ["Disconnect"]


def test_no_durable_session_is_acknowledged_while_storage_fails() -> None:
    failing = Failing()
    failing.storage.fail_with("disk full")
    client = failing.edge.open_connection()
    client.send(Connect("new", Version.V5, properties=Properties(session_expiry_s=100)))
    failing.edge.run_ticks()
    client.read_packets()
    assert client.connack is None
    again = failing.edge.connect("newer", expiry_s=100)
    assert again.connack is not None
    assert again.connack.code >= Code.UNSPECIFIED_ERROR
    assert failing.edge.connect("newest").is_open, "sessions that are not durable are accepted"


def test_while_storage_fails_durable_requests_are_refused_and_others_served() -> None:
    failing = Failing()
    failing.storage.fail_with("disk full")
    failing.sender.publish("t", b"1", 1)
    sender = failing.edge.connect("second")
    number = sender.publish("t", b"2", 1)
    (answer,) = sender.take()
    assert isinstance(answer, Acknowledge)
    assert answer.packet_id == number
    assert answer.code >= Code.UNSPECIFIED_ERROR
    sender.publish("o", b"3", 1)
    assert [type(one).__name__ for one in sender.take()] == ["Acknowledge"]
    sender.publish("t", b"4")
    assert failing.other.bodies() == [b"1", b"3", b"4"]
    assert failing.edge.broker.counts.refused[Reason.STORAGE_UNAVAILABLE] >= 1


def test_after_recovery_acknowledged_messages_are_stored_and_new_ones_too() -> None:
    failing = Failing()
    failing.sender.publish("t", b"before", 1)
    assert [type(one).__name__ for one in failing.sender.take()] == ["Acknowledge"]
    failing.storage.fail_with("disk full")
    failing.sender.publish("t", b"during", 1)
    failing.heal()
    assert failing.edge.broker.storage_error is None
    sender = failing.edge.connect("sender", clean=False, expiry_s=100)
    sender.publish("t", b"after", 1)
    assert [type(one).__name__ for one in sender.take()] == ["Acknowledge"]
    later = failing.edge.restarted()
    for name in ("away", "here"):
        bodies = later.connect(name, clean=False, expiry_s=100).bodies()
        assert [one for one in bodies if one != b"during"] == [b"before", b"after"], name


def test_removals_during_a_storage_failure_are_stored_after_recovery() -> None:
    failing = Failing()
    failing.sender.publish("t", b"x", 1)
    (message,) = failing.here.messages()
    failing.storage.fail_with("disk full")
    failing.here.acknowledge(PacketType.PUBACK, message.packet_id)
    failing.edge.connect("away", clean=True)
    failing.heal()
    later = failing.edge.restarted()
    assert later.connect("here", clean=False, expiry_s=100).bodies() == []
    assert later.broker.sessions.find("away") is None
    stored = later.storage.load()
    assert (stored.queued, stored.messages) == ({}, {})


def test_storage_is_retried_at_most_twice_a_second() -> None:
    failing = Failing()
    failing.storage.fail_with("disk full")
    failing.sender.publish("t", b"x", 1)
    tried = failing.storage.refused
    for _ in range(10):
        failing.edge.pass_time(0.1)
    assert 1 <= failing.storage.refused - tried <= 2
    assert failing.edge.log.events.count("storage is unavailable") == 1
    failing.heal()
    assert failing.edge.log.events.count("storage is back") == 1


def test_clients_that_do_not_depend_on_unstored_changes_stay_connected() -> None:
    failing = Failing()
    failing.sender.publish("t", b"x", 1)
    (message,) = failing.here.messages()
    failing.storage.fail_with("disk full")
    failing.here.send(Acknowledge(PacketType.PUBACK, message.packet_id or 0))
    failing.other.take()
    failing.other.send(Ping())
    failing.edge.run_ticks()
    assert failing.other.take() == [Pong()]
