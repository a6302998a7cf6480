"""Handing over: a session taken out of one edge as a value, and made again at another.

What must hold:
- what was sent and not acknowledged keeps its number and is marked as a repetition; what waits keeps its order [MQTT-4.4.0-1];
- what the endpoint itself has under a name or a number stays; what comes to a session that was opened meanwhile keeps its numbers
  where they are free: its client may never have heard that this is another session, and else has forgotten what they stood for.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from milepost.edge.corridor import Corridor
from milepost.edge.journal import asked_to_bytes, parcel_from_bytes, parcel_to_bytes, session_to_bytes
from milepost.edge.parcels import Delivery, Parcel
from milepost.edge.sessions import Asked, Session
from milepost.model.endpoints import EndpointId
from milepost.model.instants import FOREVER, Instant
from milepost.model.reasons import Malformed
from milepost.model.sites import Held, Waiting
from milepost.wire.json_form import to_json

HANDOVER_BYTES: Final = 500_000
"""So many bytes of what waits go into one record; in base64 that stays below what a log takes."""

HELD_BYTES: Final = 700_000
"""So many bytes of what it asks for."""

_ROW_BYTES: Final = 150
"""What a row takes beside its message."""

_UNKNOWN: Final = EndpointId("unknown")


def held_of(session: Session) -> tuple[Held, ...]:
    """What a session asks for."""
    return tuple(
        Held(name, asked.subscription, asked.is_not_own, asked.is_retain_shown) for name, asked in session.subscriptions.items()
    )


def on_its_way(session: Session) -> set[tuple[str, int]]:
    """The messages that are on their way to a session, by the edge that said them and their numbers there."""
    waiting = session.waiting.all() if session.waiting is not None else []
    deliveries = (*session.in_flight.values(), *session.released.values(), *(delivery for _, delivery in waiting))
    return {(one.parcel.said_by, one.parcel.said_number) for one in deliveries}


def waiting_of(session: Session) -> list[Waiting]:
    """What is on its way to a session and would be sent again, in order: released, in flight, not sent yet."""
    found = [_waiting(number, delivery, is_sent=True, is_released=True) for number, delivery in session.released.items()]
    found += [_waiting(number, delivery, is_sent=True) for number, delivery in session.in_flight.items()]
    queue = session.waiting.all() if session.waiting is not None else []
    return found + [_waiting(number, delivery, is_sent=delivery.is_again) for number, delivery in queue if number]


def _waiting(number: int, delivery: Delivery, *, is_sent: bool, is_released: bool = False) -> Waiting:
    parcel = delivery.parcel
    data = b"" if is_released else parcel_to_bytes(parcel)
    return Waiting(
        number,
        delivery.qos,
        is_sent,
        is_released,
        delivery.labels,
        delivery.is_from_store,
        parcel.said_by,
        parcel.said_number,
        data,
    )


class Portion(NamedTuple):
    """So much of a session as one record holds."""

    held: list[Held]
    waiting: list[Waiting]


def in_portions(held: Iterable[Held], waiting: Iterable[Waiting]) -> list[Portion]:
    """A session in as many portions as are needed; at least one. What it asks for stands in the first, if it can at all."""
    portions, size = [Portion([], [])], 0
    for asked in held:
        more = len(asked.name.encode()) + len(to_json(asked.subscription)) + _ROW_BYTES * (1 + len(asked.since))
        if size + more > HELD_BYTES:
            portions.append(Portion([], []))
            size = 0
        portions[-1].held.append(asked)
        size += more
    for one in waiting:
        for at in range(0, max(1, len(one.parcel)), HANDOVER_BYTES):
            piece = one._replace(parcel=one.parcel[at : at + HANDOVER_BYTES])
            more = len(piece.parcel) + _ROW_BYTES
            if size + more > HANDOVER_BYTES and (portions[-1].held or portions[-1].waiting):
                portions.append(Portion([], []))
                size = 0
            portions[-1].waiting.append(piece)
            size += more
    return portions


def joined(waiting: Iterable[Waiting]) -> list[Waiting]:
    """What waits, each in one row again."""
    found: list[Waiting] = []
    for one in waiting:
        if found and found[-1].number == one.number:
            found[-1] = one._replace(parcel=found[-1].parcel + one.parcel)
        else:
            found.append(one)
    return found


def install(corridor: Corridor, session: Session, waiting: list[Waiting], received: tuple[int, ...]) -> None:
    """Give a new session what waited for it, under its numbers."""
    for one in waiting:
        corridor.deliveries.adopt(session, one.number, _delivery(one), is_released=one.is_released)
    if received:
        session.received = (session.received or set()) | set(received)
        if session.is_kept:
            corridor.changes.received |= {(session.number, number): True for number in received}


def add_to(corridor: Corridor, session: Session, waiting: list[Waiting]) -> None:
    """Give a session that exists what waited for its endpoint elsewhere."""
    for one in waiting:
        corridor.deliveries.add(session, one.number, _delivery(one), is_released=one.is_released)


def take_up(corridor: Corridor, session: Session, held: Held) -> bool:
    """Give a session a subscription that is set aside; tells whether it has one under the name already."""
    if held.name in session.subscriptions:
        return False
    asked = Asked(held.subscription, -1, is_not_own=held.is_not_own, is_retain_shown=held.is_retain_shown)
    session.subscriptions[held.name] = asked
    if session.is_kept:
        corridor.changes.subscriptions[session.number, held.name] = asked_to_bytes(asked)
    return True


def open_away(corridor: Corridor, name: EndpointId, expiry_ns: int, now: Instant) -> Session | Malformed:
    """A session whose endpoint is not connected here, or not yet."""
    try:
        session = corridor.sessions.add(name)
    except Malformed as fault:
        return fault
    session.is_kept, session.expiry_ns, session.expires_at = expiry_ns > 0, expiry_ns, FOREVER
    if session.is_kept:
        corridor.take_leave(session, now)
        corridor.changes.sessions[session.number] = session_to_bytes(session, None)
    return session


def _delivery(one: Waiting) -> Delivery:
    parcel = parcel_from_bytes(one.parcel) if one.parcel else Parcel("released", b"", Instant(0), source=_UNKNOWN)
    parcel.said_by, parcel.said_number = one.said_by, one.said_number
    return Delivery(parcel, one.qos, one.labels, is_from_store=one.is_from_store, is_again=one.is_sent)
