"""The main loop of the demo: each second step traffic and story, update the fleet and the books, and show the progress."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from time import time_ns
from typing import Final

from milepost.model.instants import SECOND_NS, Instant
from milepost.roads import Placing
from milepost_experiments.demo.ledger_recorder import Bookkeeper
from milepost_experiments.demo.startup import Running
from milepost_experiments.demo.collision_scenario import Story
from milepost_experiments.demo.city_config import border_of
from milepost_experiments.simulator.traffic import Cars, Receivers

JOIN_MAX: Final = 40
"""Maximum vehicles that become clients per second: certificates and handshakes are expensive."""
JOIN_S_MAX: Final = 30
DRAIN_S: Final = 6
"""Time for the last messages to arrive."""
KEEP_NS: Final = 900 * SECOND_NS
FORGET_EACH_S: Final = 60
NEVER: Final = Instant(0)


@dataclass(slots=True)
class Drive:
    """One run of the demo."""

    running: Running
    keeper: Bookkeeper
    vehicles: int
    seed: int
    seconds: int | None
    show: Callable[["Drive"], None]
    story: Story = field(init=False)
    began_at: Instant = NEVER
    ended_at: Instant = NEVER
    second: int = 0
    _clients: dict[str, str] = field(default_factory=dict)
    _receivers: Receivers = field(init=False)
    _cpu_s: dict[str, float] = field(default_factory=dict)
    _count: int = 0
    _due: float = 0.0

    def __post_init__(self) -> None:
        network = self.running.network
        self.story = Story(network, Placing(network), Random(self.seed), self.seconds, (border_of(self.running.town.tiles),))
        self._receivers = Receivers(self.seed)

    def go(self) -> None:
        """Connect all vehicles, then run for the configured time."""
        self._due = time.monotonic()
        for _ in range(JOIN_S_MAX):
            self._second([])
            if len(self._clients) == self.vehicles and set(self._clients) <= set(self.keeper.books.stays):
                break
        self.running.tell_fleet({"numbers": True})
        self.began_at, self.second = Instant(time_ns()), 0
        self._cpu_s = {name: child.cpu_s() for name, child in self.running.children.all.items()}
        while (self.seconds is None or self.second < self.seconds) and not self.running.traffic.is_over():
            self._second(None)
            self.show(self)
        self.running.tell_fleet({"numbers": False})
        self.ended_at = Instant(time_ns())
        for _ in range(DRAIN_S):
            self._second([])

    @property
    def living(self) -> int:
        """Number of incidents with an alert and no all-clear."""
        alerts = self.keeper.books.alerts
        over = {incident for one in alerts.values() for incident in one.calls_off}
        return len({key.incident for key in alerts} - over)

    @property
    def client_count(self) -> int:
        """Number of vehicles that are clients, or about to be."""
        return len(self._clients)

    def cpu_shares(self) -> dict[str, float]:
        """Return the share of a core that each process has used since the start."""
        took_s = (time_ns() - self.began_at) / SECOND_NS
        used = {name: child.cpu_s() - self._cpu_s.get(name, 0.0) for name, child in self.running.children.all.items()}
        return {name: used_s / took_s for name, used_s in used.items()}

    def _second(self, quiet: list[str] | None) -> None:
        """Run one second; with *quiet* the story is not stepped, and these vehicles report the event."""
        running, keeper = self.running, self.keeper
        true = running.traffic.step()
        seen = self._receivers.seen(true)
        sees = set(self.story.step(running.traffic, true, seen, self.second, living=self.living) if quiet is None else quiet)
        gone = self._choose(true)
        at = Instant(time_ns())
        running.tell_fleet({"cars": self._rows(seen, sees), "gone": gone})
        keeper.note_truth(true, at)
        self.second += 1
        self._due += 1.0
        self._wait()
        running.children.check()
        if self.second % FORGET_EACH_S == 0:
            keeper.books.forget(Instant(at - KEEP_NS))

    def _choose(self, cars: Cars) -> list[str]:
        """Choose new clients, alternating between UDP and MQTT; return the clients that have arrived."""
        here = set(cars.names)
        gone = [name for name in self._clients if name not in here]
        for name in gone:
            del self._clients[name]
        free = [name for name in cars.names if name not in self._clients]
        for name in free[: min(JOIN_MAX, self.vehicles - len(self._clients))]:
            self._clients[name] = ("udp", "mqtt")[self._count % 2]
            self._count += 1
        return gone

    def _rows(self, seen: Cars, sees: set[str]) -> list[list[object]]:
        columns = (seen.latitudes, seen.longitudes, seen.headings_deg, seen.speeds_mps)
        return [
            [name, self._clients[name], *row, name in sees]
            for name, *row in zip(seen.names, *(column.tolist() for column in columns), strict=True)
            if name in self._clients
        ]

    def catch_up(self) -> None:
        """Enter received alerts and fleet events into the books."""
        for alert in self.running.alerts.take_alerts():
            self.keeper.books.alerts.setdefault(alert.key, alert)
        self.keeper.catch_up()

    def _wait(self) -> None:
        """Wait until the next second begins, and update the books meanwhile."""
        while True:
            self.catch_up()
            left_s = self._due - time.monotonic()
            if left_s <= 0:
                break
            time.sleep(min(0.1, left_s))
        if left_s < -5.0:  # the machine is too slow: stretch simulated seconds
            self._due = time.monotonic()
