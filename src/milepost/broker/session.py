"""Sessions, connected or durable: their numbers, subscriptions and deliveries.

    name ──▶ Session (number) ──▶ connection: the listener's, NO_CONNECTION while the endpoint is disconnected
                │
                ├ subscriptions   by the name the endpoint gave them
                ├ in_flight       sent and not acknowledged, in the order sent
                ├ released        QoS 2: the receiver has the message, PUBCOMP is outstanding
                ├ queue           outbound queue, by class and deadline
                └ received        QoS 2, inbound: packet ids in use by the publisher

Invariants:
- a number belongs to one session at a time and is reused after the session has ended;
- `is_ready` is true only while the session has a connection that can take more, and nothing is queued except for want of
  acknowledgements: only then may a message bypass the queue;
- nothing here calls a connection.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

from milepost.broker.outbound_queue import OutboundQueue
from milepost.broker.publication import Delivery, Publication
from milepost.model.endpoints import EndpointId
from milepost.model.instants import FOREVER, Instant
from milepost.model.reasons import Malformed, Reason
from milepost.model.subscriptions import Subscription
from milepost.vetting.access import ClientIdentity
from milepost.vetting.rates import UNLIMITED, RateLimits, RateMeter

if TYPE_CHECKING:
    from milepost.broker.admission import TopicRoutes
    from milepost.broker.effects import StateChanges

PACKET_ID_MAX: Final = 65_535
"""Packet ids run from 1 to here, and then from 1 again."""


class Connection:
    """The connection of a session; each listener has its own subclass. Nothing here calls it."""

    __slots__ = ("out",)

    def __init__(self) -> None:
        self.out: list[bytes] = []
        """Bytes passed to the listener in this tick and not sent yet."""

    @property
    def scheme(self) -> str:
        """URL scheme of addresses to which the endpoint can be redirected, such as mqtt; empty: it cannot be redirected."""
        return ""


NO_CONNECTION: Final = Connection()
"""The connection of a session whose endpoint is disconnected."""


@dataclass(frozen=True, slots=True)
class SessionWill:
    """A message published for an endpoint that left without DISCONNECT."""

    publication: Publication
    delay_ns: int
    valid_ns: int | None = None
    """Validity of the message once it is published; None: as the message states."""


class SessionSubscription:
    """A subscription of a session, with its delivery options."""

    __slots__ = ("no_local", "retain_as_published", "row", "subscription")

    def __init__(
        self, subscription: Subscription, row: int, *, no_local: bool = False, retain_as_published: bool = False
    ) -> None:
        self.subscription = subscription
        self.row = row
        self.no_local = no_local
        """No Local: messages of the session itself are left out."""
        self.retain_as_published = retain_as_published
        """Retain As Published: whether the receiver sees the RETAIN flag of the publisher."""


class Session:
    """The session of one endpoint at this edge."""

    __slots__ = (
        "connection",
        "encoding",
        "expires_at",
        "expiry_ns",
        "identity",
        "in_flight",
        "is_durable",
        "is_over_rate",
        "is_ready",
        "is_traced",
        "meter",
        "name",
        "number",
        "queue",
        "rates",
        "received",
        "released",
        "routes",
        "subscriptions",
        "will",
        "will_at",
        "window",
    )

    def __init__(self, name: EndpointId, number: int) -> None:
        self.name = name
        self.number = number
        self.connection: Connection = NO_CONNECTION
        self.encoding = 0
        """Sessions of the same encoding can be sent the same bytes."""
        self.is_ready = False
        self.is_durable = False
        """Whether the session is durable: it survives its connection, and a restart of the process."""
        self.is_traced = False
        """Whether a traced message is in flight."""
        self.identity = ClientIdentity(name)
        """The identity that connected last; the session belongs to its `owner`."""
        self.routes: TopicRoutes | None = None
        """The route cache it shares with sessions of equal rights; None until it connects, and after new rules."""
        self.rates: RateLimits = UNLIMITED
        self.meter: RateMeter | None = None
        """None until it sends."""
        self.is_over_rate = False
        self.expiry_ns = 0
        self.expires_at: Instant = FOREVER
        self.window = 0
        """Maximum messages in flight."""
        self.in_flight: dict[int, Delivery] = {}
        self.released: dict[int, Delivery] = {}
        self.queue: OutboundQueue | None = None
        self.received: set[int] | None = None
        self.subscriptions: dict[str, SessionSubscription] = {}
        self.will: SessionWill | None = None
        self.will_at: Instant = FOREVER

    @property
    def can_send_numbered(self) -> bool:
        """Whether a message above QoS 0 may bypass the queue."""
        is_first = self.queue is None or not self.queue.has_numbered
        return self.is_ready and is_first and len(self.in_flight) + len(self.released) < self.window

    @property
    def has_window(self) -> bool:
        """Whether one more message may be in flight."""
        return len(self.in_flight) + len(self.released) < self.window

    def is_in_use(self, packet_id: int) -> bool:
        """Return whether a packet id is in use."""
        return packet_id in self.in_flight or packet_id in self.released or (self.queue is not None and packet_id in self.queue)


class Sessions:
    """All sessions of an edge, by name and by number."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._by_name: dict[str, Session] = {}
        self._by_number: list[Session | None] = []
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self._by_name)

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self._by_name.values()))

    def __getitem__(self, number: int) -> Session:
        session = self._by_number[number]
        assert session is not None, f"session {number} has ended"
        return session

    def names_of(self, numbers: list[int]) -> list[EndpointId]:
        """Return the endpoints of sessions, all of them live."""
        found = [session.name for number in numbers if (session := self._by_number[number]) is not None]
        assert len(found) == len(numbers), "one of the sessions has ended"
        return found

    def find(self, name: str) -> Session | None:
        """Return the session of an endpoint, if it has one."""
        return self._by_name.get(name)

    def add(self, name: EndpointId) -> Session:
        """Create a session under a number of its own."""
        if len(self._by_name) >= self._limit:
            raise Malformed(Reason.ENDPOINTS_FULL, f"all {self._limit} sessions are taken")
        if self._free:
            number = self._free.pop()
        else:
            number = len(self._by_number)
            self._by_number.append(None)
        return self._enter(Session(name, number))

    def restore(self, name: EndpointId, number: int) -> Session:
        """Create a stored session under the number it had; to be called in the order of numbers, before any is added."""
        for free in range(len(self._by_number), number):
            self._by_number.append(None)
            self._free.append(free)
        self._by_number.append(None)
        return self._enter(Session(name, number))

    def remove(self, session: Session) -> None:
        """Remove a session; its number is free again."""
        del self._by_name[session.name]
        self._by_number[session.number] = None
        self._free.append(session.number)

    def _enter(self, session: Session) -> Session:
        self._by_name[session.name] = session
        self._by_number[session.number] = session
        return session


