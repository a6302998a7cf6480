"""Receiving: the numbers under which senders offer messages at quality 2, from the offer to its end."""

from milepost.edge.keeping import Changes
from milepost.edge.sessions import Session


def receive(session: Session, number: int, changes: Changes) -> bool:
    """A sender offers a message under a number; tells whether it is new, or one that is here already."""
    if session.received is None:
        session.received = set()
    if number in session.received:
        return False
    session.received.add(number)
    if session.is_kept:
        changes.received[session.number, number] = True
    return True


def end_receiving(session: Session, number: int, changes: Changes) -> bool:
    """A sender will not offer that message again; tells whether the number meant anything."""
    if session.received is None or number not in session.received:
        return False
    session.received.discard(number)
    if session.is_kept:
        changes.received[session.number, number] = None
    return True
