"""Encoding of the durable state of an edge: values to stored bytes, and back.

A message is stored as

    version u8 │ flags u8 │ priority u8 │ qos u8 │ seen_at i64 │ valid_until i64 │ forwarded_number u64 │ id u64
    source u16 │ topic u16 │ forwarded_by u16 │ signer u16 │ extras u32 │ words u32 │ source … topic … … words … body

with the lengths of the six texts in the second line; words is the message's JSON form without its body, present only if it has
tags, a place, an address, fields or a signature.
"""

from dataclasses import replace
from struct import Struct
from typing import Final, NamedTuple, cast

import orjson

from milepost.broker.publication import TO_CONTENT, Publication
from milepost.broker.session import Session, SessionSubscription, SessionWill
from milepost.model.endpoints import EndpointId, endpoint_id, source_id
from milepost.model.instants import FOREVER, Instant
from milepost.model.messages import Message
from milepost.model.places import Place
from milepost.model.priorities import Priority
from milepost.model.subscriptions import Subscription
from milepost.vetting.access import ClientIdentity
from milepost.wire.json_form import from_json, to_json
from milepost.wire.mqtt import parse_forwarded

_VERSION: Final = 4
_RETAINED: Final = 1
_HAS_NO_EXTRAS: Final = 2
_HEAD: Final = Struct("<BBBBqqQQHHHHII")


class StoredSession(NamedTuple):
    """A stored session."""

    name: EndpointId
    expiry_ns: int
    expires_at: Instant | None
    """None if its endpoint was connected."""
    will: SessionWill | None
    will_at: Instant
    place: Place | None
    """Its last position."""
    identity: ClientIdentity
    """The principal that connected last: its will is published with its rights."""


def publication_to_bytes(publication: Publication) -> bytes:
    """Encode a message."""
    source, topic, forwarded_by = publication.source.encode(), publication.topic.encode(), publication.forwarded_by.encode()
    extras, signer = publication.extras or b"", (publication.signer or "").encode()
    has_metadata = (
        publication.tags
        or publication.place is not None
        or publication.address is not TO_CONTENT
        or publication.fields
        or publication.signed is not None
    )
    metadata = _metadata_of(publication) if has_metadata else b""
    flags = publication.is_retained * _RETAINED | (publication.extras is None) * _HAS_NO_EXTRAS
    head = _HEAD.pack(
        _VERSION,
        flags,
        publication.priority,
        publication.qos,
        publication.seen_at,
        publication.valid_until,
        publication.forwarded_number,
        publication.id,
        len(source),
        len(topic),
        len(forwarded_by),
        len(signer),
        len(extras),
        len(metadata),
    )
    return b"".join((head, source, topic, forwarded_by, signer, extras, metadata, publication.body))


def _metadata_of(publication: Publication) -> bytes:
    return to_json(replace(publication.message, body=b""))


def publication_from_bytes(data: bytes) -> Publication:
    """Decode a stored message."""
    version, flags, priority, qos, seen_at, valid_until, forwarded_number, message_id, *sizes = _HEAD.unpack_from(data)
    assert version == _VERSION, f"a message was stored in form {version}, this release knows {_VERSION}"
    texts, at = [], _HEAD.size
    for size in sizes:
        texts.append(data[at : at + size])
        at += size
    source, topic, forwarded_by, signer, extras, metadata = texts
    publication = Publication(
        topic.decode(),
        data[at:],
        seen_at,
        source=source_id(source.decode()),
        qos=qos,
        is_retained=bool(flags & _RETAINED),
        priority=Priority(priority),
        valid_until=valid_until,
        extras=None if flags & _HAS_NO_EXTRAS else extras,
    )
    publication.forwarded_by, publication.forwarded_number, publication.id = forwarded_by.decode(), forwarded_number, message_id
    publication.signer = signer.decode() or None
    if metadata:
        message = cast("Message", from_json(metadata))
        publication.tags, publication.place, publication.address = message.tags, message.place, message.address
        publication.fields = message.fields
        publication.signed = (message.signature, message.certificate) if message.signature else None
    return publication


def session_to_bytes(session: Session, place: Place | None) -> bytes:
    """Encode a session without its subscriptions and queue, which are stored separately."""
    will = session.will
    return orjson.dumps(
        {
            "name": session.name,
            "user": session.identity.user,
            "role": session.identity.role,
            "expiry_ns": session.expiry_ns,
            "expires_at": session.expires_at if session.expires_at != FOREVER else None,
            "will_at": session.will_at if session.will_at != FOREVER else None,
            "place": None if place is None else [place.latitude, place.longitude],
            "will": None if will is None else [will.delay_ns, will.valid_ns, publication_to_bytes(will.publication).hex()],
        }
    )


def session_from_bytes(data: bytes) -> StoredSession:
    """Decode a stored session."""
    value = orjson.loads(data)
    will = value["will"]
    return StoredSession(
        endpoint_id(value["name"]),
        value["expiry_ns"],
        value["expires_at"],
        None if will is None else _will_from(*will),
        FOREVER if value["will_at"] is None else value["will_at"],
        None if value["place"] is None else Place(*value["place"]),
        ClientIdentity(value["name"], value["user"], value["role"]),
    )


def _will_from(delay_ns: int, valid_ns: int | None, data: str) -> SessionWill:
    publication = publication_from_bytes(bytes.fromhex(data))
    publication.response_topic = parse_forwarded(publication.extras or b"").response_topic or ""
    return SessionWill(publication, delay_ns, valid_ns)


def subscription_to_bytes(held: SessionSubscription) -> bytes:
    """Encode a subscription."""
    flags = bytes((held.no_local | held.retain_as_published << 1,))
    return flags + to_json(held.subscription)


def subscription_from_bytes(data: bytes) -> SessionSubscription:
    """Decode a stored subscription; it has no row yet."""
    subscription = cast("Subscription", from_json(data[1:]))
    return SessionSubscription(subscription, -1, no_local=bool(data[0] & 1), retain_as_published=bool(data[0] & 2))


def details_to_bytes(subscription_ids: tuple[int, ...], *, has_retain_flag: bool) -> bytes:
    """Encode the data that a queued delivery needs beside its message."""
    return b"" if not subscription_ids and not has_retain_flag else orjson.dumps([has_retain_flag, *subscription_ids])


def details_from_bytes(data: bytes) -> tuple[tuple[int, ...], bool]:
    """Decode subscription ids, and whether the message was a retained one."""
    if not data:
        return (), False
    has_retain_flag, *subscription_ids = orjson.loads(data)
    return tuple(subscription_ids), has_retain_flag
