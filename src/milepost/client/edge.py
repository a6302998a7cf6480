"""An edge as an application sees it: publish, report, subscribe, receive, close; whatever protocol carries it.

What must hold:
- every message that arrives goes into the inboxes of the wishes it came for and into those that take everything; its receipt goes
  back when the last of them has handed it out;
- what nobody asked for yet (addressed to this endpoint, or left from an earlier life of it) waits for whoever asks, to a limit;
  then the oldest is given up and counted.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Final
from weakref import WeakSet

from milepost.client.asking import wish_of
from milepost.client.carriers import Arrival, Carrier, Motion, Unshown
from milepost.client.faults import ClientFault, EdgeClosed
from milepost.client.inbox import Inbox
from milepost.client.states import Change, Changes, State
from milepost.client.values import Publication, Wish
from milepost.model.addresses import Address, ToContent
from milepost.model.areas import Area, Around
from milepost.model.frames import Frame
from milepost.model.instants import Instant
from milepost.model.places import Place
from milepost.model.priorities import Priority
from milepost.model.queries import Query
from milepost.model.reasons import Malformed, Reason
from milepost.model.tags import tags as tag_set

INBOX_MAX: Final = 1_000


@dataclass(slots=True)
class Counts:
    """What became of messages, since the client was made."""

    published: int = 0
    """Answered by the edge as the quality asks for."""
    received: int = 0
    dropped: int = 0
    """Of quality 0, because the application was too slow."""
    unclaimed: int = 0
    """Given up because no inbox took them."""
    outside: int = 0
    """Not shown, because they are addressed to an area in which this endpoint is not."""
    forged: int = 0
    """Not shown, because their signature is wrong."""
    connections: int = 0


class Edge:
    """A connection to an edge that comes back by itself; made by `connect`, used with `async with`."""

    def __init__(self, carrier: Carrier, *, unclaimed_max: int) -> None:
        self.counts = Counts()
        self._carrier = carrier
        self._state = State.CONNECTING
        self._fault: ClientFault | None = None
        self._inboxes: dict[int, Inbox] = {}
        self._takers_of_all: list[Inbox] = []
        self._unclaimed: deque[Arrival] = deque()
        self._unclaimed_max = unclaimed_max
        self._followers: WeakSet[Changes] = WeakSet()

    @property
    def name(self) -> str:
        """What the edge calls this endpoint: how others address it."""
        return self._carrier.name

    @property
    def url(self) -> str:
        """Where it is connected, or tries to be; empty while it looks for an edge. An edge may have sent it on to another one."""
        return self._carrier.url

    @property
    def state(self) -> State:
        """Whether it is connected."""
        return self._state

    async def __aenter__(self) -> "Edge":
        await self.open()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def open(self) -> None:
        """Connect, once; `async with` does."""
        await self._carrier.open(self)

    async def close(self) -> None:
        """Say goodbye. What waits in inboxes may still be taken; what was sent and not answered is given up."""
        await self._carrier.close()

    async def publish(
        self,
        topic: str,
        body: bytes | str = b"",
        *,
        tags: Iterable[str] = (),
        place: Place | None = None,
        to: Address | None = None,
        within: Area | None = None,
        priority: Priority = Priority.CONVENIENCE,
        seen_at: Instant | None = None,
        valid_for_s: float | None = None,
        valid_until: Instant | None = None,
        qos: int = 0,
        retain: bool = False,
        properties: Iterable[tuple[str, str]] = (),
    ) -> None:
        """Say something. Comes back when the edge has answered (`qos` 1, 2) or when it was sent (0).

        While the edge is away this waits, and is sent when it is back.
        """
        if to is not None and within is not None:
            raise Malformed(Reason.FIELD_RANGE, "within chooses among subscribers, to needs none: say one of the two")
        publication = Publication(
            topic,
            body.encode() if isinstance(body, str) else bytes(body),
            tag_set(tags),
            place,
            ToContent(within) if to is None else to,
            priority,
            seen_at,
            valid_until,
            valid_for_s,
            qos,
            retain,
            tuple(properties),
        )
        await self._carrier.publish(publication)
        self.counts.published += 1

    async def report(
        self,
        latitude: float,
        longitude: float,
        *,
        heading_deg: float | None = None,
        speed_mps: float | None = None,
        seen_at: Instant | None = None,
    ) -> None:
        """Say where this endpoint is: what `Around` and messages to an area go by. Said again after each reconnection."""
        await self._carrier.report(Motion(Place(latitude, longitude), heading_deg, speed_mps, seen_at))

    def subscribe(
        self,
        filter: str = "#",  # noqa: A002  # the right word
        *,
        query: Query | str | None = None,
        area: Area | Around | str | None = None,
        frame: Frame | str | None = None,
        qos: int = 1,
        share: str | None = None,
        limit: int = INBOX_MAX,
    ) -> Inbox:
        """Ask for messages: `async with` asks and stops asking, `async for` and `receive` give them."""
        wish = wish_of(filter, query=query, area=area, frame=frame, qos=qos, share=share)
        asked: list[int] = []

        async def enter(inbox: Inbox) -> None:
            asked.append(await self._ask(wish, inbox))

        async def leave(inbox: Inbox) -> None:
            await self._stop_asking(asked.pop(), inbox)

        return Inbox(limit, self._took, enter, leave)

    def messages(self, *, limit: int = INBOX_MAX) -> Inbox:
        """Everything that arrives, asked for or not: `async with` as for a subscription."""

        async def enter(inbox: Inbox) -> None:
            self._check_open()
            self._takers_of_all.append(inbox)
            self._claim(inbox, None)

        async def leave(inbox: Inbox) -> None:
            self._takers_of_all.remove(inbox)
            inbox.clear()

        return Inbox(limit, self._took, enter, leave)

    def changes(self) -> Changes:
        """The changes of `state` from now on, as an async iterator that ends when it is closed."""
        follower = Changes()
        self._followers.add(follower)
        if self._state is State.CLOSED:
            follower.put(Change(State.CLOSED))
        return follower

    async def _ask(self, wish: Wish, inbox: Inbox) -> int:
        self._check_open()
        label = self._carrier.label_for(wish)
        self._inboxes[label] = inbox  # from now on: messages may come before the answer does
        self._claim(inbox, label)
        try:
            await self._carrier.subscribe(label, wish)
        except BaseException:
            del self._inboxes[label]
            inbox.clear()
            raise
        return label

    async def _stop_asking(self, label: int, inbox: Inbox) -> None:
        try:
            await self._carrier.unsubscribe(label)
        finally:
            self._inboxes.pop(label, None)
            inbox.end()
            inbox.clear()

    def _check_open(self) -> None:
        if self._state is State.CLOSED:
            raise self._fault or EdgeClosed

    def on_arrival(self, arrival: Arrival) -> None:
        """A message came: called by the carrier."""
        self.counts.received += 1
        inboxes = [self._inboxes[label] for label in arrival.labels if label in self._inboxes]
        inboxes += self._takers_of_all
        if inboxes:
            self._hand_to(inboxes, arrival)
        else:
            self._unclaimed.append(arrival)
            if len(self._unclaimed) > self._unclaimed_max:
                self._give_up(self._unclaimed.popleft())

    def _hand_to(self, inboxes: list[Inbox], arrival: Arrival) -> None:
        arrival.holders = len(inboxes)
        for inbox in inboxes:
            dropped = inbox.dropped
            inbox.put(arrival)
            self.counts.dropped += inbox.dropped - dropped

    def _claim(self, inbox: Inbox, label: int | None) -> None:
        """Hand over what came before there was an inbox for it."""
        waiting, self._unclaimed = self._unclaimed, deque()
        for arrival in waiting:
            if label is None or label in arrival.labels:
                self._hand_to([inbox], arrival)
            else:
                self._unclaimed.append(arrival)

    def _give_up(self, arrival: Arrival) -> None:
        self.counts.unclaimed += 1
        if arrival.receipt is not None:
            self._carrier.took(arrival.receipt)

    def _took(self, arrival: Arrival) -> None:
        arrival.holders -= 1
        if not arrival.holders and arrival.receipt is not None:
            self._carrier.took(arrival.receipt)

    def on_change(self, change: Change) -> None:
        """The connection came or went: called by the carrier."""
        self._state = change.state
        self.counts.connections += change.state is State.CONNECTED
        for follower in self._followers:
            follower.put(change)

    def on_unshown(self, why: Unshown) -> None:
        """A message came that is not to be shown: called by the carrier."""
        self.counts.outside += why is Unshown.OUTSIDE
        self.counts.forged += why is Unshown.FORGED

    def on_refused(self, label: int, fault: ClientFault) -> None:
        """After a reconnection a wish is not granted again: called by the carrier."""
        if label in self._inboxes:
            self._inboxes[label].end(fault)

    def on_end(self, fault: ClientFault | None) -> None:
        """It is over: called by the carrier."""
        self._fault = fault
        self.on_change(Change(State.CLOSED, str(fault or "")))
        for inbox in [*self._inboxes.values(), *self._takers_of_all]:
            inbox.end(fault)
