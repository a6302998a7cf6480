"""The core of a client session, common to MQTT and UDP.

    open ─▶ task: _run ─▶ _keep_connected (protocol) ─▶ on_end
    publish, subscribe, unsubscribe ─▶ protocol session ─▶ key ─┐
    protocol session ─▶ events ─▶ _dispatch ─▶ Done(key) ───────┴▶ the waiting caller
                                            └▶ Arrival, state changes ─▶ TransportObserver

Invariants:
- every waiting caller gets an answer, however the session ends;
- no more than `pending_max` publications are unanswered: further callers block;
- the core knows neither packets nor sockets: a subclass drives its session and passes the events on.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Hashable, Iterable
from time import monotonic
from typing import TypeVar, assert_never

from milepost.client.errors import ClientClosed, ClientFault, EdgeUnreachable, RefusedByEdge
from milepost.client.events import (
    Arrival,
    ClientState,
    ClientStateChange,
    Connected,
    Done,
    Ended,
    Event,
    Lost,
    ReportRefused,
    SubscriptionRefused,
    Suppressed,
)
from milepost.client.messages import OutgoingMessage, SubscriptionRequest
from milepost.client.transport import ClientLimits, TransportObserver
from milepost.wire.requests import REVOCATIONS_TOPIC

Result = TypeVar("Result")


class BaseTransport(ABC):
    """One client of one edge; subclasses are the transports."""

    def __init__(self, name: str, limits: ClientLimits) -> None:
        self.name = name
        self._limits = limits
        self._observer: TransportObserver | None = None
        self._task: asyncio.Task[None] | None = None
        self._fault: ClientFault | None = None
        self._is_connected = False
        self._was_connected = False
        self._is_over = False
        self._deadline_s: float | None = None
        """Deadline for reconnecting; None while connected."""
        self._refused: RefusedByEdge | None = None
        """The edge's last refusal of a report, or of the session."""
        self._wake = asyncio.Event()
        self._closing = asyncio.Event()
        self._opened = asyncio.Event()
        self._slots = asyncio.Semaphore(limits.pending_max)
        self._answers: dict[Hashable, asyncio.Future[None]] = {}

    async def open(self, observer: TransportObserver) -> None:
        """Connect; raise a `ClientFault` if that fails within the time limit."""
        assert self._task is None, "a client is opened once: call connect again"
        self._observer = observer
        self._task = asyncio.create_task(self._run(), name=f"milepost client {self.name}")
        try:
            await self._opened.wait()
            if not self._was_connected:
                raise self._fault or ClientClosed
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Disconnect and stop; idempotent."""
        self._closing.set()
        self._wake.set()
        if self._task is not None:
            await asyncio.wait([self._task])
            if not self._task.cancelled() and (fault := self._task.exception()) is not None:
                raise fault  # a bug in the client: do not hide it

    async def publish(self, publication: OutgoingMessage) -> None:
        """Send a publication; return once it is acknowledged as its QoS requires; raise `RefusedByEdge` if it is refused."""
        send = self._publication_sender(publication)  # raises for an invalid publication before it waits
        async with self._slots:
            await self._answer_to(send)

    async def subscribe(self, subscription_id: int, request: SubscriptionRequest) -> None:
        """Subscribe; return once it is granted; raise `RefusedByEdge` if it is refused."""
        try:
            await self._answer_to(lambda: self._send_subscribe(subscription_id, request))
        except asyncio.CancelledError:
            if not self._is_closed:
                self._send_unsubscribe(subscription_id)
                self._wake.set()
            raise

    async def unsubscribe(self, subscription_id: int) -> None:
        """Unsubscribe; do not wait for the answer while the edge is unreachable."""
        if self._is_closed:
            return
        key = self._send_unsubscribe(subscription_id)
        self._wake.set()
        if key is not None:
            await self._answer_to(lambda: key, ignores_faults=True)

    # Protocol-specific parts.

    @abstractmethod
    async def _keep_connected(self) -> None:
        """Connect repeatedly until the client is closed; raise a `ClientFault` to give up."""

    @abstractmethod
    def _publication_sender(self, publication: OutgoingMessage) -> Callable[[], Hashable]:
        """Validate a publication; return a function that queues it and returns the key of its `Done`."""

    @abstractmethod
    def subscription_id_for(self, request: SubscriptionRequest) -> int:
        """Return the id for a new subscription."""

    @abstractmethod
    def _send_subscribe(self, subscription_id: int, request: SubscriptionRequest) -> Hashable:
        """Queue a subscription and return the key of its `Done`."""

    @abstractmethod
    def _send_unsubscribe(self, subscription_id: int) -> Hashable | None:
        """Queue an unsubscription; return the key of its `Done`, or None if there is no answer to wait for."""

    @abstractmethod
    def _withdraw(self, key: Hashable) -> None:
        """Discard a request whose caller no longer waits, unless it was already sent."""

    @abstractmethod
    def _on_connected(self) -> str:
        """Process an accepted session; return the text of the state change."""

    @abstractmethod
    def _on_ended(self, ended: Ended) -> None:
        """Process a session that the edge ended; raise the fault if the client must end as well."""

    def _follow_revocations(self) -> None:
        """Subscribe to the list of revoked signers, for this client itself: a refusal changes nothing, and no caller waits."""
        request = SubscriptionRequest(REVOCATIONS_TOPIC)
        self._send_subscribe(self.subscription_id_for(request), request)

    # Waiting for answers.

    @property
    def _is_closed(self) -> bool:
        return self._task is None or self._is_over or self._closing.is_set()

    def _check_open(self) -> None:
        if self._is_closed:
            raise self._fault or ClientClosed

    async def _answer_to(self, send: Callable[[], Hashable], *, ignores_faults: bool = False) -> None:
        """Send a request and wait for its answer; if the caller is cancelled, withdraw the request if it is unsent."""
        self._check_open()
        key = send()
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._answers[key] = future
        self._wake.set()
        try:
            await future
        except ClientFault:
            if not ignores_faults:
                raise
        finally:
            del self._answers[key]
            if future.cancelled():
                self._withdraw(key)

    def _complete(self, key: Hashable, refused: RefusedByEdge | None) -> None:
        future = self._answers.get(key)
        if future is None or future.done():
            return
        if refused is None:
            future.set_result(None)
        else:
            future.set_exception(refused)

    # Connection lifecycle.

    async def _run(self) -> None:
        fault: ClientFault | None = EdgeUnreachable("the client ended unexpectedly")
        try:
            await self._keep_connected()
            fault = None
        except ClientFault as known:
            fault = known
        finally:
            self._finish(fault)

    def _finish(self, fault: ClientFault | None) -> None:
        """Fail all waiting callers; subclasses release their sockets and tasks."""
        self._is_over, self._fault = True, fault
        for future in self._answers.values():
            if not future.done():
                future.set_exception(fault or ClientClosed())
        self._open_observer.on_end(fault)
        self._opened.set()

    @property
    def _open_observer(self) -> TransportObserver:
        assert self._observer is not None, "the client was opened"
        return self._observer

    def _begin_deadline(self, within_s: float) -> None:
        self._deadline_s = monotonic() + within_s

    @property
    def _left_s(self) -> float | None:
        """The time left to reconnect; None while connected."""
        return None if self._deadline_s is None else max(0.0, self._deadline_s - monotonic())

    def _lose(self, reason: str) -> None:
        """Report the lost connection and start the deadline for reconnecting."""
        self._is_connected = False
        self._begin_deadline(self._limits.reconnect_within_s)
        self._open_observer.on_change(ClientStateChange(ClientState.RECONNECTING, reason))

    def _dispatch(self, events: Iterable[Event]) -> None:
        """Process the session's events."""
        for event in events:
            match event:
                case Connected():
                    self._is_connected = self._was_connected = True
                    self._deadline_s = self._refused = None
                    self._open_observer.on_change(ClientStateChange(ClientState.CONNECTED, self._on_connected()))
                    self._opened.set()
                case Lost():
                    self._lose(event.reason)
                case Done():
                    self._complete(event.key, event.refused)
                case Arrival():
                    self._open_observer.on_arrival(event)
                case Suppressed():
                    self._open_observer.on_suppressed(event)
                case SubscriptionRefused():
                    self._open_observer.on_refused(event.subscription_id, event.refused)
                case ReportRefused():
                    self._refused = event.refused
                case Ended():
                    self._on_ended(event)
                case _:
                    assert_never(event)

    async def _unless_closing(self, work: Awaitable[Result]) -> Result | None:
        """Return the result of *work*, or None if the client is closed first."""
        working, closed = asyncio.ensure_future(work), asyncio.ensure_future(self._closing.wait())
        try:
            await asyncio.wait([working, closed], return_when=asyncio.FIRST_COMPLETED)
            return await working if working.done() else None
        finally:
            closed.cancel()
            working.cancel()
