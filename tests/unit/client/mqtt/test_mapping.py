"""Client values ↔ MQTT packets."""

import pytest

from milepost.client.messages import UNKNOWN_SOURCE, OutgoingMessage
from milepost.client.mqtt.mapping import packet_of, received_from, will_of
from milepost.model import (
    FOREVER,
    SECOND_NS,
    Circle,
    Corridor,
    EndpointId,
    Instant,
    Malformed,
    Place,
    Priority,
    Reason,
    ToArea,
    ToContent,
    ToEndpoint,
    ToEveryone,
    Union,
    tags,
)
from milepost.wire.json_form import from_json, to_json
from milepost.wire.mqtt import NO_PROPERTIES, Properties, Publish

NOW = Instant(1_900_000_000_000_000_000)
HERE = Place(48.1, 11.6)
CIRCLE = Circle(HERE, 500.0)


def test_omitted_fields_add_no_properties() -> None:
    assert packet_of(OutgoingMessage("a", b"x", qos=1, retain=True), NOW) == (Publish("a", b"x", 1, True), None)
    assert packet_of(OutgoingMessage("a"), NOW)[0].properties is NO_PROPERTIES


@pytest.mark.parametrize("address", [ToContent(), ToContent(CIRCLE), ToArea(CIRCLE), ToEndpoint(EndpointId("x")), ToEveryone()])
def test_a_publication_is_received_as_published(address: ToContent | ToArea | ToEndpoint | ToEveryone) -> None:
    sent = OutgoingMessage(
        "a/b",
        b"x",
        tags(["ice", "i80"]),
        HERE,
        address,
        Priority.SAFETY,
        NOW,
        Instant(NOW + SECOND_NS),
        properties=(("k", "v"),),
    )
    packet, valid_until = packet_of(sent, NOW)
    received = received_from(packet, Instant(NOW + 5))
    assert valid_until == sent.valid_until
    assert (received.topic, received.body, received.tags, received.place, received.address) == (
        "a/b",
        b"x",
        sent.tags,
        HERE,
        address,
    )
    assert (received.priority, received.seen_at, received.valid_until) == (Priority.SAFETY, NOW, sent.valid_until)
    assert (received.properties, received.source, received.received_at) == ((("k", "v"),), None, NOW + 5)


def test_the_source_comes_from_the_edge() -> None:
    user = (("milepost-source", "car-7"), ("milepost-seen-at", "2030-03-17T17:46:40Z"))
    received = received_from(
        Publish("a", b"x", 1, retain=True, packet_id=1, properties=Properties(user=user, message_expiry_s=5)), NOW
    )
    assert (received.source, received.seen_at, received.is_retained) == ("car-7", NOW, True)
    assert received.valid_until == NOW + 5 * SECOND_NS
    assert received.message.source == "car-7"
    assert from_json(to_json(received.message)) == received.message


def test_a_publish_without_milepost_properties_is_received() -> None:
    received = received_from(Publish("a", b"x"), NOW)
    assert (received.message.source, received.message.seen_at, received.message.valid_until) == (UNKNOWN_SOURCE, NOW, FOREVER)


@pytest.mark.parametrize("pair", [("milepost-place", "nowhere"), ("milepost-tga", "x"), ("milepost-source", "")])
def test_undecodable_properties_do_not_discard_the_message(pair: tuple[str, str]) -> None:
    received = received_from(Publish("a", b"x", properties=Properties(user=(pair, ("milepost-tag", "ice")))), NOW)
    assert (received.body, received.tags) == (b"x", frozenset())
    assert received.properties == (pair, ("milepost-tag", "ice"))


@pytest.mark.parametrize(
    "publication",
    [
        OutgoingMessage("a/#"),
        OutgoingMessage("a", properties=(("milepost-tag", "ice"),)),
        OutgoingMessage("a", properties=(("k", "v" * 70_000),)),
        OutgoingMessage("a", properties=(("k", "\ud800"),)),
        OutgoingMessage("a", b"x" * 2_000_001),
    ],
)
def test_an_invalid_publication_is_refused_before_it_is_sent(publication: OutgoingMessage) -> None:
    with pytest.raises(Malformed):
        packet_of(publication, NOW)


def test_an_area_too_large_for_a_property_is_refused_rather_than_omitted() -> None:
    paths = [tuple(Place(number / 777.7, part + number / 3_333.3) for number in range(500)) for part in range(4)]
    with pytest.raises(Malformed) as fault:
        packet_of(OutgoingMessage("a", address=ToArea(Union(tuple(Corridor(path, 50.0) for path in paths)))), NOW)
    assert fault.value.reason is Reason.AREA_TOO_COMPLEX


@pytest.mark.parametrize(("valid_for_s", "wanted_ns"), [(0.5, SECOND_NS // 2), (60, 60 * SECOND_NS)])
def test_validity_counts_from_the_time_of_publishing(valid_for_s: float, wanted_ns: int) -> None:
    packet, valid_until = packet_of(OutgoingMessage("a", valid_for_s=valid_for_s), NOW)
    assert valid_until == NOW + wanted_ns
    assert packet.properties is NO_PROPERTIES


@pytest.mark.parametrize("options", [{"qos": 3}, {"valid_for_s": 0.0}, {"valid_for_s": 1.0, "valid_until": NOW}])
def test_a_publication_is_checked(options: dict[str, int]) -> None:
    with pytest.raises(Malformed):
        OutgoingMessage("a", **options)  # type: ignore[arg-type]  # that is the test


def test_a_will_has_user_properties_and_its_validity_starts_when_it_is_published() -> None:
    will = will_of(OutgoingMessage("a", b"gone", tags(["lost"]), qos=1, valid_for_s=1.5), 5, NOW)
    assert (will.topic, will.payload, will.qos) == ("a", b"gone", 1)
    assert will.properties == Properties(user=(("milepost-tag", "lost"),), message_expiry_s=2, will_delay_s=5)
    with pytest.raises(Malformed, match="valid_for_s"):
        will_of(OutgoingMessage("a", valid_until=Instant(NOW + 1)), 0, NOW)
