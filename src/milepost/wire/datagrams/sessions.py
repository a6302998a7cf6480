"""Session messages, and the names of messages and subscriptions in answers, as parts of a datagram."""

from typing import assert_never

from milepost.model.endpoints import EndpointId, source_id
from milepost.model.instants import Instant
from milepost.model.messages import MessageId
from milepost.model.multicast_cells import MulticastGrid
from milepost.model.places import Place
from milepost.model.reasons import Malformed, Reason
from milepost.model.reports import Report
from milepost.model.session_datagrams import (
    AcknowledgeDatagram,
    Close,
    CloseCause,
    Init,
    MessageName,
    Name,
    Refusal,
    SessionToken,
    SubscriptionName,
)
from milepost.model.subscriptions import SubscriptionId
from milepost.wire._generated import datagram_pb2 as pb
from milepost.wire.datagrams.areas import missing, require


def write_report(report: Report, part: pb.Report) -> None:
    """Write a report into *part*."""
    part.endpoint = report.endpoint
    part.latitude = report.place.latitude
    part.longitude = report.place.longitude
    part.seen_at = report.seen_at
    if report.heading_deg is not None:
        part.heading_deg = report.heading_deg
    if report.speed_mps is not None:
        part.speed_mps = report.speed_mps


def read_report(part: pb.Report) -> Report:
    """Return the report of a part. Presence is only checked for zeros, because this is the hottest reader."""
    endpoint, latitude, longitude, seen_at = part.endpoint, part.latitude, part.longitude, part.seen_at
    if not (endpoint and latitude and longitude and seen_at):
        require(part, "endpoint", "latitude", "longitude", "seen_at")
    heading, speed = part.heading_deg, part.speed_mps
    return Report(
        EndpointId(endpoint),
        Place(latitude, longitude),
        Instant(seen_at),
        heading if heading or part.HasField("heading_deg") else None,
        speed if speed or part.HasField("speed_mps") else None,
    )


def write_init(value: Init, part: pb.Init) -> None:
    """Write an INIT into *part*."""
    write_report(value.report, part.report)
    part.former = value.former or 0
    part.joins_multicast = value.joins_multicast


def read_init(part: pb.Init) -> Init:
    """Return the INIT of a part."""
    require(part, "report")
    return Init(read_report(part.report), SessionToken(part.former) if part.former else None, part.joins_multicast)


def write_acknowledge(value: AcknowledgeDatagram, part: pb.Acknowledge) -> None:
    """Write an ACKNOWLEDGE into *part*."""
    part.reporting_interval_ns = value.reporting_interval_ns
    part.edge = value.edge
    part.resumed = value.is_resumed
    part.reset = value.reset
    if value.keys_ns is not None:
        part.keys_ns = value.keys_ns
    if value.cells is not None:
        cells = value.cells
        part.cells.group, part.cells.groups, part.cells.port, part.cells.side_deg = (
            cells.group,
            cells.groups,
            cells.port,
            cells.side_deg,
        )


def read_acknowledge(part: pb.Acknowledge, session: SessionToken) -> AcknowledgeDatagram:
    """Return the ACKNOWLEDGE of a part."""
    require(part, "reporting_interval_ns", "edge")
    return AcknowledgeDatagram(
        session,
        part.reporting_interval_ns,
        EndpointId(part.edge),
        part.resumed,
        part.reset,
        part.keys_ns if part.HasField("keys_ns") else None,
        _read_cells(part.cells) if part.HasField("cells") else None,
    )


def _read_cells(part: pb.Cells) -> MulticastGrid:
    require(part, "group", "groups", "port", "side_deg")
    return MulticastGrid(part.group, part.groups, part.port, part.side_deg)


def read_close(part: pb.Close, session: SessionToken) -> Close:
    """Return the CLOSE of a part."""
    require(part, "cause")
    try:
        return Close(session, CloseCause(part.cause))
    except ValueError as fault:
        if isinstance(fault, Malformed):
            raise
        raise Malformed(
            Reason.FIELD_RANGE, f"cause is {part.cause}, not one of {[cause.value for cause in CloseCause]}"
        ) from None


def write_refusal(value: Refusal, part: pb.Refusal) -> None:
    """Write a refusal into *part*."""
    part.reason = value.reason
    part.name = value.name
    part.detail = value.detail
    if value.about is not None:
        write_name(value.about, part.about)


def read_refusal(part: pb.Refusal, session: SessionToken | None) -> Refusal:
    """Return the refusal of a part, whether or not this version knows its reason."""
    require(part, "reason", "name")
    about = read_name(part.about) if part.HasField("about") else None
    return Refusal(part.reason, part.name, part.detail, about, session)


def write_name(name: Name, part: pb.Name) -> None:
    """Write the subject of an answer into *part*."""
    match name:
        case MessageName():
            part.message.source, part.message.id = name.source, name.id
        case SubscriptionName():
            write_subscription_name(name, part.subscription)
        case _:
            assert_never(name)


def read_name(part: pb.Name) -> Name:
    """Return the subject of an answer."""
    thing = part.WhichOneof("thing")
    if thing == "message":
        require(part.message, "source", "id")
        return MessageName(source_id(part.message.source), MessageId(part.message.id))
    if thing == "subscription":
        return read_subscription_name(part.subscription)
    raise missing(part, "thing")


def write_subscription_name(name: SubscriptionName, part: pb.SubscriptionName) -> None:
    """Write a subscription's name into *part*."""
    part.owner, part.id = name.owner, name.id


def read_subscription_name(part: pb.SubscriptionName) -> SubscriptionName:
    """Return the subscription's name of a part."""
    require(part, "owner", "id")
    return SubscriptionName(EndpointId(part.owner), SubscriptionId(part.id))
