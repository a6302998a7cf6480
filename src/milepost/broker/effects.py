"""Effects of one tick of the broker: actions to carry out, and changes to store.

Invariants:
- the broker only states what changed; storage writes all changes of one tick together, or none of them;
- a later change of the same key in a tick replaces the earlier one, so a change and its reversal cost nothing twice;
- all rows of a session that ends are deleted one by one: its number may belong to another session before the tick is over;
- an action names all its receivers at once; a listener carries it out. Nothing here knows how things are stored or sent.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from milepost.broker.publication import Delivery
from milepost.broker.routing import ReceiverGroups
from milepost.broker.session import Connection, Session
from milepost.model.endpoints import EndpointId
from milepost.model.priorities import Priority
from milepost.model.reasons import Refused


class Queued(NamedTuple):
    """A message queued for a session, or sent and not yet acknowledged."""

    message: int
    """The number of the stored message."""
    qos: int
    is_released: bool
    """The receiver has the message (QoS 2); only PUBCOMP is outstanding."""
    details: bytes
    """Data that the listener needs beside the message to send it again."""


@dataclass(slots=True)
class StateChanges:
    """The changes of one tick; None means deleted. Sessions, messages and deliveries are numbers that the edge assigned."""

    sessions: dict[int, bytes | None] = field(default_factory=dict)
    subscriptions: dict[tuple[int, str], bytes | None] = field(default_factory=dict)
    """By session and the name of the subscription there."""
    retained: dict[str, bytes | None] = field(default_factory=dict)
    messages: dict[int, bytes | None] = field(default_factory=dict)
    queued: dict[tuple[int, int], Queued | None] = field(default_factory=dict)
    """By session and packet id, in the order they were queued."""
    received: dict[tuple[int, int], bool | None] = field(default_factory=dict)
    """Packet ids of QoS 2 messages from a publisher: True until PUBREL, then None."""
    outbox: dict[int, bytes | None] = field(default_factory=dict)
    """Records still to be appended to the site's log, by their number there."""
    cursors: dict[str, int] = field(default_factory=dict)
    """How far this edge has read the records of others, by the name of each stream."""
    residencies: dict[str, bytes | None] = field(default_factory=dict)
    """By endpoint: its epoch here, and the open steps of its handover."""
    active_alerts: dict[str, bytes | None] = field(default_factory=dict)
    """By incident: the active message to an area."""
    notified: dict[tuple[int, str], bytes | None] = field(default_factory=dict)
    """Sessions notified, by session and incident."""

    def absorb(self, later: "StateChanges") -> None:
        """Merge later changes into these."""
        self.sessions |= later.sessions
        self.subscriptions |= later.subscriptions
        self.retained |= later.retained
        self.messages |= later.messages
        self.queued |= later.queued
        self.received |= later.received
        self.outbox |= later.outbox
        self.cursors |= later.cursors
        self.residencies |= later.residencies
        self.active_alerts |= later.active_alerts
        self.notified |= later.notified

    def __bool__(self) -> bool:
        own = self.sessions or self.subscriptions or self.retained or self.messages or self.queued or self.received
        return bool(own or self.outbox or self.cursors or self.residencies or self.active_alerts or self.notified)


@dataclass(slots=True)
class StoredState:
    """The whole stored state, as loaded at the start."""

    sessions: dict[int, bytes] = field(default_factory=dict)
    subscriptions: dict[tuple[int, str], bytes] = field(default_factory=dict)
    retained: dict[str, bytes] = field(default_factory=dict)
    messages: dict[int, bytes] = field(default_factory=dict)
    queued: dict[tuple[int, int], Queued] = field(default_factory=dict)
    """In the order in which they were queued."""
    received: Iterable[tuple[int, int]] = ()
    outbox: dict[int, bytes] = field(default_factory=dict)
    """In the order of numbers."""
    cursors: dict[str, int] = field(default_factory=dict)
    residencies: dict[str, bytes] = field(default_factory=dict)
    active_alerts: dict[str, bytes] = field(default_factory=dict)
    notified: dict[tuple[int, str], bytes] = field(default_factory=dict)


class StorageUnavailable(Exception):
    """Storage is not possible at the moment (disk full, read-only, gone); the text states the cause."""


class Storage(Protocol):
    """Storage of an edge. `write` is all or nothing, and returns when the promised durability is reached."""

    def load(self) -> StoredState:
        """Return all that was written and not deleted."""

    def write(self, changes: StateChanges) -> None:
        """Store the changes of one tick; raise `StorageUnavailable` and store none of them if that is not possible."""

    def close(self) -> None:
        """Close the storage; nothing written is lost."""


class Deliver:
    """Send a message to sessions of one encoding, under one packet id (0: it is not acknowledged)."""

    __slots__ = ("delivery", "encoding", "is_duplicate", "packet_id", "sessions")

    def __init__(self, delivery: Delivery, packet_id: int, sessions: list[Session], *, is_duplicate: bool = False) -> None:
        self.delivery = delivery
        self.packet_id = packet_id
        self.sessions = sessions
        self.encoding = sessions[0].encoding
        """Skip sessions that reconnected with another encoding in this tick."""
        self.is_duplicate = is_duplicate


@dataclass(frozen=True, slots=True)
class Release:
    """Send PUBREL for a packet id again."""

    session: Session
    packet_id: int


@dataclass(frozen=True, slots=True)
class CloseConnection:
    """Close a connection, with the reason."""

    connection: Connection
    refused: Refused


@dataclass(frozen=True, slots=True)
class Redirect:
    """Close a connection, and send its endpoint to the address of another edge."""

    connection: Connection
    address: str


@dataclass(frozen=True, slots=True)
class Welcome:
    """Let an endpoint that waits for its session connect now, or refuse it."""

    name: EndpointId
    refused: Refused | None = None


class FastPathBatch:
    """Send QoS 0 messages unchanged to the same receivers: the fast path.

    They came in one encoding; for receivers of another one they are encoded again.
    """

    __slots__ = ("encoding", "origins", "packets", "priority", "receivers")

    def __init__(self, receivers: ReceiverGroups, encoding: int, priority: Priority) -> None:
        self.receivers = receivers
        self.encoding = encoding
        self.priority = priority
        self.packets: list[bytes] = []
        self.origins: list[Session] = []
        """The publishing session of each message."""


@dataclass(frozen=True, slots=True)
class Revoke:
    """Notify a session that one of its subscriptions has ended, because new rules do not allow it."""

    session: Session
    name: str
    """The key of the subscription in its session."""
    subscription_id: int
    refused: Refused


Action = Deliver | FastPathBatch | Release | CloseConnection | Redirect | Welcome | Revoke
