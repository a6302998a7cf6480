"""Handing over: a session on its way from one edge to another."""

from typing import Final, NamedTuple

from milepost.model.endpoints import EndpointId, endpoint_id
from milepost.model.instants import Instant
from milepost.model.reasons import Malformed, Reason
from milepost.model.sites import EdgeRef, Epoch, Extra, Handover, Held, Prepare, Rest, Taken, ToldOf, Waiting
from milepost.wire.json_form import reading
from milepost.wire.json_form.messages import read_place, write_place
from milepost.wire.json_form.reading import JsonObject, Members
from milepost.wire.json_form.subscriptions import read_subscription, write_subscription
from milepost.wire.records.saying import read_ref, read_said, write_said

_LETTER: Final = ("type", "endpoint", "epoch", "from", "to", "number")
HANDOVER: Final = (
    *_LETTER,
    "partial",
    "nothing",
    "expiry_ns",
    "place",
    "subscriptions",
    "waiting",
    "received",
    "marks",
    "offset",
    "as_of",
    "rests",
    "began",
    "anew",
    "awaits",
    "offsets",
    "told",
)
REST: Final = (*_LETTER, "waiting", "subscriptions")
EXTRA: Final = (*_LETTER, "said", "more")
TAKEN: Final = (*_LETTER, "subscriptions")
PREPARE: Final = ("type", "endpoint", "edge", "epoch", "subscriptions")
HELD: Final = ("name", "subscription", "not_own", "retain_shown", "since")
_WAITING_COLUMNS: Final = 9


class _Letter(NamedTuple):
    endpoint: EndpointId
    epoch: Epoch
    sender: EdgeRef
    receiver: EdgeRef
    number: int


def write_handover(handover: Handover) -> JsonObject:
    """The members of a handover."""
    found = _write_letter("handover", handover)
    if not handover.is_whole:
        found["partial"] = True
    if not handover.is_held:
        found["nothing"] = True
    if handover.place is not None:
        found["place"] = write_place(handover.place)
    return found | {
        "expiry_ns": str(handover.expiry_ns),
        "subscriptions": [write_held(one) for one in handover.subscriptions],
        "waiting": [_write_waiting(one) for one in handover.waiting],
        "received": list(handover.received),
        "marks": {edge: str(number) for edge, number in handover.marks.items()},
        "offset": str(handover.offset),
        "as_of": str(handover.as_of),
        "rests": handover.rests,
        "began": str(handover.began),
        "anew": str(handover.anew),
        "awaits": {site: str(epoch) for site, epoch in handover.awaits.items()},
        "offsets": {site: str(offset) for site, offset in handover.offsets.items()},
        "told": [[one.source, one.incident, str(one.id), one.is_again, str(one.until)] for one in handover.told],
    }


def read_handover(value: object) -> Handover:
    """A handover."""
    members = Members(value, "handover", HANDOVER)
    marks, offsets = members.need("marks", _object), members.need("offsets", _object)
    return Handover(
        *_read_letter(members),
        is_whole=not members.maybe("partial", reading.truth, False),
        is_held=not members.maybe("nothing", reading.truth, False),
        expiry_ns=members.need("expiry_ns", reading.digits),
        place=members.maybe("place", read_place, None),
        subscriptions=tuple(read_held(one) for one in members.need("subscriptions", reading.array)),
        waiting=tuple(_read_waiting(one) for one in members.need("waiting", reading.array)),
        received=tuple(members.need("received", reading.integers)),
        marks=_numbers(marks, "handover.marks"),
        offset=members.need("offset", reading.digits),
        as_of=Instant(members.need("as_of", reading.digits)),
        rests=members.need("rests", reading.integer),
        began=Epoch(members.need("began", reading.digits)),
        anew=Epoch(members.need("anew", reading.digits)),
        awaits=_numbers(members.need("awaits", _object), "handover.awaits"),
        offsets=_numbers(offsets, "handover.offsets"),
        told=tuple(_read_told(one) for one in members.need("told", reading.array)),
    )


def _read_told(value: object) -> ToldOf:
    where = "handover.told"
    row = reading.array(value, where)
    if len(row) != len(ToldOf._fields):
        raise Malformed(Reason.FIELD_RANGE, f"{where} has a row of {len(row)}, not {len(ToldOf._fields)}")
    source, incident, message, is_again, until = row
    return ToldOf(
        endpoint_id(reading.text(source, where)),
        reading.text(incident, where),
        reading.digits(message, where),
        reading.truth(is_again, where),
        Instant(reading.digits(until, where)),
    )


def write_rest(rest: Rest) -> JsonObject:
    """The members of more that waits."""
    held = [write_held(one) for one in rest.subscriptions]
    return _write_letter("rest", rest) | {"waiting": [_write_waiting(one) for one in rest.waiting], "subscriptions": held}


