"""Processes that can be killed, paused and started again: edges of a site with the production code, and the centre."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from edge_in_memory import SMALL, LogInMemory
from milepost.broker.broker import Broker
from milepost.broker.effects import Changes
from milepost.broker.session import Link, Session
from milepost.eventlog.log import Done, Entry, LogUnavailable
from milepost.eventlog.memory import MemoryLog, MemoryStore, Step
from milepost.federation.central_hub import CentralHub
from milepost.federation.limits import SiteLimits
from milepost.federation.member import SiteMember
from milepost.listeners.event_loop import ChangeWriter, TickLoop
from milepost.listeners.mqtt.context import MqttContext, MqttSettings
from milepost.listeners.mqtt.listener import MqttListener
from milepost.model.endpoints import EndpointId
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.sites import EdgeRef, Handover, HandoverPart, HandoverTaken
from milepost.runtime.hub_logs import HubLink
from milepost.runtime.membership import SiteLink
from simulation.roaming.ledger import Receipt
from simulation.roaming.plain_door import PlainDoor
from storage_in_memory import KeptInMemory

if TYPE_CHECKING:
    from simulation.roaming.clients import Line
    from simulation.roaming.world import World

TURNS_MAX = 1_000


class Killed(Exception):
    """The process is no more."""


class Disk(KeptInMemory):
    """Storage of an edge; the process can be killed just before or just after a turn is kept."""

    def __init__(self) -> None:
        super().__init__()
        self.kill_before = False
        self.kill_after = False

    def write(self, changes: Changes) -> None:
        if self.kill_before:
            raise Killed
        super().write(changes)
        if self.kill_after:
            raise Killed


class FaultyLog(MemoryLog):
    """A log that can be out of reach for writers; everything else goes through."""

    def __init__(self, log: MemoryLog, is_closed: Callable[[], bool]) -> None:
        self.__dict__ |= log.__dict__
        self._is_closed = is_closed
        self._log = log
        for name in ("make", "follow", "read", "ends", "topics", "join", "committed", "close"):
            setattr(self, name, getattr(log, name))

    def append(self, entries: Sequence[Entry], done: Done | None = None) -> None:
        if self._is_closed():
            raise LogUnavailable("the simulation says so")
        self._log.append(entries, done)


class WatchedMember(SiteMember):
    """Tells which sessions are opened, whether or not a client hears of it."""

    watch: Callable[[Session, bool], None]
    arrived: set[tuple[str, str]]
    """The handovers that have come to any edge, by their senders and as they keep them."""

    def _on_letter(self, letter: Handover | HandoverPart | HandoverTaken, now: Instant) -> None:
        if isinstance(letter, Handover | HandoverPart):
            self.arrived.add((str(letter.sender), f"{letter.endpoint}\n{letter.epoch}"))
        super()._on_letter(letter, now)

    def opened(self, session: Session, now: Instant, *, is_fresh: bool) -> None:
        residency = self.roaming.residencies.get(session.name)
        self.watch(session, is_fresh or (residency is not None and residency.is_here))
        super().opened(session, now, is_fresh=is_fresh)


class EdgeProcess:
    """One process of an edge, joined as the service joins it."""

    def __init__(self, node: "EdgeNode", now: Instant) -> None:
        self.told = LogInMemory()
        self.calls: deque[Callable[[Instant], None]] = deque()
        self.broker = Broker(SMALL, EndpointId(node.ref.edge))
        self.member = WatchedMember(self.broker, node.ref, node.limits)
        self.member.watch, self.member.arrived = self._opened, node.world.arrived
        self._node = node
        self.member.restore(node.disk.load(), now)
        self.door = MqttListener(
            MqttContext(self.broker, MqttSettings(receive_max=100), self.told), clock=lambda: node.world.now / SECOND_NS
        )
        self.plain = PlainDoor(self.broker)
        self.settling = TickLoop(self.broker, ChangeWriter(self.broker, node.disk, self.told), self.door, self.plain)
        self.log = node.store.open()
        self.link = SiteLink(self.member, FaultyLog(self.log, lambda: node.is_log_closed), self.calls.append, self.told)
        self.link.start()
        self.wants_turn = True
        self.lines: dict[Link, Line] = {}
        self.unsettled: list[Receipt] = []
        """Acknowledged in this turn."""

    def _opened(self, session: Session, is_resumed: bool) -> None:
        line = self.lines.get(session.link)
        if line is not None:
            self._node.world.on_opened(line, is_resumed=is_resumed)

    def turn(self, now: Instant) -> None:
        """As `Turns` does it."""
        self.wants_turn = False
        for _ in range(len(self.calls)):
            self.calls.popleft()(now)
        self.wants_turn |= self.settling.settle(now)
        for receipt in self.unsettled:
            receipt.is_confirmed = True
        self.unsettled.clear()
        self.wants_turn |= self.link.flush(now)
        assert not self.broker.counts.faults

    def tick(self, now: Instant) -> None:
        self.settling.tick(now)
        self.member.tick(now)
        self.wants_turn = True


class EdgeNode:
    """An edge: what outlives its processes, and the one that runs."""

    def __init__(self, world: "World", ref: EdgeRef, store: MemoryStore, limits: SiteLimits, clock_off_ns: int) -> None:
        self.world = world
        self.ref = ref
        self.store = store
        self.limits = limits
        self.clock_off_ns = clock_off_ns
        self.disk = Disk()
        self.process: EdgeProcess | None = None
        self.is_paused = False
        self.is_log_closed = False
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
        """Without a word; of what was on its way to the log some still gets there."""
        if self.process is not None:
            self.process.log.kill(written=self.world.random.randrange(3))
            self.process = None
            self.is_paused = False
            self.kills += 1
            for driver in self.world.drivers:
                driver.on_kill(self)
            self.world.note(f"{self.ref} is killed")

    def turn(self) -> None:
        if self.process is not None:
            try:
                self.process.turn(self.now)
            except Killed:
                self.kill()

    def tick(self) -> None:
        if self.is_running and self.process is not None:
            self.process.tick(self.now)

    def holds(self, name: str) -> bool:
        """Whether it has a session, or one is on its way from it."""
        kept = {(str(self.ref), key) for key in self.disk.load().residencies if key.partition("\n")[0] == name}
        return any(one for one in kept - self.world.arrived if one[1].count("\n") < 2)

    def owns(self, step: Step) -> bool:
        return self.process is not None and step.log == self.process.log.number


class CentreNode:
    """A process of the centre; nothing of it outlives it."""

    def __init__(self, world: "World", name: str) -> None:
        self.world = world
        self.name = name
        self.calls: deque[Callable[[Instant], None]] = deque()
        self.logs: dict[str, MemoryLog] = {}
        self.link: HubLink | None = None
        self.is_paused = False

    @property
    def is_running(self) -> bool:
        return self.link is not None and not self.is_paused

    def start(self) -> None:
        self.calls.clear()
        self.logs = {site: store.open() for site, store in self.world.stores.items()}
        self.link = HubLink(CentralHub(self.name, self.world.stores), self.logs, self.calls.append, tell=self._tell)
        self.link.begin()

    def _tell(self, event: str, site: str, reason: str) -> None:
        self.world.note(f"{self.name}: {event} {site} {reason}")
        assert not event.startswith("record "), f"{event} {site} {reason}"

    def kill(self) -> None:
        if self.link is not None:
            for log in self.logs.values():
                log.kill(written=self.world.random.randrange(3))
            self.link = None
            self.is_paused = False
            self.world.note(f"{self.name} is killed")

    def turn(self) -> None:
        for _ in range(len(self.calls)):
            self.calls.popleft()(self.world.now)

    def tick(self) -> None:
        if self.is_running and self.link is not None:
            self.link.tick(self.world.now)

    def owns(self, site: str, step: Step) -> bool:
        return self.link is not None and self.logs[site].number == step.log
