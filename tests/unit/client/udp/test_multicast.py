"""Messages multicast by cell: which are accepted, and which groups are joined (M34)."""

from dataclasses import replace

import pytest

from milepost.client.events import Arrival, Suppressed, Suppression
from milepost.client.messages import received_from_message
from milepost.client.udp.multicast import groups_near
from milepost.model.addresses import ToArea
from milepost.model.areas import Circle
from milepost.model.endpoints import EndpointId, edge_source
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.messages import MessageSigner
from milepost.model.multicast_cells import MulticastGrid
from milepost.model.places import Place
from milepost.model.session_datagrams import MessageName, PublishDatagram, ReceivedDatagram, SessionToken
from milepost.model.subscriptions import SubscriptionId
from milepost.wire.datagrams import encode
from unit.client.udp.scripted_edge import HERE, NOW, SIGNER, SessionHarness, message

INSIDE, ELSEWHERE = ToArea(Circle(HERE, 500.0)), ToArea(Circle(Place(0, 0), 500.0))
UNSIGNED = replace(message(7, source=edge_source("edge-1")), address=INSIDE, valid_until=Instant(NOW + 3600 * SECOND_NS))
ALERT = SIGNER.sign(UNSIGNED)
NAME = MessageName(ALERT.source, ALERT.id)
GRID = MulticastGrid("239.192.0.0", 256, 4243, 0.01)


def receive(harness: SessionHarness, datagram: bytes) -> list[object]:
    """Return the events of a datagram received from a multicast group."""
    harness.session.on_multicast(datagram, harness.now)
    return list(harness.exchange())


def test_a_signed_multicast_message_is_delivered_once_and_acknowledged_by_unicast() -> None:
    harness = SessionHarness().start()
    datagram = encode(PublishDatagram(ALERT, None, (SubscriptionId(99),)))
    assert receive(harness, datagram) == [
        Arrival(received_from_message(ALERT, harness.now, MessageSigner("edge", EndpointId("edge-1"))), (), NAME)
    ]
    assert receive(harness, datagram) == []
    harness.session.acknowledge(NAME)
    harness.exchange()
    assert [one.name for one in harness.edge.received if isinstance(one, ReceivedDatagram)] == [NAME]


@pytest.mark.parametrize(
    "datagram",
    [
        b"",
        b"noise",
        encode(PublishDatagram(replace(message(7, source=edge_source("edge-1")), address=INSIDE))),  # not signed
        encode(PublishDatagram(ALERT, SessionToken(5))),
        encode(PublishDatagram(SIGNER.sign(message(7, source=edge_source("edge-1"))))),  # not to an area
        encode(ReceivedDatagram(NAME)),
    ],
)
def test_invalid_multicast_datagrams_are_counted_and_change_nothing(datagram: bytes) -> None:
    harness = SessionHarness().start()
    broken = harness.session.invalid_datagrams
    assert receive(harness, datagram) == []
    assert harness.session.invalid_datagrams == broken + 1


def test_forged_messages_and_messages_to_another_area_are_suppressed() -> None:
    harness = SessionHarness().start()
    (hidden,) = receive(harness, encode(PublishDatagram(replace(ALERT, body=b"changed"))))
    assert isinstance(hidden, Suppressed)
    assert (hidden.reason, hidden.topic) == (Suppression.FORGED, ALERT.topic)
    elsewhere = SIGNER.sign(replace(ALERT, address=ELSEWHERE, signature=b"", certificate=b""))
    assert receive(harness, encode(PublishDatagram(elsewhere))) == [Suppressed(Suppression.OUTSIDE, ALERT.topic)]
    assert receive(harness, encode(PublishDatagram(ALERT))) == [
        Arrival(received_from_message(ALERT, harness.now, MessageSigner("edge", EndpointId("edge-1"))), (), NAME)
    ]


def test_without_a_session_multicast_is_ignored() -> None:
    assert receive(SessionHarness(), encode(PublishDatagram(ALERT))) == []


@pytest.mark.parametrize("place", [HERE, Place(0.0, 179.9999), Place(0.0, -180.0), Place(89.999, 10.0), Place(-90.0, 0.0)])
def test_the_groups_near_a_place_are_those_of_its_square_and_its_neighbours(place: Place) -> None:
    groups = groups_near(GRID, place)
    assert GRID.group_at(place) in groups
    assert 1 < len(groups) <= 9
    for north, east in [(0.009, 0.0), (-0.009, 0.0), (0.0, 0.009), (0.0, -0.009), (0.009, 0.009)]:
        latitude = max(-90.0, min(90.0, place.latitude + north))
        assert GRID.group_at(Place(latitude, (place.longitude + east + 540.0) % 360.0 - 180.0)) in groups
