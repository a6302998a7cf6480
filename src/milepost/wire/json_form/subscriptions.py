"""Subscriptions and notices in JSON."""

from typing import Final, assert_never

from milepost.model.areas import Area, Around, Box, Circle, Corridor, Polygon, Union, Upstream
from milepost.model.endpoints import EndpointId
from milepost.model.frames import ALWAYS, Frame
from milepost.model.instants import BEGINNING, FOREVER, Instant
from milepost.model.messages import MessageId
from milepost.model.queries import Query, parse_query
from milepost.model.reasons import Malformed, Reason
from milepost.model.subscriptions import Notice, Subscription, SubscriptionId
from milepost.wire.geojson import area_to_geojson
from milepost.wire.json_form import reading
from milepost.wire.json_form.messages import read_area, read_place, read_tags, write_place
from milepost.wire.json_form.reading import JsonObject, Members
from milepost.wire.times import frame_from_text, instant_to_text

SUBSCRIPTION_MEMBERS: Final = ("type", "owner", "query", "area", "frame", "id", "qos", "share")
NOTICE_MEMBERS: Final = ("type", "subscription", "message", "source", "topic", "tags", "place", "seen_at", "summary")
FRAME_MEMBERS: Final = ("start", "end")
AROUND_MEMBERS: Final = ("type", "radius_m")
AROUND: Final = "Around"


def write_subscription(subscription: Subscription) -> JsonObject:
    """The subscription's members; what has its default value stays absent."""
    found: JsonObject = {"type": "subscription", "owner": subscription.owner, "query": str(subscription.query)}
    if subscription.area is not None:
        found["area"] = _write_where(subscription.area)
    if subscription.frame != ALWAYS:
        found["frame"] = _write_frame(subscription.frame)
    if subscription.id:
        found["id"] = subscription.id
    if subscription.qos != 1:
        found["qos"] = subscription.qos
    if subscription.share is not None:
        found["share"] = subscription.share
    return found


def read_subscription(value: object, where: str) -> Subscription:
    """The subscription that an object describes."""
    members = Members(value, where, SUBSCRIPTION_MEMBERS, kind="subscription")
    return Subscription(
        owner=EndpointId(members.need("owner", reading.text)),
        query=members.need("query", _read_query),
        area=members.maybe("area", _read_where, None),
        frame=members.maybe("frame", _read_frame, ALWAYS),
        id=SubscriptionId(members.maybe("id", reading.integer, 0)),
        qos=members.maybe("qos", reading.integer, 1),
        share=members.maybe("share", reading.text, None),
    )


def spell_out_frame(value: object, now: Instant) -> None:
    """Put a frame that is written as a phrase into the form that does not depend on when it is read."""
    if isinstance(value, dict) and isinstance(value.get("frame"), str):
        value["frame"] = _write_frame(frame_from_text(value["frame"], now))


def write_notice(notice: Notice) -> JsonObject:
    """The notice's members; what has its default value stays absent."""
    found: JsonObject = {
        "type": "notice",
        "subscription": notice.subscription,
        "message": str(notice.message),
        "source": notice.source,
        "topic": notice.topic,
        "seen_at": instant_to_text(notice.seen_at),
    }
    if notice.tags:
        found["tags"] = sorted(notice.tags)
    if notice.place is not None:
        found["place"] = write_place(notice.place)
    if notice.summary:
        found["summary"] = reading.spell_octets(notice.summary)
    return found


def read_notice(value: object, where: str) -> Notice:
    """The notice that an object describes."""
    members = Members(value, where, NOTICE_MEMBERS, kind="notice")
    return Notice(
        subscription=SubscriptionId(members.need("subscription", reading.integer)),
        message=MessageId(members.need("message", reading.digits)),
        source=EndpointId(members.need("source", reading.text)),
        topic=members.need("topic", reading.text),
        tags=members.maybe("tags", read_tags, frozenset()),
        place=members.maybe("place", read_place, None),
        seen_at=members.need("seen_at", reading.instant),
        summary=members.maybe("summary", reading.octets, b""),
    )


def _read_query(value: object, where: str) -> Query:
    return parse_query(reading.text(value, where))


def _write_where(area: Area | Around) -> JsonObject:
    match area:
        case Around():
            return {"type": AROUND, "radius_m": area.radius_m}
        case Circle() | Box() | Polygon() | Corridor() | Upstream() | Union():
            return area_to_geojson(area)
        case _:
            assert_never(area)


def _read_where(value: object, where: str) -> Area | Around:
    if isinstance(value, dict) and value.get("type") == AROUND:
        return Around(Members(value, where, AROUND_MEMBERS).need("radius_m", reading.number))
    return read_area(value, where)


def _write_frame(frame: Frame) -> JsonObject:
    found: JsonObject = {}
    if frame.start != BEGINNING:
        found["start"] = instant_to_text(frame.start)
    if frame.end != FOREVER:
        found["end"] = instant_to_text(frame.end)
    return found


def _read_frame(value: object, where: str) -> Frame:
    if isinstance(value, str):
        raise Malformed(Reason.TIME_UNREADABLE, f"{where} is a phrase, and the reader was not told what time it is")
    members = Members(value, where, FRAME_MEMBERS)
    return Frame(members.maybe("start", reading.instant, BEGINNING), members.maybe("end", reading.instant, FOREVER))
