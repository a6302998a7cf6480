"""UDP as a carrier: the skin of asyncio around `Session`: the socket, the clock, and who waits for what.

    _live     find an edge, then one turn after the other until it is closed or there is no sense in going on
      └ _turn     ticks, datagrams out, events; then it sleeps until something comes, is asked for, or is due

What must hold: whoever waits is told, whatever ends; a fault of the socket ends nothing: the session goes on over the next one,
for the edge follows addresses.
"""

import asyncio
import contextlib
import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Final, assert_never

from milepost.client.carriers import Arrival, Listener, Motion
from milepost.client.faults import ClientFault, EdgeClosed, EdgeUnreachable, RefusedByEdge
from milepost.client.patience import Patience, unless_closing
from milepost.client.states import Change, State
from milepost.client.udp.asking import Found
from milepost.client.udp.cells import Ears
from milepost.client.udp.clocks import Clock
from milepost.client.udp.events import Arrived, Away, Complained, Connected, Done, Ended, Event, Hidden
from milepost.client.udp.finding import Seeker, find
from milepost.client.udp.lookout import Lookout
from milepost.client.udp.ports import Said, connect_port
from milepost.client.udp.seals import Credentials
from milepost.client.udp.session import Phase, Session
from milepost.client.udp.setup import Setup
from milepost.client.udp.trust import Trust
from milepost.client.udp.words import label_after, label_of, message_of, received_from, subscription_of
from milepost.client.values import Publication, Wish
from milepost.model.endpoints import EndpointId
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.messages import MessageId
from milepost.model.places import Place
from milepost.model.reasons import Reason
from milepost.model.reports import Report
from milepost.model.sessions import MessageName, Name, SubscriptionName
from milepost.model.subscriptions import SubscriptionId
from milepost.trust.authority import Authority

ATTEMPT_S: Final = 4.0
"""So long one attempt to find and open takes: datagrams may be lost, so one alone is none."""

_NO_ANSWER: Final = "no answer; an edge that seals its datagrams answers those only who have a certificate (trust)"

WISHES_MAX: Final = 1_000
"""The most subscriptions of one client."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Who connects, from where."""

    name: EndpointId
    place: Place
    trust: Trust | None
    held_max: int = 100
    hears_cells: bool = False


