"""Sessions: who is connected or kept, under which number, and what is on its way to them.

    name ──▶ Session (number) ──▶ link: the door's end of it, NOWHERE while the endpoint is away
                │
                ├ subscriptions   asked for, by the name the endpoint gave them
                ├ in_flight       sent and not acknowledged, in the order sent
                ├ released        quality 2: the receiver has it, the end of the exchange is open
                ├ waiting         not sent yet, by class and deadline
                └ received        quality 2, inwards: numbers in use by the sender

What must hold:
- a number belongs to one session at a time and is given out again after the session is over;
- `is_clear` is true only while a link is there, takes more, and nothing waits but for acknowledgements: then, and only then,
  may a message be handed to it past the queue;
- nothing here calls a link.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from milepost.edge.lanes import Lanes
from milepost.edge.parcels import Delivery, Parcel
from milepost.model.endpoints import EndpointId
from milepost.model.instants import FOREVER, Instant
from milepost.model.reasons import Malformed, Reason
from milepost.model.subscriptions import Subscription

NUMBERS_MAX: Final = 65_535
"""Delivery numbers run from 1 to here, and then from 1 again."""


class Link:
    """A door's end of a session; each door has its own kind. Nothing here calls it."""

    __slots__ = ("out",)

    def __init__(self) -> None:
        self.out: list[bytes] = []
        """What the door was handed in this turn and has not sent yet."""

    @property
    def scheme(self) -> str:
        """Of addresses to which the endpoint can be told to go, such as mqtt; empty: there is no way to tell it."""
        return ""


NOWHERE: Final = Link()
"""The link of a session whose endpoint is away."""


@dataclass(frozen=True, slots=True)
class Will:
    """What is published for an endpoint that went without saying so."""

    parcel: Parcel
    delay_ns: int
    valid_ns: int | None = None
    """How long it is valid once it is published."""


class Asked:
    """A subscription in use, and how its messages are wanted."""

    __slots__ = ("is_not_own", "is_retain_shown", "row", "subscription")

    def __init__(self, subscription: Subscription, row: int, *, is_not_own: bool = False, is_retain_shown: bool = False) -> None:
        self.subscription = subscription
        self.row = row
        self.is_not_own = is_not_own
        """Messages of the session itself are left out."""
        self.is_retain_shown = is_retain_shown
        """Whether the taker is told which messages their sender wanted retained."""


class Session:
    """One endpoint at this edge."""

    __slots__ = (
        "dialect",
        "expires_at",
        "expiry_ns",
        "in_flight",
        "is_clear",
        "is_heeded",
        "is_kept",
        "is_proven",
        "link",
        "name",
        "number",
        "received",
        "released",
        "subscriptions",
        "waiting",
        "will",
        "will_at",
        "window",
    )

    def __init__(self, name: EndpointId, number: int) -> None:
        self.name = name
        self.number = number
        self.link: Link = NOWHERE
        self.dialect = 0
        """Sessions of equal dialect can be sent the same bytes."""
        self.is_clear = False
        self.is_kept = False
        """Whether it outlives its connection, and then also the process."""
        self.is_heeded = False
        """Whether somebody wants to know what becomes of something that is in flight."""
        self.is_proven = False
        """Whether its endpoint has shown a certificate for the name: only who does that too may take its place."""
        self.expiry_ns = 0
        self.expires_at: Instant = FOREVER
        self.window = 0
        """How many messages may be in flight."""
        self.in_flight: dict[int, Delivery] = {}
        self.released: dict[int, Delivery] = {}
        self.waiting: Lanes | None = None
        self.received: set[int] | None = None
        self.subscriptions: dict[str, Asked] = {}
        self.will: Will | None = None
        self.will_at: Instant = FOREVER

    @property
    def takes_numbered(self) -> bool:
        """Whether a message that is to be acknowledged may be handed to it past the queue."""
        is_first = self.waiting is None or not self.waiting.has_numbered
        return self.is_clear and is_first and len(self.in_flight) + len(self.released) < self.window

    @property
    def has_window(self) -> bool:
        """Whether one more message may be in flight."""
        return len(self.in_flight) + len(self.released) < self.window

    def is_in_use(self, number: int) -> bool:
        """Whether a delivery number stands for something not yet over."""
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
        """Whose sessions these are; all of them live."""
        found = [session.name for number in numbers if (session := self._by_number[number]) is not None]
        assert len(found) == len(numbers), "one of the sessions is over"
        return found

    def maybe(self, name: str) -> Session | None:
        """The session of an endpoint, if it has one."""
        return self._by_name.get(name)

    def add(self, name: EndpointId) -> Session:
        """A new session under a number of its own."""
        if len(self._by_name) >= self._limit:
            raise Malformed(Reason.ENDPOINTS_FULL, f"all {self._limit} sessions are taken")
        if self._free:
            number = self._free.pop()
        else:
            number = len(self._by_number)
            self._by_number.append(None)
        return self._enter(Session(name, number))

    def restore(self, name: EndpointId, number: int) -> Session:
        """A session that was kept, under the number it had; to be called in the order of numbers, before any is added."""
        for free in range(len(self._by_number), number):
            self._by_number.append(None)
            self._free.append(free)
        self._by_number.append(None)
        return self._enter(Session(name, number))

    def remove(self, session: Session) -> None:
        """End a session; its number is free again."""
        del self._by_name[session.name]
        self._by_number[session.number] = None
        self._free.append(session.number)

    def _enter(self, session: Session) -> Session:
        self._by_name[session.name] = session
        self._by_number[session.number] = session
        return session
