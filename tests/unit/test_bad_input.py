"""Malformed input is refused with number, name and advice; nothing is silently repaired."""

from collections.abc import Callable
from math import inf, nan
from typing import Final

import pytest

from milepost.model.areas import (
    CORRIDOR_POINTS_MAX,
    POLYGON_POINTS_MAX,
    UNION_PARTS_MAX,
    Area,
    Around,
    Box,
    Circle,
    Corridor,
    Polygon,
    Union,
)
from milepost.model.endpoints import EndpointId, endpoint_id
from milepost.model.instants import BEGINNING, FOREVER, Instant
from milepost.model.messages import BODY_BYTES_MAX, MESSAGE_BYTES_MAX, Message, MessageId, Scalar
from milepost.model.places import Place
from milepost.model.queries import HasTag, OnTopic, normal_form, parse_query
from milepost.model.reasons import Malformed, Reason
from milepost.model.reports import Report
from milepost.model.session_datagrams import Notify, PublishDatagram
from milepost.model.subscriptions import Notice, Subscription, SubscriptionId
from milepost.model.tags import Tag, tag, tags
from milepost.model.time_windows import TimeWindow
from milepost.model.topics import check_filter, check_topic, maybe_shared
from milepost.wire.datagrams import decode, encode
from milepost.wire.geojson import area_from_geojson
from milepost.wire.json_form import from_json
from milepost.wire.times import instant_from_text, time_window_from_text
from milepost.wire.wkt import area_from_wkt

BUS: Final = EndpointId("bus-3")
NOW: Final = Instant(1_893_499_200_000_000_000)
HERE: Final = Place(0.0, 0.0)
ICE: Final = HasTag(Tag("ice"))


def ring(*corners: tuple[float, float]) -> tuple[Place, ...]:
    """Closed, from latitudes and longitudes."""
    return tuple(Place(latitude, longitude) for latitude, longitude in (*corners, corners[0]))


def message(
    *,
    seen_at: int = NOW,
    valid_until: int = FOREVER,
    found: frozenset[Tag] = frozenset(),
    fields: dict[str, Scalar] | None = None,
    body: bytes = b"",
) -> Message:
    return Message(
        MessageId(1), BUS, "a", Instant(seen_at), found, valid_until=Instant(valid_until), fields=fields or {}, body=body
    )


def zigzag(points: int) -> tuple[Place, ...]:
    return tuple(Place(0.001 * (number % 2), 0.001 * number) for number in range(points))


SQUARE: Final = ring((0, 0), (0, 4), (4, 4), (4, 0))
BOW: Final = ring((0, 0), (1, 1), (0, 1), (1, 0))

Bad = tuple[str, Callable[[], object], Reason]

