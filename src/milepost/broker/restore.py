"""Restores the broker of an edge from storage after a restart."""

from milepost.broker.active_alerts import notification_from_row
from milepost.broker.broker import Broker
from milepost.broker.effects import StoredState
from milepost.broker.publication import Delivery
from milepost.broker.session import Session
from milepost.broker.state_codec import details_from_bytes, publication_from_bytes, session_from_bytes, subscription_from_bytes
from milepost.model.instants import FOREVER, Instant


def restore(broker: Broker, stored: StoredState, now: Instant) -> None:
    """Fill a new broker with the stored state; no session is connected. Queued messages may have been sent before.

    The rules must be in force already: wills may be due. Afterwards `Broker.enforce_rights` applies them to the sessions.
    """
    for topic in stored.retained:
        broker.retained.put(publication_from_bytes(stored.retained[topic]))
    sessions = {number: _session(broker, number, stored.sessions[number]) for number in sorted(stored.sessions)}
    for (number, name), data in stored.subscriptions.items():
        broker.subscription_table.insert(sessions[number], name, subscription_from_bytes(data))
    publications = {number: publication_from_bytes(data) for number, data in stored.messages.items()}
    for number, publication in publications.items():
        publication.number = number
        broker.deliveries.store.continue_from(number)
    for queued in stored.queued.values():  # before any delivery is dropped because limits are lower now
        publications[queued.message].stored_references += 1
    for (number, delivery_number), queued in stored.queued.items():
        subscription_ids, has_retain_flag = details_from_bytes(queued.details)
        delivery = Delivery(
            publications[queued.message], queued.qos, subscription_ids, has_retain_flag=has_retain_flag, is_duplicate=True
        )
        broker.deliveries.restore(sessions[number], delivery_number, delivery, is_released=queued.is_released)
    for number, received in stored.received:
        session = sessions[number]
        session.received = (session.received or set()) | {received}
    active_alerts = broker.deliveries.active_alerts
    active_alerts.restore(stored.active_alerts.values())
    for (number, incident), row in stored.notified.items():
        active_alerts.adopt(sessions[number], [notification_from_row(incident, row)], broker.changes)
    for session in sessions.values():
        broker.start_timers(session, now)


def _session(broker: Broker, number: int, data: bytes) -> Session:
    name, expiry_ns, expires_at, will, will_at, place, identity = session_from_bytes(data)
    session = broker.sessions.restore(name, number)
    session.is_durable, session.expiry_ns, session.will, session.will_at = True, expiry_ns, will, will_at
    session.identity = identity
    session.expires_at = expires_at if expires_at is not None else FOREVER
    if place is not None:
        broker.presence.restore_position(session, place)
    return session
