"""Notes: what a handler writes for itself into the log, values ↔ bytes.

    book topic    key      value
                  @claim   a token: from here on its writer has the part; the record's offset is the *era* of all its notes
                  @note    a line of JSON, then the values of the records that follow from it, one after the other
                  =KEY     TURN newline JSON: a value of the store, as it is since the note of that turn; no JSON: gone
    parked topic  PART.N   JSON: the request, why it was set aside, how often it was tried
    publish topic          Said, or {"type": "again", …}: a parked request that is to be tried again

Whoever reads a log meets anything: every fault is a ValueError and costs that record alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import orjson

from milepost.backbone.log import Entry
from milepost.model.instants import Instant
from milepost.model.sites import Said
from milepost.wire.json_form import reading
from milepost.wire.json_form.reading import Members
from milepost.wire.records import from_record

CLAIM: Final = "@claim"
NOTE: Final = "@note"
VALUE_MARK: Final = "="

_AGAIN: Final = b'{"type":"again"'
_NOTE: Final = ("era", "turn", "positions", "marks", "number", "parked", "parts", "unsaid")
_PARKED: Final = ("reason", "tries", "times", "at", "said")


@dataclass(frozen=True, slots=True)
class Note:
    """How far a part has come: all before its positions is dealt with, once what is `unsaid` was appended."""

    era: int = -1
    turn: int = 0
    """Rises with each note that counts."""
    positions: Mapping[str, int] = field(default_factory=dict)
    """By topic: the offset of what comes next."""
    marks: Mapping[str, int] = field(default_factory=dict)
    """By edge (SITE/EDGE): the highest number that was dealt with."""
    number: int = 0
    """Of what was said last."""
    parked: int = 0
    """So many were set aside, ever."""
    parts: int = 0
    """Into how many parts the handler was divided; 0: it was never run."""
    unsaid: tuple[Entry, ...] = ()


class Kept(NamedTuple):
    """A value of the store as it stands in the log; none: it is gone."""

    turn: int
    value: bytes | None


class Request(NamedTuple):
    """Something for a handler to deal with."""

    said: Said
    times: int = 0
    """How often it was taken up again after it had been parked."""


class Parked(NamedTuple):
    """A request that was set aside."""

    reason: str
    tries: int
    times: int
    at: Instant
    said: bytes
    """The request's record."""


def note_to_bytes(note: Note) -> bytes:
    """A note as it stands in the log."""
    unsaid = [[entry.topic, entry.key, len(entry.value or b"")] for entry in note.unsaid]
    head = {
        "era": note.era,
        "turn": note.turn,
        "positions": dict(note.positions),
        "marks": {edge: str(number) for edge, number in note.marks.items()},
        "number": str(note.number),
        "parked": note.parked,
        "parts": note.parts,
        "unsaid": unsaid,
    }
    return b"".join([orjson.dumps(head), b"\n", *(entry.value or b"" for entry in note.unsaid)])


def note_from_bytes(data: bytes) -> Note:
    """The note that stands in the log."""
    head, _, rest = data.partition(b"\n")
    members = Members(orjson.loads(head), "note", _NOTE)
    unsaid, at = [], 0
    for row in members.need("unsaid", reading.array):
        topic, key, size = reading.array(row, "note.unsaid")
        end = at + reading.integer(size, "note.unsaid")
        unsaid.append(Entry(reading.text(topic, "note.unsaid"), reading.text(key, "note.unsaid"), rest[at:end]))
        at = end
    return Note(
        era=members.need("era", reading.integer),
        turn=members.need("turn", reading.integer),
        positions={topic: reading.integer(at, "note.positions") for topic, at in members.need("positions", _object).items()},
        marks={edge: reading.digits(number, "note.marks") for edge, number in members.need("marks", _object).items()},
        number=members.need("number", reading.digits),
        parked=members.need("parked", reading.integer),
        parts=members.need("parts", reading.integer),
        unsaid=tuple(unsaid),
    )


def kept_to_bytes(kept: Kept) -> bytes:
    """A value of the store as it stands in the log."""
    return b"%d\n%s" % (kept.turn, kept.value or b"")


def kept_from_bytes(data: bytes) -> Kept:
    """The value of the store that stands in the log."""
    head, _, value = data.partition(b"\n")
    return Kept(int(head), value or None)


def request_from(data: bytes) -> Request:
    """What stands in the publish topic."""
    if not data.startswith(_AGAIN):
        return Request(_said(data))
    members = Members(orjson.loads(data), "again", ("type", "times", "said"))
    return Request(_said(orjson.dumps(members.need("said", _as_it_is))), members.need("times", reading.integer))


def request_again(parked: Parked) -> bytes:
    """A parked request as it goes into the publish topic once more."""
    return orjson.dumps({"type": "again", "times": parked.times + 1, "said": orjson.Fragment(parked.said)})


def parked_to_bytes(parked: Parked) -> bytes:
    """What was set aside, as it stands in the log."""
    return orjson.dumps(
        {
            "reason": parked.reason,
            "tries": parked.tries,
            "times": parked.times,
            "at": str(parked.at),
            "said": orjson.Fragment(parked.said),
        }
    )


def parked_from_bytes(data: bytes) -> Parked:
    """What was set aside."""
    members = Members(orjson.loads(data), "parked", _PARKED)
    return Parked(
        members.need("reason", reading.text),
        members.need("tries", reading.integer),
        members.need("times", reading.integer),
        Instant(members.need("at", reading.digits)),
        orjson.dumps(members.need("said", _as_it_is)),
    )


def _said(data: bytes) -> Said:
    found = from_record(data)
    if not isinstance(found, Said):
        raise ValueError(f"a {type(found).__name__}, not a message")
    return found


def _object(value: object, where: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise reading.wrong_type(value, where, "an object")
    return value


def _as_it_is(value: object, where: str) -> object:
    del where
    return value