# Timers of disconnected sessions: for a will, or their expiry.

_STALE_TIMERS_MAX: Final = 64
"""Maximum surplus entries of the timer heap, beyond four per session, before it is rebuilt."""


class SessionTimers:
    """Sessions ordered by their next timer."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._due: list[tuple[Instant, int, str]] = []

    def __len__(self) -> int:
        return len(self._due)

    def schedule(self, session: Session) -> None:
        """Set the timer of a disconnected session."""
        heappush(self._due, (_next(session), session.number, session.name))
        if len(self._due) > 4 * len(self._sessions) + _STALE_TIMERS_MAX:  # most are of sessions that resumed or ended
            away = [one for one in self._sessions if one.connection is NO_CONNECTION]
            self._due = sorted((_next(one), one.number, one.name) for one in away)

    def due(self, now: Instant) -> Iterator[Session]:
        """Iterate over the sessions whose timer is due and that are still disconnected."""
        while self._due and self._due[0][0] <= now:
            _, number, name = heappop(self._due)
            session = self._sessions.find(name)
            if session is not None and session.number == number and session.connection is NO_CONNECTION:
                yield session


def _next(session: Session) -> Instant:
    return min(session.expires_at, session.will_at)


# Packet ids of inbound QoS 2 messages, from PUBLISH to PUBREL.


def begin_receiving(session: Session, packet_id: int, changes: "StateChanges") -> bool:
    """Note the packet id of an inbound QoS 2 message; return whether it is new."""
    if session.received is None:
        session.received = set()
    if packet_id in session.received:
        return False
    session.received.add(packet_id)
    if session.is_durable:
        changes.received[session.number, packet_id] = True
    return True


def end_receiving(session: Session, packet_id: int, changes: "StateChanges") -> bool:
    """Free the packet id of an inbound QoS 2 message; return whether it was in use."""
    if session.received is None or packet_id not in session.received:
        return False
    session.received.discard(packet_id)
    if session.is_durable:
        changes.received[session.number, packet_id] = None
    return True
