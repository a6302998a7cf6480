"""Signed messages at an edge: verified once, passed on as signed over both listeners, and multicast wherever they come from."""

from dataclasses import replace

import pytest

from milepost.federation.forwarding import publication_of
from milepost.listeners.udp.batch_io import sockaddr_of
from milepost.listeners.udp.connection import UdpConnection
from milepost.listeners.udp.settings import UdpSettings
from milepost.model.addresses import ToArea, ToNotified
from milepost.model.areas import Circle
from milepost.model.endpoints import service_source
from milepost.model.instants import FOREVER, SECOND_NS, Instant
from milepost.model.messages import UNPUBLISH, Message, MessageId
from milepost.model.multicast_cells import MulticastGrid
from milepost.model.places import moved
from milepost.model.priorities import Priority
from milepost.model.session_datagrams import PublishDatagram
from milepost.model.site_records import EdgeRef, ForwardedMessage
from milepost.trust.certificates import OPERATOR, SERVICE, CertificateAuthority
from milepost.trust.signing import Signer, Verifier, signing_public_of
from milepost.wire.datagrams import decode
from udp_edge_in_memory import AUTHORITY_KEY, HOME, UdpEdge, certificate_of

KEY = b"k" * 32
CELLS = MulticastGrid("239.192.0.0", 256, 4243, 1.0)


def verifier() -> Verifier:
    return Verifier(CertificateAuthority(signing_public_of(AUTHORITY_KEY)))


def signer(name: str, role: str) -> Signer:
    return Signer(KEY, certificate_of(name, KEY, role, 5, signing=KEY))


@pytest.fixture
def trusting_edge() -> UdpEdge:
    edge = UdpEdge(udp=UdpSettings(cells=CELLS))
    edge.broker.verify_with(verifier())
    return edge


def test_nothing_is_filled_in_or_changed_in_a_signed_message(trusting_edge: UdpEdge) -> None:
    driver, room = trusting_edge.vehicle("driver"), trusting_edge.vehicle("room", moved(HOME, 0.0, 100.0), role=OPERATOR)
    driver.subscribe("topic:Collision", qos=0)
    driver.received()
    signed = signer("room", OPERATOR).sign(room.message("Collision", b"crash", reliable=True))
    room.publish(signed)
    assert driver.messages() == [signed], "neither place nor the kind's priority, and reliable as it was signed"
    room.publish(room.message("Collision", b"crash"))
    (filled_in,) = driver.messages()
    assert (filled_in.place, filled_in.priority) == (moved(HOME, 0.0, 100.0), Priority.SAFETY)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({}, None),
        ({"body": b"changed"}, "SIGNATURE_INVALID"),
        ({"topic": "other"}, "SIGNATURE_INVALID"),
        ({"source": "driver"}, "SOURCE_FORGED"),
    ],
)
def test_the_edge_verifies_the_signature_of_a_client(
    trusting_edge: UdpEdge, change: dict[str, object], reason: str | None
) -> None:
    room = trusting_edge.vehicle("room", role=OPERATOR)
    message = signer("room", OPERATOR).sign(room.message("t", b"x", reliable=True))
    room.publish(replace(message, **change))  # type: ignore[arg-type]
    assert room.refusals() == ([] if reason is None else [reason])


def test_signatures_that_cannot_be_verified_are_refused(trusting_edge: UdpEdge) -> None:
    room, truck = trusting_edge.vehicle("room", role=OPERATOR), trusting_edge.vehicle("truck")
    truck.publish(signer("truck", "vehicle").sign(truck.message("t")))
    assert truck.refusals() == ["CERTIFICATE_ROLE"]
    sign = signer("room", OPERATOR).sign
    room.publish(sign(replace(room.message("t"), valid_until=FOREVER)))
    room.publish(sign(room.message(UNPUBLISH, fields={"id": "1"})))
    assert room.refusals() == ["SIGNATURE_INVALID", "FIELD_MISSING"]
    room.publish(sign(room.message(UNPUBLISH, fields={"id": "1"}, to=ToNotified(("1",)))))
    assert room.refusals() == []
    without_ca = UdpEdge()
    other = without_ca.vehicle("room", role=OPERATOR)
    other.publish(sign(other.message("t")))
    assert other.refusals() == ["SIGNATURE_INVALID"]


@pytest.mark.parametrize("is_signed", [True, False])
def test_a_sealed_edge_multicasts_the_signed_alerts_of_the_incident_engine(trusting_edge: UdpEdge, is_signed: bool) -> None:
    driver = trusting_edge.vehicle("driver")
    session = trusting_edge.broker.sessions.find(driver.name)
    assert session is not None
    assert isinstance(session.connection, UdpConnection)
    session.connection.receives_multicast = True
    now = trusting_edge.now
    alert = Message(
        MessageId(7),
        service_source("incidents"),
        "Alert/Collision",
        now,
        address=ToArea(Circle(HOME, 200.0), "I-1"),
        valid_until=Instant(now + 60 * SECOND_NS),
        reliable=True,
    )
    alert = signer("incidents", SERVICE).sign(alert) if is_signed else alert
    record = ForwardedMessage(EdgeRef("north", "@incidents"), 1, alert, qos=1)
    trusting_edge.broker.apply_record(publication_of(record), now)
    trusting_edge.run_ticks()
    group = trusting_edge.output.sent[sockaddr_of(CELLS.group_at(HOME), CELLS.port)]
    assert (len(group), len(driver.messages())) == ((1, 0) if is_signed else (0, 1))
    for data in group:
        value = decode(data)
        assert isinstance(value, PublishDatagram)
        assert verifier().check(value.message, now) == ("service", "incidents")
