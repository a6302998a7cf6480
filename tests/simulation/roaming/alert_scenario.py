"""Alerts to an area that stay active, and their all-clear, while endpoints move and edges fail.

What must hold after recovery:
- every endpoint in the area has the latest message of the incident;
- no endpoint that never reported from the area has any;
- duplicates are repetitions, were sent twice, or came to an endpoint that had two sessions for a while;
- the all-clear reaches exactly the notified endpoints, once, wherever they are; then no alert is active.
"""

from collections import Counter
from collections.abc import Iterator

from milepost.model.instants import SECOND_NS, Instant
from milepost.wire.mqtt import Properties, Publish
from milepost.wire.times import instant_to_text
from simulation.roaming.checks import check_idle
from simulation.roaming.clients import RoamingClient
from simulation.roaming.ledger import Message
from simulation.roaming.non_waiting_clients import NonWaitingClient
from simulation.roaming.scenario import Faults, Scenario

INSIDE, OUTSIDE = "40.0,-111.0", "40.02,-111.0"
AREA = "area:circle 40.0,-111.0 500"
VALID_S = 3_600


class AlertScenario(Scenario):
    """One run with alerts."""

    def __init__(self, seed: int, *, sites: int = 1, hubs: int = 0, is_noting: bool = False) -> None:
        super().__init__(seed, sites=sites, hubs=hubs, faults=Faults(starved_readers=False), is_noting=is_noting)
        world = self.world
        world.non_waiting_clients[:] = [NonWaitingClient(world, "van")]
        world.clients = [RoamingClient(world, f"car{number}", 3_600) for number in range(4)]
        self.operator = RoamingClient(world, "operator", 3_600)
        world.clients.append(self.operator)
        self.positions = {"car0": INSIDE, "car1": INSIDE, "car2": OUTSIDE, "car3": OUTSIDE}
        self._warnings = 0

    def run(self) -> list[str]:
        """Run the scenario; return the faults."""
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
        self.recover()
        world.run(120.0)  # long enough to have driven there
        self.positions["car2"] = INSIDE
        for car in world.clients[:4]:
            self._report(car)
        world.non_waiting_clients[0].report(40.0, -111.0)
        world.run(20.0)
        latest = self._warn()
        world.run(20.0)
        found = list(self._check(latest))
        self.operator.connect(random.choice(world.edges))
        for client in world.clients[:4]:
            if random.random() < 0.5:
                client.connect(random.choice(world.edges))
            world.run(random.choice([0.0, 0.01, 20.0]))
        world.run(20.0)
        if random.random() < 0.5:
            world.non_waiting_clients[0].connect(random.choice(world.edges))
            world.run(random.choice([0.0, 0.001, 0.01]))
        self._send_alert("notified:i", b"over")
        if random.random() < 0.5:
            client = world.clients[random.randrange(4)]
            client.connect(random.choice(world.edges))
        world.run(60.0)
        return found + list(self._check_all_clear()) + check_idle(world)

    def begin(self) -> None:
        """Connect all clients and report their positions."""
        world, random = self.world, self.random
        world.run(1.0)
        for client in world.clients:
            client.connect(random.choice(world.edges))
        world.run(7.0)
        world.non_waiting_clients[0].connect(random.choice(world.edges))
        for car in world.clients[:4]:
            self._report(car)
        world.run(2.0)

    def _publish_some(self, count: int | None = None) -> None:
        """Publish nothing but alerts."""

    def _report(self, car: RoamingClient) -> None:
        car._send(Publish("pos", b"", properties=Properties(user=(("milepost-report", self.positions[car.name]),))))

    def _warn(self) -> bytes:
        self._warnings += 1
        body = b"warn:%d" % self._warnings
        until = instant_to_text(Instant(self.world.now + VALID_S * SECOND_NS))
        return self._send_alert(AREA, body, ("milepost-incident", "i"), ("milepost-valid-until", until))

    def _send_alert(self, to: str, body: bytes, *more: tuple[str, str]) -> bytes:
        operator, world = self.operator, self.world
        if operator.is_open and operator.client_link is not None:
            site = operator.client_link.node.ref.site
            merges = operator.account.merges
            alert = Message(
                body, "alert", 1, "operator", operator._era, site, world.now, merges, connections=[operator.connections]
            )
            world.ledger.messages[body] = alert
            number = operator._next_packet_id()
            packet = Publish("alert", body, 1, False, False, number, properties=Properties(user=(("milepost-to", to), *more)))
            operator._send(packet)
        return body

    def _check(self, latest: bytes) -> Iterator[str]:
        if latest not in _received_alerts(self.world.non_waiting_clients[0]):
            yield f"the van is inside and did not receive {latest!r}"
        for car in self.world.clients[:4]:
            bodies = _received_alerts(car)
            is_inside = self.positions[car.name] == INSIDE
            if is_inside and latest not in bodies:
                yield f"{car.name} is inside and did not receive {latest!r}: {bodies}"
            if not is_inside and bodies:
                yield f"{car.name} was never inside and received {bodies}"
            for body, count in bodies.items():
                if count > 1 and self.world.ledger.messages[body].sends == 1 and not car.account.merges:
                    yield f"{car.name} received {body!r} {count} times"

    def _check_all_clear(self) -> Iterator[str]:
        if not _received_alerts(self.world.non_waiting_clients[0])[b"over"]:
            yield "the van did not get the all-clear"
        for car in self.world.clients[:4]:
            bodies = _received_alerts(car)
            expected = int(self.positions[car.name] == INSIDE)
            if bodies[b"over"] != expected and not (car.account.merges and bodies[b"over"] > expected):
                yield f"{car.name} got the all-clear {bodies[b'over']} times, not {expected}: {bodies}"
        for node in self.world.edges:
            assert node.process is not None, "all edges are up"
            active = node.process.broker.deliveries.active_alerts
            if len(active) or active._incidents:
                yield f"{node.ref} has left over: {active._incidents}"


def _received_alerts(car: RoamingClient | NonWaitingClient) -> Counter[bytes]:
    """Return how often a client received each message of the incident; a repetition under the same packet id counts once."""
    numbers: dict[bytes, list[int]] = {}
    for receipt in car.account.receipts:
        held = numbers.setdefault(receipt.body, [])
        if not (receipt.is_duplicate and receipt.number in held):
            held.append(receipt.number)
    return Counter({body: len(held) for body, held in numbers.items() if body.startswith((b"warn", b"over"))})
