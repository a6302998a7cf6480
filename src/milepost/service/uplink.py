"""The uplink: one client of an edge, run beside the loop of an agent, on behalf of all its local programs.

    main thread (turns)                        uplink thread (asyncio)
    take, take_report, want     ──────▶        publish, report, subscribe at the edge
    arrive, tell                ◀──────        what the edge sends, and whether it is there

What must hold: everything between the threads is handed over by `call_soon` on either side; what waits for the edge is limited.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, suppress
from typing import Any, Final, Literal, NamedTuple, TypeVar

from milepost.client import ClientFault, Edge, Inbox
from milepost.client.states import State
from milepost.client.values import Received
from milepost.edge.elsewhere import Elsewhere
from milepost.edge.parcels import Parcel
from milepost.model.areas import Area, Around
from milepost.model.frames import Frame
from milepost.model.instants import FOREVER, Instant
from milepost.model.queries import OnTopic, Query
from milepost.model.reasons import Malformed, Reason, Refused
from milepost.model.reports import Report
from milepost.service.logs import Log
from milepost.wire.asks import ordinary_properties
from milepost.wire.mqtt import parse_forwarded

Result = TypeVar("Result")

WAITING_MAX: Final = 1_000
"""So many messages of local programs wait for the edge's answer."""

STOP_S: Final = 2.0


class Asking(NamedTuple):
    """What some local program asks for."""

    query: Query
    area: Area | Around | None
    frame: Frame
    qos: int


CallSoon = Callable[[Callable[[Instant], None]], None]


