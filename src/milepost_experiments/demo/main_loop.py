"""The main loop of the demo: each second step traffic and scenario, update the fleet and the ledger, and show the progress."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from time import time_ns
from typing import Final

from milepost.model.instants import SECOND_NS, Instant
from milepost.roads import MapMatcher
from milepost_experiments.demo.city_config import border_of
from milepost_experiments.demo.collision_scenario import CollisionScenario
from milepost_experiments.demo.ledger_recorder import LedgerRecorder
from milepost_experiments.demo.startup import RunningDemo
from milepost_experiments.simulator.traffic import Cars, Receivers

JOIN_MAX: Final = 40
"""Maximum vehicles that become clients per second: certificates and handshakes are expensive."""
JOIN_S_MAX: Final = 30
DRAIN_S: Final = 6
"""Time for the last messages to arrive."""
RETENTION_NS: Final = 900 * SECOND_NS
PRUNE_INTERVAL_S: Final = 60
NEVER: Final = Instant(0)


@dataclass(slots=True)
class MainLoop:
    """One run of the demo."""

    running: RunningDemo
    recorder: LedgerRecorder
    vehicles: int
    seed: int
    seconds: int | None
    show: Callable[["MainLoop"], None]
    scenario: CollisionScenario = field(init=False)
    began_at: Instant = NEVER
    ended_at: Instant = NEVER
    second: int = 0
    _clients: dict[str, str] = field(default_factory=dict)
    _receivers: Receivers = field(init=False)
    _cpu_s: dict[str, float] = field(default_factory=dict)
    _joined_count: int = 0
    _next_second_at: float = 0.0

    def __post_init__(self) -> None:
        network = self.running.network
        self.scenario = CollisionScenario(
            network, MapMatcher(network), Random(self.seed), self.seconds, (border_of(self.running.city.tiles),)
        )
        self._receivers = Receivers(self.seed)

    def run(self) -> None:
        """Connect all vehicles, then run for the configured time."""
        self._next_second_at = time.monotonic()
        for _ in range(JOIN_S_MAX):
            self._run_second(is_scenario_stepped=False)
            if len(self._clients) == self.vehicles and set(self._clients) <= set(self.recorder.ledger.clients):
                break
        self.running.send_to_fleet({"numbers": True})
        self.began_at, self.second = Instant(time_ns()), 0
        self._cpu_s = {name: child.cpu_s() for name, child in self.running.children.all.items()}
        while (self.seconds is None or self.second < self.seconds) and not self.running.traffic.is_over():
            self._run_second(is_scenario_stepped=True)
            self.show(self)
        self.running.send_to_fleet({"numbers": False})
        self.ended_at = Instant(time_ns())
        for _ in range(DRAIN_S):
            self._run_second(is_scenario_stepped=False)

    @property
    def active_incidents(self) -> int:
        """Number of incidents with an alert and no all-clear."""
        alerts = self.recorder.ledger.alerts
        cleared = {incident for one in alerts.values() for incident in one.cancels}
        return len({key.incident for key in alerts} - cleared)

    @property
    def client_count(self) -> int:
        """Number of vehicles that are clients, or about to be."""
        return len(self._clients)

    def cpu_shares(self) -> dict[str, float]:
        """Return the share of a core that each process has used since the start."""
        took_s = (time_ns() - self.began_at) / SECOND_NS
        used = {name: child.cpu_s() - self._cpu_s.get(name, 0.0) for name, child in self.running.children.all.items()}
        return {name: used_s / took_s for name, used_s in used.items()}

    def _run_second(self, *, is_scenario_stepped: bool) -> None:
        """Run one second of traffic, and of the scenario if *is_scenario_stepped*."""
        running, recorder = self.running, self.recorder
        true = running.traffic.step()
        observed = self._receivers.observe(true)
        witnesses: list[str] = []
        if is_scenario_stepped:
            witnesses = self.scenario.step(running.traffic, true, observed, self.second, active_incidents=self.active_incidents)
        arrived = self._choose(true)
        at = Instant(time_ns())
        running.send_to_fleet({"cars": self._rows(observed, set(witnesses)), "arrived": arrived})
        recorder.record_true_positions(true, at)
        self.second += 1
        self._next_second_at += 1.0
        self._wait()
        running.children.check()
        if self.second % PRUNE_INTERVAL_S == 0:
            recorder.ledger.prune(Instant(at - RETENTION_NS))

    def _choose(self, cars: Cars) -> list[str]:
        """Choose new clients, alternating between UDP and MQTT; return the clients that have arrived."""
        here = set(cars.names)
        arrived = [name for name in self._clients if name not in here]
        for name in arrived:
            del self._clients[name]
        free = [name for name in cars.names if name not in self._clients]
        for name in free[: min(JOIN_MAX, self.vehicles - len(self._clients))]:
            self._clients[name] = ("udp", "mqtt")[self._joined_count % 2]
            self._joined_count += 1
        return arrived

    def _rows(self, observed: Cars, witnesses: set[str]) -> list[list[object]]:
        columns = (observed.latitudes, observed.longitudes, observed.headings_deg, observed.speeds_mps)
        return [
            [name, self._clients[name], *row, name in witnesses]
            for name, *row in zip(observed.names, *(column.tolist() for column in columns), strict=True)
            if name in self._clients
        ]

    def record_pending(self) -> None:
        """Record received alerts and fleet events in the ledger."""
        for alert in self.running.alerts.take_alerts():
            self.recorder.ledger.alerts.setdefault(alert.key, alert)
        self.recorder.record_pending()

    def _wait(self) -> None:
        """Wait until the next second begins, and update the ledger meanwhile."""
        while True:
            self.record_pending()
            left_s = self._next_second_at - time.monotonic()
            if left_s <= 0:
                break
            time.sleep(min(0.1, left_s))
        if left_s < -5.0:  # the machine is too slow: stretch simulated seconds
            self._next_second_at = time.monotonic()
