"""Turns: the loop that all doors of a process share.

    wait ─▶ everything that can be read is read ─▶ what is due ─▶ settle: keep, then send ─▶ wait

A turn takes all that has arrived through each stage together: one look at the system for many connections, one write to storage
for all that must be kept, one write to each connection for all it is to get.
"""

import os
import select
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from time import monotonic, time_ns
from typing import Final, Protocol

from milepost.model.instants import Instant

READABLE: Final = select.EPOLLIN
WRITABLE: Final = select.EPOLLOUT
BROKEN: Final = select.EPOLLERR | select.EPOLLHUP

EVENTS_A_TURN: Final = 64
"""So many connections are looked at in one turn; the rest have theirs in the next. More would only make clients and edge wait
for each other in step; fewer would make a write to storage serve too few."""

_WAIT_S_MAX: Final = 1.0


class Watched(Protocol):
    """Something with a file descriptor that the loop watches."""

    def on_event(self, mask: int, now: Instant) -> None:
        """It can be read or written, or is broken."""


Settle = Callable[[Instant], bool]
"""What a door does at the end of each turn; it tells whether it wants another turn at once."""


class Turns:
    """The loop."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._watched: dict[int, Watched] = {}
        self._settles: list[Settle] = []
        self._timers: list[tuple[float, int, Callable[[Instant], None], float]] = []
        self._calls: deque[Callable[[Instant], None]] = deque()
        self._order = 0
        self._is_over = False
        self._patience_s = _WAIT_S_MAX
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._wake_fd, READABLE)

    def watch(self, fd: int, watched: Watched, mask: int = READABLE) -> None:
        """Begin to watch."""
        self._watched[fd] = watched
        self._epoll.register(fd, mask)

    def watch_for(self, fd: int, mask: int) -> None:
        """Watch for something else."""
        self._epoll.modify(fd, mask)

    def unwatch(self, fd: int) -> None:
        """Watch no longer; to be called before the descriptor is closed."""
        del self._watched[fd]
        self._epoll.unregister(fd)

    def settle_with(self, settle: Settle) -> None:
        """Have something called at the end of each turn."""
        self._settles.append(settle)

    def every(self, seconds: float, call: Callable[[Instant], None]) -> None:
        """Have something called again and again."""
        self._order += 1
        heappush(self._timers, (monotonic() + seconds, self._order, call, seconds))

    def be_back_within(self, seconds: float) -> None:
        """Have the next turn begin after so long at the latest; to be said in each turn in which it is wanted."""
        self._patience_s = min(self._patience_s, seconds)

    def call_soon(self, call: Callable[[Instant], None]) -> None:
        """Have something called in the next turn; from any thread."""
        self._calls.append(call)
        os.eventfd_write(self._wake_fd, 1)

    def stop(self) -> None:
        """Let `run` return after this turn."""
        self._is_over = True

    def run(self) -> None:
        """Take turns until stopped."""
        wants_another = False
        while not self._is_over:
            wants_another = self.turn(0.0 if wants_another else self._wait_s())

    def turn(self, wait_s: float) -> bool:
        """One turn; tells whether another is wanted at once."""
        events = self._epoll.poll(wait_s, EVENTS_A_TURN)
        now = Instant(time_ns())
        watched = self._watched
        for fd, mask in events:
            if fd == self._wake_fd:
                os.eventfd_read(fd)
            elif (one := watched.get(fd)) is not None:  # it may have been closed by another of this turn
                one.on_event(mask, now)
        self._call(now)
        wants_another = False
        for settle in self._settles:
            wants_another |= settle(now)
        return wants_another

    def close(self) -> None:
        """Give the descriptors back."""
        self._epoll.close()
        os.close(self._wake_fd)

    def _call(self, now: Instant) -> None:
        for _ in range(len(self._calls)):  # what is added meanwhile has its turn next
            self._calls.popleft()(now)
        while self._timers and self._timers[0][0] <= monotonic():
            due, order, call, seconds = heappop(self._timers)
            call(now)
            heappush(self._timers, (max(due, monotonic()) + seconds, order, call, seconds))

    def _wait_s(self) -> float:
        patience_s, self._patience_s = self._patience_s, _WAIT_S_MAX
        if self._calls:
            return 0.0
        return min(patience_s, max(0.0, self._timers[0][0] - monotonic())) if self._timers else patience_s
