"""Processes that can be killed, paused and restarted: edges of a site with the production code, and the central hub."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from edge_in_memory import OPEN, SMALL, LogInMemory
from milepost.broker.broker import Broker
from milepost.broker.effects import StateChanges
from milepost.broker.session import Connection, Session
from milepost.eventlog.log import Done, Entry, LogUnavailable
from milepost.eventlog.memory import MemoryLog, MemoryStore, Step
from milepost.federation.central_hub import CentralHub
from milepost.federation.limits import SiteLimits
from milepost.federation.member import SiteMember
from milepost.listeners.event_loop import ChangeWriter, TickCommitter
from milepost.listeners.mqtt.context import MqttContext, MqttSettings
from milepost.listeners.mqtt.listener import MqttListener
from milepost.model.endpoints import EndpointId
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.site_records import EdgeRef, Handover, HandoverPart, HandoverTaken
from milepost.runtime.hub_logs import HubLink
from milepost.runtime.membership import SiteLink
from simulation.roaming.ledger import Receipt
from simulation.roaming.plain_listener import PlainListener
from storage_in_memory import StorageInMemory

if TYPE_CHECKING:
    from simulation.roaming.clients import ClientConnection
    from simulation.roaming.world import World

TICKS_MAX = 1_000


class Killed(Exception):
    """The process was killed."""


class Disk(StorageInMemory):
    """Storage of an edge; the process can be killed just before or just after a tick is stored."""

    def __init__(self) -> None:
        super().__init__()
        self.kill_before = False
        self.kill_after = False

    def write(self, changes: StateChanges) -> None:
        if self.kill_before:
            raise Killed
        super().write(changes)
        if self.kill_after:
            raise Killed


class FaultyLog(MemoryLog):
    """A log that can be unavailable for appends."""

    def __init__(self, log: MemoryLog, is_closed: Callable[[], bool]) -> None:
        self.__dict__ |= log.__dict__
        self._is_closed = is_closed
        self._log = log
        for name in ("make", "follow", "read", "ends", "topics", "join", "committed", "close"):
            setattr(self, name, getattr(log, name))

    def append(self, entries: Sequence[Entry], done: Done | None = None) -> None:
        if self._is_closed():
            raise LogUnavailable("made unavailable by the simulation")
        self._log.append(entries, done)


class WatchedMember(SiteMember):
    """Reports opened sessions, whether or not a client learns of them."""

    watch: Callable[[Session, bool], None]
    arrived: set[tuple[str, str]]
    """The handovers that have arrived at any edge, by sender and storage key."""

    def _on_handover_record(self, record: Handover | HandoverPart | HandoverTaken, now: Instant) -> None:
        if isinstance(record, Handover | HandoverPart):
            self.arrived.add((str(record.sender), f"{record.endpoint}\n{record.epoch}"))
        super()._on_handover_record(record, now)

    def opened(self, session: Session, now: Instant, *, clean_start: bool) -> None:
        residency = self.roaming.residencies.get(session.name)
        self.watch(session, clean_start or (residency is not None and residency.is_here))
        super().opened(session, now, clean_start=clean_start)


class EdgeProcess:
    """One process of an edge, assembled as in production."""

    def __init__(self, node: "EdgeNode", now: Instant) -> None:
        self.diagnostic_log = LogInMemory()
        self.calls: deque[Callable[[Instant], None]] = deque()
        self.broker = Broker(SMALL, EndpointId(node.ref.edge))
        self.broker.use_rules(OPEN)
        self.member = WatchedMember(self.broker, node.ref, node.limits)
        self.member.watch, self.member.arrived = self._opened, node.world.arrived
        self._node = node
        self.member.restore(node.disk.load(), now)
        self.listener = MqttListener(
            MqttContext(self.broker, MqttSettings(receive_max=100), self.diagnostic_log), clock=lambda: node.world.now / SECOND_NS
        )
        self.plain_listener = PlainListener(self.broker)
        self.committer = TickCommitter(
            self.broker, ChangeWriter(self.broker, node.disk, self.diagnostic_log), self.listener, self.plain_listener
        )
        self.log = node.store.open()
        self.site_link = SiteLink(
            self.member, FaultyLog(self.log, lambda: node.is_log_unavailable), self.calls.append, self.diagnostic_log
        )
        self.site_link.start()
        self.has_work = True
        self.client_links: dict[Connection, ClientConnection] = {}
        self.unconfirmed: list[Receipt] = []
        """Acknowledged in this tick."""

    def _opened(self, session: Session, is_resumed: bool) -> None:
        client_link = self.client_links.get(session.connection)
        if client_link is not None:
            self._node.world.on_opened(client_link, is_resumed=is_resumed)

    def run_tick(self, now: Instant) -> None:
        """Run one tick like the production event loop."""
        self.has_work = False
        for _ in range(len(self.calls)):
            self.calls.popleft()(now)
        self.has_work |= self.committer.commit(now)
        for receipt in self.unconfirmed:
            receipt.is_confirmed = True
        self.unconfirmed.clear()
        self.has_work |= self.site_link.flush(now)
        assert not self.broker.counts.faults

    def tick(self, now: Instant) -> None:
        self.committer.on_timer(now)
        self.member.tick(now)
        self.has_work = True


class EdgeNode:
    """An edge: its disk, and its current process."""

    def __init__(self, world: "World", ref: EdgeRef, store: MemoryStore, limits: SiteLimits, clock_off_ns: int) -> None:
        self.world = world
        self.ref = ref
        self.store = store
        self.limits = limits
        self.clock_off_ns = clock_off_ns
        self.disk = Disk()
        self.process: EdgeProcess | None = None
        self.is_paused = False
        self.is_log_unavailable = False
        self.kills = 0

    @property
    def now(self) -> Instant:
        return Instant(self.world.now + self.clock_off_ns)

    @property
    def is_running(self) -> bool:
        return self.process is not None and not self.is_paused

    def start(self) -> None:
        self.disk.kill_before = self.disk.kill_after = False
        self.process = EdgeProcess(self, self.now)

    def kill(self) -> None:
        """Kill the process; some of the pending writes to the log still take effect."""
        if self.process is not None:
            self.process.log.kill(written=self.world.random.randrange(3))
            self.process = None
            self.is_paused = False
            self.kills += 1
            for client in self.world.non_waiting_clients:
                client.on_kill(self)
            self.world.note(f"{self.ref} is killed")

    def run_tick(self) -> None:
        if self.process is not None:
            try:
                self.process.run_tick(self.now)
            except Killed:
                self.kill()

    def tick(self) -> None:
        if self.is_running and self.process is not None:
            self.process.tick(self.now)

    def holds(self, name: str) -> bool:
        """Return whether it has a session of an endpoint, or one in transit."""
        stored = {(str(self.ref), key) for key in self.disk.load().residencies if key.partition("\n")[0] == name}
        return any(one for one in stored - self.world.arrived if one[1].count("\n") < 2)

    def owns(self, step: Step) -> bool:
        return self.process is not None and step.log == self.process.log.number


class HubNode:
    """A process of the central hub, which has no storage."""

    def __init__(self, world: "World", name: str) -> None:
        self.world = world
        self.name = name
        self.calls: deque[Callable[[Instant], None]] = deque()
        self.logs: dict[str, MemoryLog] = {}
        self.hub_link: HubLink | None = None
        self.is_paused = False

    @property
    def is_running(self) -> bool:
        return self.hub_link is not None and not self.is_paused

    def start(self) -> None:
        self.calls.clear()
        self.logs = {site: store.open() for site, store in self.world.stores.items()}
        self.hub_link = HubLink(CentralHub(self.name, self.world.stores), self.logs, self.calls.append, on_event=self._on_event)
        self.hub_link.begin()

    def _on_event(self, event: str, site: str, reason: str) -> None:
        self.world.note(f"{self.name}: {event} {site} {reason}")
        assert not event.startswith("record "), f"{event} {site} {reason}"

    def kill(self) -> None:
        if self.hub_link is not None:
            for log in self.logs.values():
                log.kill(written=self.world.random.randrange(3))
            self.hub_link = None
            self.is_paused = False
            self.world.note(f"{self.name} is killed")

    def run_tick(self) -> None:
        for _ in range(len(self.calls)):
            self.calls.popleft()(self.world.now)

    def tick(self) -> None:
        if self.is_running and self.hub_link is not None:
            self.hub_link.tick(self.world.now)

    def owns(self, site: str, step: Step) -> bool:
        return self.hub_link is not None and self.logs[site].number == step.log
