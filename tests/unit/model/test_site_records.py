"""Forwarded messages: only the sender that a source belongs to forwards its messages."""

import pytest

from milepost.model.addresses import Address, ToArea, ToContent, ToEndpoint, ToEveryone, ToNotified
from milepost.model.areas import Circle
from milepost.model.endpoints import EndpointId, SourceId, edge_source, service_source
from milepost.model.instants import Instant
from milepost.model.messages import Message, MessageId
from milepost.model.places import Place
from milepost.model.reasons import Malformed, Reason
from milepost.model.site_records import EdgeRef, ForwardedMessage, source_of_sender

ANYONE = ToContent()
AREA = ToArea(Circle(Place(40.0, -111.0), 1_000.0), "I-1")
CANCEL = ToNotified(("I-1",))
CAR = EndpointId("car")


def forwarded(sender: str, source: SourceId, address: Address) -> ForwardedMessage:
    return ForwardedMessage(EdgeRef("north", sender), 7, Message(MessageId(1), source, "t", Instant(5), address=address))


@pytest.mark.parametrize(
    ("sender", "source", "address"),
    [
        ("edge-7", CAR, AREA),
        ("edge-7", EndpointId("edge-8"), CANCEL),  # an endpoint of that name, not the edge
        ("edge-7", edge_source("edge-7"), AREA),
        ("edge-7", service_source("parking"), ANYONE),  # an answer for a client of the edge
        ("edge-7", service_source("incidents"), ToEndpoint(CAR)),
        ("@incidents", service_source("incidents"), CANCEL),
        ("@parking.3.remote", service_source("parking.3.remote"), ANYONE),
    ],
)
def test_a_sender_forwards_its_own_messages_and_an_edge_those_of_its_clients(
    sender: str, source: SourceId, address: Address
) -> None:
    assert forwarded(sender, source, address).message.source == source


@pytest.mark.parametrize(
    ("sender", "source", "address"),
    [
        ("edge-7", edge_source("edge-8"), AREA),
        ("edge-7", edge_source("edge-8"), ANYONE),
        ("edge-7", service_source("incidents"), CANCEL),
        ("edge-7", service_source("incidents"), AREA),
        ("edge-7", service_source("incidents"), ToEveryone()),
        ("@parking", service_source("incidents"), CANCEL),
        ("@parking", edge_source("parking"), AREA),
        ("@parking", CAR, ANYONE),
    ],
)
def test_a_record_in_the_name_of_another_edge_or_service_is_refused(sender: str, source: SourceId, address: Address) -> None:
    with pytest.raises(Malformed) as caught:
        forwarded(sender, source, address)
    assert caught.value.reason is Reason.SOURCE_FORGED


def test_the_source_of_a_sender_is_the_edge_or_the_service() -> None:
    assert source_of_sender(EdgeRef("north", "edge-7")) == "@edge/edge-7"
    assert source_of_sender(EdgeRef("north", "@incidents")) == "@service/incidents"
