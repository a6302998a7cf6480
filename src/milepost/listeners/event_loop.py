"""The event loop of a process, and the commit and send phases at the end of each tick.

    readable sockets ─▶ listeners ─▶ broker │ end of tick: store changes ─▶ carry out actions, most urgent first ─▶ send, close

Invariants:
- nothing that depends on a change is sent before the change is stored (`ChangeWriter`); if it cannot be stored, replies that
  depend on it are discarded, and durable sessions that were to receive a message under it are disconnected;
- of all actions of a tick, the more urgent class is sent first, whichever listener received it and sends it (M29);
- timers and calls from other threads run in the loop, so nothing below it needs a lock.
"""

import os
import select
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from time import monotonic, time_ns
from typing import Final, Protocol

from milepost.broker.broker import Broker
from milepost.broker.effects import (
    Action,
    Changes,
    Deliver,
    Expel,
    Redirect,
    Release,
    Revoke,
    Run,
    Storage,
    StorageUnavailable,
    Welcome,
)
from milepost.broker.session import Link, Session
from milepost.listeners.log import Log
from milepost.model.endpoints import EndpointId
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.reasons import Reason, Refused

RETRY_NS: Final = SECOND_NS // 2


class ChangeWriter:
    """Writes the changes of each tick to storage, and buffers them while storage fails.

    | state   | `keep`                                         | `retry`                                |
    |---------|------------------------------------------------|----------------------------------------|
    | fine    | write; on failure: trouble, buffer the changes | nothing                                |
    | trouble | buffer the changes, return False               | write the buffer; then: fine           |

    In trouble the broker refuses requests that need storage, so the buffer stays small: it holds removals.
    """

    def __init__(self, broker: Broker, storage: Storage, log: Log) -> None:
        self._broker = broker
        self._storage = storage
        self._log = log
        self._held = Changes()
        self._tried_at = Instant(0)

    def keep(self, changes: Changes, now: Instant) -> bool:
        """Store the changes of a tick; return whether they are durable now."""
        if self._broker.trouble is None and self._write(changes, now):
            return True
        self._held.absorb(changes)
        return False

    def retry(self, now: Instant) -> None:
        """Try again to write the buffered changes, at most every `RETRY_NS`."""
        if self._broker.trouble is None or now - self._tried_at < RETRY_NS:
            return
        if self._write(self._held, now):
            self._held = Changes()
            self._broker.trouble = None
            self._log.info("storage is back")

    def _write(self, changes: Changes, now: Instant) -> bool:
        self._tried_at = now
        try:
            self._storage.write(changes)
        except StorageUnavailable as fault:
            if self._broker.trouble is None:
                self._log.warning("storage is unavailable", reason=str(fault))
            self._broker.trouble = str(fault)
            return False
        return True


_FIRST: Final = -1


class Listener(Protocol):
    """The calls that the end of a tick makes on a listener."""

    encodings: tuple[int, ...]
    """The encodings of this listener; no other listener has them."""

    def deliver(self, action: Deliver, now: Instant) -> None:
        """Send a message to sessions with one of the listener's encodings."""

    def run(self, action: Run, now: Instant) -> None:
        """Forward messages exactly as this listener received them."""

    def release(self, action: Release) -> None:
        """Continue a QoS 2 exchange."""

    def expel(self, link: Link, why: Refused) -> None:
        """Close a connection, if it belongs to this listener."""

    def redirect(self, link: Link, address: str) -> None:
        """Redirect an endpoint to another edge, if the connection belongs to this listener."""

    def revoke(self, action: Revoke) -> None:
        """Notify a session that one of its subscriptions has ended."""

    def welcome(self, name: EndpointId, why: Refused | None, now: Instant) -> None:
        """Connect an endpoint that waited for its session, or refuse it if *why* is given."""

    def take_back(self, why: Refused) -> None:
        """Discard the replies of this tick that depend on changes that could not be stored."""

    def let_go(self, session: Session, why: Refused) -> None:
        """Disconnect a session whose delivery guarantee cannot be met."""

    def resume(self, now: Instant) -> None:
        """Drain the queues of the sessions that accept more."""

    def send(self, now: Instant) -> bool:
        """Write all output and close finished connections; return whether another tick is needed at once."""

    def tick(self, now: Instant) -> None:
        """Do periodic work, such as closing silent connections."""


