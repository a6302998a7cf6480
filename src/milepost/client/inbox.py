"""Inboxes: where messages wait for the application.

What must hold:
- a message is the application's when it was handed out, and only then the carrier hears of it: so a slow application slows down
  the edge, which sends no more than it was told to without an answer;
- nobody waits for an answer to quality 0: of those an inbox keeps the newest `limit`, and counts what it dropped;
- whoever is cancelled while it waits loses nothing.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from types import TracebackType

from milepost.client.carriers import Arrival
from milepost.client.faults import ClientFault, EdgeClosed
from milepost.client.values import Received


class Inbox:
    """Messages of one subscription, or of all: an async context manager and an async iterator.

    Iterating ends when the edge is closed, and raises the fault when the connection ends with one.
    """

    def __init__(
        self,
        limit: int,
        took: Callable[[Arrival], None],
        enter: Callable[["Inbox"], Awaitable[None]],
        leave: Callable[["Inbox"], Awaitable[None]],
    ) -> None:
        self.dropped = 0
        """How many messages of quality 0 were dropped because the application was too slow."""
        self._limit = limit
        self._took, self._enter, self._leave = took, enter, leave
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
        """The next message, as soon as there is one."""
        while not self._waiting:
            if self._is_over:
                raise self._fault or EdgeClosed
            self._news.clear()
            await self._news.wait()
        arrival = self._waiting.popleft()
        self._unanswered -= arrival.receipt is None
        self._took(arrival)
        return arrival.received

    def put(self, arrival: Arrival) -> None:
        """A message came."""
        if self._is_over:
            self._took(arrival)
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
        """No more messages will come; what is here may still be taken."""
        self._is_over = True
        self._fault = fault
        self._news.set()

    def clear(self) -> None:
        """Give up what was not handed out."""
        waiting, self._waiting = self._waiting, deque()
        self._unanswered = 0
        for arrival in waiting:
            self._took(arrival)