QUERIES: Final[list[Bad]] = [
    ("an empty query", lambda: parse_query(""), Reason.QUERY_SYNTAX),
    ("a query of spaces", lambda: parse_query(" \t\n"), Reason.QUERY_SYNTAX),
    ("an operator at the end", lambda: parse_query("a &"), Reason.QUERY_SYNTAX),
    ("two tags without operator", lambda: parse_query("a b"), Reason.QUERY_SYNTAX),
    ("an open parenthesis", lambda: parse_query("(a | b"), Reason.QUERY_SYNTAX),
    ("a closing parenthesis alone", lambda: parse_query("a)"), Reason.QUERY_SYNTAX),
    ("an open quote", lambda: parse_query('"a'), Reason.QUERY_SYNTAX),
    ("a share inside a formula", lambda: OnTopic("$share/g/a"), Reason.QUERY_SYNTAX),
    ("a query that is too long", lambda: parse_query("a" * 4097), Reason.QUERY_TOO_LONG),
    ("a query that is too deep", lambda: parse_query("!" * 40 + "a"), Reason.QUERY_TOO_DEEP),
    (
        "a query of too many alternatives",
        lambda: normal_form(parse_query(" & ".join(f"(a{n} | b{n})" for n in range(10)))),
        Reason.QUERY_TOO_COMPLEX,
    ),
    ("a query that is never true", lambda: normal_form(parse_query("a & !a")), Reason.QUERY_NEVER_TRUE),
    ("a wildcard inside a level of a query", lambda: parse_query("topic:a+/b"), Reason.TOPIC_WILDCARD),
    ("a tag too long in a query", lambda: parse_query("a & " + "b" * 65), Reason.TAG_TOO_LONG),
]
AREAS: Final[list[Bad]] = [
    ("a polygon that crosses itself", lambda: Polygon(BOW), Reason.AREA_SELF_CROSSING),
    (
        "a polygon that touches itself",
        lambda: Polygon(ring((0, 0), (0, 2), (1, 1), (2, 2), (2, 0), (1, 1))),
        Reason.AREA_SELF_CROSSING,
    ),
    ("a polygon that is not closed", lambda: Polygon(SQUARE[:-1]), Reason.AREA_RING),
    ("a polygon of two points", lambda: Polygon(ring((0, 0), (1, 1))), Reason.AREA_RING),
    ("a polygon that repeats a place", lambda: Polygon(ring((0, 0), (0, 0), (1, 1), (1, 0))), Reason.AREA_RING),
    ("a polygon on one line", lambda: Polygon(ring((0, 0), (0, 1), (0, 2))), Reason.AREA_EMPTY),
    (
        "a polygon around more than half the globe",
        lambda: Polygon(ring((-1, 0), (-1, 120), (-1, -120), (60, 10))),
        Reason.AREA_TOO_LARGE,
    ),
    ("a hole outside", lambda: Polygon(SQUARE, (ring((5, 5), (5, 6), (6, 6)),)), Reason.AREA_HOLE),
    ("a hole across the ring", lambda: Polygon(SQUARE, (ring((1, 1), (1, 6), (3, 1)),)), Reason.AREA_HOLE),
    ("a polygon of too many points", lambda: Polygon((HERE,) * (POLYGON_POINTS_MAX + 1)), Reason.AREA_TOO_COMPLEX),
    ("a box without height", lambda: Box(1.0, 0.0, 1.0, 1.0), Reason.AREA_EMPTY),
    ("a box upside down", lambda: Box(2.0, 0.0, 1.0, 1.0), Reason.AREA_EMPTY),
    ("a box without width", lambda: Box(0.0, 5.0, 1.0, 5.0), Reason.AREA_EMPTY),
    ("a union of nothing", lambda: Union(()), Reason.AREA_EMPTY),
    ("a union of too many parts", lambda: Union((Circle(HERE, 5.0),) * (UNION_PARTS_MAX + 1)), Reason.AREA_TOO_COMPLEX),
    ("a circle of no radius", lambda: Circle(HERE, 0.0), Reason.AREA_RADIUS),
    ("a circle of negative radius", lambda: Circle(HERE, -5.0), Reason.AREA_RADIUS),
    ("a circle of NaN", lambda: Circle(HERE, nan), Reason.AREA_RADIUS),
    ("a circle larger than the Earth", lambda: Circle(HERE, 1e9), Reason.AREA_RADIUS),
    ("around me, NaN", lambda: Around(nan), Reason.AREA_RADIUS),
    ("around me, a huge integer", lambda: Around(10**400), Reason.AREA_RADIUS),
    ("a corridor of one point", lambda: Corridor((HERE,), 5.0), Reason.AREA_EMPTY),
    ("a corridor without width", lambda: Corridor(zigzag(2), 0.0), Reason.AREA_RADIUS),
    ("a corridor of too many points", lambda: Corridor(zigzag(CORRIDOR_POINTS_MAX + 1), 5.0), Reason.AREA_TOO_COMPLEX),
    ("a latitude of NaN", lambda: Place(nan, 0.0), Reason.COORDINATE_RANGE),
    ("a longitude of infinity", lambda: Place(0.0, inf), Reason.COORDINATE_RANGE),
    ("a latitude beyond the pole", lambda: Place(90.1, 0.0), Reason.COORDINATE_RANGE),
    ("a longitude beyond 180", lambda: Place(0.0, 180.1), Reason.COORDINATE_RANGE),
    ("a huge integer as latitude", lambda: Place(10**400, 0), Reason.COORDINATE_RANGE),
    ("a box with a corner of NaN", lambda: Box(0.0, nan, 1.0, 1.0), Reason.COORDINATE_RANGE),
    ("GeoJSON that crosses itself", lambda: geojson_polygon(BOW), Reason.AREA_SELF_CROSSING),
    ("GeoJSON out of range", lambda: area_from_geojson(geojson_circle(500.0, 0.0)), Reason.COORDINATE_RANGE),
    (
        "GeoJSON with an unknown member",
        lambda: area_from_geojson({**geojson_circle(0.0, 0.0), "radius": 1}),
        Reason.AREA_UNREADABLE,
    ),
    ("WKT that crosses itself", lambda: area_from_wkt("POLYGON ((0 0, 1 1, 1 0, 0 1, 0 0))"), Reason.AREA_SELF_CROSSING),
    ("WKT that is none", lambda: area_from_wkt("POLYGON ((0 0, 1 1"), Reason.AREA_UNREADABLE),
    ("WKT of nothing", lambda: area_from_wkt("POLYGON EMPTY"), Reason.AREA_EMPTY),
]
TIMES: Final[list[Bad]] = [
    ("a time window that ends before it starts", lambda: TimeWindow(Instant(2), Instant(1)), Reason.TIME_WINDOW_BACKWARDS),
    ("a time window that starts at the end of time", lambda: TimeWindow(FOREVER, FOREVER), Reason.TIME_RANGE),
    ("a time window that ends at the beginning", lambda: TimeWindow(BEGINNING, BEGINNING), Reason.TIME_RANGE),
    ("a time window before 1970", lambda: TimeWindow(Instant(-5), Instant(5)), Reason.TIME_RANGE),
    (
        "a time window text backwards",
        lambda: time_window_from_text("2030-05-02T00:00:00Z/2030-05-01T00:00:00Z", NOW),
        Reason.TIME_WINDOW_BACKWARDS,
    ),
    ("a time window text that is none", lambda: time_window_from_text("sometime", NOW), Reason.TIME_UNREADABLE),
    ("a day that is not", lambda: instant_from_text("2030-02-30T00:00:00Z", NOW), Reason.TIME_UNREADABLE),
    ("a message valid until before it was seen", lambda: message(valid_until=NOW - 1), Reason.VALIDITY_BACKWARDS),
    ("a message seen for ever", lambda: message(seen_at=FOREVER), Reason.TIME_RANGE),
    ("a notice seen for ever", lambda: notice(seen_at=FOREVER), Reason.TIME_RANGE),
    ("a report seen before 1970", lambda: Report(BUS, HERE, Instant(-1)), Reason.TIME_RANGE),
]
NAMES: Final[list[Bad]] = [
    ("an empty tag", lambda: tag(""), Reason.TAG_EMPTY),
    ("a tag too long", lambda: tag("x" * 65), Reason.TAG_TOO_LONG),
    ("a tag with a control character", lambda: tag("a\x07"), Reason.TAG_CHARACTER),
    ("a tag with a line feed at its end", lambda: tag("a\n"), Reason.TAG_CHARACTER),
    ("a tag with a control character of Latin-1", lambda: tag("é\x9f"), Reason.TAG_CHARACTER),
    ("a tag with a lone surrogate", lambda: tag("a\ud800"), Reason.TAG_CHARACTER),
    ("a tag with a space", lambda: tag("a b"), Reason.TAG_CHARACTER),
    ("too many tags", lambda: tags(f"t{number}" for number in range(33)), Reason.TOO_MANY_TAGS),
    ("a message with a bad tag", lambda: message(found=frozenset([Tag("\0")])), Reason.TAG_CHARACTER),
    ("an empty topic", lambda: check_topic(""), Reason.TOPIC_EMPTY),
    ("a topic too long", lambda: check_topic("x" * 1025), Reason.TOPIC_TOO_LONG),
    ("a topic too deep", lambda: check_topic("/" * 32), Reason.TOPIC_TOO_DEEP),
    ("a topic with a control character", lambda: check_topic("a\0"), Reason.TOPIC_CHARACTER),
    ("publishing to a wildcard", lambda: check_topic("a/+"), Reason.TOPIC_CHARACTER),
    ("a # that is not last", lambda: check_filter("#/a"), Reason.TOPIC_WILDCARD),
    ("a share without name", lambda: maybe_shared("$share//a"), Reason.SHARE_NAME),
    ("a share named with a slash", lambda: Subscription(BUS, ICE, share="a/b"), Reason.SHARE_NAME),
    ("an endpoint without name", lambda: endpoint_id(""), Reason.ENDPOINT_ID),
    ("an endpoint with a control character", lambda: endpoint_id("a\n"), Reason.ENDPOINT_ID),
]
MESSAGES: Final[list[Bad]] = [
    (
        "a datagram over 64,000 bytes",
        lambda: encode(PublishDatagram(message(body=bytes(MESSAGE_BYTES_MAX)))),
        Reason.MESSAGE_TOO_LARGE,
    ),
    (
        "fields over 64,000 bytes",
        lambda: encode(PublishDatagram(message(fields={f"f{number}": "x" * 1100 for number in range(64)}))),
        Reason.MESSAGE_TOO_LARGE,
    ),
    ("a summary over 64,000 bytes", lambda: encode(Notify(notice(summary=bytes(MESSAGE_BYTES_MAX)))), Reason.MESSAGE_TOO_LARGE),
    ("64,001 bytes that arrive", lambda: decode(bytes(MESSAGE_BYTES_MAX + 1)), Reason.MESSAGE_TOO_LARGE),
    ("a body above the limit of every listener", lambda: message(body=bytes(BODY_BYTES_MAX + 1)), Reason.MESSAGE_TOO_LARGE),
    ("bytes that are no message", lambda: decode(b"\xff\xff"), Reason.MALFORMED),
    ("bytes that are no JSON", lambda: from_json(b"{"), Reason.MALFORMED),
    ("JSON without a type", lambda: from_json(b"{}"), Reason.FIELD_MISSING),
    ("too many fields", lambda: message(fields={str(number): 1 for number in range(65)}), Reason.TOO_MANY_FIELDS),
    ("a field of NaN", lambda: message(fields={"x": nan}), Reason.FIELD_RANGE),
    ("a heading of 360", lambda: Report(BUS, HERE, NOW, 360.0), Reason.HEADING_RANGE),
    ("a heading of NaN", lambda: Report(BUS, HERE, NOW, nan), Reason.HEADING_RANGE),
    ("a speed below 0", lambda: Report(BUS, HERE, NOW, None, -1.0), Reason.SPEED_RANGE),
    ("a subscription with QoS 3", lambda: Subscription(BUS, ICE, qos=3), Reason.FIELD_RANGE),
    ("a subscription's id over 32 bits", lambda: Subscription(BUS, ICE, id=SubscriptionId(2**32)), Reason.FIELD_RANGE),
    ("a message's id over 64 bits", lambda: Message(MessageId(2**64), BUS, "a", NOW), Reason.FIELD_RANGE),
]
ALL: Final = [*QUERIES, *AREAS, *TIMES, *NAMES, *MESSAGES]


def notice(*, seen_at: int = NOW, summary: bytes = b"") -> Notice:
    return Notice(SubscriptionId(1), MessageId(1), BUS, "a", frozenset(), None, Instant(seen_at), summary)


def geojson_polygon(corners: tuple[Place, ...]) -> Area:
    return area_from_geojson({"type": "Polygon", "coordinates": [[[place.longitude, place.latitude] for place in corners]]})


def geojson_circle(longitude: float, latitude: float) -> dict[str, object]:
    return {"type": "Point", "coordinates": [longitude, latitude], "radius_m": 5.0}


@pytest.mark.parametrize(("make", "reason"), [(make, reason) for _, make, reason in ALL], ids=[what for what, _, _ in ALL])
def test_bad_input_is_refused_with_number_name_and_a_sentence_that_helps(make: Callable[[], object], reason: Reason) -> None:
    with pytest.raises(Malformed) as caught:
        make()
    assert caught.value.reason is reason
    text = str(caught.value)
    assert text.startswith(f"{reason.value} {reason.name}: ")
    assert text.endswith(reason.advice)
    assert text == str(caught.value.refused)
