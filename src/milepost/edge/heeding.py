"""Heeding: whoever wants to know what becomes of messages to areas, and of the last word on them, is told by endpoint (M24).

What must hold: a message that is not to an area costs a look at `parcel.heed`, and nothing else.
"""

from milepost.edge.parcels import Delivery, Heed, Parcel
from milepost.edge.sessions import Session
from milepost.model.addresses import ToArea, ToTold
from milepost.model.reasons import Reason
from milepost.model.telling import Fate


def take_heed(heed: Heed | None, parcel: Parcel) -> None:
    """From now on it is told what becomes of a message, if it is to an area."""
    if heed is not None and isinstance(parcel.address, ToArea | ToTold):
        parcel.heed = heed


def note_matched(parcel: Parcel, sessions: list[Session]) -> None:
    """These are in the area."""
    if parcel.heed is not None:
        parcel.heed(parcel, [session.name for session in sessions], Fate.MATCHED, None)


def note_sent(delivery: Delivery, sessions: list[Session]) -> None:
    """These are sent it."""
    parcel = delivery.parcel
    if parcel.heed is not None:
        parcel.heed(parcel, [session.name for session in sessions], Fate.SENT, None)
        for session in sessions if delivery.qos else ():
            session.is_heeded = True


def note_acknowledged(session: Session, delivery: Delivery) -> None:
    """A session with something in flight that is heeded has got this."""
    session.is_heeded = bool(session.in_flight)
    if delivery.parcel.heed is not None:
        delivery.parcel.heed(delivery.parcel, [session.name], Fate.ACKNOWLEDGED, None)


def note_dropped(session: Session, delivery: Delivery, reason: Reason) -> None:
    """A session does not get it."""
    if delivery.parcel.heed is not None:
        delivery.parcel.heed(delivery.parcel, [session.name], Fate.DROPPED, reason)
