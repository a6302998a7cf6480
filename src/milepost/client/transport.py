"""The interface between `Client`, which applications use, and a transport: one protocol with one edge.

A transport reconnects on its own, reports its connection state, and passes each message on with a receipt. `Client` returns the
receipt (`acknowledge`) once the application has the message; only then does the transport acknowledge it to the edge.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from milepost.client.errors import ClientFault
from milepost.client.events import Arrival, ClientStateChange, Suppressed
from milepost.client.messages import OutgoingMessage, SubscriptionRequest
from milepost.model.instants import Instant
from milepost.model.places import Place

Draw = Callable[[int], bytes]
"""Function that returns the given number of random bytes."""


def jitter(draw: Draw) -> float:
    """Return a random number in 0..1, for `RetryPolicy`."""
    return int.from_bytes(draw(2), "big") / 0xFFFF


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """Time limits for connecting, and the limit of unanswered publications."""

    connect_within_s: float = 10.0
    """Time limit for the first connection; 0: one attempt."""
    reconnect_within_s: float = 300.0
    pending_max: int = 1_000
    """Maximum unanswered publications; further calls block."""


@dataclass(frozen=True, slots=True)
class PositionFix:
    """The endpoint's position, heading and speed, as a receiver of satellite navigation determines them."""

    place: Place
    heading_deg: float | None = None
    speed_mps: float | None = None
    seen_at: Instant | None = None


class TransportObserver(Protocol):
    """Receiver of a transport's messages and state changes."""

    def on_arrival(self, arrival: Arrival) -> None:
        """Accept a message."""

    def on_change(self, change: ClientStateChange) -> None:
        """Accept a change of the connection state."""

    def on_suppressed(self, suppressed: Suppressed) -> None:
        """Count a message that is not delivered."""

    def on_refused(self, subscription_id: int, fault: ClientFault) -> None:
        """End a subscription that was granted before and refused after a reconnection."""

    def on_end(self, fault: ClientFault | None) -> None:
        """End all subscriptions; without a fault, the application closed the connection."""


class ClientTransport(Protocol):
    """One protocol with one edge."""

    @property
    def name(self) -> str:
        """The endpoint's name at the edge."""

    @property
    def url(self) -> str:
        """The URL of the edge in use or being tried; empty during discovery."""

    async def open(self, observer: TransportObserver) -> None:
        """Connect; raise a `ClientFault` if that fails within the time limit."""

    async def publish(self, publication: OutgoingMessage) -> None:
        """Send a publication; return once it is acknowledged as its QoS requires; raise `RefusedByEdge` if it is refused."""

    async def report(self, fix: PositionFix) -> None:
        """Report the endpoint's position."""

    def subscription_id_for(self, request: SubscriptionRequest) -> int:
        """Return the id for a new subscription; it is the same after a restart of the client."""

    async def subscribe(self, subscription_id: int, request: SubscriptionRequest) -> None:
        """Subscribe; return once it is granted; raise `RefusedByEdge` if it is refused."""

    async def unsubscribe(self, subscription_id: int) -> None:
        """Unsubscribe; do not wait for the answer while the edge is unreachable."""

    def acknowledge(self, receipt: object) -> None:
        """Acknowledge a message that the application has taken."""

    async def close(self) -> None:
        """Disconnect and stop; idempotent."""
