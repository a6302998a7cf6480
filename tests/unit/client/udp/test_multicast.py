"""Messages that are multicast by cell: which are believed, and which groups are listened to (M34)."""

from dataclasses import replace

import pytest

from milepost.client.events import Arrival, Suppressed, Suppression
from milepost.client.udp.mapping import received_from
from milepost.client.udp.multicast import groups_near
from milepost.model.addresses import ToArea
from milepost.model.areas import Circle
from milepost.model.multicast_cells import Cells
from milepost.model.places import Place
from milepost.model.sessions import MessageName, Publish, Received, SessionToken
from milepost.model.subscriptions import SubscriptionId
from milepost.wire.datagrams import encode
from unit.client.udp.scripted_edge import HERE, SIGNER, Talk, message

INSIDE, ELSEWHERE = ToArea(Circle(HERE, 500.0)), ToArea(Circle(Place(0, 0), 500.0))
ALERT = SIGNER.sign(replace(message(7, source="edge-1"), address=INSIDE))
NAME = MessageName(ALERT.source, ALERT.id)
GRID = Cells("239.192.0.0", 256, 4243, 0.01)


def hear(talk: Talk, datagram: bytes) -> list[object]:
    """What becomes of a datagram that came to a group."""
    talk.session.on_multicast(datagram, talk.now)
    return list(talk.pass_on())


def test_a_signed_message_that_was_multicast_is_shown_once_and_answered_over_the_session() -> None:
    talk = Talk().start()
    datagram = encode(Publish(ALERT, None, (SubscriptionId(99),)))
    assert hear(talk, datagram) == [Arrival(received_from(ALERT, talk.now, is_signed=True), (), NAME)]
    assert hear(talk, datagram) == []
    talk.session.acknowledge(NAME)
    talk.pass_on()
    assert [one.name for one in talk.edge.heard if isinstance(one, Received)] == [NAME]


@pytest.mark.parametrize(
    "datagram",
    [
        b"",
        b"noise",
        encode(Publish(replace(message(7, source="edge-1"), address=INSIDE))),  # not signed
        encode(Publish(ALERT, SessionToken(5))),
        encode(Publish(SIGNER.sign(message(7, source="edge-1")))),  # to no area
        encode(Received(NAME)),
    ],
)
def test_what_no_edge_would_multicast_is_counted_and_changes_nothing(datagram: bytes) -> None:
    talk = Talk().start()
    broken = talk.session.broken
    assert hear(talk, datagram) == []
    assert talk.session.broken == broken + 1


def test_a_forged_message_and_one_to_another_area_are_not_shown() -> None:
    talk = Talk().start()
    assert hear(talk, encode(Publish(replace(ALERT, body=b"changed")))) == [Suppressed(Suppression.FORGED)]
    elsewhere = SIGNER.sign(replace(ALERT, address=ELSEWHERE, signature=b"", certificate=b""))
    assert hear(talk, encode(Publish(elsewhere))) == [Suppressed(Suppression.OUTSIDE)]
    assert hear(talk, encode(Publish(ALERT))) == [Arrival(received_from(ALERT, talk.now, is_signed=True), (), NAME)]


def test_without_a_session_nothing_is_heard() -> None:
    assert hear(Talk(), encode(Publish(ALERT))) == []


@pytest.mark.parametrize("place", [HERE, Place(0.0, 179.9999), Place(0.0, -180.0), Place(89.999, 10.0), Place(-90.0, 0.0)])
def test_the_groups_near_a_place_are_those_of_its_square_and_all_around(place: Place) -> None:
    groups = groups_near(GRID, place)
    assert GRID.group_at(place) in groups
    assert 1 < len(groups) <= 9
    for north, east in [(0.009, 0.0), (-0.009, 0.0), (0.0, 0.009), (0.0, -0.009), (0.009, 0.009)]:
        latitude = max(-90.0, min(90.0, place.latitude + north))
        assert GRID.group_at(Place(latitude, (place.longitude + east + 540.0) % 360.0 - 180.0)) in groups