class TickLoop:
    """The end of a tick, for all listeners of an edge."""

    def __init__(self, broker: Broker, keeper: ChangeWriter, *doors: Listener) -> None:
        self._broker = broker
        self._keeper = keeper
        self._doors: list[Listener] = []
        self._by_encoding: dict[int, Listener] = {}
        for door in doors:
            self.join(door)

    def join(self, door: Listener) -> None:
        """Add a listener."""
        self._doors.append(door)
        self._by_encoding |= dict.fromkeys(door.encodings, door)

    def settle(self, now: Instant) -> bool:
        """End a tick: store changes, carry out actions, send; return whether another tick is needed at once."""
        broker = self._broker
        actions = broker.take_actions()
        if broker.changes and not self._keeper.keep(broker.take_changes(), now):
            actions = self._cut(actions)
        if actions:
            self._carry_out(actions, now)
        for door in self._doors:  # after the actions: a session may have reconnected with another encoding
            door.resume(now)
        if broker.has_actions:
            self._carry_out(broker.take_actions(), now)
        wants_another = False
        for door in self._doors:
            wants_another |= door.send(now)
        return wants_another or broker.has_actions

    def tick(self, now: Instant) -> None:
        """Do the periodic work of listeners and broker, and retry failed writes."""
        for door in self._doors:
            door.tick(now)
        self._broker.tick(now)
        self._keeper.retry(now)

    def _carry_out(self, actions: list[Action], now: Instant) -> None:
        if len(actions) > 1 and len({_urgency(action) for action in actions}) > 1:
            actions = sorted(actions, key=_urgency)
        for action in actions:
            self._carry(action, now)
            if self._broker.has_actions:  # messages of a run that could not be forwarded as received
                for made in self._broker.take_actions():
                    self._carry(made, now)

    def _carry(self, action: Action, now: Instant) -> None:
        match action:
            case Run():
                self._by_encoding[action.encoding].run(action, now)
            case Deliver():
                self._by_encoding[action.encoding].deliver(action, now)
            case Release(session):
                self._by_encoding[session.encoding].release(action)
            case Expel(link, why):
                for door in self._doors:
                    door.expel(link, why)
            case Redirect(link, address):
                for door in self._doors:
                    door.redirect(link, address)
            case Revoke(session):
                if session.encoding in self._by_encoding:
                    self._by_encoding[session.encoding].revoke(action)
            case Welcome(name, why):
                for door in self._doors:
                    door.welcome(name, why, now)

    def _cut(self, actions: list[Action]) -> list[Action]:
        """Discard replies and disconnect durable sessions that depend on unstored changes; return the actions that are safe."""
        why = Refused(Reason.STORAGE_UNAVAILABLE, self._broker.trouble or "")
        for door in self._doors:
            door.take_back(why)
        safe: list[Action] = []
        for action in actions:
            kept = [one for one in action.sessions if one.is_kept] if isinstance(action, Deliver) and action.number else []
            for session in kept:
                self._by_encoding[session.encoding].let_go(session, why)
            if not kept and not isinstance(action, Release):
                safe.append(action)
            elif isinstance(action, Deliver) and (others := [one for one in action.sessions if not one.is_kept]):
                safe.append(Deliver(action.delivery, action.number, others, is_again=action.is_again))
        return safe


def _urgency(action: Action) -> int:
    match action:
        case Run():
            return action.priority
        case Deliver():
            return action.delivery.publication.priority
        case _:
            return _FIRST


READABLE: Final = select.EPOLLIN
WRITABLE: Final = select.EPOLLOUT
BROKEN: Final = select.EPOLLERR | select.EPOLLHUP

EVENTS_A_TURN: Final = 64
"""Maximum connections served per tick; the rest wait for the next one. With more, clients and edge would wait for each other in
lockstep; with fewer, each write to storage would serve too few."""

_WAIT_S_MAX: Final = 1.0


class Watched(Protocol):
    """Something with a file descriptor that the loop watches."""

    def on_event(self, mask: int, now: Instant) -> None:
        """Handle a descriptor that is readable, writable or broken."""


Settle = Callable[[Instant], bool]
"""Called at the end of each tick; returns whether another tick is needed at once."""


class EventLoop:
    """An epoll loop with timers and thread-safe calls."""

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
        """Register a descriptor."""
        self._watched[fd] = watched
        self._epoll.register(fd, mask)

    def watch_for(self, fd: int, mask: int) -> None:
        """Change the events a descriptor is watched for."""
        self._epoll.modify(fd, mask)

    def unwatch(self, fd: int) -> None:
        """Unregister a descriptor; call this before closing it."""
        del self._watched[fd]
        self._epoll.unregister(fd)

    def settle_with(self, settle: Settle) -> None:
        """Add a call for the end of each tick."""
        self._settles.append(settle)

    def every(self, seconds: float, call: Callable[[Instant], None]) -> None:
        """Add a call that repeats every *seconds*."""
        self._order += 1
        heappush(self._timers, (monotonic() + seconds, self._order, call, seconds))

    def be_back_within(self, seconds: float) -> None:
        """Start the next tick after *seconds* at the latest; applies to the next tick only."""
        self._patience_s = min(self._patience_s, seconds)

    def call_soon(self, call: Callable[[Instant], None]) -> None:
        """Run *call* in the loop, in the next tick; callable from any thread."""
        self._calls.append(call)
        os.eventfd_write(self._wake_fd, 1)

    def stop(self) -> None:
        """Make `run` return after this tick."""
        self._is_over = True

    def run(self) -> None:
        """Run ticks until stopped."""
        wants_another = False
        while not self._is_over:
            wants_another = self.turn(0.0 if wants_another else self._wait_s())

    def turn(self, wait_s: float) -> bool:
        """Run one tick; return whether another is needed at once."""
        events = self._epoll.poll(wait_s, EVENTS_A_TURN)
        now = Instant(time_ns())
        watched = self._watched
        for fd, mask in events:
            if fd == self._wake_fd:
                os.eventfd_read(fd)
            elif (one := watched.get(fd)) is not None:  # else closed earlier in this tick
                one.on_event(mask, now)
        self._call(now)
        wants_another = False
        for settle in self._settles:
            wants_another |= settle(now)
        return wants_another

    def close(self) -> None:
        """Close the loop's own descriptors."""
        self._epoll.close()
        os.close(self._wake_fd)

    def _call(self, now: Instant) -> None:
        for _ in range(len(self._calls)):  # calls added meanwhile run in the next tick
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
