"""Sayings: a parcel as the record in which it leaves its edge, and what comes of the record at another edge (D9)."""

from milepost.edge.parcels import ELSEWHERE, Parcel
from milepost.model.messages import Message, MessageId
from milepost.model.sites import Said


def message_of(parcel: Parcel) -> Message:
    """The message of a parcel under the id that its source gave it, if it gave one."""
    signature, certificate = parcel.signed or (b"", b"")
    return Message(
        MessageId(parcel.id),
        parcel.source,
        parcel.topic,
        parcel.seen_at,
        tags=parcel.tags,
        address=parcel.address,
        place=parcel.place,
        valid_until=parcel.valid_until,
        priority=parcel.priority,
        reliable=parcel.qos > 0,
        fields=parcel.fields,
        body=parcel.body,
        signature=signature,
        certificate=certificate,
    )


def parcel_of(said: Said) -> Parcel:
    """The message as it goes through an edge."""
    message = said.message
    parcel = Parcel(
        message.topic,
        message.body,
        message.seen_at,
        source=message.source,
        origin=ELSEWHERE,
        qos=said.qos,
        is_retained=said.is_retained,
        priority=message.priority,
        valid_until=message.valid_until,
        extras=said.extras,
        tags=message.tags,
        place=message.place,
        address=message.address,
        fields=message.fields,
    )
    parcel.id = message.id
    parcel.signed = (message.signature, message.certificate) if message.signature else None
    parcel.said_by, parcel.said_number = str(said.sender), said.number
    return parcel
