"""A world in virtual time: sites, their logs, edges, the central hub, clients, and a seeded scheduler.

At each step one of the possible actions runs: a step of a log, a tick of a process, a packet, a reply. So records are delayed by
any time, in any order that the contract of `Log` allows; the same seed gives the same run.
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
from milepost.model.site_records import EdgeRef
from simulation.roaming.attackers import Attacker
from simulation.roaming.clients import ClientConnection, RoamingClient
from simulation.roaming.ledger import Ledger
from simulation.roaming.nodes import EdgeNode, HubNode
from simulation.roaming.non_waiting_clients import NonWaitingClient

TICK_NS = SECOND_NS // 4
STEPS_MAX = 200_000

Action = Callable[[], None]


class World:
    """The processes, logs and clients, and the scheduler."""

    def __init__(
        self,
        seed: int,
        *,
        sites: int = 1,
        edges: int = 3,
        hubs: int = 0,
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
                self.edges.append(
                    EdgeNode(self, EdgeRef(site, f"e{number}"), store, limits or SiteLimits(position_interval_s=0), off_ns)
                )
        self.hubs = [HubNode(self, f"hub{number}") for number in range(hubs)]
        self.clients: list[RoamingClient] = []
        self.non_waiting_clients: list[NonWaitingClient] = []
        self.attackers: list[Attacker] = []
        self.lost_client_links: list[ClientConnection] = []
        self.arrived: set[tuple[str, str]] = set()
        self.starved: set[tuple[str, int, str]] = set()
        """Readers that receive nothing for now: site, log, topic."""
        self.may_clean = True
        self.writes_left = 0
        """Number of writes after which the hub is killed; 0: it is not."""
        self._timers: list[tuple[int, int, Action]] = []
        self._order = count()
        self._bodies = count()
        self._ticked_at = self.now
        self.steps = 0
        for edge in self.edges:
            edge.start()
        for hub in self.hubs:
            hub.start()

    def note(self, text: str) -> None:
        """Add a line to the notes, for debugging."""
        if self.is_noting:
            self.notes.append(f"{(self.now - START) / SECOND_NS:9.4f} {self.steps:6d} {text}")

    def next_body(self, publisher: str, size: int) -> bytes:
        return f"{publisher}:{next(self._bodies):06d}:".encode().ljust(size, b".")

    def after(self, seconds: float, call: Action) -> None:
        """Schedule an action."""
        heappush(self._timers, (self.now + int(seconds * SECOND_NS), next(self._order), call))

    @property
    def up(self) -> list[EdgeNode]:
        """The edges that a client can reach."""
        return [node for node in self.edges if node.process is not None]

    def on_opened(self, client_link: ClientConnection, *, is_resumed: bool) -> None:
        """Note a merge if an edge has opened another session than the last one of the client."""
        is_elsewhere = any(node.holds(client_link.client.name) for node in self.edges if node is not client_link.node)
        if client_link.expects_session and (not is_resumed or is_elsewhere):
            account = client_link.client.account
            account.merges[client_link.number] = self.now
            account.merge_sites[client_link.number] = client_link.node.ref.site

    # Scheduler

    def run(self, seconds: float) -> None:
        """Advance the time."""
        until = self.now + int(seconds * SECOND_NS)
        while self.now < until:
            self.step(until)

    def step(self, until: int) -> None:
        """Run one of the possible actions, or advance the time."""
        self.steps += 1
        assert self.steps < STEPS_MAX, "the run does not end"
        while self._timers and self._timers[0][0] <= self.now:
            heappop(self._timers)[2]()
        if self.now - self._ticked_at >= TICK_NS:
            self._tick()
        found = self._possible_actions()
        if found:
            self.random.choice(found)()
            self.now = Instant(self.now + int(self.random.expovariate(1 / self.step_s) * SECOND_NS) + 1)
        else:
            next_at = min(self._ticked_at + TICK_NS, self._timers[0][0] if self._timers else until, until)
            self.now = Instant(max(next_at, self.now + 1))

    def _tick(self) -> None:
        self._ticked_at = self.now
        nodes: list[EdgeNode | HubNode] = [*self.edges, *self.hubs]
        self.random.shuffle(nodes)
        for node in nodes:
            node.tick()

    def _possible_actions(self) -> list[Action]:
        found: list[Action] = []
        for site, store in self.stores.items():
            found += [self._action_of(site, step) for step in store.ready() if self._is_allowed(site, step)]
        for node in self.edges:
            process = node.process
            if process is not None and not node.is_paused and (process.has_work or process.calls):
                found += [node.run_tick] * 3
        found += [node.run_tick for node in self.hubs if node.is_running and node.calls]
        links: list[RoamingClient | Attacker] = [*self.clients, *self.attackers]
        for client in links:
            if client.client_link is not None:
                if client.client_link.has_input:
                    found.append(client.read_input)
                if client.client_link.up and self._is_reachable(client.client_link):
                    found.append(client.client_link.deliver)
        found += [client.read_input for client in self.non_waiting_clients if client.has_input]
        self.lost_client_links = [client_link for client_link in self.lost_client_links if not client_link.is_closed_at_edge]
        found += [
            client_link.deliver for client_link in self.lost_client_links if client_link.up and self._is_reachable(client_link)
        ]
        return found

    def _action_of(self, site: str, step: Step) -> Action:
        writer = next((node for node in self.hubs if node.owns(site, step)), None)
        return step.run if writer is None or step.kind is not StepKind.WRITE else partial(self._write, writer, step)

    def _write(self, node: HubNode, step: Step) -> None:
        """Run a write of a hub process, and kill it if that was its last one."""
        step.run()
        if self.writes_left > 0:
            self.writes_left -= 1
            if not self.writes_left:
                node.kill()
                self.after(1.0, node.start)

    @property
    def is_busy(self) -> bool:
        """Whether an action is possible."""
        return bool(self._possible_actions())

    def _is_reachable(self, client_link: ClientConnection) -> bool:
        return client_link.node.process is not client_link.process or not client_link.node.is_paused

    def report_lost(self) -> None:
        """Let edges notice lost connections."""
        for client_link in self.lost_client_links:
            if self._is_reachable(client_link) and not client_link.up:
                client_link.deliver()

    def _is_allowed(self, site: str, step: Step) -> bool:
        if step.kind is StepKind.CLEAN:
            return self.may_clean and self.random.random() < 0.02
        if (site, step.log, step.name) in self.starved and step.kind is StepKind.READ:
            return False
        for node in self.edges:
            if node.is_paused and node.ref.site == site and node.owns(step):
                return step.kind is StepKind.WRITE
        return not any(node.is_paused and node.owns(site, step) and step.kind is not StepKind.WRITE for node in self.hubs)
