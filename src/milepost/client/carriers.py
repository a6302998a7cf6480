"""Between what applications see and the protocol underneath: a carrier is one protocol, `Edge` knows nothing else of it.

A carrier keeps the connection up by itself, says what becomes of it, and hands each message over with a receipt. The edge's side
gives the receipt back (`took`) once the application has the message; only then may the carrier tell the edge that it arrived.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from milepost.client.faults import ClientFault
from milepost.client.states import Change
from milepost.client.values import Publication, Received, Wish
from milepost.model.instants import Instant
from milepost.model.places import Place


@dataclass(frozen=True, slots=True)
class Motion:
    """Where the endpoint is, and how it moves."""

    place: Place
    heading_deg: float | None = None
    speed_mps: float | None = None
    seen_at: Instant | None = None


@dataclass(slots=True, eq=False)
class Arrival:
    """A message on its way to the application: for which wishes it came, and what the carrier wants back."""

    received: Received
    labels: tuple[int, ...]
    receipt: object = None
    """Nothing if nobody waits to hear that it arrived."""
    holders: int = 0
    """How many inboxes have it and have not handed it out."""


class Unshown(Enum):
    """Why a message that came is not for the application."""

    OUTSIDE = "outside"
    """It is addressed to an area in which the endpoint is not (M16)."""
    FORGED = "forged"
    """It is signed, and not by who says so (M28)."""


class Listener(Protocol):
    """Who a carrier talks to."""

    def on_arrival(self, arrival: Arrival) -> None:
        """A message came."""

    def on_change(self, change: Change) -> None:
        """The connection came or went."""

    def on_unshown(self, why: Unshown) -> None:
        """A message came that is not for the application."""

    def on_refused(self, label: int, fault: ClientFault) -> None:
        """A wish that was granted before is not granted again."""

    def on_end(self, fault: ClientFault | None) -> None:
        """It is over; without a fault: because it was closed."""


class Carrier(Protocol):
    """One protocol, spoken to one edge."""

    @property
    def name(self) -> str:
        """What the edge calls this endpoint."""

    @property
    def url(self) -> str:
        """Where it is connected, or tries to be; empty while it looks for an edge."""

    async def open(self, listener: Listener) -> None:
        """Connect; comes back when it is connected, or raises a `ClientFault`."""

    async def publish(self, publication: Publication) -> None:
        """Send; comes back when the edge answered as the quality asks for, raises `RefusedByEdge` if that was a no."""

    async def report(self, motion: Motion) -> None:
        """Say where the endpoint is."""

    def label_for(self, wish: Wish) -> int:
        """The label under which messages will arrive, if this is asked for next; the same in another life of the client."""

    async def subscribe(self, label: int, wish: Wish) -> None:
        """Ask; comes back when it was granted, raises `RefusedByEdge` if not."""

    async def unsubscribe(self, label: int) -> None:
        """Ask no longer."""

    def took(self, receipt: object) -> None:
        """The application has the message."""

    async def close(self) -> None:
        """Say goodbye and stop; may be called twice."""
