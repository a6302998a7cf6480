"""Messages, subscriptions and notices as parts of a datagram."""

from types import MappingProxyType
from typing import Final, assert_never

from google.protobuf.message import DecodeError

from milepost.model.addresses import Address, ToArea, ToContent, ToEndpoint, ToEveryone, ToNotified
from milepost.model.areas import Area, Around, Box, Circle, Corridor, Polygon, Union, Upstream
from milepost.model.endpoints import EndpointId, source_id
from milepost.model.instants import BEGINNING, FOREVER, Instant
from milepost.model.messages import Message, MessageId, Scalar
from milepost.model.priorities import Priority
from milepost.model.queries import parse_query
from milepost.model.reasons import Malformed, Reason
from milepost.model.subscriptions import Notice, Subscription, SubscriptionId
from milepost.model.time_windows import TimeWindow
from milepost.wire._generated import datagram_pb2 as pb
from milepost.wire.checks import encodable_instant, unique_tags
from milepost.wire.datagrams.areas import missing, read_area, read_place, require, write_area, write_place

_PRIORITIES: Final = {
    Priority.EMERGENCY: pb.EMERGENCY,
    Priority.SAFETY: pb.SAFETY,
    Priority.TRAFFIC: pb.TRAFFIC,
    Priority.CONVENIENCE: pb.CONVENIENCE,
}


def write_message(message: Message, part: pb.Message) -> None:
    """Write a message into *part*; fields with their default value stay absent."""
    part.id = message.id
    part.source = message.source
    part.topic = message.topic
    part.seen_at = message.seen_at
    part.tags.extend(sorted(message.tags))
    _write_address(message.address, part)
    if message.place is not None:
        write_place(message.place, part.place)
    if message.valid_until != FOREVER:
        part.valid_until = message.valid_until
    if message.priority is not Priority.CONVENIENCE:
        part.priority = _PRIORITIES[message.priority]
    part.reliable = message.reliable
    for name, value in message.fields.items():
        _write_scalar(value, part.fields[name])
    part.body = message.body
    part.signature = message.signature
    part.certificate = message.certificate


def signed_bytes(message: Message) -> bytes:
    """Return the signed bytes of a message: all of it except the signature and the signer's certificate."""
    part = pb.Message()
    write_message(message, part)
    part.ClearField("signature")
    part.ClearField("certificate")
    data: bytes = part.SerializeToString(deterministic=True)
    return data


def envelope_of(message: Message) -> bytes:
    """Return a signed message without topic and body, which the packet of another protocol carries."""
    part = pb.Message()
    write_message(message, part)
    part.ClearField("topic")
    part.ClearField("body")
    data: bytes = part.SerializeToString(deterministic=True)
    return data


def message_from_envelope(data: bytes, topic: str, body: bytes) -> Message:
    """Return the signed message of an envelope; raise `Malformed` if it is none, or if it states a topic or body itself."""
    try:
        part = pb.Message.FromString(data)
    except DecodeError:
        raise Malformed(Reason.MALFORMED, f"{len(data)} bytes that are not a protobuf message Message") from None
    if part.HasField("topic") or part.body or not part.signature:
        raise Malformed(Reason.MALFORMED, "an envelope has a signature, and neither topic nor body")
    part.topic = topic
    part.body = body
    return read_message(part)


def read_message(part: pb.Message) -> Message:
    """Return the message of a part."""
    require(part, "id", "source", "topic", "seen_at")
    return Message(
        id=MessageId(part.id),
        source=source_id(part.source),
        topic=part.topic,
        seen_at=Instant(part.seen_at),
        tags=unique_tags(part.tags),
        address=_read_address(part.address) if part.HasField("address") else ToContent(),
        place=read_place(part.place) if part.HasField("place") else None,
        valid_until=encodable_instant("valid_until", part.valid_until) if part.HasField("valid_until") else FOREVER,
        priority=_read_priority(part.priority) if part.HasField("priority") else Priority.CONVENIENCE,
        reliable=part.reliable,
        fields=MappingProxyType({name: _read_scalar(name, value) for name, value in part.fields.items()}),
        body=part.body,
        signature=part.signature,
        certificate=part.certificate,
    )


def _read_priority(number: int) -> Priority:
    try:
        return Priority(number)
    except ValueError:
        raise Malformed(Reason.FIELD_RANGE, f"priority is {number}, not in 0..3") from None


def _write_address(address: Address, part: pb.Message) -> None:
    match address:
        case ToContent():
            if address.within is not None:
                write_area(address.within, part.address.content.within)
        case ToEndpoint():
            part.address.endpoint = address.endpoint
        case ToArea():
            write_area(address.area, part.address.area)
            part.address.incident = address.incident
        case ToNotified():
            part.address.notified.incidents.extend(address.incidents)
        case ToEveryone():
            part.address.everyone.SetInParent()
        case _:
            assert_never(address)


def _read_address(part: pb.Address) -> Address:
    to = part.WhichOneof("to")
    if to == "content":
        return ToContent(read_area(part.content.within) if part.content.HasField("within") else None)
    if to == "endpoint":
        return ToEndpoint(EndpointId(part.endpoint))
    if to == "area":
        return ToArea(read_area(part.area), part.incident)
    if to == "notified":
        return ToNotified(tuple(part.notified.incidents))
    if to == "everyone":
        return ToEveryone()
    raise missing(part, "to")


def _write_scalar(value: Scalar, part: pb.Scalar) -> None:
    match value:
        case bool():  # before int: bool is a subclass
            part.truth = value
        case str():
            part.text = value
        case int():
            part.integer = value
        case float():
            part.number = value
        case bytes():
            part.octets = value
        case _:
            assert_never(value)


def _read_scalar(name: str, part: pb.Scalar) -> Scalar:
    kind = part.WhichOneof("value")
    if kind is None:
        raise Malformed(Reason.FIELD_MISSING, f"field {name[:64]!r} has no value")
    value: Scalar = getattr(part, kind)
    return value


# Subscriptions and notices.

QOS_DEFAULT: Final = 1


def write_subscription(subscription: Subscription, part: pb.Subscription) -> None:
    """Write a subscription into *part*; its query is encoded as text."""
    part.owner = subscription.owner
    part.query = str(subscription.query)
    _write_where(subscription.area, part)
    if subscription.time_window.start != BEGINNING:
        part.start = subscription.time_window.start
    if subscription.time_window.end != FOREVER:
        part.end = subscription.time_window.end
    part.id = subscription.id
    if subscription.qos != QOS_DEFAULT:
        part.qos = subscription.qos
    if subscription.share is not None:
        part.share = subscription.share


def read_subscription(part: pb.Subscription) -> Subscription:
    """Return the subscription of a part."""
    require(part, "owner", "query")
    return Subscription(
        owner=EndpointId(part.owner),
        query=parse_query(part.query),
        area=_read_where(part),
        time_window=TimeWindow(
            Instant(part.start) if part.HasField("start") else BEGINNING,
            encodable_instant("end", part.end) if part.HasField("end") else FOREVER,
        ),
        id=SubscriptionId(part.id),
        qos=part.qos if part.HasField("qos") else QOS_DEFAULT,
        share=part.share if part.HasField("share") else None,
    )


def write_notice(notice: Notice, part: pb.Notice) -> None:
    """Write a notice into *part*."""
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
    """Return the notice of a part."""
    require(part, "message", "source", "topic", "seen_at")
    return Notice(
        subscription=SubscriptionId(part.subscription),
        message=MessageId(part.message),
        source=source_id(part.source),
        topic=part.topic,
        tags=unique_tags(part.tags),
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
