"""Milepost's user properties in MQTT packets."""

import time
from collections.abc import Callable

import pytest

from milepost.model.addresses import ToArea, ToContent, ToEndpoint, ToEveryone, ToNotified
from milepost.model.areas import Around, Box, Circle, Corridor, Polygon, Union
from milepost.model.endpoints import EndpointId
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.messages import Message, MessageId
from milepost.model.places import Place
from milepost.model.priorities import Priority
from milepost.model.queries import And, HasTag, OnTopic, parse_query
from milepost.model.reasons import Malformed, Reason
from milepost.model.reports import Report
from milepost.model.subscriptions import Subscription, SubscriptionId
from milepost.model.tags import Tag
from milepost.model.time_windows import TimeWindow
from milepost.wire.user_properties import (
    MessageProperties,
    message_to_properties,
    ordinary_properties,
    parse_message_properties,
    report_from_properties,
    subscription_from_properties,
)

NOON = Instant(1_893_499_200 * SECOND_NS)
TRUCK = EndpointId("truck-7")
PLACE = Place(40.7608, -111.891)
CIRCLE = Circle(PLACE, 500.0)


def parsed(*pairs: tuple[str, str]) -> MessageProperties:
    found = parse_message_properties(pairs, sender=TRUCK, now=NOON)
    assert found is not None
    return found


def subscription_of(topic_filter: str, *pairs: tuple[str, str]) -> Subscription:
    return subscription_from_properties(topic_filter, pairs, owner=TRUCK, qos=1, number=SubscriptionId(7), now=NOON)


def fault_of(make: Callable[[], object]) -> Malformed:
    with pytest.raises(Malformed) as caught:
        make()
    return caught.value


def test_a_packet_without_milepost_properties_has_none() -> None:
    assert parse_message_properties((), sender=TRUCK, now=NOON) is None
    assert parse_message_properties((("colour", "red"), ("milepost", "x")), sender=TRUCK, now=NOON) is None


def test_all_properties_of_a_message_are_parsed() -> None:
    assert parsed(
        ("colour", "red"),
        ("milepost-tag", "ice"),
        ("milepost-tag", "bridge"),
        ("milepost-place", "40.7608,-111.891"),
        ("milepost-priority", "emergency"),
        ("milepost-within", "circle 40.7608,-111.891 500"),
        ("milepost-seen-at", "2 minutes ago"),
        ("milepost-valid-until", "2030-01-01T13:00:00Z"),
        ("milepost-report", "40.5,-111.5,90,24.6"),
        ("milepost-source", "truck-7"),
    ) == MessageProperties(
        tags=frozenset([Tag("ice"), Tag("bridge")]),
        place=PLACE,
        priority=Priority.EMERGENCY,
        address=ToContent(CIRCLE),
        seen_at=Instant(NOON - 120 * SECOND_NS),
        valid_until=Instant(NOON + 3600 * SECOND_NS),
        report=Report(TRUCK, Place(40.5, -111.5), Instant(NOON - 120 * SECOND_NS), 90.0, 24.6),
    )


def test_absent_properties_have_the_defaults_of_a_message() -> None:
    assert parsed(("milepost-tag", "ice")) == MessageProperties(tags=frozenset([Tag("ice")]))


def test_a_report_without_an_instant_is_of_now_and_may_lack_heading_and_speed() -> None:
    assert parsed(("milepost-report", "40.5, -111.5")).report == Report(TRUCK, Place(40.5, -111.5), NOON)
    assert parsed(("milepost-report", "40.5,-111.5,90")).report == Report(TRUCK, Place(40.5, -111.5), NOON, 90.0)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("everyone", ToEveryone()),
        ("endpoint:bus:9", ToEndpoint(EndpointId("bus:9"))),
        ("area:circle 40.7608,-111.891 500", ToArea(CIRCLE)),
        ("notified:jam-1 jam-2", ToNotified(("jam-1", "jam-2"))),
        ("area:BOX (179.5 -17.5, -179.5 -16.5)", ToArea(Box(-17.5, 179.5, -16.5, -179.5))),
    ],
)
def test_the_address_of_a_message_is_parsed(text: str, address: object) -> None:
    assert parsed(("milepost-to", text)).address == address


