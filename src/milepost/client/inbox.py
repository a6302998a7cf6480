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

from milepost.client.errors import ClientClosed, ClientFault
from milepost.client.events import Arrival
from milepost.client.messages import ReceivedMessage


class Inbox:
    """Messages of one subscription, or all messages: an async context manager and an async iterator.

    Iteration ends when the client is closed, and raises the fault if the connection ended with one.
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
        self._queue: deque[Arrival] = deque()
        self._qos_0_count = 0
        self._available = asyncio.Event()
        self._is_over = False
        self._fault: ClientFault | None = None

    async def __aenter__(self) -> "Inbox":
        await self._enter(self)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None) -> None:
        await self._leave(self)

    def __len__(self) -> int:
        return len(self._queue)

    def __aiter__(self) -> "Inbox":
        return self

    async def __anext__(self) -> ReceivedMessage:
        try:
            return await self.receive()
        except ClientClosed:
            raise StopAsyncIteration from None

    async def receive(self) -> ReceivedMessage:
        """Return the next message; wait if there is none."""
        while not self._queue:
            if self._is_over:
                raise self._fault or ClientClosed
            self._available.clear()
            await self._available.wait()
        arrival = self._queue.popleft()
        self._qos_0_count -= arrival.receipt is None
        self._on_taken(arrival)
        return arrival.received

    def put(self, arrival: Arrival) -> None:
        """Queue a message."""
        if self._is_over:
            self._on_taken(arrival)
            return
        self._queue.append(arrival)
        self._qos_0_count += arrival.receipt is None
        if self._qos_0_count > self._limit:
            self._drop_oldest()
        self._available.set()

    def _drop_oldest(self) -> None:
        index = next(i for i, arrival in enumerate(self._queue) if arrival.receipt is None)
        del self._queue[index]
        self._qos_0_count -= 1
        self.dropped += 1

    def end(self, fault: ClientFault | None = None) -> None:
        """Mark the inbox as ended; queued messages may still be taken."""
        self._is_over = True
        self._fault = fault
        self._available.set()

    def clear(self) -> None:
        """Discard the messages that were not handed out."""
        queued, self._queue = self._queue, deque()
        self._qos_0_count = 0
        for arrival in queued:
            self._on_taken(arrival)
