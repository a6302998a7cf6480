"""Restores the broker of an edge from storage after a restart."""

from milepost.broker.active_alerts import told_of_row
from milepost.broker.broker import Broker
from milepost.broker.effects import Kept
from milepost.broker.persistence import asked_from_bytes, details_from_bytes, publication_from_bytes, session_from_bytes
from milepost.broker.publication import Delivery
from milepost.broker.session import Session
from milepost.model.instants import FOREVER, Instant


def restore(broker: Broker, kept: Kept, now: Instant) -> None:
    """Fill a new broker with the stored state; no session is connected. Queued messages may have been sent before."""
    for topic in kept.retained:
        broker.retained.put(publication_from_bytes(kept.retained[topic]))
    sessions = {number: _session(broker, number, kept.sessions[number]) for number in sorted(kept.sessions)}
    for (number, name), data in kept.subscriptions.items():
        broker.asking.take_up(sessions[number], name, asked_from_bytes(data))
    publications = {number: publication_from_bytes(data) for number, data in kept.messages.items()}
    for number, publication in publications.items():
        publication.number = number
        broker.deliveries.shelf.continue_from(number)
    for queued in kept.queued.values():  # before any delivery is dropped because limits are lower now
        publications[queued.message].holders += 1
    for (number, delivery_number), queued in kept.queued.items():
        labels, is_from_store = details_from_bytes(queued.details)
        delivery = Delivery(publications[queued.message], queued.qos, labels, is_from_store=is_from_store, is_again=True)
        broker.deliveries.restore(sessions[number], delivery_number, delivery, is_released=queued.is_released)
    for number, received in kept.received:
        session = sessions[number]
        session.received = (session.received or set()) | {received}
    standing = broker.deliveries.standing
    standing.restore(kept.standing.values())
    for (number, incident), row in kept.told.items():
        standing.bring(sessions[number], [told_of_row(incident, row)], broker.changes)
    for session in sessions.values():
        broker.take_leave(session, now)


def _session(broker: Broker, number: int, data: bytes) -> Session:
    name, expiry_ns, expires_at, will, will_at, place, who = session_from_bytes(data)
    session = broker.sessions.restore(name, number)
    session.is_kept, session.expiry_ns, session.will, session.will_at = True, expiry_ns, will, will_at
    session.who = who
    session.expires_at = expires_at if expires_at is not None else FOREVER
    if place is not None:
        broker.watch.put_place(session, place)
    return session