class Uplink(Elsewhere):
    """The client, its thread, and what was handed to it."""

    def __init__(self, edge: Edge, call_soon: CallSoon, arrive: Callable[[Received, Instant], None], log: Log) -> None:
        self._edge = edge
        self._call_soon = call_soon
        self._arrive = arrive
        self._log = log
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="uplink", daemon=True)
        self._over = asyncio.Event()
        self._met = asyncio.Event()
        """The edge was there once: from then on the client itself keeps what is to be said."""
        self._asked: dict[Asking, AsyncExitStack] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._wanted: frozenset[Asking] = frozenset()
        self._is_asking = False
        self._waiting = 0
        self.name = edge.name
        """What the edge calls this vehicle."""
        self.is_there = False
        """Whether the edge is connected."""
        self.fault: ClientFault | None = None
        """Why it is over, if not because it was stopped."""
        self.stop_all: Callable[[], None] = _nothing
        """Called, in the main thread, when it is over by itself."""

    def start(self) -> None:
        """Connect, and go on trying for ever."""
        self._thread.start()

    def stop(self) -> None:
        """Say goodbye to the edge."""
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(STOP_S)

    # From the main thread

    def is_wanted(self, topic: str) -> bool:
        """Everything may be wanted elsewhere, but what is local by its name."""
        return not topic.startswith("$")

    def take(self, parcel: Parcel, now: Instant) -> Refused | None:
        """Send a message of a local program to the edge, if not too many wait."""
        del now
        if not self.is_wanted(parcel.topic):
            return None
        if self._waiting >= WAITING_MAX:
            return Refused(Reason.QUEUE_FULL, f"{self._waiting} messages wait for the edge")
        self._waiting += 1
        self._loop.call_soon_threadsafe(self._begin, self._publish(parcel))
        return None

    def take_report(self, report: Report) -> None:
        """Tell the edge where the vehicle is."""
        self._loop.call_soon_threadsafe(self._begin, self._report(report))

    def want(self, wanted: frozenset[Asking]) -> None:
        """Ask the edge for what local programs ask for, and for nothing else."""
        self._loop.call_soon_threadsafe(self._want, wanted)

    def _answered(self, now: Instant) -> None:
        del now
        self._waiting -= 1

    # In the uplink's thread

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        except ClientFault as fault:
            self.fault = fault
        finally:
            self._loop.close()
            self._call_soon(lambda _: self.stop_all())

    async def _serve(self) -> None:
        following, over = asyncio.ensure_future(self._follow()), asyncio.ensure_future(self._over.wait())
        try:
            opening = await _unless(over, self._edge.open())
            if opening is not None:
                opening.result()
                self._met.set()
                async with self._edge.messages() as messages:
                    await self._pass_on(messages, over)
        finally:
            for task in (following, over, *self._tasks):
                task.cancel()
            await self._edge.close()

    async def _pass_on(self, messages: Inbox, over: "asyncio.Future[Literal[True]]") -> None:
        while (taken := await _unless(over, messages.receive())) is not None:
            received = taken.result()
            self._call_soon(lambda now, received=received: self._arrive(received, now))  # type: ignore[misc]

    async def _follow(self) -> None:
        self._tell(self._edge.state, "")
        async for change in self._edge.changes():
            self._tell(change.state, change.why)

    def _tell(self, state: State, why: str) -> None:
        self.is_there = state is State.CONNECTED
        self._log.info("edge", state=state.value, why=why or None)

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _publish(self, parcel: Parcel) -> None:
        try:
            await self._met.wait()
            await self._edge.publish(
                parcel.topic,
                parcel.body,
                tags=parcel.tags,
                place=parcel.place,
                to=parcel.address,
                priority=parcel.priority,
                seen_at=parcel.seen_at,
                valid_until=None if parcel.valid_until == FOREVER else parcel.valid_until,
                qos=parcel.qos,
                properties=_properties_of(parcel),
            )
        except (ClientFault, Malformed) as fault:
            self._log.seldom("message not taken by the edge", topic=parcel.topic, reason=str(fault))
        finally:
            self._call_soon(self._answered)

    async def _report(self, report: Report) -> None:
        place = report.place
        if not self._met.is_set():  # the next one will tell
            return
        with suppress(ClientFault):
            await self._edge.report(
                place.latitude,
                place.longitude,
                heading_deg=report.heading_deg,
                speed_mps=report.speed_mps,
                seen_at=report.seen_at,
            )

    def _want(self, wanted: frozenset[Asking]) -> None:
        self._wanted = wanted
        if not self._is_asking:
            self._is_asking = True
            self._begin(self._ask())

    async def _ask(self) -> None:
        """Go on until what is asked for is what is wanted, which may change meanwhile."""
        try:
            await self._met.wait()
            while self._wanted != self._asked.keys():
                for asking in [one for one in self._asked if one not in self._wanted]:
                    await self._asked.pop(asking).aclose()
                for asking in [one for one in self._wanted if one not in self._asked]:
                    self._asked[asking] = await self._subscribed(asking)
        finally:
            self._is_asking = False

    async def _subscribed(self, asking: Asking) -> AsyncExitStack:
        query, area, frame, qos = asking
        topic_filter = query.filter if isinstance(query, OnTopic) else "#"
        formula = None if isinstance(query, OnTopic) else query
        stack = AsyncExitStack()
        try:
            inbox = await stack.enter_async_context(
                self._edge.subscribe(topic_filter, query=formula, area=area, frame=frame, qos=qos)
            )
        except (ClientFault, Malformed) as fault:
            self._log.seldom("subscription not granted by the edge", reason=str(fault))
            return stack
        task = self._loop.create_task(_drained(inbox))
        stack.callback(task.cancel)
        return stack


def _properties_of(parcel: Parcel) -> list[tuple[str, str]]:
    """The program's own words on its message."""
    return list(ordinary_properties(parse_forwarded(parcel.extras).user)) if parcel.extras else []


async def _unless(over: "asyncio.Future[Literal[True]]", work: Coroutine[None, None, Result]) -> "asyncio.Task[Result] | None":
    """Some work that is done; nothing if it was over before."""
    task = asyncio.ensure_future(work)
    both: list[asyncio.Future[Any]] = [task, over]
    await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        return task
    task.cancel()
    await asyncio.wait([task])
    return None


async def _drained(inbox: Inbox) -> None:
    """Messages are taken from the one inbox that has them all; this one only must not fill."""
    with suppress(ClientFault):
        async for _ in inbox:
            pass


def _nothing() -> None:
    """Nobody asks."""
