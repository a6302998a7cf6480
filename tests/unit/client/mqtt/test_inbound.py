"""Messages from the server: answered when the application has them, shown once."""

import pytest

from milepost.client.events import Arrival, Event
from milepost.client.mqtt.inbound import OVERRUN_MAX
from milepost.client.mqtt.session import Phase
from milepost.model import Malformed
from milepost.wire.mqtt import Acknowledge, Code, Disconnect, Kind, Publish
from unit.client.talk import Talk, arrived, numbers_of


def message(number: int, qos: int, *, dup: bool = False, body: bytes = b"x") -> Publish:
    return Publish("a", body, qos, number=number, dup=dup)


def take_all(talk: Talk, events: list[Event]) -> None:
    for event in events:
        if isinstance(event, Arrival) and event.receipt is not None:
            talk.session.acknowledge(event.receipt)


@pytest.mark.parametrize(("qos", "answer"), [(1, "PUBACK"), (2, "PUBREC")])
def test_the_server_is_answered_when_the_application_has_the_message(qos: int, answer: str) -> None:
    talk = Talk()
    talk.begin()
    events = talk.hear(message(7, qos))
    assert arrived(events) == [b"x"]
    assert talk.said() == []
    take_all(talk, events)
    assert numbers_of(talk.said()) == [(answer, 7, False)]


def test_quality_2_ends_with_a_release() -> None:
    talk = Talk()
    talk.begin()
    take_all(talk, talk.hear(message(7, 2)))
    talk.said()
    assert talk.hear(message(7, 2, dup=True)) == []
    talk.hear(Acknowledge(Kind.PUBREL, 7))
    assert numbers_of(talk.said()) == [("PUBREC", 7, False), ("PUBCOMP", 7, False)]
    talk.hear(Acknowledge(Kind.PUBREL, 7))
    assert talk.said() == [Acknowledge(Kind.PUBCOMP, 7, Code.PACKET_IDENTIFIER_NOT_FOUND)]
    assert arrived(talk.hear(message(7, 2))) == [b"x"]


@pytest.mark.parametrize("qos", [1, 2])
def test_a_message_sent_again_while_the_application_waits_is_shown_once_and_answered_once(qos: int) -> None:
    talk = Talk()
    talk.begin()
    events = talk.hear(message(7, qos))
    talk.again(present=True)
    take_all(talk, events)  # before the server has sent it again: an answer now would cross with that
    assert talk.said() == []
    assert talk.hear(message(7, qos, dup=True)) == []
    assert numbers_of(talk.said()) == [("PUBACK" if qos == 1 else "PUBREC", 7, False)]


@pytest.mark.parametrize("qos", [1, 2])
def test_a_message_taken_while_the_server_was_away_is_answered_when_it_comes_again(qos: int) -> None:
    talk = Talk()
    talk.begin()
    events = talk.hear(message(7, qos))
    talk.lose()
    take_all(talk, events)
    talk.begin(present=True)
    assert talk.said() == []
    assert talk.hear(message(7, qos, dup=True)) == []
    assert numbers_of(talk.said()) == [("PUBACK" if qos == 1 else "PUBREC", 7, False)]


def test_an_answer_that_was_not_sent_is_lost_with_its_connection_and_given_again() -> None:
    talk = Talk()
    talk.begin()
    take_all(talk, talk.hear(message(7, 2)))
    talk.lose()
    assert talk.said() == []
    talk.begin(present=True)
    assert talk.hear(message(7, 2, dup=True)) == []
    assert numbers_of(talk.said()) == [("PUBREC", 7, False)]


def test_a_number_that_the_server_uses_anew_after_a_reconnection_is_another_message() -> None:
    talk = Talk()
    talk.begin()
    former = talk.hear(message(7, 1, body=b"old"))
    talk.again(present=True)
    events = talk.hear(message(7, 1, body=b"new"))
    assert arrived(events) == [b"new"]
    take_all(talk, former)
    assert talk.said() == []
    take_all(talk, events)
    assert numbers_of(talk.said()) == [("PUBACK", 7, False)]


def test_what_came_in_a_session_that_the_server_forgot_is_answered_to_nobody() -> None:
    talk = Talk()
    talk.begin()
    events = talk.hear(message(7, 1), message(8, 2))
    talk.again(present=False)
    take_all(talk, events)
    assert talk.said() == []


def test_a_server_that_sends_far_more_than_it_may_is_told_so() -> None:
    talk = Talk(receive_max=2)
    talk.begin()
    assert len(talk.hear(*(message(number, 1) for number in range(1, OVERRUN_MAX + 3)))) == OVERRUN_MAX + 2
    with pytest.raises(Malformed) as fault:
        talk.hear(message(OVERRUN_MAX + 3, 1))
    talk.session.object_to(fault.value)
    assert talk.said() == [Disconnect(Code.RECEIVE_MAXIMUM_EXCEEDED)]
    assert talk.session.phase is Phase.OFF
