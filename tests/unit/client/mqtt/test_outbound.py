"""Messages to the server: windows, answers, reconnections."""

from dataclasses import replace

import pytest

from milepost.client.errors import RefusedByEdge
from milepost.client.events import Done
from milepost.client.mqtt.outbound import PACKET_ID_MAX, PacketIds
from milepost.model import SECOND_NS, Instant, Reason, Refused
from milepost.wire.mqtt import Acknowledge, Code, Kind, Properties, Publish
from unit.client.talk import NOW, Talk, numbers_of


def refused_in(events: list[object]) -> RefusedByEdge:
    (done,) = events
    assert isinstance(done, Done)
    assert done.refused is not None
    return done.refused


def test_quality_0_is_done_when_it_was_handed_over() -> None:
    talk = Talk()
    talk.begin()
    ticket = talk.publish(0)
    packets, events = talk.take()
    assert numbers_of(packets) == [("PUBLISH", None, False)]
    assert events == [Done(ticket)]


def test_quality_1_is_done_when_it_was_acknowledged() -> None:
    talk = Talk()
    talk.begin()
    ticket = talk.publish(1)
    packets, events = talk.take()
    assert numbers_of(packets) == [("PUBLISH", 1, False)]
    assert events == []
    assert talk.hear(Acknowledge(Kind.PUBACK, 1)) == [Done(ticket)]
    assert talk.hear(Acknowledge(Kind.PUBACK, 1)) == []


def test_quality_2_is_done_when_it_was_completed() -> None:
    talk = Talk()
    talk.begin()
    ticket = talk.publish(2)
    talk.said()
    assert talk.hear(Acknowledge(Kind.PUBREC, 1)) == []
    assert numbers_of(talk.said()) == [("PUBREL", 1, False)]
    assert talk.hear(Acknowledge(Kind.PUBCOMP, 1)) == [Done(ticket)]


@pytest.mark.parametrize(("qos", "kind"), [(1, Kind.PUBACK), (2, Kind.PUBREC)])
def test_a_no_is_told_with_number_name_and_advice(qos: int, kind: Kind) -> None:
    talk = Talk()
    talk.begin()
    talk.publish(qos)
    talk.said()
    said = Properties(reason_string=str(Refused(Reason.NOT_ALLOWED, "the rule `publish a`")))
    refused = refused_in([*talk.hear(Acknowledge(kind, 1, Code.NOT_AUTHORIZED, said))])
    assert (refused.number, refused.name, refused.detail) == (220, "NOT_ALLOWED", "the rule `publish a`")
    assert refused.advice == Reason.NOT_ALLOWED.advice
    assert str(refused) == said.reason_string
    assert talk.said() == []


def test_no_more_are_sent_than_the_server_takes_and_all_in_their_order() -> None:
    talk = Talk()
    talk.begin(Properties(receive_maximum=2))
    for number in range(4):
        talk.publish(1, b"%d" % number)
    talk.publish(0, b"last")
    assert numbers_of(talk.said()) == [("PUBLISH", 1, False), ("PUBLISH", 2, False)]
    talk.hear(Acknowledge(Kind.PUBACK, 2))
    assert numbers_of(talk.said()) == [("PUBLISH", 3, False)]
    talk.hear(Acknowledge(Kind.PUBACK, 1), Acknowledge(Kind.PUBACK, 3))
    packets = talk.said()
    assert [packet.payload for packet in packets if isinstance(packet, Publish)] == [b"3", b"last"]


def test_what_was_not_answered_is_sent_again_under_its_number_if_the_session_is_there() -> None:
    talk = Talk()
    talk.begin()
    tickets = [talk.publish(1), talk.publish(2), talk.publish(2), talk.publish(0)]
    talk.said()
    talk.hear(Acknowledge(Kind.PUBREC, 2))
    talk.said()
    talk.again(present=True)
    assert numbers_of(talk.said()) == [("PUBLISH", 1, True), ("PUBREL", 2, False), ("PUBLISH", 3, True)]
    events = talk.hear(Acknowledge(Kind.PUBCOMP, 2, Code.PACKET_IDENTIFIER_NOT_FOUND), Acknowledge(Kind.PUBACK, 1))
    assert events == [Done(tickets[1]), Done(tickets[0])]


def test_what_is_sent_again_keeps_to_the_window_of_the_new_connection() -> None:
    talk = Talk()
    talk.begin()
    for _ in range(3):
        talk.publish(1)
    talk.said()
    talk.lose()
    talk.begin(Properties(receive_maximum=1), present=True)
    assert numbers_of(talk.said()) == [("PUBLISH", 1, True)]
    talk.hear(Acknowledge(Kind.PUBACK, 1))
    assert numbers_of(talk.said()) == [("PUBLISH", 2, True)]


