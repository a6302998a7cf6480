"""Subscriptions and notices as parts of a datagram."""

from typing import Final, assert_never

from milepost.model.areas import Area, Around, Box, Circle, Corridor, Polygon, Union, Upstream
from milepost.model.endpoints import EndpointId
from milepost.model.frames import Frame
from milepost.model.instants import BEGINNING, FOREVER, Instant
from milepost.model.messages import MessageId
from milepost.model.queries import parse_query
from milepost.model.subscriptions import Notice, Subscription, SubscriptionId
from milepost.wire._generated import datagram_pb2 as pb
from milepost.wire.checks import sayable, tags_once
from milepost.wire.datagrams.areas import read_area, read_place, write_area, write_place
from milepost.wire.datagrams.presence import require

QOS_USUAL: Final = 1


def write_subscription(subscription: Subscription, part: pb.Subscription) -> None:
    """Fill in a subscription; its query travels as text."""
    part.owner = subscription.owner
    part.query = str(subscription.query)
    _write_where(subscription.area, part)
    if subscription.frame.start != BEGINNING:
        part.start = subscription.frame.start
    if subscription.frame.end != FOREVER:
        part.end = subscription.frame.end
    part.id = subscription.id
    if subscription.qos != QOS_USUAL:
        part.qos = subscription.qos
    if subscription.share is not None:
        part.share = subscription.share


def read_subscription(part: pb.Subscription) -> Subscription:
    """The subscription that a part holds."""
    require(part, "owner", "query")
    return Subscription(
        owner=EndpointId(part.owner),
        query=parse_query(part.query),
        area=_read_where(part),
        frame=Frame(
            Instant(part.start) if part.HasField("start") else BEGINNING,
            sayable("end", part.end) if part.HasField("end") else FOREVER,
        ),
        id=SubscriptionId(part.id),
        qos=part.qos if part.HasField("qos") else QOS_USUAL,
        share=part.share if part.HasField("share") else None,
    )


def write_notice(notice: Notice, part: pb.Notice) -> None:
    """Fill in a notice."""
    part.subscription = notice.subscription
    part.message = notice.message
    part.source = notice.source
    part.topic = notice.topic
    part.tags.extend(sorted(notice.tags))
    if notice.place is not None:
        write_place(notice.place, part.place)
    part.seen_at = notice.seen_at
    part.summary = notice.summary


def read_notice(part: pb.Notice) -> Notice:
    """The notice that a part holds."""
    require(part, "message", "source", "topic", "seen_at")
    return Notice(
        subscription=SubscriptionId(part.subscription),
        message=MessageId(part.message),
        source=EndpointId(part.source),
        topic=part.topic,
        tags=tags_once(part.tags),
        place=read_place(part.place) if part.HasField("place") else None,
        seen_at=Instant(part.seen_at),
        summary=part.summary,
    )


def _write_where(area: Area | Around | None, part: pb.Subscription) -> None:
    match area:
        case None:
            pass
        case Around():
            part.around.radius_m = area.radius_m
        case Circle() | Box() | Polygon() | Corridor() | Upstream() | Union():
            write_area(area, part.area)
        case _:
            assert_never(area)


def _read_where(part: pb.Subscription) -> Area | Around | None:
    where = part.WhichOneof("where")
    if where == "area":
        return read_area(part.area)
    if where == "around":
        require(part.around, "radius_m")
        return Around(part.around.radius_m)
    return None
