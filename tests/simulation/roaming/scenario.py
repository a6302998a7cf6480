"""A scenario: the seeded events of a world. At the end all faults are repaired, then everything is checked."""

from dataclasses import dataclass
from random import Random

from milepost.federation import handover
from milepost.federation.limits import SiteLimits
from simulation.roaming.attackers import Attacker
from simulation.roaming.checks import check_idle
from simulation.roaming.clients import RoamingClient
from simulation.roaming.nodes import EdgeNode
from simulation.roaming.non_waiting_clients import NonWaitingClient
from simulation.roaming.world import World

TOPICS = ("t/a", "t/b", "u/a")
FILTERS = ("t/#", "t/+/q1/+", "+/a/#", "u/#", "t/a/q2/#", "#")


@dataclass(frozen=True, slots=True)
class Faults:
    """The kinds of faults that may be injected."""

    kills: bool = True
    pauses: bool = True
    starved_readers: bool = True
    unavailable_logs: bool = True
    hub: bool = True


class Scenario:
    """One run."""

    def __init__(
        self,
        seed: int,
        *,
        sites: int = 1,
        hubs: int = 0,
        faults: Faults | None = None,
        is_stationary: bool = False,
        is_noting: bool = False,
        has_attackers: bool = False,
    ) -> None:
        self.random = Random(seed * 7 + 1)
        self.faults = faults or Faults()
        self.is_stationary = is_stationary
        """No endpoint moves, and nothing fails."""
        random = self.random
        limits = SiteLimits(
            position_interval_s=0,
            recent_records_max=random.choice([3, 20_000, 20_000]),
            spool_messages_max=random.choice([15, 100_000, 100_000]),
        )
        step_s = random.choice([0.0002, 0.002, 0.02])
        edges = random.choice([2, 3]) if sites > 1 else 3
        self.world = World(seed, sites=sites, edges=edges, hubs=hubs, limits=limits, step_s=step_s)
        self.world.is_noting = is_noting
        self.world.ledger.has_several_sites = sites > 1
        self.world.ledger.has_short_memory = limits.recent_records_max < 1_000
        self.handover_bytes = random.choice([500_000, 300])
        world = self.world
        world.clients = [RoamingClient(world, f"car{number}", 3_600) for number in range(random.choice([2, 4]))]
        world.clients += [RoamingClient(world, f"pub{number}", random.choice([0, 3_600])) for number in range(2)]
        if random.random() < 0.3:
            world.clients.append(RoamingClient(world, "guest", 0))
        if random.random() < 0.3:
            world.non_waiting_clients.append(NonWaitingClient(world, "van"))
        self.attack_random = Random(seed * 13 + 5)
        """Apart from the rest, so that a scenario with attackers has the same events as the one without."""
        if has_attackers:
            self._add_attackers()

    def _add_attackers(self) -> None:
        """Prove the identities of all endpoints with kept sessions, and let others without proof use their names."""
        world = self.world
        for client in world.clients:
            client.user = f"user of {client.name}"
        for van in world.non_waiting_clients:
            van.role = "vehicle"
        victims = [
            *(client.name for client in world.clients if client.expiry_s),
            *(van.name for van in world.non_waiting_clients),
        ]
        world.attackers = [Attacker(world, name, user) for name in victims for user in (None, "mallory")]

    def run(self) -> list[str]:
        """Run the scenario; return the faults."""
        before, handover.HANDOVER_BYTES = handover.HANDOVER_BYTES, self.handover_bytes  # type: ignore[misc]
        try:
            self.begin()
            for _ in range(self.random.choice([8, 20, 40])):
                self.disturb()
                self.world.run(self.random.expovariate(1 / (self.world.step_s * self.random.choice([10, 100]))))
            self.recover()
        finally:
            handover.HANDOVER_BYTES = before  # type: ignore[misc]
        faults = [fault for attacker in self.world.attackers for fault in attacker.faults]
        return faults + self.world.ledger.check() + check_idle(self.world)

    def begin(self) -> None:
        """Connect all clients and wait until their subscriptions are known everywhere."""
        world, random = self.world, self.random
        world.run(1.0)
        for client in world.clients:
            client.connect(random.choice(world.edges))
        world.run(7.0)
        for client in world.clients:
            assert client.is_open, f"{client.name} was not admitted"
            for topic_filter in random.sample(FILTERS, random.choice([1, 1, 2, 3])) if not client.name.startswith("pub") else ():
                client.subscribe(topic_filter, random.choice([1, 2, 2]))
        for other in world.non_waiting_clients:
            other.connect(random.choice(world.edges))
            other.subscribe(random.choice(FILTERS), 1)
        world.run(2.0)
        self.run_until_idle()

    def run_until_idle(self) -> None:
        """Wait until the world is idle: then all subscriptions are known everywhere, if all processes are up."""
        self.world.run(3.0)
        for _ in range(20):
            if self.world.is_busy:
                self.world.run(1.0)
        is_well = all(node.is_running and not node.is_log_unavailable for node in self.world.edges) and not self.world.starved
        if is_well and all(node.is_running for node in self.world.hubs) and not self.world.is_busy:
            self.world.ledger.settle_subscriptions(self.world.now)

    def move_once(self, writes: int) -> list[str]:
        """Move one endpoint to the other site and back while others publish; kill the hub after *writes* of its writes."""
        world, random = self.world, self.random
        self.begin()
        home = [node for node in world.edges if node.ref.site == "s0"]
        away = [node for node in world.edges if node.ref.site == "s1"]
        client = world.clients[0]
        client.connect(random.choice(home))
        world.run(7.0)
        self.run_until_idle()
        world.writes_left = writes
        for place in (random.choice(away), random.choice(home)):
            self._publish_some(5)
            client.connect(place)
            for _ in range(10):
                self._publish_some(2)
                world.run(world.step_s * 10)
            world.run(3.0)
        self.recover()
        return world.ledger.check() + check_idle(world)

    # Events

    def disturb(self) -> None:
        """Run one random event."""
        self._publish_some()
        if self.is_stationary:
            return
        random, world = self.random, self.world
        for _ in range(3 if world.attackers else 0):
            self._attack()
        client = random.choice(world.clients)
        if world.non_waiting_clients and world.up and random.random() < 0.2:
            world.non_waiting_clients[0].connect(random.choice(world.up))
        match random.randrange(14):
            case 0 | 1 | 2:
                self._move(client)
            case 3:
                self._move_quickly(client)
            case 4:
                client.leave()
                self._reconnect_later(client)
            case 5 if self.faults.kills:
                self._kill(random.choice(world.edges))
            case 6 if self.faults.pauses:
                self._pause(random.choice(world.edges))
            case 7 if self.faults.starved_readers:
                self._starve()
            case 8 if self.faults.unavailable_logs:
                node = random.choice(world.edges)
                node.is_log_unavailable = True
                world.after(random.uniform(0.05, 3), lambda: setattr(node, "is_log_unavailable", False))
            case 9 if client.is_open:
                client.subscribe(random.choice(FILTERS), random.choice([0, 1, 2]))
            case 10 if client.is_open and client.account.current and random.random() < 0.5:
                client.unsubscribe(random.choice(client.account.current).filter)
            case 11 if random.random() < 0.3 and not client.name.startswith("pub"):
                if world.up:
                    client.connect(random.choice(world.up), clean_start=True)
            case 12:
                world.report_lost()
            case 13 if random.random() < 0.3:
                self.run_until_idle()
        if world.hubs and self.faults.hub and random.random() < 0.1:
            self._disturb_hub()

    def _attack(self) -> None:
        """Connect under another endpoint's name, or let go."""
        world, random = self.world, self.attack_random
        attacker = random.choice(world.attackers)
        if random.random() < 0.3 or not world.up:
            attacker.drop_connection()
        else:
            expiry_s = random.choice([0, 3_600])
            attacker.connect(random.choice(world.up), clean_start=random.random() < 0.5, expiry_s=expiry_s)

    def _publish_some(self, count: int | None = None) -> None:
        random = self.random
        for _ in range(random.choice([0, 1, 3, 10]) if count is None else count):
            client = random.choice(self.world.clients)
            qos = random.choice([0, 1, 2])
            client.publish(f"{random.choice(TOPICS)}/q{qos}/{client.name}", qos, random.choice([0, 0, 200]))

    def _move(self, client: RoamingClient) -> None:
        if self.random.random() < 0.3:
            client.drop_connection()
            self._reconnect_later(client)
        elif self.world.up:
            client.connect(self.random.choice(self.world.up))

    def _reconnect_later(self, client: RoamingClient) -> None:
        def connect() -> None:
            if client.client_link is None and self.world.up:
                client.connect(self.random.choice(self.world.up))

        self.world.after(self.random.choice([0.001, 0.1, 1, 7]), connect)

    def _move_quickly(self, client: RoamingClient) -> None:
        """Connect to several edges in quick succession."""

        def connect() -> None:
            if self.world.up:
                client.connect(self.random.choice(self.world.up))

        for number in range(self.random.choice([2, 3, 5])):
            self.world.after(number * self.world.step_s * self.random.choice([2, 20]), connect)

    def _kill(self, node: EdgeNode) -> None:
        if node.process is None:
            return
        match self.random.randrange(3):
            case 0:
                node.kill()
            case 1:
                node.disk.kill_before = True
            case _:
                node.disk.kill_after = True

        def start() -> None:
            node.kill()
            node.start()
            self.world.note(f"{node.ref} starts")

        self.world.after(self.random.choice([0.05, 0.5, 3, 8]), start)

    def _pause(self, node: EdgeNode) -> None:
        if node.is_running:
            node.is_paused = True
            self.world.note(f"{node.ref} pauses")
            self.world.after(self.random.choice([0.5, 4, 10]), lambda: setattr(node, "is_paused", False))

    def _starve(self) -> None:
        """Let one reader of one topic receive nothing for a while."""
        world, random = self.world, self.random
        node = random.choice(world.edges)
        if node.process is None:
            return
        topic = random.choice(sorted(node.store._topics))
        which = (node.ref.site, node.process.log.number, topic)
        world.starved.add(which)
        world.note(f"{node.ref} reads nothing of {topic}")
        world.after(random.choice([0.2, 2, 7]), lambda: world.starved.discard(which))

    def _disturb_hub(self) -> None:
        world, random = self.world, self.random
        node = random.choice(world.hubs)
        if not node.is_running:
            return
        if random.random() < 0.3:
            node.is_paused = True
            world.after(random.choice([0.5, 4]), lambda: setattr(node, "is_paused", False))
            return
        node.kill()
        world.after(random.choice([0.05, 1, 10]), node.start)

    # Recovery

    def recover(self) -> None:
        """Start all processes, reconnect all clients, and wait until the world is idle."""
        world = self.world
        world.note("recovery")
        for attacker in world.attackers:
            attacker.drop_connection()
        world.run(12.0)  # all planned restarts have happened
        world.starved.clear()
        for node in world.edges:
            node.is_paused = node.is_log_unavailable = False
            if node.process is None:
                node.start()
        for hub in world.hubs:
            hub.is_paused = False
            if hub.hub_link is None:
                hub.start()
        world.run(8.0)
        world.report_lost()
        world.step_s = min(world.step_s, 0.002)
        for _ in range(5):
            for client in world.clients:
                if not client.is_open:
                    client.connect(self.random.choice(world.edges))
            for other in world.non_waiting_clients:
                if not other.is_open:
                    other.connect(self.random.choice(world.edges))
            world.run(6.0)
        for client in world.clients:
            assert client.is_open, f"{client.name} is not admitted"
        world.report_lost()
        world.run(5.0 if not world.hubs else 75.0)
