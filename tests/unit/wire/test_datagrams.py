"""Datagrams: required fields, and refusals with their reasons (M3, M6, M10)."""

from collections.abc import Callable

import pytest

from milepost.model.addresses import ToArea
from milepost.model.areas import UNION_PARTS_MAX, UPSTREAM_POINTS_MAX, Circle, Stretch, Upstream
from milepost.model.endpoints import EndpointId
from milepost.model.instants import FOREVER, SECOND_NS, Instant
from milepost.model.messages import MESSAGE_BYTES_MAX, Message, MessageId
from milepost.model.places import Place
from milepost.model.queries import parse_query
from milepost.model.reasons import Malformed, Reason
from milepost.model.reports import Report
from milepost.model.session_datagrams import (
    Datagram,
    Heartbeat,
    Notify,
    PublishDatagram,
    Refusal,
    ReportSent,
    SessionToken,
    SubscribeDatagram,
)
from milepost.model.subscriptions import Notice, Subscription, SubscriptionId
from milepost.wire._generated import datagram_pb2 as pb
from milepost.wire.datagrams import decode, encode

NOON = Instant(1_893_499_200 * SECOND_NS)
TRUCK = EndpointId("truck-7")
TOKEN = SessionToken(77)
ALL_COLUMNS = ("points", "latitudes", "longitudes", "half_widths", "start_seconds", "end_seconds", "start_metres", "end_metres")
REPORT = Report(TRUCK, Place(40.0, -111.0), NOON, 90.0, 10.0)
MESSAGE = Message(MessageId(1), TRUCK, "Collision", NOON)
NOTICE = Notice(SubscriptionId(1), MessageId(1), TRUCK, "Collision", frozenset(), None, NOON)


def refused(data: bytes) -> tuple[Reason, str]:
    with pytest.raises(Malformed) as found:
        decode(data)
    return found.value.reason, found.value.detail


def refused_writing(value: Datagram) -> Reason:
    with pytest.raises(Malformed) as found:
        encode(value)
    return found.value.reason


def parsed(value: Datagram) -> pb.Datagram:
    return pb.Datagram.FromString(encode(value))


def nested_unions(levels: int) -> bytes:
    part = pb.Datagram.FromString(encode(PublishDatagram(MESSAGE)))
    area = part.publish.message.address.area
    for _ in range(levels):
        area = area.union.parts.add()
    area.circle.centre.latitude = area.circle.centre.longitude = area.circle.radius_m = 1.0
    return part.SerializeToString()


@pytest.mark.parametrize("field", ["endpoint", "latitude", "longitude", "seen_at"])
def test_a_report_without_a_required_field_is_refused_by_its_name(field: str) -> None:
    part = parsed(ReportSent(TOKEN, REPORT))
    part.report.ClearField(field)
    assert refused(part.SerializeToString()) == (Reason.FIELD_MISSING, f"Report.{field} is missing")


@pytest.mark.parametrize("field", ["id", "source", "topic", "seen_at"])
def test_a_message_without_a_required_field_is_refused_by_its_name(field: str) -> None:
    part = parsed(PublishDatagram(MESSAGE))
    part.publish.message.ClearField(field)
    assert refused(part.SerializeToString()) == (Reason.FIELD_MISSING, f"Message.{field} is missing")


def test_explicit_zeros_are_not_taken_for_absent_fields() -> None:
    zeros = ReportSent(TOKEN, Report(TRUCK, Place(0.0, 0.0), Instant(0), 0.0, 0.0))
    assert decode(encode(zeros)) == zeros


def test_an_unknown_heading_is_not_a_heading_of_zero() -> None:
    assert decode(encode(ReportSent(TOKEN, Report(TRUCK, Place(0.0, 0.0), NOON)))) != ReportSent(
        TOKEN, Report(TRUCK, Place(0.0, 0.0), NOON, 0.0, 0.0)
    )


def test_a_later_session_message_without_token_is_refused() -> None:
    # M3
    part = parsed(Heartbeat(TOKEN))
    part.ClearField("session")
    assert refused(part.SerializeToString()) == (Reason.FIELD_MISSING, "Datagram.session is missing")


def test_a_pubsub_message_between_components_needs_no_token() -> None:
    # M3
    assert decode(encode(PublishDatagram(MESSAGE))) == PublishDatagram(MESSAGE, None)


