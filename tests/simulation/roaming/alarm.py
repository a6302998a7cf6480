"""An alarm: messages to an area of which who comes in later hears, and the last word, while endpoints move and edges fail.

What must hold at the end, when all is up and well:
- whoever is in the area has the latest message of the incident;
- nobody who never said that it is there has any;
- what comes twice is a repetition, was said twice, or came to who had two sessions for a while;
- the last word reaches all who have any, once, wherever they are, and nobody else; and then nothing stands.
"""

from collections import Counter
from collections.abc import Iterator

from milepost.model.instants import SECOND_NS, Instant
from milepost.wire.mqtt import Properties, Publish
from milepost.wire.times import instant_to_text
from simulation.roaming.checks import check_rest
from simulation.roaming.clients import Roamer
from simulation.roaming.drivers import Driver
from simulation.roaming.ledger import Message
from simulation.roaming.story import Faults, Story

INSIDE, OUTSIDE = "40.0,-111.0", "40.02,-111.0"
AREA = "area:circle 40.0,-111.0 500"
VALID_S = 3_600


class Alarm(Story):
    """One run."""

    def __init__(self, seed: int, *, sites: int = 1, centres: int = 0, is_noting: bool = False) -> None:
        super().__init__(seed, sites=sites, centres=centres, faults=Faults(starving=False), is_noting=is_noting)
        world = self.world
        world.drivers[:] = [Driver(world, "van")]
        world.clients = [Roamer(world, f"car{number}", 3_600) for number in range(4)]
        self.context = Roamer(world, "desk", 3_600)
        world.clients.append(self.context)
        self.where = {"car0": INSIDE, "car1": INSIDE, "car2": OUTSIDE, "car3": OUTSIDE}
        self._said = 0

    def play(self) -> list[str]:
        """Everything; gives what was wrong at the end."""
        random, world = self.random, self.world
        self.begin()
        self._warn()
        for _ in range(random.choice([5, 15, 30])):
            match random.randrange(3):
                case 0 if random.random() < 0.3:
                    self._warn()
                case 1:
                    self._report(random.choice(world.clients[:4]))
                case _:
                    self.disturb()
            world.run(random.expovariate(1 / (world.step_s * random.choice([10, 100]))))
        self.heal()
        world.run(120.0)  # long enough to have driven there
        self.where["car2"] = INSIDE
        for car in world.clients[:4]:
            self._report(car)
        world.drivers[0].report(40.0, -111.0)
        world.run(20.0)
        latest = self._warn()
        world.run(20.0)
        found = list(self._check(latest))
        self.context.connect(random.choice(world.edges))
        for client in world.clients[:4]:
            if random.random() < 0.5:
                client.connect(random.choice(world.edges))
            world.run(random.choice([0.0, 0.01, 20.0]))
        world.run(20.0)
        if random.random() < 0.5:
            world.drivers[0].connect(random.choice(world.edges))
            world.run(random.choice([0.0, 0.001, 0.01]))
        self._say("told:i", b"over")
        if random.random() < 0.5:
            client = world.clients[random.randrange(4)]
            client.connect(random.choice(world.edges))
        world.run(60.0)
        return found + list(self._check_last_word()) + check_rest(world)

    def begin(self) -> None:
        """Everybody is somewhere and has said where."""
        world, random = self.world, self.random
        world.run(1.0)
        for client in world.clients:
            client.connect(random.choice(world.edges))
        world.run(7.0)
        world.drivers[0].connect(random.choice(world.edges))
        for car in world.clients[:4]:
            self._report(car)
        world.run(2.0)

    def _publish_some(self, count: int | None = None) -> None:
        """Nobody says anything but what this is about."""

    def _report(self, car: Roamer) -> None:
        car._send(Publish("pos", b"", properties=Properties(user=(("milepost-report", self.where[car.name]),))))

    def _warn(self) -> bytes:
        self._said += 1
        body = b"warn:%d" % self._said
        until = instant_to_text(Instant(self.world.now + VALID_S * SECOND_NS))
        return self._say(AREA, body, ("milepost-incident", "i"), ("milepost-valid-until", until))

    def _say(self, to: str, body: bytes, *more: tuple[str, str]) -> bytes:
        context, world = self.context, self.world
        if context.is_open and context.line is not None:
            site = context.line.node.ref.site
            merges = context.account.merges
            said = Message(body, "alert", 1, "desk", context._era, site, world.now, merges, connections=[context.connections])
            world.ledger.messages[body] = said
            number = context._next_number()
            packet = Publish("alert", body, 1, False, False, number, properties=Properties(user=(("milepost-to", to), *more)))
            context._send(packet)
        return body

    def _check(self, latest: bytes) -> Iterator[str]:
        if latest not in _got(self.world.drivers[0]):
            yield f"the van is inside and was not told {latest!r}"
        for car in self.world.clients[:4]:
            bodies = _got(car)
            is_inside = self.where[car.name] == INSIDE
            if is_inside and latest not in bodies:
                yield f"{car.name} is inside and was not told {latest!r}: {bodies}"
            if not is_inside and bodies:
                yield f"{car.name} was never inside and was told {bodies}"
            for body, count in bodies.items():
                if count > 1 and self.world.ledger.messages[body].sends == 1 and not car.account.merges:
                    yield f"{car.name} was told {body!r} {count} times"

    def _check_last_word(self) -> Iterator[str]:
        if not _got(self.world.drivers[0])[b"over"]:
            yield "the van did not get the last word"
        for car in self.world.clients[:4]:
            bodies = _got(car)
            expected = int(self.where[car.name] == INSIDE)
            if bodies[b"over"] != expected and not (car.account.merges and bodies[b"over"] > expected):
                yield f"{car.name} got the last word {bodies[b'over']} times, not {expected}: {bodies}"
        for node in self.world.edges:
            assert node.process is not None, "all is up"
            standing = node.process.broker.deliveries.standing
            if len(standing) or standing._incidents:
                yield f"{node.ref} has left over: {standing._incidents}"


def _got(car: Roamer | Driver) -> Counter[bytes]:
    """How often a car got each message about the incident; a repetition under the same number is the same."""
    numbers: dict[bytes, list[int]] = {}
    for receipt in car.account.receipts:
        held = numbers.setdefault(receipt.body, [])
        if not (receipt.is_again and receipt.number in held):
            held.append(receipt.number)
    return Counter({body: len(held) for body, held in numbers.items() if body.startswith((b"warn", b"over"))})
