"""Connection states, and the events by which a protocol session reports to `BaseTransport`.

CONNECTING ─▶ CONNECTED ◀─▶ RECONNECTING          from each of them ─▶ CLOSED, the end
"""

import asyncio
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from milepost.client.errors import ClientFault, RefusedByEdge
from milepost.client.messages import ReceivedMessage

CHANGES_MAX: Final = 100
"""Maximum state changes queued per iterator; then the oldest are dropped."""


class ClientState(Enum):
    """The state of a client's connection."""

    CONNECTING = "connecting"
    CONNECTED = "connected"
    RECONNECTING = "reconnecting"
    """The connection was lost, and the client is reconnecting."""
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class ClientStateChange:
    """A new state, and the reason."""

    state: ClientState
    reason: str = ""


class ClientStateChanges:
    """An async iterator of state changes, from its creation until the client is closed."""

    def __init__(self) -> None:
        self._queue: deque[ClientStateChange] = deque(maxlen=CHANGES_MAX)
        self._available = asyncio.Event()
        self._is_over = False

    def put(self, change: ClientStateChange) -> None:
        """Queue a change."""
        self._queue.append(change)
        self._available.set()

    def __aiter__(self) -> "ClientStateChanges":
        return self

    async def __anext__(self) -> ClientStateChange:
        while not self._queue:
            if self._is_over:
                raise StopAsyncIteration
            self._available.clear()
            await self._available.wait()
        change = self._queue.popleft()
        self._is_over = change.state is ClientState.CLOSED
        return change


class Suppression(Enum):
    """Why a received message is not delivered to the application."""

    OUTSIDE = "outside"
    """It is addressed to an area that the endpoint is not in (M16)."""
    FORGED = "forged"
    """Its signature is not valid, or it has none and its topic requires one (M28)."""


@dataclass(frozen=True, slots=True)
class Connected:
    """The edge accepted the session; `is_resumed` if the previous one still existed, with its subscriptions."""

    is_resumed: bool
    edge: str = ""
    """The edge's name, where the protocol transmits it."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The session with the edge was lost; the client is requesting a new one."""

    reason: str


@dataclass(slots=True)
class Arrival:
    """A message for the application, with the subscriptions it matches."""

    received: ReceivedMessage
    subscription_ids: tuple[int, ...]
    receipt: object = None
    """Argument for `ClientTransport.acknowledge` once the application has the message; None: no acknowledgement is expected."""
    holders: int = 0
    """Inboxes that have the message and have not handed it out."""


@dataclass(frozen=True, slots=True)
class Done:
    """The publication, subscription or unsubscription with this key was answered or refused."""

    key: Hashable
    refused: RefusedByEdge | None = None


@dataclass(frozen=True, slots=True)
class Suppressed:
    """An arriving message was not delivered."""

    reason: Suppression
    topic: str = ""
    detail: str = ""
    """Why its signature is not valid."""


@dataclass(frozen=True, slots=True)
class SubscriptionRefused:
    """A subscription that was granted before was refused after a reconnection."""

    subscription_id: int
    refused: RefusedByEdge


@dataclass(frozen=True, slots=True)
class ReportRefused:
    """The edge refused a report or, temporarily, the session."""

    refused: RefusedByEdge


@dataclass(frozen=True, slots=True)
class Ended:
    """The edge ended or refused the session; without a fault, the client closed it."""

    fault: ClientFault | None
    is_final: bool = True
    """Whether reconnecting is pointless."""
    reference: str = ""
    """The server reference: servers to use instead. (MQTT 5, 4.11)"""


Event = Connected | Lost | Arrival | Done | Suppressed | SubscriptionRefused | ReportRefused | Ended