def read_rest(value: object) -> Rest:
    """More that waits."""
    members = Members(value, "rest", REST)
    waiting = tuple(_read_waiting(one) for one in members.need("waiting", reading.array))
    return Rest(*_read_letter(members), waiting, tuple(read_held(one) for one in members.need("subscriptions", reading.array)))


def write_extra(extra: Extra) -> JsonObject:
    """The members of what the centre found for an endpoint."""
    found = _write_letter("extra", extra) | {"said": [write_said(one) for one in extra.said]}
    return found if extra.is_last else found | {"more": True}


def read_extra(value: object) -> Extra:
    """What the centre found for an endpoint."""
    members = Members(value, "extra", EXTRA)
    said = tuple(read_said(one) for one in members.need("said", reading.array))
    return Extra(*_read_letter(members), said, not members.maybe("more", reading.truth, False))


def write_taken(taken: Taken) -> JsonObject:
    """The members of the word that a handover has arrived."""
    return _write_letter("taken", taken) | {"subscriptions": [write_held(one) for one in taken.subscriptions]}


def read_taken(value: object) -> Taken:
    """The word that a handover has arrived."""
    members = Members(value, "taken", TAKEN)
    return Taken(*_read_letter(members), tuple(read_held(one) for one in members.need("subscriptions", reading.array)))


def write_prepare(prepare: Prepare) -> JsonObject:
    """The members of the word that an endpoint is on its way."""
    return {
        "type": "prepare",
        "endpoint": prepare.endpoint,
        "edge": str(prepare.edge),
        "epoch": str(prepare.epoch),
        "subscriptions": [write_held(one) for one in prepare.subscriptions],
    }


def read_prepare(value: object) -> Prepare:
    """The word that an endpoint is on its way."""
    members = Members(value, "prepare", PREPARE)
    return Prepare(
        endpoint_id(members.need("endpoint", reading.text)),
        members.need("edge", read_ref),
        Epoch(members.need("epoch", reading.digits)),
        tuple(read_held(one) for one in members.need("subscriptions", reading.array)),
    )


def write_held(held: Held) -> JsonObject:
    """The members of a subscription as a session has it."""
    found: JsonObject = {"name": held.name, "subscription": write_subscription(held.subscription)}
    if held.is_not_own:
        found["not_own"] = True
    if held.is_retain_shown:
        found["retain_shown"] = True
    if held.since:
        found["since"] = {edge: str(number) for edge, number in held.since.items()}
    return found


def read_held(value: object) -> Held:
    """A subscription as a session has it."""
    members = Members(value, "held", HELD)
    return Held(
        members.need("name", reading.text),
        members.need("subscription", read_subscription),
        members.maybe("not_own", reading.truth, False),
        members.maybe("retain_shown", reading.truth, False),
        _numbers(members.maybe("since", _object, {}), "held.since"),
    )


def _write_letter(kind: str, letter: Handover | Rest | Extra | Taken) -> JsonObject:
    return {
        "type": kind,
        "endpoint": letter.endpoint,
        "epoch": str(letter.epoch),
        "from": str(letter.sender),
        "to": str(letter.receiver),
        "number": str(letter.number),
    }


def _read_letter(members: Members) -> _Letter:
    return _Letter(
        endpoint_id(members.need("endpoint", reading.text)),
        Epoch(members.need("epoch", reading.digits)),
        members.need("from", read_ref),
        members.need("to", read_ref),
        members.need("number", reading.digits),
    )


def _write_waiting(one: Waiting) -> list[object]:
    return [
        one.number,
        one.qos,
        one.is_sent,
        one.is_released,
        list(one.labels),
        one.is_from_store,
        one.said_by,
        str(one.said_number),
        reading.spell_octets(one.parcel),
    ]


def _read_waiting(value: object) -> Waiting:
    row = reading.array(value, "waiting")
    if len(row) != _WAITING_COLUMNS:
        raise ValueError(f"a row of waiting has {len(row)} columns, not {_WAITING_COLUMNS}")
    number, qos, is_sent, is_released, labels, is_from_store, said_by, said_number, parcel = row
    return Waiting(
        reading.integer(number, "waiting"),
        reading.integer(qos, "waiting"),
        reading.truth(is_sent, "waiting"),
        reading.truth(is_released, "waiting"),
        tuple(reading.integers(labels, "waiting")),
        reading.truth(is_from_store, "waiting"),
        reading.text(said_by, "waiting"),
        reading.digits(said_number, "waiting"),
        reading.octets(parcel, "waiting"),
    )


def _numbers(values: dict[str, object], where: str) -> dict[str, int]:
    return {name: reading.digits(number, where) for name, number in values.items()}


def _object(value: object, where: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise reading.wrong_type(value, where, "an object")
    return value
