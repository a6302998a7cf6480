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
    CloseConnection,
    Deliver,
    FastPathBatch,
    Redirect,
    Release,
    Revoke,
    StateChanges,
    Storage,
    StorageUnavailable,
    Welcome,
)
from milepost.broker.session import Connection, Session
from milepost.listeners.diagnostic_log import DiagnosticLog
from milepost.model.endpoints import EndpointId
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.reasons import Reason, Refused

RETRY_NS: Final = SECOND_NS // 2


class ChangeWriter:
    """Writes the changes of each tick to storage, and buffers them while storage fails.

    | state   | `write`                                        | `retry`                                |
    |---------|------------------------------------------------|----------------------------------------|
    | healthy | write; on failure: failing, buffer the changes | nothing                                |
    | failing | buffer the changes, return False               | write the buffer; then: healthy        |

    While storage fails the broker refuses requests that need it, so the buffer stays small: it holds removals.
    """

    def __init__(self, broker: Broker, storage: Storage, log: DiagnosticLog) -> None:
        self._broker = broker
        self._storage = storage
        self._log = log
        self._buffered = StateChanges()
        self._tried_at = Instant(0)

    def write(self, changes: StateChanges, now: Instant) -> bool:
        """Store the changes of a tick; return whether they are durable now."""
        if self._broker.storage_error is None and self._write(changes, now):
            return True
        self._buffered.absorb(changes)
        return False

    def retry(self, now: Instant) -> None:
        """Try again to write the buffered changes, at most every `RETRY_NS`."""
        if self._broker.storage_error is None or now - self._tried_at < RETRY_NS:
            return
        if self._write(self._buffered, now):
            self._buffered = StateChanges()
            self._broker.storage_error = None
            self._log.info("storage is back")

    def _write(self, changes: StateChanges, now: Instant) -> bool:
        self._tried_at = now
        try:
            self._storage.write(changes)
        except StorageUnavailable as fault:
            if self._broker.storage_error is None:
                self._log.warning("storage is unavailable", reason=str(fault))
            self._broker.storage_error = str(fault)
            return False
        return True


_URGENCY_FIRST: Final = -1


class EdgeListener(Protocol):
    """The calls that the end of a tick makes on a listener."""

    encodings: tuple[int, ...]
    """The encodings of this listener; no other listener has them."""

    def deliver(self, action: Deliver, now: Instant) -> None:
        """Send a message to sessions with one of the listener's encodings."""

    def run(self, action: FastPathBatch, now: Instant) -> None:
        """Forward messages exactly as this listener received them."""

    def release(self, action: Release) -> None:
        """Continue a QoS 2 exchange."""

    def expel(self, connection: Connection, refused: Refused) -> None:
        """Close a connection, if it belongs to this listener."""

    def redirect(self, connection: Connection, address: str) -> None:
        """Redirect an endpoint to another edge, if the connection belongs to this listener."""

    def revoke(self, action: Revoke) -> None:
        """Notify a session that one of its subscriptions has ended."""

    def welcome(self, name: EndpointId, refused: Refused | None, now: Instant) -> None:
        """Connect an endpoint that waited for its session, or refuse it if *refused* is given."""

    def discard_replies(self, refused: Refused) -> None:
        """Discard the replies of this tick that depend on changes that could not be stored."""

    def disconnect(self, session: Session, refused: Refused) -> None:
        """Disconnect a session whose delivery guarantee cannot be met."""

    def resume(self, now: Instant) -> None:
        """Drain the queues of the sessions that accept more."""

    def send(self, now: Instant) -> bool:
        """Write all output and close finished connections; return whether another tick is needed at once."""

    def on_timer(self, now: Instant) -> None:
        """Do periodic work, such as closing silent connections."""


