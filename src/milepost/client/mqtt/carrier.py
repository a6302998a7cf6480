"""MQTT as a carrier: the skin of asyncio around `Session`: sockets, clocks, tasks, and who waits for what.

    _live     one attempt after the other until it is closed or there is no sense in going on
      └ _converse   one connection: three tasks, of which the first to end ends the others
          ├ _read      bytes ─▶ session ─▶ events
          ├ _write     session ─▶ bytes, whenever `_wake` is set
          └ _beat      pings

What must hold: whoever waits is told, whatever ends; nothing here decides what MQTT decides.
"""

import asyncio
import contextlib
import os
import ssl
from collections.abc import Iterable
from random import random
from time import monotonic, time_ns
from typing import Final, assert_never

from milepost.client.carriers import Arrival, Listener, Motion
from milepost.client.faults import ClientFault, EdgeClosed, EdgeUnreachable, RefusedByEdge
from milepost.client.mqtt.course import Course
from milepost.client.mqtt.events import Arrived, Done, Ended, Event, Opened, WishRefused
from milepost.client.mqtt.session import Phase, Session
from milepost.client.mqtt.streams import GOODBYE_S, Stream, Target, open_stream
from milepost.client.mqtt.timing import BackOff, KeepAlive, Step
from milepost.client.mqtt.words import packet_of, received_from
from milepost.client.patience import Patience, unless_closing
from milepost.client.states import Change, State
from milepost.client.values import Publication, Wish
from milepost.model.instants import Instant
from milepost.model.reasons import Malformed

ATTEMPT_S: Final = 10.0
"""So long one attempt to connect may take, from the name of the host to CONNACK."""

SETTLED_S: Final = 5.0
"""A connection that lasts so long was a good one: the next attempt after it is made at once."""


