"""Elsewhere: who, beyond this edge, wants to hear what is said here and who is here; whoever carries it there is one of these."""

from milepost.edge.parcels import Parcel
from milepost.edge.sessions import Session
from milepost.model.endpoints import EndpointId
from milepost.model.instants import Instant
from milepost.model.reasons import Refused
from milepost.model.reports import Report


class Elsewhere:
    """Takes what endpoints of this edge say; what it does not care about is let pass."""

    def is_wanted(self, topic: str) -> bool:
        """Whether anybody there may want messages on a topic; asked when plans are made."""
        raise NotImplementedError

    def take(self, parcel: Parcel, now: Instant) -> Refused | None:
        """Take a message that was let in, before anybody here has it; if there is no room for it, nobody gets it."""
        raise NotImplementedError

    def take_report(self, report: Report) -> None:
        """Take a report that was let in."""

    def arrive(self, name: EndpointId, now: Instant, *, is_fresh: bool) -> bool:
        """An endpoint wants to open a session; tells whether it can at once, or has to wait for `Welcome`."""
        del name, now, is_fresh
        return True

    def is_settled(self, session: Session, now: Instant) -> bool:
        """Whether it is known what an endpoint was told before it came here, or will not be."""
        del session, now
        return True

    def opened(self, session: Session, now: Instant, *, is_fresh: bool) -> None:
        """A session was opened, or goes on."""

    def ended(self, session: Session) -> None:
        """A session is over; its subscriptions were ended before."""

    def subscribed(self, session: Session, name: str) -> None:
        """A session has a subscription, or has another one under that name."""

    def unsubscribed(self, session: Session, name: str) -> None:
        """A session has a subscription no longer."""