class TickCommitter:
    """Ends a tick: stores the changes, then lets all listeners send."""

    def __init__(self, broker: Broker, change_writer: ChangeWriter, *listeners: EdgeListener) -> None:
        self._broker = broker
        self._change_writer = change_writer
        self._listeners: list[EdgeListener] = []
        self._by_encoding: dict[int, EdgeListener] = {}
        for listener in listeners:
            self.add_listener(listener)

    def add_listener(self, listener: EdgeListener) -> None:
        """Add a listener."""
        self._listeners.append(listener)
        self._by_encoding |= dict.fromkeys(listener.encodings, listener)

    def commit(self, now: Instant) -> bool:
        """End a tick: store changes, carry out actions, send; return whether another tick is needed at once."""
        broker = self._broker
        actions = broker.take_actions()
        if broker.changes and not self._change_writer.write(broker.take_changes(), now):
            actions = self._discard_unstored(actions)
        if actions:
            self._carry_out(actions, now)
        for listener in self._listeners:  # after the actions: a session may have reconnected with another encoding
            listener.resume(now)
        if broker.has_actions:
            self._carry_out(broker.take_actions(), now)
        needs_another = False
        for listener in self._listeners:
            needs_another |= listener.send(now)
        return needs_another or broker.has_actions

    def on_timer(self, now: Instant) -> None:
        """Do the periodic work of listeners and broker, and retry failed writes."""
        for listener in self._listeners:
            listener.on_timer(now)
        self._broker.tick(now)
        self._change_writer.retry(now)

    def _carry_out(self, actions: list[Action], now: Instant) -> None:
        if len(actions) > 1 and len({_urgency(action) for action in actions}) > 1:
            actions = sorted(actions, key=_urgency)
        for action in actions:
            self._carry_out_one(action, now)
            if self._broker.has_actions:  # messages of a run that could not be forwarded as received
                for made in self._broker.take_actions():
                    self._carry_out_one(made, now)

    def _carry_out_one(self, action: Action, now: Instant) -> None:
        match action:
            case FastPathBatch():
                self._by_encoding[action.encoding].run(action, now)
            case Deliver():
                self._by_encoding[action.encoding].deliver(action, now)
            case Release(session):
                self._by_encoding[session.encoding].release(action)
            case CloseConnection(connection, refused):
                for listener in self._listeners:
                    listener.expel(connection, refused)
            case Redirect(connection, address):
                for listener in self._listeners:
                    listener.redirect(connection, address)
            case Revoke(session):
                if session.encoding in self._by_encoding:
                    self._by_encoding[session.encoding].revoke(action)
            case Welcome(name, refused):
                for listener in self._listeners:
                    listener.welcome(name, refused, now)

    def _discard_unstored(self, actions: list[Action]) -> list[Action]:
        """Discard replies and disconnect durable sessions that depend on unstored changes; return the actions that are safe."""
        refused = Refused(Reason.STORAGE_UNAVAILABLE, self._broker.storage_error or "")
        for listener in self._listeners:
            listener.discard_replies(refused)
        safe: list[Action] = []
        for action in actions:
            durable = (
                [one for one in action.sessions if one.is_durable] if isinstance(action, Deliver) and action.packet_id else []
            )
            for session in durable:
                self._by_encoding[session.encoding].disconnect(session, refused)
            if not durable and not isinstance(action, Release):
                safe.append(action)
            elif isinstance(action, Deliver) and (others := [one for one in action.sessions if not one.is_durable]):
                safe.append(Deliver(action.delivery, action.packet_id, others, is_duplicate=action.is_duplicate))
        return safe


def _urgency(action: Action) -> int:
    match action:
        case FastPathBatch():
            return action.priority
        case Deliver():
            return action.delivery.publication.priority
        case _:
            return _URGENCY_FIRST


READABLE: Final = select.EPOLLIN
WRITABLE: Final = select.EPOLLOUT
BROKEN: Final = select.EPOLLERR | select.EPOLLHUP

EVENTS_PER_TICK_MAX: Final = 64
"""Maximum connections served per tick; the rest wait for the next one. With more, clients and edge would wait for each other in
lockstep; with fewer, each write to storage would serve too few."""

_WAIT_S_MAX: Final = 1.0


class EventHandler(Protocol):
    """Something with a file descriptor that the loop watches."""

    def on_event(self, mask: int, now: Instant) -> None:
        """Handle a descriptor that is readable, writable or broken."""


EndOfTick = Callable[[Instant], bool]
"""Called at the end of each tick; returns whether another tick is needed at once."""


class EventLoop:
    """An epoll loop with timers and thread-safe calls."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._watched: dict[int, EventHandler] = {}
        self._end_of_tick_calls: list[EndOfTick] = []
        self._timers: list[tuple[float, int, Callable[[Instant], None], float]] = []
        self._calls: deque[Callable[[Instant], None]] = deque()
        self._order = 0
        self._is_stopped = False
        self._wait_s_next = _WAIT_S_MAX
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._wake_fd, READABLE)

    def watch(self, fd: int, watched: EventHandler, mask: int = READABLE) -> None:
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

    def at_end_of_tick(self, commit: EndOfTick) -> None:
        """Add a call for the end of each tick."""
        self._end_of_tick_calls.append(commit)

    def call_every(self, seconds: float, call: Callable[[Instant], None]) -> None:
        """Add a call that repeats every *seconds*."""
        self._order += 1
        heappush(self._timers, (monotonic() + seconds, self._order, call, seconds))

    def wake_within(self, seconds: float) -> None:
        """Start the next tick after *seconds* at the latest; applies to the next tick only."""
        self._wait_s_next = min(self._wait_s_next, seconds)

    def call_soon(self, call: Callable[[Instant], None]) -> None:
        """Run *call* in the loop, in the next tick; callable from any thread."""
        self._calls.append(call)
        os.eventfd_write(self._wake_fd, 1)

    def stop(self) -> None:
        """Make `run` return after this tick."""
        self._is_stopped = True

    def run(self) -> None:
        """Run ticks until stopped."""
        needs_another = False
        while not self._is_stopped:
            needs_another = self.run_once(0.0 if needs_another else self._wait_s())

    def run_once(self, wait_s: float) -> bool:
        """Run one tick; return whether another is needed at once."""
        events = self._epoll.poll(wait_s, EVENTS_PER_TICK_MAX)
        now = Instant(time_ns())
        watched = self._watched
        for fd, mask in events:
            if fd == self._wake_fd:
                os.eventfd_read(fd)
            elif (one := watched.get(fd)) is not None:  # else closed earlier in this tick
                one.on_event(mask, now)
        self._call(now)
        needs_another = False
        for commit in self._end_of_tick_calls:
            needs_another |= commit(now)
        return needs_another

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
        wait_s, self._wait_s_next = self._wait_s_next, _WAIT_S_MAX
        if self._calls:
            return 0.0
        return min(wait_s, max(0.0, self._timers[0][0] - monotonic())) if self._timers else wait_s
