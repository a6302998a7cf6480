"""What is said and heard ↔ packets."""

import pytest

from milepost.client.mqtt.mapping import packet_of, received_from, will_of
from milepost.client.values import UNKNOWN, Publication
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


def test_what_is_not_said_takes_no_room() -> None:
    assert packet_of(Publication("a", b"x", qos=1, retain=True), NOW) == (Publish("a", b"x", 1, True), None)
    assert packet_of(Publication("a"), NOW)[0].properties is NO_PROPERTIES


@pytest.mark.parametrize("address", [ToContent(), ToContent(CIRCLE), ToArea(CIRCLE), ToEndpoint(EndpointId("x")), ToEveryone()])
def test_what_is_said_is_heard(address: ToContent | ToArea | ToEndpoint | ToEveryone) -> None:
    said = Publication(
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
    packet, valid_until = packet_of(said, NOW)
    heard = received_from(packet, Instant(NOW + 5))
    assert valid_until == said.valid_until
    assert (heard.topic, heard.body, heard.tags, heard.place, heard.address) == ("a/b", b"x", said.tags, HERE, address)
    assert (heard.priority, heard.seen_at, heard.valid_until) == (Priority.SAFETY, NOW, said.valid_until)
    assert (heard.properties, heard.source, heard.received_at) == ((("k", "v"),), None, NOW + 5)


def test_the_edge_says_who_sent_it() -> None:
    user = (("milepost-source", "car-7"), ("milepost-seen-at", "2030-03-17T17:46:40Z"))
    heard = received_from(Publish("a", b"x", 1, retain=True, number=1, properties=Properties(user=user, message_expiry_s=5)), NOW)
    assert (heard.source, heard.seen_at, heard.is_retained) == ("car-7", NOW, True)
    assert heard.valid_until == NOW + 5 * SECOND_NS
    assert heard.message.source == "car-7"
    assert from_json(to_json(heard.message)) == heard.message


def test_a_message_of_an_ordinary_client_is_a_message() -> None:
    heard = received_from(Publish("a", b"x"), NOW)
    assert (heard.message.source, heard.message.seen_at, heard.message.valid_until) == (UNKNOWN, NOW, FOREVER)


@pytest.mark.parametrize("pair", [("milepost-place", "nowhere"), ("milepost-tga", "x"), ("milepost-source", "")])
def test_words_that_cannot_be_read_lose_no_message(pair: tuple[str, str]) -> None:
    heard = received_from(Publish("a", b"x", properties=Properties(user=(pair, ("milepost-tag", "ice")))), NOW)
    assert (heard.body, heard.tags) == (b"x", frozenset())
    assert heard.properties == (pair, ("milepost-tag", "ice"))


@pytest.mark.parametrize(
    "said",
    [
        Publication("a/#"),
        Publication("a", properties=(("milepost-tag", "ice"),)),
        Publication("a", properties=(("k", "v" * 70_000),)),
        Publication("a", properties=(("k", "\ud800"),)),
        Publication("a", b"x" * 2_000_001),
    ],
)
def test_what_cannot_be_said_is_told_before_it_is_sent(said: Publication) -> None:
    with pytest.raises(Malformed):
        packet_of(said, NOW)


def test_an_area_that_does_not_fit_is_refused_rather_than_left_out() -> None:
    paths = [tuple(Place(number / 777.7, part + number / 3_333.3) for number in range(500)) for part in range(4)]
    with pytest.raises(Malformed) as fault:
        packet_of(Publication("a", address=ToArea(Union(tuple(Corridor(path, 50.0) for path in paths)))), NOW)
    assert fault.value.reason is Reason.AREA_TOO_COMPLEX


@pytest.mark.parametrize(("valid_for_s", "wanted_ns"), [(0.5, SECOND_NS // 2), (60, 60 * SECOND_NS)])
def test_how_long_it_is_valid_counts_from_when_it_is_said(valid_for_s: float, wanted_ns: int) -> None:
    packet, valid_until = packet_of(Publication("a", valid_for_s=valid_for_s), NOW)
    assert valid_until == NOW + wanted_ns
    assert packet.properties is NO_PROPERTIES


@pytest.mark.parametrize("options", [{"qos": 3}, {"valid_for_s": 0.0}, {"valid_for_s": 1.0, "valid_until": NOW}])
def test_a_publication_is_checked(options: dict[str, int]) -> None:
    with pytest.raises(Malformed):
        Publication("a", **options)  # type: ignore[arg-type]  # that is the test


def test_a_will_has_words_too_and_is_valid_from_when_it_is_published() -> None:
    will = will_of(Publication("a", b"gone", tags(["lost"]), qos=1, valid_for_s=1.5), 5, NOW)
    assert (will.topic, will.payload, will.qos) == ("a", b"gone", 1)
    assert will.properties == Properties(user=(("milepost-tag", "lost"),), message_expiry_s=2, will_delay_s=5)
    with pytest.raises(Malformed, match="valid_for_s"):
        will_of(Publication("a", valid_until=Instant(NOW + 1)), 0, NOW)
