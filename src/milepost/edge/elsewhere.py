"""Elsewhere: who, beyond this edge, wants to hear what is said here; whoever carries it there implements this."""

from typing import Protocol

from milepost.edge.parcels import Parcel
from milepost.model.instants import Instant
from milepost.model.reasons import Refused
from milepost.model.reports import Report


class Elsewhere(Protocol):
    """Takes what endpoints of this edge say."""

    def is_wanted(self, topic: str) -> bool:
        """Whether anybody there may want messages on a topic; asked when plans are made."""

    def take(self, parcel: Parcel, now: Instant) -> Refused | None:
        """Take a message that was let in, before anybody here has it; if there is no room for it, nobody gets it."""

    def take_report(self, report: Report) -> None:
        """Take a report that was let in."""
