"""The agent of a vehicle: an MQTT broker on loopback for local programs, bridged to one edge as a single client (M19).

    programs ──MQTT, loopback──▶ listener ▶ broker ──▶ other local programs, at once
                                              │ federation port
                                              ▼
                                           uplink ──UDP or MQTT──▶ edge

Invariants:
- a message of a local program reaches the other local programs without the edge, and the edge once;
- the subscriptions at the edge equal those of the local programs; messages from the vehicle itself are not delivered again;
- a message addressed to the vehicle, or to an area it is in, goes to every connected local program.
"""

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, suppress
from time import monotonic
from typing import Any, Final, Literal, NamedTuple, TypeVar

from milepost.broker.broker import Broker
from milepost.broker.federation_port import FederationPort
from milepost.broker.limits import BrokerLimits
from milepost.broker.presence import PlausibilityRules
from milepost.broker.publication import TO_CONTENT, Publication
from milepost.client import Client, ClientFault, Inbox
from milepost.client.events import ClientState
from milepost.client.messages import ReceivedMessage
from milepost.config.addresses import host_and_port
from milepost.config.errors import StartFault, cannot_listen
from milepost.listeners.acceptor import MqttAcceptor, TcpAcceptor, listen_at
from milepost.listeners.event_loop import ChangeWriter, EventLoop, TickCommitter
from milepost.listeners.mqtt.context import MqttContext, MqttSettings
from milepost.listeners.mqtt.listener import MqttListener
from milepost.listeners.mqtt.sender import extras_from
from milepost.model.addresses import ToContent, ToEveryone
from milepost.model.areas import Area, Around
from milepost.model.endpoints import EndpointId
from milepost.model.instants import FOREVER, Instant
from milepost.model.queries import OnTopic, Query
from milepost.model.reasons import Malformed, Reason, Refused
from milepost.model.reports import Report
from milepost.model.time_windows import TimeWindow
from milepost.runtime.structured_log import StructuredLog
from milepost.storage import MemoryStorage
from milepost.vetting import ReportLimits
from milepost.wire.mqtt import parse_forwarded
from milepost.wire.user_properties import ordinary_properties

# The uplink: one client of an edge, beside the event loop of the agent, on behalf of all local programs.
#
#     main thread (event loop)                   uplink thread (asyncio)
#     forward, forward_report, set_subscriptions ──▶ publish, report, subscribe at the edge
#     arrive, is_connected                       ◀── messages from the edge, and its connection state
#
# Invariants: the threads exchange data only by `call_soon` on either side; messages that wait for the edge are limited.

Result = TypeVar("Result")

WAITING_MAX: Final = 1_000
"""Maximum messages of local programs that wait for an answer of the edge."""

STOP_S: Final = 2.0


class ProgramSubscription(NamedTuple):
    """A subscription of a local program, as the edge needs it."""

    query: Query
    area: Area | Around | None
    time_window: TimeWindow
    qos: int


CallSoon = Callable[[Callable[[Instant], None]], None]


