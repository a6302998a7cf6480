"""Encoding of the records that a handler writes for itself into the log.

    ledger topic        key      value
                        @claim   a token: its writer owns the partition from here on; the record's offset is the fence of notes
                        @note    a line of JSON, then the values of the entries that follow from it, concatenated
                        =KEY     REVISION newline JSON: a value of the store since the note of that revision; no JSON: removed
    dead letter topic   P.N      JSON: the request, the reason, the number of attempts
    publish topic                a forwarded message, or {"type": "retry", …}: a dead letter to be retried

A log may hold anything: every decoding error is a ValueError, and only that record is skipped.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec

from milepost.eventlog.log import Entry
from milepost.model.instants import Instant
from milepost.model.site_records import ForwardedMessage
from milepost.wire.json_form.codec import VERSION, Decoder, Versioned, Whole, encode_any, encode_members
from milepost.wire.json_form.field_codecs import Digits
from milepost.wire.records import RECORD_BYTES_MAX, from_record, record_prefix

CLAIM: Final = "@claim"
NOTE: Final = "@note"
VALUE_PREFIX: Final = "="

_RETRY_PREFIX: Final = record_prefix("retry")


@dataclass(frozen=True, slots=True)
class Note:
    """The progress of a partition: everything before its positions is served once the `pending` entries were appended."""

    fence: int = -1
    revision: int = 0
    """Increases with each valid note."""
    positions: Mapping[str, int] = field(default_factory=dict)
    """Offset of the next record, by topic."""
    last_numbers: Mapping[str, int] = field(default_factory=dict)
    """The highest number served, by edge (SITE/EDGE)."""
    number: int = 0
    """The number of the last answer."""
    dead_letters: int = 0
    """Number of dead letters so far."""
    partitions: int = 0
    """The number of partitions of the handler; 0: it never ran."""
    pending: tuple[Entry, ...] = ()
    """Entries to append after the note."""


class StoredValue(NamedTuple):
    """A value of the store as recorded in the log; None: removed."""

    revision: int
    value: bytes | None


class HandlerRequest(NamedTuple):
    """A message for a handler to serve."""

    forwarded: ForwardedMessage
    retries: int = 0
    """Number of retries as a dead letter."""


class DeadLetter(NamedTuple):
    """A request that its handler failed to serve, with the reason."""

    reason: str
    attempts: int
    retries: int
    at: Instant
    record: bytes
    """The request's record."""


class _NoteHead(Versioned, frozen=True):
    """The first line of a note, with the sizes of the `pending` values that follow it."""

    fence: Whole
    revision: Whole
    positions: dict[str, Whole]
    last_numbers: dict[str, Digits]
    number: Digits
    dead_letters: Whole
    partitions: Whole
    pending: tuple[tuple[str, str, Whole], ...]


class _RetryForm(Versioned, frozen=True, tag_field="type", tag="retry"):
    retries: Whole
    request: msgspec.Raw


class _DeadLetterForm(Versioned, frozen=True):
    reason: str
    attempts: Whole
    retries: Whole
    at: Digits
    request: msgspec.Raw


_HEADS: Final = Decoder("note", _NoteHead, bytes_max=RECORD_BYTES_MAX)
_RETRIES: Final = Decoder("retry", _RetryForm, bytes_max=RECORD_BYTES_MAX)
_DEAD_LETTERS: Final = Decoder("dead_letter", _DeadLetterForm, bytes_max=RECORD_BYTES_MAX)


def note_to_bytes(note: Note) -> bytes:
    """Encode a note."""
    head = {
        "v": VERSION,
        "fence": note.fence,
        "revision": note.revision,
        "positions": note.positions,
        "last_numbers": {edge: str(number) for edge, number in note.last_numbers.items()},
        "number": str(note.number),
        "dead_letters": note.dead_letters,
        "partitions": note.partitions,
        "pending": [[entry.topic, entry.key, len(entry.value or b"")] for entry in note.pending],
    }
    return b"".join([encode_any(head), b"\n", *(entry.value or b"" for entry in note.pending)])


def note_from_bytes(data: bytes) -> Note:
    """Decode a note."""
    line, _, rest = data.partition(b"\n")
    head: Any = _HEADS.decode(line)
    pending, at = [], 0
    for topic, key, size in head.pending:
        pending.append(Entry(topic, key, rest[at : at + size]))
        at += size
    return Note(
        head.fence,
        head.revision,
        head.positions,
        head.last_numbers,
        head.number,
        head.dead_letters,
        head.partitions,
        tuple(pending),
    )


def stored_value_to_bytes(stored: StoredValue) -> bytes:
    """Encode a value of the store."""
    return b"%d\n%s" % (stored.revision, stored.value or b"")


def stored_value_from_bytes(data: bytes) -> StoredValue:
    """Decode a value of the store."""
    head, _, value = data.partition(b"\n")
    return StoredValue(int(head), value or None)


def request_from_record(data: bytes) -> HandlerRequest:
    """Decode a record of the publish topic."""
    if not data.startswith(_RETRY_PREFIX):
        return HandlerRequest(_forwarded(data))
    retry = _RETRIES.decode(data)
    return HandlerRequest(_forwarded(bytes(retry.request)), retry.retries)


def retry_record(letter: DeadLetter) -> bytes:
    """Encode a dead letter as a retry for the publish topic."""
    return encode_members(_RetryForm(letter.retries + 1, msgspec.Raw(letter.record)))


def dead_letter_to_bytes(letter: DeadLetter) -> bytes:
    """Encode a dead letter."""
    at: Any = str(letter.at)
    return encode_members(_DeadLetterForm(letter.reason, letter.attempts, letter.retries, at, msgspec.Raw(letter.record)))


def dead_letter_from_bytes(data: bytes) -> DeadLetter:
    """Decode a dead letter."""
    found: Any = _DEAD_LETTERS.decode(data)
    return DeadLetter(found.reason, found.attempts, found.retries, Instant(found.at), bytes(found.request))


def _forwarded(data: bytes) -> ForwardedMessage:
    found = from_record(data)
    if not isinstance(found, ForwardedMessage):
        raise ValueError(f"the record is a {type(found).__name__}, not a message")
    return found
