"""A story: what a seed has happen to a world, and how it ends. All that goes wrong heals, then everything is checked."""

from dataclasses import dataclass
from random import Random

from milepost.federation import handover as handing
from milepost.federation.limits import SiteLimits
from simulation.roaming.checks import check_rest
from simulation.roaming.clients import Roamer
from simulation.roaming.drivers import Driver
from simulation.roaming.nodes import EdgeNode
from simulation.roaming.world import World

TOPICS = ("t/a", "t/b", "u/a")
FILTERS = ("t/#", "t/+/q1/+", "+/a/#", "u/#", "t/a/q2/#", "#")


@dataclass(frozen=True, slots=True)
class Faults:
    """What may go wrong."""

    kills: bool = True
    pauses: bool = True
    starving: bool = True
    closed_logs: bool = True
    centre: bool = True


class Story:
    """One run."""

    def __init__(
        self,
        seed: int,
        *,
        sites: int = 1,
        centres: int = 0,
        faults: Faults | None = None,
        is_still: bool = False,
        is_noting: bool = False,
    ) -> None:
        self.random = Random(seed * 7 + 1)
        self.faults = faults or Faults()
        self.is_still = is_still
        """Nobody moves."""
        random = self.random
        limits = SiteLimits(
            places_s=0,
            recent_records_max=random.choice([3, 20_000, 20_000]),
            spool_messages_max=random.choice([15, 100_000, 100_000]),
        )
        step_s = random.choice([0.0002, 0.002, 0.02])
        edges = random.choice([2, 3]) if sites > 1 else 3
        self.world = World(seed, sites=sites, edges=edges, centres=centres, limits=limits, step_s=step_s)
        self.world.is_noting = is_noting
        self.world.ledger.is_wide = sites > 1
        self.world.ledger.is_forgetful = limits.recent_records_max < 1_000
        self.handover_bytes = random.choice([500_000, 300])
        world = self.world
        world.clients = [Roamer(world, f"car{number}", 3_600) for number in range(random.choice([2, 4]))]
        world.clients += [Roamer(world, f"pub{number}", random.choice([0, 3_600])) for number in range(2)]
        if random.random() < 0.3:
            world.clients.append(Roamer(world, "guest", 0))
        if random.random() < 0.3:
            world.drivers.append(Driver(world, "van"))

    def play(self) -> list[str]:
        """Everything; gives what was wrong at the end."""
        before, handing.HANDOVER_BYTES = handing.HANDOVER_BYTES, self.handover_bytes  # type: ignore[misc]
        try:
            self.begin()
            for _ in range(self.random.choice([8, 20, 40])):
                self.disturb()
                self.world.run(self.random.expovariate(1 / (self.world.step_s * self.random.choice([10, 100]))))
            self.heal()
        finally:
            handing.HANDOVER_BYTES = before  # type: ignore[misc]
        return self.world.ledger.check() + check_rest(self.world)

    def begin(self) -> None:
        """Everybody is somewhere, and what they ask for is known everywhere."""
        world, random = self.world, self.random
        world.run(1.0)
        for client in world.clients:
            client.connect(random.choice(world.edges))
        world.run(7.0)
        for client in world.clients:
            assert client.is_open, f"{client.name} was not let in"
            for topic_filter in random.sample(FILTERS, random.choice([1, 1, 2, 3])) if not client.name.startswith("pub") else ():
                client.subscribe(topic_filter, random.choice([1, 2, 2]))
        for driver in world.drivers:
            driver.connect(random.choice(world.edges))
            driver.subscribe(random.choice(FILTERS), 1)
        world.run(2.0)
        self.calm()

    def calm(self) -> None:
        """Quiet for a while: what is asked for is known everywhere then, if everybody is up."""
        self.world.run(3.0)
        for _ in range(20):
            if self.world.is_busy:
                self.world.run(1.0)
        is_well = all(node.is_running and not node.is_log_closed for node in self.world.edges) and not self.world.starved
        if is_well and all(node.is_running for node in self.world.centres) and not self.world.is_busy:
            self.world.ledger.settle_wishes(self.world.now)

    def move_once(self, writes: int) -> list[str]:
        """One endpoint moves to the other site and back while others speak; the centre is killed after so many of its writes."""
        world, random = self.world, self.random
        self.begin()
        home = [node for node in world.edges if node.ref.site == "s0"]
        away = [node for node in world.edges if node.ref.site == "s1"]
        client = world.clients[0]
        client.connect(random.choice(home))
        world.run(7.0)
        self.calm()
        world.writes_left = writes
        for place in (random.choice(away), random.choice(home)):
            self._publish_some(5)
            client.connect(place)
            for _ in range(10):
                self._publish_some(2)
                world.run(world.step_s * 10)
            world.run(3.0)
        self.heal()
        return world.ledger.check() + check_rest(world)

    # What happens

    def disturb(self) -> None:
        """Something happens."""
        self._publish_some()
        if self.is_still:
            return
        random, world = self.random, self.world
        client = random.choice(world.clients)
        if world.drivers and world.up and random.random() < 0.2:
            world.drivers[0].connect(random.choice(world.up))
        match random.randrange(14):
            case 0 | 1 | 2:
                self._roam(client)
            case 3:
                self._bounce(client)
            case 4:
                client.leave()
                self._come_back(client)
            case 5 if self.faults.kills:
                self._kill(random.choice(world.edges))
            case 6 if self.faults.pauses:
                self._pause(random.choice(world.edges))
            case 7 if self.faults.starving:
                self._starve()
            case 8 if self.faults.closed_logs:
                node = random.choice(world.edges)
                node.is_log_closed = True
                world.after(random.uniform(0.05, 3), lambda: setattr(node, "is_log_closed", False))
            case 9 if client.is_open:
                client.subscribe(random.choice(FILTERS), random.choice([0, 1, 2]))
            case 10 if client.is_open and client.account.current and random.random() < 0.5:
                client.unsubscribe(random.choice(client.account.current).filter)
            case 11 if random.random() < 0.3 and not client.name.startswith("pub"):
                if world.up:
                    client.connect(random.choice(world.up), is_fresh=True)
            case 12:
                world.notice_lost()
            case 13 if random.random() < 0.3:
                self.calm()
        if world.centres and self.faults.centre and random.random() < 0.1:
            self._disturb_centre()

    def _publish_some(self, count: int | None = None) -> None:
        random = self.random
        for _ in range(random.choice([0, 1, 3, 10]) if count is None else count):
            client = random.choice(self.world.clients)
            qos = random.choice([0, 1, 2])
            client.publish(f"{random.choice(TOPICS)}/q{qos}/{client.name}", qos, random.choice([0, 0, 200]))

    def _roam(self, client: Roamer) -> None:
        if self.random.random() < 0.3:
            client.vanish()
            self._come_back(client)
        elif self.world.up:
            client.connect(self.random.choice(self.world.up))

    def _come_back(self, client: Roamer) -> None:
        def connect() -> None:
            if client.line is None and self.world.up:
                client.connect(self.random.choice(self.world.up))

        self.world.after(self.random.choice([0.001, 0.1, 1, 7]), connect)

    def _bounce(self, client: Roamer) -> None:
        """Three edges in quick succession."""

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
        """One reader of one topic is late."""
        world, random = self.world, self.random
        node = random.choice(world.edges)
        if node.process is None:
            return
        topic = random.choice(sorted(node.store._topics))
        which = (node.ref.site, node.process.log.number, topic)
        world.starved.add(which)
        world.note(f"{node.ref} reads nothing of {topic}")
        world.after(random.choice([0.2, 2, 7]), lambda: world.starved.discard(which))

    def _disturb_centre(self) -> None:
        world, random = self.world, self.random
        node = random.choice(world.centres)
        if not node.is_running:
            return
        if random.random() < 0.3:
            node.is_paused = True
            world.after(random.choice([0.5, 4]), lambda: setattr(node, "is_paused", False))
            return
        node.kill()
        world.after(random.choice([0.05, 1, 10]), node.start)

    # How it ends

    def heal(self) -> None:
        """All is up and well; who is away comes back; then it is quiet."""
        world = self.world
        world.note("heal")
        world.run(12.0)  # all that was to come back has
        world.starved.clear()
        for node in world.edges:
            node.is_paused = node.is_log_closed = False
            if node.process is None:
                node.start()
        for centre in world.centres:
            centre.is_paused = False
            if centre.link is None:
                centre.start()
        world.run(8.0)
        world.notice_lost()
        world.step_s = min(world.step_s, 0.002)
        for _ in range(5):
            for client in world.clients:
                if not client.is_open:
                    client.connect(self.random.choice(world.edges))
            for driver in world.drivers:
                if not driver.is_open:
                    driver.connect(self.random.choice(world.edges))
            world.run(6.0)
        for client in world.clients:
            assert client.is_open, f"{client.name} is not let in"
        world.notice_lost()
        world.run(5.0 if not world.centres else 75.0)
