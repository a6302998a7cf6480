"""Journal: what of an edge outlives the process, as the bytes that are stored and as values again.

A message is stored as

    version u8 │ flags u8 │ priority u8 │ qos u8 │ seen_at i64 │ valid_until i64 │ said_number u64
    source u16 │ topic u16 │ said_by u16 │ extras u32 │ words u32 │ source … topic … said_by … extras … words … body

with the lengths of the five texts in the middle; words is the message's JSON form without its body, present only if it has tags,
a place, an address, an id or fields.
"""

from dataclasses import replace
from struct import Struct
from typing import Final, NamedTuple, cast

import orjson

from milepost.edge.parcels import TO_CONTENT, Parcel
from milepost.edge.sessions import Asked, Session, Will
from milepost.model.endpoints import EndpointId
from milepost.model.instants import FOREVER, Instant
from milepost.model.messages import Message
from milepost.model.places import Place
from milepost.model.priorities import Priority
from milepost.model.subscriptions import Subscription
from milepost.wire.json_form import from_json, to_json

_VERSION: Final = 2
_RETAINED: Final = 1
_HAS_NO_EXTRAS: Final = 2
_HEAD: Final = Struct("<BBBBqqQHHHII")


class KeptSession(NamedTuple):
    """A session as it was stored."""

    name: EndpointId
    expiry_ns: int
    expires_at: Instant | None
    """None if its endpoint was connected."""
    will: Will | None
    will_at: Instant
    place: Place | None
    """Where it last was."""


def parcel_to_bytes(parcel: Parcel) -> bytes:
    """A message as it is stored."""
    source, topic, said_by = parcel.source.encode(), parcel.topic.encode(), parcel.said_by.encode()
    extras = parcel.extras or b""
    has_words = parcel.tags or parcel.place is not None or parcel.address is not TO_CONTENT or parcel.id or parcel.fields
    words = _words_of(parcel) if has_words else b""
    flags = parcel.is_retained * _RETAINED | (parcel.extras is None) * _HAS_NO_EXTRAS
    head = _HEAD.pack(
        _VERSION,
        flags,
        parcel.priority,
        parcel.qos,
        parcel.seen_at,
        parcel.valid_until,
        parcel.said_number,
        len(source),
        len(topic),
        len(said_by),
        len(extras),
        len(words),
    )
    return b"".join((head, source, topic, said_by, extras, words, parcel.body))


def _words_of(parcel: Parcel) -> bytes:
    return to_json(replace(parcel.message, body=b""))


def parcel_from_bytes(data: bytes) -> Parcel:
    """A message that was stored."""
    version, flags, priority, qos, seen_at, valid_until, said_number, *sizes = _HEAD.unpack_from(data)
    assert version == _VERSION, f"a message was stored in form {version}, this release knows {_VERSION}"
    texts, at = [], _HEAD.size
    for size in sizes:
        texts.append(data[at : at + size])
        at += size
    source, topic, said_by, extras, words = texts
    parcel = Parcel(
        topic.decode(),
        data[at:],
        seen_at,
        source=EndpointId(source.decode()),
        qos=qos,
        is_retained=bool(flags & _RETAINED),
        priority=Priority(priority),
        valid_until=valid_until,
        extras=None if flags & _HAS_NO_EXTRAS else extras,
    )
    parcel.said_by, parcel.said_number = said_by.decode(), said_number
    if words:
        message = cast("Message", from_json(words))
        parcel.tags, parcel.place, parcel.address = message.tags, message.place, message.address
        parcel.id, parcel.fields = message.id, message.fields
        parcel.signed = (message.signature, message.certificate) if message.signature else None
    return parcel


def session_to_bytes(session: Session, place: Place | None) -> bytes:
    """A session as it is stored: without its subscriptions and queue, which are stored apart."""
    will = session.will
    return orjson.dumps(
        {
            "name": session.name,
            "expiry_ns": session.expiry_ns,
            "expires_at": session.expires_at if session.expires_at != FOREVER else None,
            "will_at": session.will_at if session.will_at != FOREVER else None,
            "place": None if place is None else [place.latitude, place.longitude],
            "will": None if will is None else [will.delay_ns, will.valid_ns, parcel_to_bytes(will.parcel).hex()],
        }
    )


def session_from_bytes(data: bytes) -> KeptSession:
    """A session that was stored."""
    value = orjson.loads(data)
    will = value["will"]
    return KeptSession(
        EndpointId(value["name"]),
        value["expiry_ns"],
        value["expires_at"],
        None if will is None else Will(parcel_from_bytes(bytes.fromhex(will[2])), will[0], will[1]),
        FOREVER if value["will_at"] is None else value["will_at"],
        None if value["place"] is None else Place(*value["place"]),
    )


def asked_to_bytes(asked: Asked) -> bytes:
    """A subscription as it is stored."""
    flags = bytes((asked.is_not_own | asked.is_retain_shown << 1,))
    return flags + to_json(asked.subscription)


def asked_from_bytes(data: bytes) -> Asked:
    """A subscription that was stored; it has no row yet."""
    subscription = cast("Subscription", from_json(data[1:]))
    return Asked(subscription, -1, is_not_own=bool(data[0] & 1), is_retain_shown=bool(data[0] & 2))


def details_to_bytes(labels: tuple[int, ...], *, is_from_store: bool) -> bytes:
    """What a queued delivery needs beside its message."""
    return b"" if not labels and not is_from_store else orjson.dumps([is_from_store, *labels])


def details_from_bytes(data: bytes) -> tuple[tuple[int, ...], bool]:
    """Labels, and whether the message came from those retained."""
    if not data:
        return (), False
    is_from_store, *labels = orjson.loads(data)
    return tuple(labels), is_from_store
