"""Storage that fails: nobody is told that something was kept which was not, and what was acknowledged is there in the end."""

import pytest

from edge_in_memory import Client, EdgeInMemory
from faulty_storage import FaultyStorage
from milepost.model.reasons import Reason
from milepost.wire.mqtt import Acknowledge, Code, Connect, Kind, Ping, Pong, Properties, Publish, Request, Subscribe, Version
from storage_in_memory import KeptInMemory


class Failing:
    """An edge whose storage fails when told to, with a kept taker who is away, one who is here, and a sender."""

    def __init__(self) -> None:
        self.storage = FaultyStorage(KeptInMemory())
        self.edge = EdgeInMemory(self.storage)
        for name in ("away", "here"):
            client = self.edge.connect(name, expiry_s=100)
            client.subscribe("t", qos=1)
            if name == "away":
                client.lose()
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


def test_in_the_turn_in_which_it_fails_nothing_is_confirmed_and_who_waits_for_it_is_disconnected() -> None:
    failing = Failing()
    failing.storage.fail_with("disk full")
    failing.sender.send(Publish("t", b"x", 1, number=1))
    failing.edge.settle()
    assert failing.storage.refused == 1
    assert ended(failing.sender) is Code.IMPLEMENTATION_SPECIFIC_ERROR
    assert ended(failing.here) is Code.IMPLEMENTATION_SPECIFIC_ERROR
    assert not [one for one in (*failing.sender.inbox, *failing.here.inbox) if isinstance(one, Acknowledge | Publish)]
    assert failing.other.bodies() == [b"x"], "who is not kept loses nothing by it"
    assert failing.other.is_open


@pytest.mark.parametrize(
    "packet",
    [
        Publish("t", b"x", 2, number=1),
        Publish("r", b"x", 1, retain=True, number=1),
        Subscribe(1, (Request("new", 1),)),
    ],
)
def test_no_kind_of_change_is_confirmed_in_the_turn_in_which_storage_fails(packet: Publish | Subscribe) -> None:
    failing = Failing()
    failing.storage.fail_with("disk full")
    answers = failing.sender.ask(packet)
    assert [type(one).__name__ for one in answers] == ["Disconnect"]


def test_no_session_is_promised_to_be_kept_that_is_not() -> None:
    failing = Failing()
    failing.storage.fail_with("disk full")
    client = failing.edge.enter()
    client.send(Connect("new", Version.V5, properties=Properties(session_expiry_s=100)))
    failing.edge.settle()
    client.look()
    assert client.connack is None
    again = failing.edge.connect("newer", expiry_s=100)
    assert again.connack is not None
    assert again.connack.code >= Code.UNSPECIFIED_ERROR
    assert failing.edge.connect("newest").is_open, "who does not want to be kept is let in"


def test_while_it_fails_what_must_be_kept_is_refused_and_the_rest_goes_on() -> None:
    failing = Failing()
    failing.storage.fail_with("disk full")
    failing.sender.publish("t", b"1", 1)
    sender = failing.edge.connect("second")
    number = sender.publish("t", b"2", 1)
    (answer,) = sender.take()
    assert isinstance(answer, Acknowledge)
    assert answer.number == number
    assert answer.code >= Code.UNSPECIFIED_ERROR
    sender.publish("o", b"3", 1)
    assert [type(one).__name__ for one in sender.take()] == ["Acknowledge"]
    sender.publish("t", b"4")
    assert failing.other.bodies() == [b"1", b"3", b"4"]
    assert failing.edge.broker.counts.refused[Reason.STORAGE_UNAVAILABLE] >= 1


def test_after_it_healed_what_was_acknowledged_before_is_there_and_new_things_are_kept() -> None:
    failing = Failing()
    failing.sender.publish("t", b"before", 1)
    assert [type(one).__name__ for one in failing.sender.take()] == ["Acknowledge"]
    failing.storage.fail_with("disk full")
    failing.sender.publish("t", b"during", 1)
    failing.heal()
    assert failing.edge.broker.trouble is None
    sender = failing.edge.connect("sender", clean=False, expiry_s=100)
    sender.publish("t", b"after", 1)
    assert [type(one).__name__ for one in sender.take()] == ["Acknowledge"]
    later = failing.edge.restarted()
    for name in ("away", "here"):
        bodies = later.connect(name, clean=False, expiry_s=100).bodies()
        assert [one for one in bodies if one != b"during"] == [b"before", b"after"], name


def test_what_ended_while_it_failed_has_ended_after_it_healed() -> None:
    failing = Failing()
    failing.sender.publish("t", b"x", 1)
    (message,) = failing.here.messages()
    failing.storage.fail_with("disk full")
    failing.here.acknowledge(Kind.PUBACK, message.number)
    failing.edge.connect("away", clean=True)
    failing.heal()
    later = failing.edge.restarted()
    assert later.connect("here", clean=False, expiry_s=100).bodies() == []
    assert later.broker.sessions.maybe("away") is None
    kept = later.storage.load()
    assert (kept.queued, kept.messages) == ({}, {})


def test_storage_is_tried_again_at_most_twice_a_second() -> None:
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


def test_who_has_nothing_to_do_with_what_was_not_kept_is_not_disconnected() -> None:
    failing = Failing()
    failing.sender.publish("t", b"x", 1)
    (message,) = failing.here.messages()
    failing.storage.fail_with("disk full")
    failing.here.send(Acknowledge(Kind.PUBACK, message.number or 0))
    failing.other.take()
    failing.other.send(Ping())
    failing.edge.settle()
    assert failing.other.take() == [Pong()]
