"""Inboxes: queues of messages for the application.

Invariants:
- a message is acknowledged when it was handed out to the application: a slow application thus slows down the edge, which sends
  no more than the receive maximum without an acknowledgement;
- QoS 0 has no acknowledgement: an inbox holds the newest `limit` of those messages, and counts the dropped ones;
- a caller that is cancelled while it waits loses no message.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from types import TracebackType

from milepost.client.errors import ClientFault, EdgeClosed
from milepost.client.events import Arrival
from milepost.client.values import Received


class Inbox:
    """Messages of one subscription, or all messages: an async context manager and an async iterator.

    Iteration ends when the edge is closed, and raises the fault if the connection ended with one.
    """

    def __init__(
        self,
        limit: int,
        on_taken: Callable[[Arrival], None],
        enter: Callable[["Inbox"], Awaitable[None]],
        leave: Callable[["Inbox"], Awaitable[None]],
    ) -> None:
        self.dropped = 0
        """Messages of QoS 0 that were dropped because the application was too slow."""
        self._limit = limit
        self._on_taken, self._enter, self._leave = on_taken, enter, leave
        self._waiting: deque[Arrival] = deque()
        self._unanswered = 0
        self._news = asyncio.Event()
        self._is_over = False
        self._fault: ClientFault | None = None

    async def __aenter__(self) -> "Inbox":
        await self._enter(self)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None) -> None:
        await self._leave(self)

    def __len__(self) -> int:
        return len(self._waiting)

    def __aiter__(self) -> "Inbox":
        return self

    async def __anext__(self) -> Received:
        try:
            return await self.receive()
        except EdgeClosed:
            raise StopAsyncIteration from None

    async def receive(self) -> Received:
        """Return the next message; wait if there is none."""
        while not self._waiting:
            if self._is_over:
                raise self._fault or EdgeClosed
            self._news.clear()
            await self._news.wait()
        arrival = self._waiting.popleft()
        self._unanswered -= arrival.receipt is None
        self._on_taken(arrival)
        return arrival.received

    def put(self, arrival: Arrival) -> None:
        """Queue a message."""
        if self._is_over:
            self._on_taken(arrival)
            return
        self._waiting.append(arrival)
        self._unanswered += arrival.receipt is None
        if self._unanswered > self._limit:
            self._drop_oldest()
        self._news.set()

    def _drop_oldest(self) -> None:
        index = next(i for i, arrival in enumerate(self._waiting) if arrival.receipt is None)
        del self._waiting[index]
        self._unanswered -= 1
        self.dropped += 1

    def end(self, fault: ClientFault | None = None) -> None:
        """Mark the inbox as ended; queued messages may still be taken."""
        self._is_over = True
        self._fault = fault
        self._news.set()

    def clear(self) -> None:
        """Discard the messages that were not handed out."""
        waiting, self._waiting = self._waiting, deque()
        self._unanswered = 0
        for arrival in waiting:
            self._on_taken(arrival)
