"""Whether a client is connected, and how others follow that.

CONNECTING ─▶ CONNECTED ◀─▶ AWAY          from each of them ─▶ CLOSED, the end
"""

import asyncio
from collections import deque
from dataclasses import dataclass
from enum import Enum
from typing import Final

CHANGES_MAX: Final = 100
"""So many changes wait for whoever follows them; then the oldest are forgotten."""


class State(Enum):
    """What a client is doing."""

    CONNECTING = "connecting"
    CONNECTED = "connected"
    AWAY = "away"
    """The connection was lost, and it is trying again."""
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Change:
    """A new state, and why."""

    state: State
    why: str = ""


class Changes:
    """An async iterator of changes, from the moment it was made until the client is closed."""

    def __init__(self) -> None:
        self._waiting: deque[Change] = deque(maxlen=CHANGES_MAX)
        self._news = asyncio.Event()
        self._is_over = False

    def put(self, change: Change) -> None:
        """Something changed."""
        self._waiting.append(change)
        self._news.set()

    def __aiter__(self) -> "Changes":
        return self

    async def __anext__(self) -> Change:
        while not self._waiting:
            if self._is_over:
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        change = self._waiting.popleft()
        self._is_over = change.state is State.CLOSED
        return change
