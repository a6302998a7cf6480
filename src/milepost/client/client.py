"""A client of an edge as the application uses it, over any protocol: publish, report, subscribe, receive, close.

Invariants:
- every message goes into the inboxes of the subscriptions it matches and into those that receive everything; its receipt is
  returned when the last of them has handed it out;
- messages without an inbox (addressed to this endpoint, or queued before a restart) wait for a subscriber, up to a limit; then
  the oldest is dropped and counted.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from time import time_ns
from types import TracebackType
from typing import Final
from weakref import WeakSet

from milepost.client.errors import ClientClosed, ClientFault
from milepost.client.events import Arrival, ClientState, ClientStateChange, ClientStateChanges, Suppressed, Suppression
from milepost.client.inbox import Inbox
from milepost.client.messages import OutgoingMessage, SubscriptionRequest
from milepost.client.transport import ClientTransport, PositionFix
from milepost.model.addresses import Address, ToContent
from milepost.model.areas import Area, Around
from milepost.model.instants import Instant
from milepost.model.places import Place
from milepost.model.priorities import Priority
from milepost.model.queries import Query, parse_query
from milepost.model.reasons import Malformed, Reason
from milepost.model.tags import tags as tag_set
from milepost.model.time_windows import ALWAYS, TimeWindow
from milepost.wire.area_text import where_from_text
from milepost.wire.times import time_window_from_text


def subscription_request(
    topic_filter: str,
    *,
    query: Query | str | None,
    area: Area | Around | str | None,
    time_window: TimeWindow | str | None,
    qos: int,
    share: str | None,
) -> SubscriptionRequest:
    """Return the checked request; raise `Malformed` for texts that `docs/reference/subscriptions.md` does not allow."""
    return SubscriptionRequest(
        filter=topic_filter,
        query=parse_query(query) if isinstance(query, str) else query,
        area=where_from_text(area) if isinstance(area, str) else area,
        time_window=time_window_from_text(time_window, Instant(time_ns()))
        if isinstance(time_window, str)
        else time_window or ALWAYS,
        time_window_text=time_window if isinstance(time_window, str) else "",
        qos=qos,
        share=share,
    )


INBOX_MAX: Final = 1_000


@dataclass(slots=True)
class ClientCounters:
    """Message counters since the client was created."""

    published: int = 0
    """Publications acknowledged as their QoS requires."""
    received: int = 0
    dropped: int = 0
    """Messages of QoS 0 dropped because the application was too slow."""
    unclaimed: int = 0
    """Messages dropped because no inbox took them."""
    outside: int = 0
    """Messages suppressed because they are addressed to an area that does not contain this endpoint."""
    forged: int = 0
    """Messages suppressed because their signature is invalid, or missing where the topic requires one."""
    connections: int = 0


class Client:
    """A client of an edge, which reconnects on its own; created by `connect`, used with `async with`."""

    def __init__(self, transport: ClientTransport, *, unclaimed_max: int) -> None:
        self.counters = ClientCounters()
        self.suppression_observer: Callable[[Suppressed], None] | None = None
        """Called with each message that is suppressed; set it before `open`."""
        self._transport = transport
        self._state = ClientState.CONNECTING
        self._fault: ClientFault | None = None
        self._inboxes: dict[int, Inbox] = {}
        self._catch_all_inboxes: list[Inbox] = []
        self._unclaimed: deque[Arrival] = deque()
        self._unclaimed_max = unclaimed_max
        self._change_iterators: WeakSet[ClientStateChanges] = WeakSet()

    @property
    def name(self) -> str:
        """The endpoint's name at the edge, by which others address it."""
        return self._transport.name

    @property
    def url(self) -> str:
        """The URL of the edge in use or being tried, possibly after a redirect; empty during discovery."""
        return self._transport.url

    @property
    def state(self) -> ClientState:
        """The state of the connection."""
        return self._state

    async def __aenter__(self) -> "Client":
        await self.open()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def open(self) -> None:
        """Connect, once; `async with` calls this."""
        await self._transport.open(self)

    async def close(self) -> None:
        """Disconnect. Messages in inboxes may still be taken; unanswered publications are given up."""
        await self._transport.close()

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
        sign: bool = False,
    ) -> None:
        """Publish a message; return once the edge has acknowledged it (`qos` 1, 2) or it was sent (0).

        While the edge is unreachable the call blocks; the message is sent after reconnection. With `sign`, the operator in
        `credentials` signs it: it must be valid for at most 24 hours, and the edge fills in neither place nor priority.
        """
        if to is not None and within is not None:
            raise Malformed(
                Reason.FIELD_RANGE,
                "within limits the subscribers of a topic, to addresses endpoints without a subscription: give one of the two",
            )
        publication = OutgoingMessage(
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
            sign,
        )
        await self._transport.publish(publication)
        self.counters.published += 1

    async def report(
        self,
        latitude: float,
        longitude: float,
        *,
        heading_deg: float | None = None,
        speed_mps: float | None = None,
        seen_at: Instant | None = None,
    ) -> None:
        """Report the endpoint's position, used for `Around` and geocasts; resent after each reconnection."""
        await self._transport.report(PositionFix(Place(latitude, longitude), heading_deg, speed_mps, seen_at))

    def subscribe(
        self,
        filter: str = "#",  # noqa: A002  # MQTT's term
        *,
        query: Query | str | None = None,
        area: Area | Around | str | None = None,
        time_window: TimeWindow | str | None = None,
        qos: int = 1,
        share: str | None = None,
        limit: int = INBOX_MAX,
    ) -> Inbox:
        """Return a subscription's inbox: `async with` subscribes and unsubscribes, `async for` and `receive` return messages."""
        request = subscription_request(filter, query=query, area=area, time_window=time_window, qos=qos, share=share)
        subscription_ids: list[int] = []

        async def enter(inbox: Inbox) -> None:
            subscription_ids.append(await self._subscribe(request, inbox))

        async def leave(inbox: Inbox) -> None:
            await self._unsubscribe(subscription_ids.pop(), inbox)

        return Inbox(limit, self._on_taken, enter, leave)

    def messages(self, *, limit: int = INBOX_MAX) -> Inbox:
        """Return an inbox of all arriving messages, with or without a subscription; use it with `async with`."""

        async def enter(inbox: Inbox) -> None:
            self._check_open()
            self._catch_all_inboxes.append(inbox)
            self._claim(inbox, None)

        async def leave(inbox: Inbox) -> None:
            self._catch_all_inboxes.remove(inbox)
            inbox.clear()

        return Inbox(limit, self._on_taken, enter, leave)

    def changes(self) -> ClientStateChanges:
        """Return an async iterator over the changes of `state` from now on; it ends when the connection is closed."""
        iterator = ClientStateChanges()
        self._change_iterators.add(iterator)
        if self._state is ClientState.CLOSED:
            iterator.put(ClientStateChange(ClientState.CLOSED))
        return iterator

    async def _subscribe(self, request: SubscriptionRequest, inbox: Inbox) -> int:
        self._check_open()
        subscription_id = self._transport.subscription_id_for(request)
        self._inboxes[subscription_id] = inbox  # before the request: messages may arrive before its answer
        self._claim(inbox, subscription_id)
        try:
            await self._transport.subscribe(subscription_id, request)
        except BaseException:
            del self._inboxes[subscription_id]
            inbox.clear()
            raise
        return subscription_id

    async def _unsubscribe(self, subscription_id: int, inbox: Inbox) -> None:
        try:
            await self._transport.unsubscribe(subscription_id)
        finally:
            self._inboxes.pop(subscription_id, None)
            inbox.end()
            inbox.clear()

    def _check_open(self) -> None:
        if self._state is ClientState.CLOSED:
            raise self._fault or ClientClosed

    def on_arrival(self, arrival: Arrival) -> None:
        """Accept a message from the transport."""
        self.counters.received += 1
        inboxes = [
            self._inboxes[subscription_id] for subscription_id in arrival.subscription_ids if subscription_id in self._inboxes
        ]
        inboxes += self._catch_all_inboxes
        if inboxes:
            self._deliver_to(inboxes, arrival)
        else:
            self._unclaimed.append(arrival)
            if len(self._unclaimed) > self._unclaimed_max:
                self._drop(self._unclaimed.popleft())

    def _deliver_to(self, inboxes: list[Inbox], arrival: Arrival) -> None:
        arrival.holders = len(inboxes)
        for inbox in inboxes:
            dropped = inbox.dropped
            inbox.put(arrival)
            self.counters.dropped += inbox.dropped - dropped

    def _claim(self, inbox: Inbox, subscription_id: int | None) -> None:
        """Hand over messages that arrived before their inbox existed."""
        unclaimed, self._unclaimed = self._unclaimed, deque()
        for arrival in unclaimed:
            if subscription_id is None or subscription_id in arrival.subscription_ids:
                self._deliver_to([inbox], arrival)
            else:
                self._unclaimed.append(arrival)

    def _drop(self, arrival: Arrival) -> None:
        self.counters.unclaimed += 1
        if arrival.receipt is not None:
            self._transport.acknowledge(arrival.receipt)

    def _on_taken(self, arrival: Arrival) -> None:
        arrival.holders -= 1
        if not arrival.holders and arrival.receipt is not None:
            self._transport.acknowledge(arrival.receipt)

    def on_change(self, change: ClientStateChange) -> None:
        """Accept a state change from the transport."""
        self._state = change.state
        self.counters.connections += change.state is ClientState.CONNECTED
        for iterator in self._change_iterators:
            iterator.put(change)

    def on_suppressed(self, suppressed: Suppressed) -> None:
        """Count a message that the transport suppressed, and pass it to the application's observer."""
        self.counters.outside += suppressed.reason is Suppression.OUTSIDE
        self.counters.forged += suppressed.reason is Suppression.FORGED
        if self.suppression_observer is not None:
            self.suppression_observer(suppressed)

    def on_refused(self, subscription_id: int, fault: ClientFault) -> None:
        """End the inbox of a subscription that was refused after a reconnection."""
        if subscription_id in self._inboxes:
            self._inboxes[subscription_id].end(fault)

    def on_end(self, fault: ClientFault | None) -> None:
        """End all inboxes; called by the transport when it stops."""
        self._fault = fault
        self.on_change(ClientStateChange(ClientState.CLOSED, str(fault or "")))
        for inbox in [*self._inboxes.values(), *self._catch_all_inboxes]:
            inbox.end(fault)