class Uplink(FederationPort):
    """The client of the edge, its thread, and the work handed to it."""

    def __init__(
        self, edge: Client, call_soon: CallSoon, arrive: Callable[[ReceivedMessage, Instant], None], log: StructuredLog
    ) -> None:
        self._edge = edge
        self._call_soon = call_soon
        self._arrive = arrive
        self._log = log
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="uplink", daemon=True)
        self._stopping = asyncio.Event()
        self._has_connected = asyncio.Event()
        """Set after the first connection: from then on the client itself queues messages while the edge is away."""
        self._subscribed: dict[ProgramSubscription, AsyncExitStack] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._required: frozenset[ProgramSubscription] = frozenset()
        self._is_synchronizing = False
        self._waiting = 0
        self.name = edge.name
        """The name of this vehicle at the edge."""
        self.is_connected = False
        """Whether the edge is connected."""
        self.fault: ClientFault | None = None
        """Why the uplink ended, unless it was stopped."""
        self.stop_all: Callable[[], None] = _do_nothing
        """Called in the main thread when the uplink has ended."""

    def start(self) -> None:
        """Connect, and retry without end."""
        self._thread.start()

    def stop(self) -> None:
        """Disconnect from the edge."""
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(STOP_S)

    # From the main thread

    def has_interest(self, topic: str) -> bool:
        """Return whether the edge receives a topic: all but the local ones, which start with `$`."""
        return not topic.startswith("$")

    def forward(self, publication: Publication, now: Instant) -> Refused | None:
        """Send a message of a local program to the edge; refuse it while `WAITING_MAX` messages wait."""
        del now
        if not self.has_interest(publication.topic):
            return None
        if self._waiting >= WAITING_MAX:
            return Refused(Reason.QUEUE_FULL, f"{self._waiting} messages wait for the edge")
        self._waiting += 1
        self._loop.call_soon_threadsafe(self._begin, self._publish(publication))
        return None

    def forward_report(self, report: Report) -> None:
        """Send a position report to the edge."""
        self._loop.call_soon_threadsafe(self._begin, self._report(report))

    def set_subscriptions(self, required: frozenset[ProgramSubscription]) -> None:
        """Make the subscriptions at the edge equal to those of the local programs."""
        self._loop.call_soon_threadsafe(self._require, required)

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
        state_task, stopping = asyncio.ensure_future(self._follow()), asyncio.ensure_future(self._stopping.wait())
        try:
            opening = await _unless(stopping, self._edge.open())
            if opening is not None:
                opening.result()
                self._has_connected.set()
                async with self._edge.messages() as messages:
                    await self._pass_on(messages, stopping)
        finally:
            for task in (state_task, stopping, *self._tasks):
                task.cancel()
            await self._edge.close()

    async def _pass_on(self, messages: Inbox, stopping: "asyncio.Future[Literal[True]]") -> None:
        while (task := await _unless(stopping, messages.receive())) is not None:
            received = task.result()
            self._call_soon(lambda now, received=received: self._arrive(received, now))  # type: ignore[misc]

    async def _follow(self) -> None:
        self._log_state(self._edge.state, "")
        async for change in self._edge.changes():
            self._log_state(change.state, change.reason)

    def _log_state(self, state: ClientState, why: str) -> None:
        self.is_connected = state is ClientState.CONNECTED
        self._log.info("edge", state=state.value, reason=why or None)

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _publish(self, publication: Publication) -> None:
        try:
            await self._has_connected.wait()
            await self._edge.publish(
                publication.topic,
                publication.body,
                tags=publication.tags,
                place=publication.place,
                to=publication.address,
                priority=publication.priority,
                seen_at=publication.seen_at,
                valid_until=None if publication.valid_until == FOREVER else publication.valid_until,
                qos=publication.qos,
                properties=_properties_of(publication),
            )
        except (ClientFault, Malformed) as fault:
            self._log.info_limited("message refused by the edge", topic=publication.topic, reason=str(fault))
        finally:
            self._call_soon(self._answered)

    async def _report(self, report: Report) -> None:
        place = report.place
        if not self._has_connected.is_set():  # dropped: a newer report follows
            return
        with suppress(ClientFault):
            await self._edge.report(
                place.latitude,
                place.longitude,
                heading_deg=report.heading_deg,
                speed_mps=report.speed_mps,
                seen_at=report.seen_at,
            )

    def _require(self, required: frozenset[ProgramSubscription]) -> None:
        self._required = required
        if not self._is_synchronizing:
            self._is_synchronizing = True
            self._begin(self._synchronize())

    async def _synchronize(self) -> None:
        """Subscribe and unsubscribe until the edge has the required subscriptions, which may change meanwhile."""
        try:
            await self._has_connected.wait()
            while self._required != self._subscribed.keys():
                for subscription in [one for one in self._subscribed if one not in self._required]:
                    await self._subscribed.pop(subscription).aclose()
                for subscription in [one for one in self._required if one not in self._subscribed]:
                    self._subscribed[subscription] = await self._subscribe(subscription)
        finally:
            self._is_synchronizing = False

    async def _subscribe(self, subscription: ProgramSubscription) -> AsyncExitStack:
        query, area, time_window, qos = subscription
        topic_filter = query.filter if isinstance(query, OnTopic) else "#"
        formula = None if isinstance(query, OnTopic) else query
        stack = AsyncExitStack()
        try:
            inbox = await stack.enter_async_context(
                self._edge.subscribe(topic_filter, query=formula, area=area, time_window=time_window, qos=qos)
            )
        except (ClientFault, Malformed) as fault:
            self._log.info_limited("subscription refused by the edge", reason=str(fault))
            return stack
        task = self._loop.create_task(_drain(inbox))
        stack.callback(task.cancel)
        return stack


def _properties_of(publication: Publication) -> list[tuple[str, str]]:
    """Return the user properties that the program set."""
    return list(ordinary_properties(parse_forwarded(publication.extras).user)) if publication.extras else []