class UdpCarrier:
    """One endpoint of one edge."""

    def __init__(self, endpoint: Endpoint, seeker: Seeker, patience: Patience) -> None:
        self._endpoint = endpoint
        self._seeker = seeker
        self._patience = patience
        self._clock = Clock()
        self._place = endpoint.place
        self._lookout = Lookout(seeker, self._rouse)
        self._ears = Ears(self._on_overheard)
        self._listener: Listener | None = None
        self._task: asyncio.Task[None] | None = None
        self._session: Session | None = None
        self._found: Found | None = None
        self._transport: asyncio.DatagramTransport | None = None
        self._is_port_broken = True
        self._why = "no answer" if endpoint.trust is not None else _NO_ANSWER
        self._refused: RefusedByEdge | None = None
        self._fault: ClientFault | None = None
        self._is_over = False
        self._is_closing = False
        self._until_s: float | None = None
        """When there is no sense in waiting any longer for an edge that is not there."""
        self._wake = asyncio.Event()
        self._closing = asyncio.Event()
        self._room = asyncio.Semaphore(patience.waiting_max)
        self._opened: asyncio.Future[None] | None = None
        self._outcomes: dict[Name, asyncio.Future[None]] = {}
        self._labels: set[int] = set()
        self._last_id = 0

    @property
    def name(self) -> str:
        """What the edge calls this endpoint."""
        return self._endpoint.name

    @property
    def url(self) -> str:
        """Where it is connected, or tries to be; empty while it looks for an edge."""
        return "" if self._found is None else f"udp://{self._found}"

    @property
    def _to(self) -> Listener:
        assert self._listener is not None, "it was opened"
        return self._listener

    @property
    def _open_session(self) -> Session:
        if self._session is None or self._is_over or self._is_closing:
            raise self._fault or EdgeClosed
        return self._session

    async def open(self, listener: Listener) -> None:
        """Connect; comes back when it is connected, or raises a `ClientFault`."""
        assert self._task is None, "an edge is opened once: connect again"
        self._listener = listener
        self._opened = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._live(), name=f"milepost client {self.name}")
        try:
            await self._opened
        except BaseException:
            await self.close()
            raise

    async def publish(self, publication: Publication) -> None:
        """Send; comes back when the edge answered, or when it was sent (quality 0); raises `RefusedByEdge` if that was a no."""
        now = self._clock.now()
        self._last_id = max(now, self._last_id + 1)
        message = message_of(publication, self._endpoint.name, MessageId(self._last_id), now)
        name = MessageName(message.source, message.id)
        async with self._room:
            session = self._open_session
            try:
                await self._outcome(name, lambda: session.publish(message, self._clock.now()))
            except asyncio.CancelledError:
                session.withdraw(name)
                raise

    async def report(self, motion: Motion) -> None:
        """Say where the endpoint is; raises what the edge said against the last report."""
        session, now = self._open_session, self._clock.now()
        session.report(self._report_of(motion, now), now)
        self._place = motion.place
        self._rouse()
        if self._refused is not None:
            refused, self._refused = self._refused, None
            raise refused

    def label_for(self, wish: Wish) -> int:
        """The label under which messages will arrive, if this is asked for next; the same in another life of the client."""
        session = self._open_session
        if len(self._labels) >= WISHES_MAX:
            raise RefusedByEdge.of(Reason.SUBSCRIPTIONS_FULL, f"a client may have {WISHES_MAX}")
        label = label_of(wish)
        while label == 0 or not session.is_label_free(SubscriptionId(label)):
            label = label_after(label)
        return label

    async def subscribe(self, label: int, wish: Wish) -> None:
        """Ask; comes back when it was granted, raises `RefusedByEdge` if not."""
        session = self._open_session
        subscription = subscription_of(wish, self._endpoint.name, label)
        name = SubscriptionName(self._endpoint.name, subscription.id)
        self._labels.add(label)
        try:
            await self._outcome(name, lambda: session.subscribe(subscription, self._clock.now()))
        except BaseException as fault:
            self._labels.discard(label)
            if isinstance(fault, asyncio.CancelledError):
                self._forget_wish(label)
            raise

    async def unsubscribe(self, label: int) -> None:
        """Ask no longer. This does not wait for the edge: nothing more is shown either way."""
        self._labels.discard(label)
        if not self._is_over and not self._is_closing:
            self._forget_wish(label)

    def _forget_wish(self, label: int) -> None:
        self._open_session.unsubscribe(SubscriptionId(label), self._clock.now())
        self._rouse()

    def took(self, receipt: object) -> None:
        """The application has the message."""
        assert isinstance(receipt, MessageName), "receipts are made by `Session`"
        if self._session is not None:
            self._session.took(receipt)
            self._rouse()

    async def close(self) -> None:
        """Say goodbye and stop; may be called twice."""
        self._is_closing = True
        self._closing.set()
        self._rouse()
        if self._task is not None:
            await asyncio.wait([self._task])
            if not self._task.cancelled() and (fault := self._task.exception()) is not None:
                raise fault  # ours: a bug, to be seen

    def _rouse(self) -> None:
        self._wake.set()

    async def _outcome(self, name: Name, say: Callable[[], None]) -> None:
        """Say something, and wait for the answer to what has this name."""
        future = self._outcomes[name] = asyncio.get_running_loop().create_future()
        try:
            say()
            self._rouse()
            await future
        finally:
            del self._outcomes[name]

    async def _live(self) -> None:
        fault: ClientFault | None = EdgeUnreachable("the client ended unexpectedly")
        try:
            await self._keep_connected()
            fault = None
        except ClientFault as known:
            fault = known
        finally:
            self._lookout.end()
            self._ears.close()
            if self._transport is not None:
                self._transport.close()
            self._finish(fault)

    def _finish(self, fault: ClientFault | None) -> None:
        self._is_over, self._fault = True, fault
        for future in [*self._outcomes.values(), *([] if self._opened is None else [self._opened])]:
            if not future.done():
                future.set_exception(fault or EdgeClosed())
        self._to.on_end(fault)

    async def _keep_connected(self) -> None:
        """Turn after turn; comes back when it is closed."""
        within_s = max(self._patience.first_s, ATTEMPT_S)
        self._until_s = monotonic() + within_s
        found = await unless_closing(self._closing, find(self._seeker, within_s))
        if found is None:
            return
        self._found = found
        self._session = session = Session(self._setup(found), os.urandom)
        now = self._clock.now()
        session.start(self._report_of(Motion(self._endpoint.place), now), now)
        while session.phase is not Phase.CLOSED:
            await self._turn(session)
            if self._is_closing:
                session.close(self._clock.now())
                self._send(session.take_outgoing())
        for event in session.take_events():  # how it ended, if that came while it slept
            self._tell(event)

    def _setup(self, found: Found) -> Setup:
        trust, credentials = self._endpoint.trust, None
        if trust is not None and trust.certificate is not None:
            credentials = Credentials(trust.certificate, trust.key, found.key)
        return Setup(
            self._endpoint.name,
            credentials,
            None if trust is None else Authority(trust.authority),
            self._patience.waiting_max,
            self._endpoint.held_max,
            self._endpoint.hears_cells,
        )

    def _report_of(self, motion: Motion, now: Instant) -> Report:
        return Report(self._endpoint.name, motion.place, motion.seen_at or now, motion.heading_deg, motion.speed_mps)

    async def _turn(self, session: Session) -> None:
        """Do what is due, say what there is to say, then wait for the next."""
        session.on_tick(self._clock.now())
        if outgoing := session.take_outgoing():
            await self._open_port()
            self._send(outgoing)
        for event in session.take_events():
            self._tell(event)
        self._check_patience()
        if self._transport is not None:
            self._ears.listen(session.cells, self._place, self._transport.get_extra_info("sockname")[0])
        if session.phase is Phase.AWAY:
            self._look_around(session)
        if not self._is_closing and session.phase is not Phase.CLOSED:
            await self._sleep(session)

    def _look_around(self, session: Session) -> None:
        found = self._lookout.maybe_found(self._place)
        if found is not None and found != self._found:
            self._found, self._is_port_broken = found, True
            session.meet(found.key, self._clock.now())

    async def _sleep(self, session: Session) -> None:
        wait_s = max(0.0, (session.next_at - self._clock.now()) / SECOND_NS)
        if self._until_s is not None:
            wait_s = min(wait_s, max(0.0, self._until_s - monotonic()))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._wake.wait()
        self._wake.clear()

    def _check_patience(self) -> None:
        if self._until_s is None:
            return
        is_hopeless = self._patience.first_s == 0 and self._why == os.strerror(errno.ECONNREFUSED) and not self._was_opened
        if monotonic() >= self._until_s or is_hopeless:
            raise self._refused or EdgeUnreachable(f"{self._seeker.target}: {self._why}")

    @property
    def _was_opened(self) -> bool:
        return self._opened is not None and self._opened.done()

    async def _open_port(self) -> None:
        """A socket, if there is none that works; what cannot be sent meanwhile is lost, as on any network."""
        if not self._is_port_broken:
            return
        assert self._found is not None, "an edge was found"
        if self._transport is not None:
            self._transport.close()
            self._transport = None
        try:
            self._transport = await connect_port((self._found.host, self._found.port), self._on_said, self._on_fault)
            self._is_port_broken = False
        except OSError as fault:
            self._on_fault(fault)

    def _send(self, outgoing: list[bytes]) -> None:
        for data in outgoing:
            if self._transport is not None and not self._transport.is_closing():
                self._transport.sendto(data)

    def _on_said(self, said: Said) -> None:
        if self._session is not None:
            self._session.on_datagram(said[0], self._clock.now())
            self._rouse()

    def _on_overheard(self, data: bytes) -> None:
        if self._session is not None:
            self._session.on_multicast(data, self._clock.now())
            self._rouse()

    def _on_fault(self, fault: OSError) -> None:
        """Nobody listens there (which may change), or the socket is of no use where we are now."""
        self._is_port_broken |= fault.errno != errno.ECONNREFUSED
        self._why = os.strerror(fault.errno) if fault.errno and fault.errno > 0 else str(fault)
        self._rouse()

    def _tell(self, event: Event) -> None:
        """Pass on what the session says."""
        match event:
            case Connected():
                self._on_connected()
            case Away():
                self._why, self._is_port_broken = event.why, True
                self._until_s = monotonic() + self._patience.lost_s
                self._lookout.begin()
                self._to.on_change(Change(State.AWAY, event.why))
            case Done():
                self._settle(event.name, event.refused)
            case Arrived():
                received = received_from(event.message, self._clock.now(), is_signed=event.is_signed)
                self._to.on_arrival(Arrival(received, event.labels, event.receipt))
            case Hidden():
                self._to.on_unshown(event.why)
            case Complained():
                self._refused = event.refused
            case Ended():
                if event.fault is not None:
                    raise event.fault
            case _:
                assert_never(event)

    def _on_connected(self) -> None:
        self._until_s = self._refused = None
        self._lookout.end()
        self._to.on_change(Change(State.CONNECTED))
        if self._opened is not None and not self._opened.done():
            self._opened.set_result(None)

    def _settle(self, name: Name, refused: RefusedByEdge | None) -> None:
        future = self._outcomes.get(name)
        if future is None and refused is not None and isinstance(name, SubscriptionName):
            self._labels.discard(name.id)
            self._to.on_refused(name.id, refused)
        if future is None or future.done():
            return
        if refused is None:
            future.set_result(None)
        else:
            future.set_exception(refused)