def test_only_a_message_to_an_area_may_name_an_incident() -> None:
    found = parsed(("milepost-to", "area:circle 40.7608,-111.891 500"), ("milepost-incident", "jam-1"))
    assert found.address == ToArea(CIRCLE, "jam-1")
    for pairs in ((("milepost-incident", "jam-1"),), (("milepost-to", "everyone"), ("milepost-incident", "jam-1"))):
        assert fault_of(lambda: parsed(*pairs)).reason is Reason.FIELD_RANGE  # noqa: B023
    for name in ("", "two words", "x" * 129):
        pairs = (("milepost-to", "area:circle 40.7608,-111.891 500"), ("milepost-incident", name))
        assert fault_of(lambda: parsed(*pairs)).reason is Reason.FIELD_RANGE  # noqa: B023


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("circle 40.7608,-111.891 500", Circle),
        (" Circle  40.7608, -111.891  5e2 ", Circle),
        ("CIRCLE (-111.891 40.7608, 500)", Circle),
        ("CIRCLE(-111.891 40.7608,500)", Circle),
        ('{"type": "Point", "coordinates": [-111.891, 40.7608], "radius_m": 500}', Circle),
        ("CORRIDOR (-112.25 40.72, -112.1 40.77; 150)", Corridor),
        (' {"type": "Polygon", "coordinates": [[[7, 50], [8, 50], [8, 51], [7, 50]]]}', Polygon),
    ],
)
def test_an_area_is_a_circle_with_latitude_first_or_geojson_or_wkt(text: str, kind: type) -> None:
    area = subscription_of("a", ("milepost-area", text)).area
    assert isinstance(area, kind)
    if kind is Circle:
        assert area == CIRCLE


def test_an_area_may_move_with_the_subscriber() -> None:
    assert subscription_of("a", ("milepost-area", "around 250")).area == Around(250.0)
    assert subscription_of("a", ("milepost-area", "Around  250.5 ")).area == Around(250.5)


@pytest.mark.parametrize(
    ("pair", "reason", "detail"),
    [
        (("milepost-tags", "a"), Reason.FIELD_UNKNOWN, "unknown user property 'milepost-tags'; did you mean milepost-tag?"),
        (("milepost-query", "a"), Reason.FIELD_UNKNOWN, "unknown user property 'milepost-query'; "),
        (("milepost-", "a"), Reason.FIELD_UNKNOWN, "unknown user property 'milepost-'; "),
        (("milepost-tag", "a b"), Reason.TAG_CHARACTER, ""),
        (("milepost-tag", ""), Reason.TAG_EMPTY, ""),
        (
            ("milepost-place", "40,7608,-111,891"),
            Reason.FIELD_TYPE,
            "milepost-place: '40,7608,-111,891' is not LATITUDE",
        ),
        (("milepost-place", "40.7"), Reason.FIELD_TYPE, "milepost-place: "),
        (("milepost-place", "nan,1"), Reason.FIELD_TYPE, "milepost-place: "),
        (("milepost-place", "1_0,1"), Reason.FIELD_TYPE, "milepost-place: "),
        (("milepost-place", "٤٠,1"), Reason.FIELD_TYPE, "milepost-place: "),
        (("milepost-place", "-111.891,40.7608"), Reason.COORDINATE_RANGE, "milepost-place: latitude is -111.891"),
        (("milepost-place", "1e999,0"), Reason.COORDINATE_RANGE, "milepost-place: latitude is inf"),
        (("milepost-place", "1," + "0" * 200), Reason.FIELD_TYPE, "milepost-place: "),
        (("milepost-priority", "emergncy"), Reason.FIELD_RANGE, "milepost-priority is 'emergncy', not emergency or"),
        (("milepost-to", "somebody"), Reason.FIELD_RANGE, "milepost-to: 'somebody' is not everyone, endpoint:NAME, area:AREA or"),
        (("milepost-to", "endpoint:"), Reason.ENDPOINT_ID, "milepost-to: it is empty"),
        (("milepost-to", "area:around 5"), Reason.AREA_UNREADABLE, "milepost-to: "),
        (("milepost-within", "circle 40,-111"), Reason.FIELD_TYPE, "milepost-within: '' is not LATITUDE,LONGITUDE"),
        (("milepost-within", "circle 40,-111 -5"), Reason.AREA_RADIUS, "milepost-within: "),
        (("milepost-within", "circle"), Reason.FIELD_TYPE, "milepost-within: "),
        (("milepost-within", "{"), Reason.AREA_UNREADABLE, "milepost-within: invalid JSON"),
        (("milepost-within", ""), Reason.AREA_UNREADABLE, "milepost-within: "),
        (("milepost-valid-until", "soon"), Reason.TIME_UNREADABLE, "milepost-valid-until: 'soon' is not an instant"),
        (("milepost-seen-at", "1969-01-01T00:00:00Z"), Reason.TIME_RANGE, "milepost-seen-at: "),
        (("milepost-seen-at", "2262-04-11T23:47:16.854775807Z"), Reason.TIME_RANGE, "milepost-seen-at: "),
        (("milepost-valid-until", "2262-04-11T23:47:16.854775807Z"), Reason.TIME_RANGE, "milepost-valid-until: "),
        (("milepost-report", "1,2,360"), Reason.HEADING_RANGE, "milepost-report: "),
        (("milepost-report", "1,2,3,501"), Reason.SPEED_RANGE, "milepost-report: "),
        (("milepost-report", "1,2,3,4,5"), Reason.FIELD_TYPE, "milepost-report: "),
        (("milepost-source", "bus-9"), Reason.FIELD_RANGE, "milepost-source: 'bus-9' is not the sender, 'truck-7'"),
        (("milepost-source", ""), Reason.ENDPOINT_ID, "milepost-source: it is empty"),
    ],
)
def test_an_invalid_property_is_refused_by_name(pair: tuple[str, str], reason: Reason, detail: str) -> None:
    fault = fault_of(lambda: parsed(pair))
    assert fault.reason is reason
    assert fault.detail.startswith(detail)


