"""Messages and their addresses as parts of a datagram."""

from types import MappingProxyType
from typing import Final, assert_never

from milepost.model.addresses import Address, ToArea, ToContent, ToEndpoint, ToEveryone, ToTold
from milepost.model.endpoints import EndpointId
from milepost.model.instants import FOREVER, Instant
from milepost.model.messages import Message, MessageId, Scalar
from milepost.model.priorities import Priority
from milepost.model.reasons import Malformed, Reason
from milepost.wire._generated import datagram_pb2 as pb
from milepost.wire.checks import sayable, tags_once
from milepost.wire.datagrams.areas import read_area, read_place, write_area, write_place
from milepost.wire.datagrams.presence import missing, require

_PRIORITIES: Final = {
    Priority.EMERGENCY: pb.EMERGENCY,
    Priority.SAFETY: pb.SAFETY,
    Priority.TRAFFIC: pb.TRAFFIC,
    Priority.CONVENIENCE: pb.CONVENIENCE,
}


def write_message(message: Message, part: pb.Message) -> None:
    """Fill in a message; what has its default value stays absent."""
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
    """What a signature on a message is about: all of it but the signature and the certificate of who signed."""
    part = pb.Message()
    write_message(message, part)
    part.ClearField("signature")
    part.ClearField("certificate")
    data: bytes = part.SerializeToString(deterministic=True)
    return data


def read_message(part: pb.Message) -> Message:
    """The message that a part holds."""
    require(part, "id", "source", "topic", "seen_at")
    return Message(
        id=MessageId(part.id),
        source=EndpointId(part.source),
        topic=part.topic,
        seen_at=Instant(part.seen_at),
        tags=tags_once(part.tags),
        address=_read_address(part.address) if part.HasField("address") else ToContent(),
        place=read_place(part.place) if part.HasField("place") else None,
        valid_until=sayable("valid_until", part.valid_until) if part.HasField("valid_until") else FOREVER,
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
        case ToTold():
            part.address.told.incidents.extend(address.incidents)
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
    if to == "told":
        return ToTold(tuple(part.told.incidents))
    if to == "everyone":
        return ToEveryone()
    raise missing(part, "to")


def _write_scalar(value: Scalar, part: pb.Scalar) -> None:
    match value:
        case bool():  # before int, which it also is
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
    held = part.WhichOneof("value")
    if held is None:
        raise Malformed(Reason.FIELD_MISSING, f"field {name[:64]!r} holds nothing")
    value: Scalar = getattr(part, held)
    return value