def test_without_the_session_what_was_not_answered_starts_over_and_what_was_received_is_done() -> None:
    talk = Talk()
    talk.begin()
    first, second, third = talk.publish(2), talk.publish(1), talk.publish(1)
    talk.said()
    talk.hear(Acknowledge(Kind.PUBREC, 1))
    events = talk.again(present=False)
    assert Done(first) in events
    assert numbers_of(talk.said()) == [("PUBLISH", 4, False), ("PUBLISH", 5, False)]
    assert talk.hear(Acknowledge(Kind.PUBACK, 5), Acknowledge(Kind.PUBACK, 4)) == [Done(third), Done(second)]


def test_what_starts_over_is_new_also_after_it_was_sent_again() -> None:
    talk = Talk()
    talk.begin()
    talk.publish(1)
    talk.said()
    talk.again(present=True)
    talk.said()
    talk.again(present=False)
    assert numbers_of(talk.said()) == [("PUBLISH", 2, False)]


def test_what_is_published_while_the_server_is_away_waits() -> None:
    talk = Talk()
    talk.begin()
    talk.lose()
    talk.publish(0, b"first")
    talk.publish(1, b"second")
    assert talk.take() == ([], [])
    talk.begin(present=True)
    assert [packet.payload for packet in talk.said() if isinstance(packet, Publish)] == [b"first", b"second"]


def test_what_nobody_waits_for_any_more_is_not_sent() -> None:
    talk = Talk()
    talk.session.withdraw(talk.publish(1))
    talk.begin()
    assert talk.said() == []


def test_what_expires_while_it_waits_is_refused_and_what_is_left_of_the_rest_is_said() -> None:
    talk = Talk()
    talk.publish(1, b"late", valid_until=Instant(NOW - 1))
    talk.publish(1, b"good", valid_until=Instant(NOW + 90 * SECOND_NS - 5))
    talk.begin()
    packets, events = talk.take()
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
def test_what_the_server_does_not_take_is_refused_here(allowed: Properties, name: str) -> None:
    talk = Talk()
    talk.begin(allowed)
    talk.session.publish(Publish("a", b"x" * 20, 2, retain=True), None)
    packets, events = talk.take()
    assert packets == []
    assert refused_in([*events]).name == name


def test_a_packet_that_just_fits_is_sent() -> None:
    talk = Talk()
    talk.begin(Properties(maximum_packet_size=50))
    talk.session.publish(Publish("a", b"x" * 30, 1), None)
    assert len(talk.said()) == 1


def test_in_an_inherited_session_a_number_is_released_before_its_first_use_under_quality_2() -> None:
    talk = Talk()
    talk.begin(present=True)
    ticket = talk.publish(2)
    talk.publish(1)
    assert numbers_of(talk.said()) == [("PUBREL", 1, False), ("PUBLISH", 1, False), ("PUBLISH", 2, False)]
    assert talk.hear(Acknowledge(Kind.PUBCOMP, 1, Code.PACKET_IDENTIFIER_NOT_FOUND)) == []
    talk.hear(Acknowledge(Kind.PUBREC, 1))
    talk.said()
    assert talk.hear(Acknowledge(Kind.PUBCOMP, 1)) == [Done(ticket)]


def test_a_received_that_belongs_to_nothing_is_answered_as_unknown() -> None:
    talk = Talk()
    talk.begin()
    talk.hear(Acknowledge(Kind.PUBREC, 7))
    assert talk.said() == [Acknowledge(Kind.PUBREL, 7, Code.PACKET_IDENTIFIER_NOT_FOUND)]


def test_numbers_go_round_and_leave_out_those_in_use() -> None:
    numbers = PacketIds()
    assert [numbers.take() for _ in range(3)] == [1, 2, 3]
    numbers.give_back(2)
    rest = [numbers.take() for _ in range(PACKET_ID_MAX - 2)]
    assert (rest[0], rest[-1]) == (4, 2)
    assert not numbers.has_any
    numbers.give_back(9)
    assert numbers.take() == 9


def test_a_message_is_not_changed_by_being_sent() -> None:
    packet = Publish("a", b"x", 1)
    talk = Talk()
    talk.begin()
    talk.session.publish(packet, None)
    talk.said()
    assert packet == replace(packet, number=None, dup=False)