@pytest.mark.parametrize("version", [0, 2, 2**32 - 1])
def test_another_version_is_refused_whatever_its_content(version: int) -> None:
    part = parsed(Heartbeat(TOKEN))
    part.version = version
    assert refused(part.SerializeToString())[0] is Reason.VERSION_UNKNOWN


def test_too_long_a_datagram_is_refused_before_it_is_parsed() -> None:
    # M6
    assert refused(b"\xff" * (MESSAGE_BYTES_MAX + 1))[0] is Reason.MESSAGE_TOO_LARGE
    assert refused(b"\xff" * MESSAGE_BYTES_MAX)[0] is Reason.MALFORMED


def test_the_size_limit_of_a_message_is_exact_to_the_byte() -> None:
    # M6
    def with_body(size: int) -> PublishDatagram:
        return PublishDatagram(Message(MessageId(1), TRUCK, "Collision", NOON, body=bytes(size)))

    overhead = len(encode(with_body(60_000))) - 60_000
    largest = with_body(MESSAGE_BYTES_MAX - overhead)
    assert len(encode(largest)) == MESSAGE_BYTES_MAX
    assert decode(encode(largest)) == largest
    assert refused_writing(with_body(MESSAGE_BYTES_MAX - overhead + 1)) is Reason.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("levels", [5, 40, 60, 2000])
def test_nested_unions_are_refused_at_any_depth(levels: int) -> None:
    assert refused(nested_unions(levels))[0] in (Reason.AREA_TOO_COMPLEX, Reason.MALFORMED)


def test_nested_unions_within_the_limit_are_accepted() -> None:
    value = decode(nested_unions(3))
    assert isinstance(value, PublishDatagram)
    assert isinstance(value.message.address, ToArea)


def test_a_union_of_too_many_parts_is_refused_at_the_first_one_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    part = pb.Datagram.FromString(nested_unions(1))
    union = part.publish.message.address.area.union
    union.parts.extend([union.parts[0]] * 1000)
    built: list[Circle] = []

    def count(circle: Circle) -> None:
        built.append(circle)

    monkeypatch.setattr(Circle, "__post_init__", count)
    assert refused(part.SerializeToString())[0] is Reason.AREA_TOO_COMPLEX
    assert len(built) == UNION_PARTS_MAX


def test_forever_is_encoded_as_an_absent_field() -> None:
    assert not parsed(PublishDatagram(MESSAGE)).publish.message.HasField("valid_until")
    subscription = parsed(SubscribeDatagram(Subscription(TRUCK, parse_query("a")))).subscribe
    assert not subscription.HasField("start")
    assert not subscription.HasField("end")


def seen_for_ever(part: pb.Datagram) -> None:
    part.publish.message.seen_at = FOREVER


def valid_for_ever(part: pb.Datagram) -> None:
    part.publish.message.valid_until = FOREVER


def valid_beyond(part: pb.Datagram) -> None:
    part.publish.message.valid_until = 2**64 - 1


@pytest.mark.parametrize("change", [seen_for_ever, valid_for_ever, valid_beyond])
def test_a_number_that_would_mean_for_ever_is_refused(change: Callable[[pb.Datagram], None]) -> None:
    part = parsed(PublishDatagram(MESSAGE))
    change(part)
    assert refused(part.SerializeToString())[0] is Reason.TIME_RANGE


def test_a_lone_surrogate_is_not_sent() -> None:
    assert refused_writing(PublishDatagram(Message(MessageId(1), TRUCK, "a", NOON, fields={"x": "\ud800"}))) is Reason.FIELD_RANGE


def no_such_message(part: pb.Notice) -> None:
    part.topic = "a/#"


def no_such_tag(part: pb.Notice) -> None:
    part.tags.append(" ")


def the_same_tag_twice(part: pb.Notice) -> None:
    part.tags.extend(["ice", "ice"])


def no_such_place(part: pb.Notice) -> None:
    part.place.latitude, part.place.longitude = 90.5, 0.0