@pytest.mark.parametrize("name", ["milepost-place", "milepost-to", "milepost-report"])
def test_a_property_that_may_occur_once_is_refused_twice(name: str) -> None:
    fault = fault_of(lambda: parsed((name, "1,1"), (name, "1,1")))
    assert (fault.reason, fault.detail) == (Reason.FIELD_RANGE, f"{name} occurs twice")


def test_the_same_tag_twice_and_too_many_tags_are_refused() -> None:
    assert fault_of(lambda: parsed(("milepost-tag", "a"), ("milepost-tag", "a"))).reason is Reason.FIELD_RANGE
    many = [("milepost-tag", f"t{number}") for number in range(33)]
    assert fault_of(lambda: parsed(*many)).reason is Reason.TOO_MANY_TAGS
    assert len(parsed(*many[:32]).tags) == 32


def test_a_message_has_one_kind_of_address() -> None:
    fault = fault_of(lambda: parsed(("milepost-to", "everyone"), ("milepost-within", "circle 1,1 5")))
    assert fault.reason is Reason.FIELD_RANGE


@pytest.mark.parametrize("make", ["CIRCLE ({}x", "circle {}x,1 5", "circle 1,1 {}x", "{{{}", "{}", "around {}x", "circle {}"])
@pytest.mark.parametrize("filling", ["1", ",", " ", ".", "[", "1,", "1."])
def test_a_long_malformed_text_is_refused_quickly(make: str, filling: str) -> None:
    text = make.format(filling * (65_000 // len(filling)))
    started = time.perf_counter()
    fault_of(lambda: subscription_of("a", ("milepost-area", text)))
    assert time.perf_counter() - started < 1


def test_user_properties_of_others_are_forwarded_unaltered() -> None:
    user = (("b", "1"), ("milepost-tag", "ice"), ("a", "2"), ("b", "3"))
    assert ordinary_properties(user) == (("b", "1"), ("a", "2"), ("b", "3"))


def test_receivers_get_user_properties_for_all_that_mqtt_lacks() -> None:
    tags = frozenset([Tag("ice"), Tag("bridge")])
    message = Message(MessageId(1), TRUCK, "road/ice", NOON, tags, ToEveryone(), PLACE, priority=Priority.SAFETY)
    assert message_to_properties(message) == (
        ("milepost-source", "truck-7"),
        ("milepost-id", "1"),
        ("milepost-seen-at", "2030-01-01T12:00:00Z"),
        ("milepost-tag", "bridge"),
        ("milepost-tag", "ice"),
        ("milepost-place", "40.7608,-111.891"),
        ("milepost-priority", "safety"),
        ("milepost-to", "everyone"),
    )


def test_an_area_too_large_for_a_property_is_omitted() -> None:
    path = tuple(Place(0.0123456789 * number, 0.0123456789 * number) for number in range(60))
    long, short = Union((Corridor(path, 5.0),) * 64), Corridor(path[:2], 5.0)
    large, small = (Message(MessageId(1), TRUCK, "a", NOON, address=ToArea(area)) for area in (long, short))
    assert [name for name, _ in message_to_properties(large)] == ["milepost-source", "milepost-id", "milepost-seen-at"]
    assert [name for name, _ in message_to_properties(small)][3:] == ["milepost-to"]


def test_a_subscription_without_milepost_properties_is_its_filter() -> None:
    assert subscription_of("city/+/parking", ("colour", "red")) == Subscription(
        TRUCK, OnTopic("city/+/parking"), id=SubscriptionId(7)
    )
    assert subscription_of("$share/g/a/#") == Subscription(TRUCK, OnTopic("a/#"), id=SubscriptionId(7), share="g")


def test_all_properties_of_a_subscription_are_parsed() -> None:
    assert subscription_of(
        "$share/crews/road/#",
        ("milepost-query", "ice & !cleared"),
        ("milepost-area", "circle 40.7608,-111.891 500"),
        ("milepost-time-window", "last 10 minutes"),
    ) == Subscription(
        owner=TRUCK,
        query=And((OnTopic("road/#"), parse_query("ice & !cleared"))),
        area=CIRCLE,
        time_window=TimeWindow(Instant(NOON - 600 * SECOND_NS), NOON),
        id=SubscriptionId(7),
        share="crews",
    )


@pytest.mark.parametrize(
    ("topic_filter", "pair", "reason"),
    [
        ("a/#/b", None, Reason.TOPIC_WILDCARD),
        ("", None, Reason.TOPIC_EMPTY),
        ("$share//a", None, Reason.SHARE_NAME),
        ("$share/g/$share/h/a", None, Reason.QUERY_SYNTAX),
        ("a", ("milepost-query", "a &"), Reason.QUERY_SYNTAX),
        ("a", ("milepost-quary", "a"), Reason.FIELD_UNKNOWN),
        ("a", ("milepost-tag", "a"), Reason.FIELD_UNKNOWN),
        ("a", ("milepost-time-window", "sometime"), Reason.TIME_UNREADABLE),
        ("a", ("milepost-area", "around"), Reason.FIELD_TYPE),
        ("a", ("milepost-area", "around 0"), Reason.AREA_RADIUS),
        ("a", ("milepost-area", "nowhere"), Reason.AREA_UNREADABLE),
    ],
)
def test_a_malformed_subscription_is_refused(topic_filter: str, pair: tuple[str, str] | None, reason: Reason) -> None:
    assert fault_of(lambda: subscription_of(topic_filter, *([pair] if pair else []))).reason is reason


def test_the_error_has_the_path_into_the_value() -> None:
    fault = fault_of(lambda: subscription_of("a", ("milepost-query", "a & ")))
    assert fault.at == 4
    assert fault.detail.startswith("milepost-query: ")


def test_a_report_may_come_with_connect() -> None:
    assert report_from_properties((("milepost-report", "40.5,-111.5"),), sender=TRUCK, now=NOON) == Report(
        TRUCK, Place(40.5, -111.5), NOON
    )
    assert report_from_properties((("x", "y"),), sender=TRUCK, now=NOON) is None
    assert (
        fault_of(lambda: report_from_properties((("milepost-tag", "a"),), sender=TRUCK, now=NOON)).reason is Reason.FIELD_UNKNOWN
    )


def test_a_tag_alone_is_a_formula_over_everything() -> None:
    assert subscription_of("#", ("milepost-query", "ice")).query == And((OnTopic("#"), HasTag(Tag("ice"))))