class MqttCarrier:
    """One client of one server, or of those that it sends the client on to."""

    def __init__(
        self, target: Target, session: Session, *, tls: ssl.SSLContext | None, patience: Patience, forgets: bool
    ) -> None:
        self._course = Course(target)
        self._session = session
        self._tls = tls
        self._patience = patience
        self._forgets = forgets
        self._listener: Listener | None = None
        self._task: asyncio.Task[None] | None = None
        self._fault: ClientFault | None = None
        self._is_connected = False
        self._is_closing = False
        self._wake = asyncio.Event()
        self._opened = asyncio.Event()
        self._closing = asyncio.Event()
        self._room = asyncio.Semaphore(patience.waiting_max)
        self._outcomes: dict[int, asyncio.Future[None]] = {}
        self._beat_state = KeepAlive(0, 0)
        self._ended: Ended | None = None
        self._began = 0.0

    @property
    def name(self) -> str:
        """What the edge calls this endpoint."""
        return self._session.setup.client_id

    @property
    def url(self) -> str:
        """Where it is connected, or tries to be."""
        return str(self._course.target)

    @property
    def _to(self) -> Listener:
        assert self._listener is not None, "it was opened"
        return self._listener

    async def open(self, listener: Listener) -> None:
        """Connect; comes back when it is connected, or raises a `ClientFault`."""
        assert self._task is None, "an edge is opened once: connect again"
        self._listener = listener
        opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._outcomes[0] = opened
        self._task = asyncio.create_task(self._live(), name=f"milepost client {self.name}")
        try:
            await opened
        except BaseException:
            await self.close()
            raise

    async def publish(self, publication: Publication) -> None:
        """Send; comes back when the edge answered as the quality asks for, raises `RefusedByEdge` if that was a no."""
        now = Instant(time_ns())
        packet, valid_until = packet_of(publication, now)
        async with self._room:
            self._check_open()
            await self._outcome(self._session.publish(packet, valid_until))

    async def report(self, motion: Motion) -> None:
        """Say where the endpoint is."""
        async with self._room:
            self._check_open()
            await self._outcome(self._session.report(motion, Instant(time_ns())))

    def label_for(self, wish: Wish) -> int:
        """The label under which messages will arrive, if this is asked for next; the same in another life of the client."""
        return self._session.label_for(wish)

    async def subscribe(self, label: int, wish: Wish) -> None:
        """Ask; comes back when it was granted, raises `RefusedByEdge` if not."""
        self._check_open()
        try:
            await self._outcome(self._session.subscribe(label, wish))
        except asyncio.CancelledError:
            self._session.unsubscribe(label)
            self._wake.set()
            raise

    async def unsubscribe(self, label: int) -> None:
        """Ask no longer. While the edge is away this does not wait for it: it is told when it is back."""
        if self._is_over:
            return
        ticket, done = self._session.unsubscribe(label)
        if done is None and self._session.phase is Phase.OPEN:
            with contextlib.suppress(ClientFault):  # either way, nothing comes any more
                await self._outcome(ticket)
        self._wake.set()

    def took(self, receipt: object) -> None:
        """The application has the message."""
        self._session.took(receipt)
        self._wake.set()

    async def close(self) -> None:
        """Say goodbye and stop; may be called twice."""
        self._is_closing = True
        self._closing.set()
        if self._task is not None:
            await asyncio.wait([self._task])
            if not self._task.cancelled() and (fault := self._task.exception()) is not None:
                raise fault  # ours: a bug, to be seen

    @property
    def _is_over(self) -> bool:
        return self._task is None or self._task.done() or self._fault is not None or self._is_closing

    def _check_open(self) -> None:
        if self._is_over:
            raise self._fault or EdgeClosed

    async def _outcome(self, ticket: int) -> None:
        """Wait for the answer to what has a ticket; whoever stops waiting takes back what was not sent yet."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._outcomes[ticket] = future
        self._wake.set()
        try:
            await future
        finally:
            del self._outcomes[ticket]
            if future.cancelled():
                self._session.withdraw(ticket)

    async def _live(self) -> None:
        fault: ClientFault | None = EdgeUnreachable("the client ended unexpectedly")
        try:
            await self._keep_connected()
            fault = None
        except ClientFault as known:
            fault = known
        finally:
            self._finish(fault)

    def _finish(self, fault: ClientFault | None) -> None:
        self._fault = fault
        for future in self._outcomes.values():
            if not future.done():
                future.set_exception(fault or EdgeClosed())
        self._to.on_end(fault)

    async def _keep_connected(self) -> None:
        """Attempt after attempt; comes back when it is closed."""
        back_off = BackOff(random)
        until = monotonic() + self._patience.first_s
        while not self._is_closing:
            self._began, url, self._ended = monotonic(), self.url, None
            why = await self._attempt()
            if self._is_closing:
                return
            now = monotonic()
            self._tell_away(why, url)
            if self._is_connected:
                if self._has_lasted:
                    back_off.reset()
                self._is_connected = False
                until = now + self._patience.lost_s
            if now >= until:
                raise why if isinstance(why, RefusedByEdge) else EdgeUnreachable(f"{url}: {why}")
            await self._pause(min(back_off.next_s(), until - now))

    def _tell_away(self, why: Exception, url: str) -> None:
        """Say that the connection is lost, and where the next one is sought if that is not where this one was."""
        state = State.CONNECTING if 0 in self._outcomes else State.AWAY
        if url != self.url:
            self._to.on_change(Change(state, f"{str(why).rstrip('.')}; going to {self.url}"))
        elif self._is_connected:
            self._to.on_change(Change(state, str(why)))

    @property
    def _has_lasted(self) -> bool:
        return self._is_connected and monotonic() - self._began > SETTLED_S

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._closing.wait()

    async def _attempt(self) -> Exception:
        """One connection, from the first byte to the last; gives why it ended."""
        stream: Stream | None = None
        try:
            async with asyncio.timeout(ATTEMPT_S):
                stream = await unless_closing(
                    self._closing, open_stream(self._course.target, self._tls, self._session.setup.packet_bytes_max)
                )
            if stream is None:
                return EdgeClosed()
            await self._converse(stream)
        except (OSError, Malformed) as fault:  # a timeout and a fault of TLS are OSErrors too
            if self._ended is None:  # else the server's last word says more
                return self._failed(ConnectionError(_said(fault)))
        finally:
            self._tell(self._session.on_lost())
            if self._has_lasted:
                self._course.settled()
            if stream is not None:
                with contextlib.suppress(OSError):
                    await stream.close()
        if self._ended is None:
            return self._failed(ConnectionError("the connection was closed"))
        return self._judged(self._ended)

    def _judged(self, ended: Ended) -> Exception:
        """What to make of the server's last word: raised if there is no sense in coming back, here or elsewhere."""
        if ended.reference and self._course.follow(ended.reference):
            return ended.refused
        if ended.is_final and (self._is_connected or not self._course.turn_back()):
            raise ended.refused
        return self._failed(ended.refused)

    def _failed(self, why: Exception) -> Exception:
        if not self._is_connected:
            self._course.failed()
        return why

    async def _converse(self, stream: Stream) -> None:
        """Talk over one connection until it ends, or until we are closed."""
        self._session.begin()
        self._opened.clear()
        self._wake.set()
        self._beat_state = KeepAlive(self._session.keep_alive_s, monotonic())
        tasks = [
            asyncio.create_task(one) for one in (self._read(stream), self._write(stream), self._beat(), self._closing.wait())
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
        faults = [end for end in ends if isinstance(end, Exception)]
        if self._is_closing:
            self._session.leave(forget=self._forgets)
            await self._say_last(stream)
        elif objections := [fault for fault in faults if isinstance(fault, Malformed)]:
            self._session.object_to(objections[0])
            await self._say_last(stream)
        if faults:
            raise faults[0]

    async def _say_last(self, stream: Stream) -> None:
        data, _ = self._session.take(Instant(time_ns()))
        if data:
            with contextlib.suppress(OSError):
                async with asyncio.timeout(GOODBYE_S):
                    await stream.send(data)

    async def _read(self, stream: Stream) -> None:
        while data := await stream.read():
            self._beat_state.heard(monotonic())
            self._tell(self._session.on_bytes(data, Instant(time_ns())))
            self._wake.set()
            if self._session.phase is Phase.OFF:
                return

    async def _write(self, stream: Stream) -> None:
        while True:
            data, events = self._session.take(Instant(time_ns()))
            if not data and not events:
                self._wake.clear()
                await self._wake.wait()
                continue
            try:
                await stream.send(data)
            finally:  # of quality 0 nobody knows more than that it was handed over
                self._tell(events)
            self._beat_state.sent(monotonic())

    async def _beat(self) -> None:
        async with asyncio.timeout(ATTEMPT_S):
            await self._opened.wait()
        while True:
            await asyncio.sleep(self._beat_state.due_s(monotonic()))
            step = self._beat_state.step(monotonic())
            if step is Step.GIVE_UP:
                raise TimeoutError("the server does not answer a ping")
            if step is Step.PING:
                self._session.ping()
                self._wake.set()

    def _tell(self, events: Iterable[Event]) -> None:
        """Pass on what the session says."""
        for event in events:
            match event:
                case Opened():
                    self._on_opened()
                case Done():
                    self._settle(event.ticket, event.refused)
                case Arrived():
                    received = received_from(event.packet, Instant(time_ns()))
                    self._to.on_arrival(Arrival(received, self._session.labels_of(event.packet), event.held))
                case WishRefused():
                    self._to.on_refused(event.label, event.refused)
                case Ended():
                    self._ended = event
                case _:
                    assert_never(event)

    def _on_opened(self) -> None:
        self._is_connected = True
        self._opened.set()
        self._beat_state = KeepAlive(self._session.keep_alive_s, monotonic())
        self._course.opened()
        self._to.on_change(Change(State.CONNECTED, "" if self._course.is_home else f"at {self.url}"))
        if 0 in self._outcomes:
            self._settle(0, None)
            del self._outcomes[0]

    def _settle(self, ticket: int, refused: RefusedByEdge | None) -> None:
        future = self._outcomes.get(ticket)
        if future is None or future.done():
            return
        if refused is None:
            future.set_result(None)
        else:
            future.set_exception(refused)


def _said(fault: Exception) -> str:
    if isinstance(fault, OSError) and not isinstance(fault, ssl.SSLError) and fault.errno and fault.errno > 0:
        return os.strerror(fault.errno)  # asyncio words it in a way of its own
    return str(fault) or ("no answer in time" if isinstance(fault, TimeoutError) else type(fault).__name__)