async def _unless(
    stopping: "asyncio.Future[Literal[True]]", work: Coroutine[None, None, Result]
) -> "asyncio.Task[Result] | None":
    """Return the finished task; cancel it and return None if *stopping* comes first."""
    task = asyncio.ensure_future(work)
    both: list[asyncio.Future[Any]] = [task, stopping]
    await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        return task
    task.cancel()
    await asyncio.wait([task])
    return None


async def _drain(inbox: Inbox) -> None:
    """Empty an inbox so that it does not fill: messages are read from the inbox of all messages."""
    with suppress(ClientFault):
        async for _ in inbox:
            pass


def _do_nothing() -> None:
    """Do nothing."""


TICK_S: Final = 0.1
SHUTDOWN_S: Final = 2.0
PROGRAMS: Final = BrokerLimits(sessions_max=1_024, subscriptions_max=16_384, reports_per_s=100, reports_burst=200)

_ANYWHERE: Final = PlausibilityRules(report_limits=ReportLimits(move_mps_max=0.0, heading_error_deg_max=0.0))
"""No limits on reports: the plausibility checks are those of the edge."""


class AgentService:
    """The local listener and the uplink, joined."""

    def __init__(self, edge: Client, address: str, log: StructuredLog) -> None:
        self._log = log
        self._event_loop = EventLoop()
        self._broker = Broker(PROGRAMS, EndpointId(edge.name))
        self._broker.configure(_ANYWHERE, ())
        self._mqtt = MqttListener(MqttContext(self._broker, MqttSettings(), log))
        self._committer = TickCommitter(self._broker, ChangeWriter(self._broker, MemoryStorage(), log), self._mqtt)
        self._uplink = Uplink(edge, self._event_loop.call_soon, self._arrive, log)
        self._uplink.stop_all = self._event_loop.stop
        self._broker.join_federation(self._uplink)
        self._route_epoch = -1
        self._stops_at: float | None = None
        host, port = host_and_port(address)
        try:
            self._listener = TcpAcceptor(
                self._event_loop, listen_at(host, port), MqttAcceptor(self._event_loop, self._mqtt).accept
            )
        except OSError as error:
            raise cannot_listen(address, error) from None

    def run(self) -> int:
        """Serve until a signal; return the exit status."""
        event_loop = self._event_loop
        event_loop.at_end_of_tick(self._committer.commit)
        event_loop.call_every(TICK_S, self._tick)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: event_loop.call_soon(self._begin_stop))
        self._uplink.start()
        self._log.info("agent ready", vehicle=self._uplink.name, mqtt=self._listener.address)
        event_loop.run()
        self._uplink.stop()
        event_loop.close()
        if self._uplink.fault is not None:
            raise StartFault(f"the connection to the edge failed: {self._uplink.fault}")
        self._log.info("agent stopped")
        return 0

    def _tick(self, now: Instant) -> None:
        self._committer.on_timer(now)
        self._log.log_suppressed()
        if self._route_epoch != self._broker.route_epoch:
            self._route_epoch = self._broker.route_epoch
            self._uplink.set_subscriptions(self._program_subscriptions())
        if self._stops_at is not None and (not self._mqtt.connections or monotonic() > self._stops_at):
            self._event_loop.stop()

    def _program_subscriptions(self) -> frozenset[ProgramSubscription]:
        """Return the subscriptions of local programs, without duplicates and `$` topics."""
        found: set[ProgramSubscription] = set()
        for one in self._broker.subscriptions():
            if not (isinstance(one.query, OnTopic) and one.query.filter.startswith("$")):
                found.add(ProgramSubscription(one.query, one.area, one.time_window, one.qos))
        return frozenset(found)

    def _arrive(self, received: ReceivedMessage, now: Instant) -> None:
        """Deliver a message from the edge to local programs; a signed one with its signature, for them to verify."""
        if received.source == self._uplink.name:
            return
        is_subscribed = isinstance(received.address, ToContent)
        publication = Publication(
            received.topic,
            received.body,
            received.seen_at or now,
            source=received.source or EndpointId("unknown"),
            qos=received.qos,
            priority=received.priority,
            valid_until=received.valid_until,
            extras=None if received.signed_message is None else extras_from(received.signed_message),
            tags=received.tags,
            place=received.place,
            address=TO_CONTENT if is_subscribed else ToEveryone(),
            fields=dict(received.properties),
        )
        self._broker.accept(publication, None, now)

    def _begin_stop(self, now: Instant) -> None:
        if self._stops_at is None:
            self._stops_at = monotonic() + SHUTDOWN_S
            self._listener.close()
            self._mqtt.shut_down()
            self._committer.commit(now)
