"""Sessions, connected or durable: their numbers, subscriptions and deliveries.

    name ──▶ Session (number) ──▶ link: the listener's connection, NOWHERE while the endpoint is disconnected
                │
                ├ subscriptions   by the name the endpoint gave them
                ├ in_flight       sent and not acknowledged, in the order sent
                ├ released        QoS 2: the receiver has the message, PUBCOMP is outstanding
                ├ waiting         outbound queue, by class and deadline
                └ received        QoS 2, inbound: packet ids in use by the publisher

Invariants:
- a number belongs to one session at a time and is reused after the session has ended;
- `is_clear` is true only while the session has a connection that can take more, and nothing is queued except for want of
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
    from milepost.broker.effects import Changes

NUMBERS_MAX: Final = 65_535
"""Packet ids run from 1 to here, and then from 1 again."""


class Link:
    """The connection of a session; each listener has its own subclass. Nothing here calls it."""

    __slots__ = ("out",)

    def __init__(self) -> None:
        self.out: list[bytes] = []
        """Bytes passed to the listener in this tick and not sent yet."""

    @property
    def scheme(self) -> str:
        """URL scheme of addresses to which the endpoint can be redirected, such as mqtt; empty: it cannot be redirected."""
        return ""


NOWHERE: Final = Link()
"""The connection of a session whose endpoint is disconnected."""


@dataclass(frozen=True, slots=True)
class Will:
    """A message published for an endpoint that left without DISCONNECT."""

    publication: Publication
    delay_ns: int
    valid_ns: int | None = None
    """Validity of the message once it is published; None: as the message states."""


class Asked:
    """A subscription of a session, with its delivery options."""

    __slots__ = ("is_not_own", "is_retain_shown", "row", "subscription")

    def __init__(self, subscription: Subscription, row: int, *, is_not_own: bool = False, is_retain_shown: bool = False) -> None:
        self.subscription = subscription
        self.row = row
        self.is_not_own = is_not_own
        """No Local: messages of the session itself are left out."""
        self.is_retain_shown = is_retain_shown
        """Retain As Published: whether the receiver sees the RETAIN flag of the publisher."""


class Session:
    """The session of one endpoint at this edge."""

    __slots__ = (
        "encoding",
        "expires_at",
        "expiry_ns",
        "in_flight",
        "is_clear",
        "is_heeded",
        "is_kept",
        "is_over_rate",
        "link",
        "meter",
        "name",
        "number",
        "rates",
        "received",
        "released",
        "routes",
        "subscriptions",
        "waiting",
        "who",
        "will",
        "will_at",
        "window",
    )

    def __init__(self, name: EndpointId, number: int) -> None:
        self.name = name
        self.number = number
        self.link: Link = NOWHERE
        self.encoding = 0
        """Sessions of the same encoding can be sent the same bytes."""
        self.is_clear = False
        self.is_kept = False
        """Whether the session is durable: it survives its connection, and a restart of the process."""
        self.is_heeded = False
        """Whether a traced message is in flight."""
        self.who = ClientIdentity(name)
        """The authenticated principal; a client with a certificate is replaced only by one that presents a certificate, too."""
        self.routes: TopicRoutes | None = None
        """The route cache it shares with sessions of equal rights; None until it connects."""
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
        self.waiting: OutboundQueue | None = None
        self.received: set[int] | None = None
        self.subscriptions: dict[str, Asked] = {}
        self.will: Will | None = None
        self.will_at: Instant = FOREVER

    @property
    def takes_numbered(self) -> bool:
        """Whether a message above QoS 0 may bypass the queue."""
        is_first = self.waiting is None or not self.waiting.has_numbered
        return self.is_clear and is_first and len(self.in_flight) + len(self.released) < self.window

    @property
    def has_window(self) -> bool:
        """Whether one more message may be in flight."""
        return len(self.in_flight) + len(self.released) < self.window

    def is_in_use(self, number: int) -> bool:
        """Return whether a packet id is in use."""
        return number in self.in_flight or number in self.released or (self.waiting is not None and number in self.waiting)


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
        assert session is not None, f"session {number} is over"
        return session

    def names_of(self, numbers: list[int]) -> list[EndpointId]:
        """Return the endpoints of sessions, all of them live."""
        found = [session.name for number in numbers if (session := self._by_number[number]) is not None]
        assert len(found) == len(numbers), "one of the sessions is over"
        return found

    def maybe(self, name: str) -> Session | None:
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

_FORGOTTEN_MAX: Final = 64
"""Maximum surplus entries of the timer heap, beyond four per session, before it is rebuilt."""


class SessionTimers:
    """Sessions ordered by their next timer."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._due: list[tuple[Instant, int, str]] = []

    def __len__(self) -> int:
        return len(self._due)

    def remind(self, session: Session) -> None:
        """Set the timer of a disconnected session."""
        heappush(self._due, (_next(session), session.number, session.name))
        if len(self._due) > 4 * len(self._sessions) + _FORGOTTEN_MAX:  # most are of sessions that resumed or ended
            away = [one for one in self._sessions if one.link is NOWHERE]
            self._due = sorted((_next(one), one.number, one.name) for one in away)

    def overdue(self, now: Instant) -> Iterator[Session]:
        """Iterate over the sessions whose timer is due and that are still disconnected."""
        while self._due and self._due[0][0] <= now:
            _, number, name = heappop(self._due)
            session = self._sessions.maybe(name)
            if session is not None and session.number == number and session.link is NOWHERE:
                yield session


def _next(session: Session) -> Instant:
    return min(session.expires_at, session.will_at)


# Packet ids of inbound QoS 2 messages, from PUBLISH to PUBREL.


def receive(session: Session, number: int, changes: "Changes") -> bool:
    """Note the packet id of an inbound QoS 2 message; return whether it is new."""
    if session.received is None:
        session.received = set()
    if number in session.received:
        return False
    session.received.add(number)
    if session.is_kept:
        changes.received[session.number, number] = True
    return True


def end_receiving(session: Session, number: int, changes: "Changes") -> bool:
    """Free the packet id of an inbound QoS 2 message; return whether it was in use."""
    if session.received is None or number not in session.received:
        return False
    session.received.discard(number)
    if session.is_kept:
        changes.received[session.number, number] = None
    return True