def seen_never(part: pb.Notice) -> None:
    part.seen_at = FOREVER


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (no_such_message, Reason.TOPIC_CHARACTER),
        (no_such_tag, Reason.TAG_CHARACTER),
        (the_same_tag_twice, Reason.FIELD_RANGE),
        (no_such_place, Reason.COORDINATE_RANGE),
        (seen_never, Reason.TIME_RANGE),
    ],
)
def test_a_notice_with_an_invalid_message_id_is_refused(change: Callable[[pb.Notice], None], reason: Reason) -> None:
    part = parsed(Notify(NOTICE))
    assert decode(part.SerializeToString()) == Notify(NOTICE)
    change(part.notice)
    assert refused(part.SerializeToString())[0] is reason


def test_a_report_seen_at_no_instant_is_refused() -> None:
    part = parsed(ReportSent(TOKEN, REPORT))
    part.report.seen_at = FOREVER
    assert refused(part.SerializeToString())[0] is Reason.TIME_RANGE


def test_a_time_window_that_starts_at_forever_is_refused() -> None:
    part = parsed(SubscribeDatagram(Subscription(TRUCK, parse_query("a"))))
    part.subscribe.start = FOREVER
    assert refused(part.SerializeToString())[0] is Reason.TIME_RANGE


def test_a_refusal_for_a_reason_unknown_here_can_still_be_shown() -> None:
    later = Refusal(65_000, "NOT_YET_KNOWN", "of a later version", None, TOKEN)
    assert decode(encode(later)) == later


def test_a_report_takes_seventy_bytes() -> None:
    assert len(encode(ReportSent(TOKEN, REPORT))) <= 70


def upstream(**columns: list[int]) -> bytes:
    """Return a message to an upstream of one stretch, with some columns replaced."""
    part = pb.Datagram.FromString(encode(PublishDatagram(Message(MessageId(1), TRUCK, "Alert", NOON, address=ToArea(ROAD)))))
    area = part.publish.message.address.area.upstream
    for name, values in columns.items():
        area.ClearField(name)
        getattr(area, name).extend(values)
    return part.SerializeToString()


ROAD = Upstream.of((Stretch((Place(40.0, -111.0), Place(40.001, -111.0)), 12.0, 60.0, 10.0, 600.0, 100.0),))


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"points": [3]}, Reason.FIELD_RANGE),
        ({"points": [1, 1]}, Reason.FIELD_RANGE),
        ({"points": []}, Reason.FIELD_RANGE),
        ({"half_widths": []}, Reason.FIELD_RANGE),
        ({"end_metres": [1, 2]}, Reason.FIELD_RANGE),
        ({"half_widths": [0]}, Reason.AREA_RADIUS),
        ({"end_seconds": [601]}, Reason.FIELD_RANGE),
        ({"end_metres": [6001]}, Reason.FIELD_RANGE),
        ({"longitudes": [-1_110_000_000]}, Reason.FIELD_RANGE),
        ({"latitudes": [400_000_000, 600_000_000]}, Reason.COORDINATE_RANGE),
        ({"latitudes": [2**62, 2**62]}, Reason.COORDINATE_RANGE),
        ({"latitudes": [400_000_000, 0]}, Reason.AREA_EMPTY),
        ({name: [] for name in ALL_COLUMNS}, Reason.AREA_EMPTY),
        ({"points": [2**32 - 1]}, Reason.FIELD_RANGE),
    ],
)
def test_an_upstream_with_columns_of_different_lengths_is_refused(columns: dict[str, list[int]], reason: Reason) -> None:
    assert refused(upstream(**columns))[0] is reason


def test_an_upstream_of_too_many_points_is_refused_before_places_are_constructed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("milepost.wire.datagrams.areas.Place", None)
    count = UPSTREAM_POINTS_MAX + 1
    assert refused(upstream(points=[count], latitudes=[1] * count, longitudes=[1] * count))[0] is Reason.AREA_TOO_COMPLEX


def test_an_upstream_is_encoded_to_a_centimetre_and_a_tenth() -> None:
    rough = Upstream.of((Stretch((Place(40.00000004, -111.0), Place(40.001, -111.0)), 12.04, 60.04, 10.0, 600.0, 100.0),))
    decoded = decode(encode(PublishDatagram(Message(MessageId(1), TRUCK, "Alert", NOON, address=ToArea(rough)))))
    assert isinstance(decoded, PublishDatagram)
    assert decoded.message.address == ToArea(ROAD)
