"""Viewers: what each browser is to be sent next.

What must hold: no more than `WAITING_MAX` diffs wait for one browser. Whoever is slower gets a whole scene instead of them, made
when it can take it; until it had one, diffs are nothing to it.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

WAITING_MAX: Final = 10
"""Two seconds of diffs."""


class Viewer:
    """One browser."""

    __slots__ = ("_is_woken", "_needs_whole", "_waiting", "skipped")

    def __init__(self) -> None:
        self._waiting: deque[bytes] = deque()
        self._needs_whole = True
        self._is_woken = asyncio.Event()
        self._is_woken.set()
        self.skipped = 0
        """Diffs that it did not get."""

    def offer(self, frame: bytes) -> None:
        """A diff for everybody."""
        if self._needs_whole:
            self.skipped += 1
            return
        self._waiting.append(frame)
        if len(self._waiting) > WAITING_MAX:
            self.skipped += len(self._waiting)
            self._waiting.clear()
            self._needs_whole = True
        self._is_woken.set()

    async def next_frame(self, whole: Callable[[], bytes]) -> bytes:
        """What to send next, as soon as there is anything."""
        await self._is_woken.wait()
        if self._needs_whole:
            self._needs_whole = False
            frame = whole()
        else:
            frame = self._waiting.popleft()
        if not self._waiting:
            self._is_woken.clear()
        return frame
