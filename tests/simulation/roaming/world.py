"""A world in virtual time: sites, their logs, edges, the centre, clients, and a scheduler that a seed decides.

At each step one thing happens that can: a step of a log, a turn of a process, a packet, an answer. So records are late by any
time, and in any order that the promises of `Log` allow; the same seed gives the same run.
"""

from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from itertools import count
from random import Random

from edge_in_memory import START
from milepost.eventlog.memory import MemoryStore, Step, StepKind
from milepost.federation.limits import SiteLimits
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.sites import EdgeRef
from simulation.roaming.clients import Line, Roamer
from simulation.roaming.drivers import Driver
from simulation.roaming.ledger import Ledger
from simulation.roaming.nodes import CentreNode, EdgeNode

TICK_NS = SECOND_NS // 4
STEPS_MAX = 200_000

Happen = Callable[[], None]


class World:
    """Everything, and what happens next."""

    def __init__(
        self,
        seed: int,
        *,
        sites: int = 1,
        edges: int = 3,
        centres: int = 0,
        limits: SiteLimits | None = None,
        step_s: float = 0.001,
        clocks_off_s: float = 0.05,
    ) -> None:
        self.random = Random(seed)
        self.now = START
        self.step_s = step_s
        self.ledger = Ledger()
        self.notes: list[str] = []
        self.is_noting = False
        self.stores = {f"s{number}": MemoryStore(lambda: self.now) for number in range(sites)}
        self.edges: list[EdgeNode] = []
        for site, store in self.stores.items():
            for number in range(edges):
                off_ns = int(self.random.uniform(-clocks_off_s, clocks_off_s) * SECOND_NS)
                self.edges.append(EdgeNode(self, EdgeRef(site, f"e{number}"), store, limits or SiteLimits(places_s=0), off_ns))
        self.centres = [CentreNode(self, f"centre{number}") for number in range(centres)]
        self.clients: list[Roamer] = []
        self.drivers: list[Driver] = []
        self.lost_lines: list[Line] = []
        self.arrived: set[tuple[str, str]] = set()
        self.starved: set[tuple[str, int, str]] = set()
        """Readers that get nothing for now: site, log, topic."""
        self.may_clean = True
        self.writes_left = 0
        """After so many writes of a centre it is killed; 0: it is not."""
        self._timers: list[tuple[int, int, Happen]] = []
        self._order = count()
        self._bodies = count()
        self._ticked_at = self.now
        self.steps = 0
        for edge in self.edges:
            edge.start()
        for centre in self.centres:
            centre.start()

    def note(self, text: str) -> None:
        """Take note of something, for whoever looks for a cause."""
        if self.is_noting:
            self.notes.append(f"{(self.now - START) / SECOND_NS:9.4f} {self.steps:6d} {text}")

    def next_body(self, publisher: str, size: int) -> bytes:
        return f"{publisher}:{next(self._bodies):06d}:".encode().ljust(size, b".")

    def after(self, seconds: float, call: Happen) -> None:
        """Have something happen later."""
        heappush(self._timers, (self.now + int(seconds * SECOND_NS), next(self._order), call))

    @property
    def up(self) -> list[EdgeNode]:
        """The edges that a client can reach."""
        return [node for node in self.edges if node.process is not None]

    def on_opened(self, line: Line, *, is_resumed: bool) -> None:
        """An edge has opened a session; takes note if it is not the one that the client had last."""
        is_elsewhere = any(node.holds(line.client.name) for node in self.edges if node is not line.node)
        if line.expects and (not is_resumed or is_elsewhere):
            line.client.account.merges[line.number] = self.now

    # What happens next

    def run(self, seconds: float) -> None:
        """Let time pass."""
        until = self.now + int(seconds * SECOND_NS)
        while self.now < until:
            self.step(until)

    def step(self, until: int) -> None:
        """One thing that can happen does, or time goes on."""
        self.steps += 1
        assert self.steps < STEPS_MAX, "it never ends"
        while self._timers and self._timers[0][0] <= self.now:
            heappop(self._timers)[2]()
        if self.now - self._ticked_at >= TICK_NS:
            self._tick()
        found = self._possible()
        if found:
            self.random.choice(found)()
            self.now = Instant(self.now + int(self.random.expovariate(1 / self.step_s) * SECOND_NS) + 1)
        else:
            next_at = min(self._ticked_at + TICK_NS, self._timers[0][0] if self._timers else until, until)
            self.now = Instant(max(next_at, self.now + 1))

    def _tick(self) -> None:
        self._ticked_at = self.now
        nodes: list[EdgeNode | CentreNode] = [*self.edges, *self.centres]
        self.random.shuffle(nodes)
        for node in nodes:
            node.tick()

    def _possible(self) -> list[Happen]:
        found: list[Happen] = []
        for site, store in self.stores.items():
            found += [self._run_of(site, step) for step in store.ready() if self._may_happen(site, step)]
        for node in self.edges:
            process = node.process
            if process is not None and not node.is_paused and (process.wants_turn or process.calls):
                found += [node.turn] * 3
        found += [node.turn for node in self.centres if node.is_running and node.calls]
        for client in self.clients:
            if client.line is not None:
                if client.line.has_news:
                    found.append(client.look)
                if client.line.up and self._is_reachable(client.line):
                    found.append(client.line.deliver)
        found += [driver.look for driver in self.drivers if driver.has_news]
        self.lost_lines = [line for line in self.lost_lines if not line.is_noticed]
        found += [line.deliver for line in self.lost_lines if line.up and self._is_reachable(line)]
        return found

    def _run_of(self, site: str, step: Step) -> Happen:
        writer = next((node for node in self.centres if node.owns(site, step)), None)
        return step.run if writer is None or step.kind is not StepKind.WRITE else partial(self._write, writer, step)

    def _write(self, node: CentreNode, step: Step) -> None:
        """Something that a centre appends is written; it may be the last thing."""
        step.run()
        if self.writes_left > 0:
            self.writes_left -= 1
            if not self.writes_left:
                node.kill()
                self.after(1.0, node.start)

    @property
    def is_busy(self) -> bool:
        """Whether something waits to happen by itself."""
        return bool(self._possible())

    def _is_reachable(self, line: Line) -> bool:
        return line.node.process is not line.process or not line.node.is_paused

    def notice_lost(self) -> None:
        """Edges learn of connections that are no more."""
        for line in self.lost_lines:
            if self._is_reachable(line) and not line.up:
                line.deliver()

    def _may_happen(self, site: str, step: Step) -> bool:
        if step.kind is StepKind.CLEAN:
            return self.may_clean and self.random.random() < 0.02
        if (site, step.log, step.name) in self.starved and step.kind is StepKind.TAKE:
            return False
        for node in self.edges:
            if node.is_paused and node.ref.site == site and node.owns(step):
                return step.kind is StepKind.WRITE
        return not any(node.is_paused and node.owns(site, step) and step.kind is not StepKind.WRITE for node in self.centres)
