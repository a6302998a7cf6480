"""The shelf: what is on its way to sessions that are kept, written down message by message and delivery by delivery.

What must hold: a message is written once, when the first delivery of it is, and goes with the last.
"""

from milepost.edge.journal import details_to_bytes, parcel_to_bytes
from milepost.edge.keeping import Changes, Queued
from milepost.edge.parcels import Delivery
from milepost.edge.sessions import Session


class Shelf:
    """Gives messages their numbers in storage, and says what is to be written."""

    def __init__(self) -> None:
        self._last = 0

    def continue_from(self, message: int) -> None:
        """Numbers of messages up to this one are in use."""
        self._last = max(self._last, message)

    def keep(self, session: Session, number: int, delivery: Delivery, changes: Changes) -> None:
        """A delivery to a kept session is to be remembered."""
        parcel = delivery.parcel
        if not parcel.number:
            self._last += 1
            parcel.number = self._last
        if not parcel.holders:
            changes.messages[parcel.number] = parcel_to_bytes(parcel)
        parcel.holders += 1
        is_bare = not delivery.labels and not delivery.is_from_store
        details = b"" if is_bare else details_to_bytes(delivery.labels, is_from_store=delivery.is_from_store)
        changes.queued[session.number, number] = Queued(parcel.number, delivery.qos, False, details)

    def forget(self, session: Session, number: int, delivery: Delivery, changes: Changes) -> None:
        """A delivery to a kept session is over."""
        parcel = delivery.parcel
        changes.queued[session.number, number] = None
        parcel.holders -= 1
        if not parcel.holders:
            changes.messages[parcel.number] = None


def release(session: Session, number: int, delivery: Delivery, changes: Changes) -> None:
    """The receiver of a kept session has it (quality 2); only the end of the exchange is still open."""
    changes.queued[session.number, number] = Queued(delivery.parcel.number, delivery.qos, True, b"")
