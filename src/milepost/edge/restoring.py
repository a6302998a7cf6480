"""Restoring: an edge as it was before its process ended, from what was kept."""

from milepost.edge.corridor import Corridor
from milepost.edge.journal import asked_from_bytes, details_from_bytes, parcel_from_bytes, session_from_bytes
from milepost.edge.keeping import Kept
from milepost.edge.parcels import Delivery
from milepost.edge.sessions import Session
from milepost.edge.standing import told_of_row
from milepost.model.instants import FOREVER, Instant


def restore(corridor: Corridor, kept: Kept, now: Instant) -> None:
    """Fill a new edge with what was kept; nobody is connected. What waits may have been sent before."""
    for topic in kept.retained:
        corridor.retained.put(parcel_from_bytes(kept.retained[topic]))
    sessions = {number: _session(corridor, number, kept.sessions[number]) for number in sorted(kept.sessions)}
    for (number, name), data in kept.subscriptions.items():
        corridor.asking.take_up(sessions[number], name, asked_from_bytes(data))
    parcels = {number: parcel_from_bytes(data) for number, data in kept.messages.items()}
    for number, parcel in parcels.items():
        parcel.number = number
        corridor.deliveries.shelf.continue_from(number)
    for queued in kept.queued.values():  # before any of it is given up because limits are lower now
        parcels[queued.message].holders += 1
    for (number, delivery_number), queued in kept.queued.items():
        labels, is_from_store = details_from_bytes(queued.details)
        delivery = Delivery(parcels[queued.message], queued.qos, labels, is_from_store=is_from_store, is_again=True)
        corridor.deliveries.restore(sessions[number], delivery_number, delivery, is_released=queued.is_released)
    for number, received in kept.received:
        session = sessions[number]
        session.received = (session.received or set()) | {received}
    standing = corridor.deliveries.standing
    standing.restore(kept.standing.values())
    for (number, incident), row in kept.told.items():
        standing.bring(sessions[number], [told_of_row(incident, row)], corridor.changes)
    for session in sessions.values():
        corridor.take_leave(session, now)


def _session(corridor: Corridor, number: int, data: bytes) -> Session:
    name, expiry_ns, expires_at, will, will_at, place = session_from_bytes(data)
    session = corridor.sessions.restore(name, number)
    session.is_kept, session.expiry_ns, session.will, session.will_at = True, expiry_ns, will, will_at
    session.expires_at = expires_at if expires_at is not None else FOREVER
    if place is not None:
        corridor.watch.put_place(session, place)
    return session
