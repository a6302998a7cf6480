"""SUMO traffic over TraCI, one simulated second per step, and the errors of the vehicles' GNSS receivers.

Invariants:
- the number of vehicles is constant if the scenario has no demand of its own: a vehicle that arrives is replaced;
- positions come from the projection of the network, and equal those that `milepost.roads` reads from the same file.
"""

import struct
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import cycle
from random import Random
from typing import Any, Final

import numpy as np
import traci
import traci.constants as tc
from traci.exceptions import FatalTraCIError, TraCIException

from milepost.model.places import EARTH_RADIUS_M
from milepost_experiments.simulator.scenarios import Floats, Scenario
from milepost_experiments.simulator.sumo import SumoFault, program

STEP_S: Final = 1.0
DEPARTURES_MAX: Final = 3
"""Maximum departures per step: streets fill gradually."""
CONNECT_S_MAX: Final = 60.0
_STUCK_S: Final = 120
"""Time after which a stuck vehicle is removed: a permanently jammed city shows nothing."""
_VARIABLES: Final = (tc.VAR_POSITION, tc.VAR_SPEED, tc.VAR_ANGLE, tc.VAR_ROAD_ID)


@dataclass(frozen=True, slots=True)
class Cars:
    """The vehicles at one moment, as columns."""

    names: tuple[str, ...]
    latitudes: Floats
    longitudes: Floats
    headings_deg: Floats
    speeds_mps: Floats
    roads: tuple[str, ...]
    """Ids of SUMO edges; inside a junction the id begins with a colon."""

    def __len__(self) -> int:
        return len(self.names)


def sumo_command(scenario: Scenario, *, port: int, seed: int) -> list[str]:
    """Return the command that runs SUMO for this scenario, with TraCI on a port."""
    source = ["-n", str(scenario.net)] if scenario.config is None else ["-c", str(scenario.config)]
    quiet = ["--no-step-log", "--no-warnings", "--duration-log.disable"]
    limits = [
        "--time-to-teleport",
        str(_STUCK_S),
        "--time-to-teleport.remove",
        "true",
        "--collision.action",
        "none",
        "--step-length",
        str(STEP_S),
    ]
    rerouting = ["--device.rerouting.probability", "0.7", "--device.rerouting.period", "30"] if scenario.config is None else []
    return [program("sumo"), *source, "--remote-port", str(port), "--seed", str(seed), *quiet, *limits, *rerouting]


class Traffic:
    """A running SUMO."""

    def __init__(self, scenario: Scenario, connection: Any, *, vehicle_count: int, seed: int) -> None:
        self._connection = connection
        self._vehicle_count = vehicle_count
        self._projection = scenario.projection
        routes = list(scenario.routes)
        Random(seed).shuffle(routes)
        self._routes: Iterator[tuple[str, ...]] | None = cycle(routes) if routes else None
        self._on_road: set[str] = set()
        self._departures = 0

    def step(self) -> Cars:
        """Simulate one second; return the vehicles after it."""
        connection = self._connection
        if self._routes is not None:
            for _ in range(min(DEPARTURES_MAX, self._vehicle_count - len(self._on_road))):
                self._depart(next(self._routes))
        try:
            connection.simulationStep()
            for name in connection.simulation.getDepartedIDList():
                connection.vehicle.subscribe(name, _VARIABLES)
            self._on_road -= set(connection.simulation.getArrivedIDList())
            rows: dict[str, dict[int, Any]] = connection.vehicle.getAllSubscriptionResults()
        except (FatalTraCIError, OSError) as fault:
            raise SumoFault(f"SUMO has ended: {fault}") from None
        return self._cars(rows)

    def is_over(self) -> bool:
        """Return whether no vehicle drives or will depart any more."""
        return self._routes is None and not self._connection.simulation.getMinExpectedNumber()

    def halt(self, name: str) -> bool:
        """Stop a vehicle where it is; return whether it still exists."""
        return self._attempt(lambda: self._connection.vehicle.setSpeed(name, 0.0))

    def release(self, name: str) -> bool:
        """Let a vehicle drive on; return whether it still exists."""
        return self._attempt(lambda: self._connection.vehicle.setSpeed(name, -1.0))

    def close(self) -> None:
        """End SUMO; after an interrupted call the answer may be truncated (`struct.error`)."""
        with suppress(FatalTraCIError, TraCIException, OSError, struct.error):
            self._connection.close(False)

    def _attempt(self, action: Callable[[], None]) -> bool:
        try:
            action()
        except FatalTraCIError as fault:
            raise SumoFault(f"SUMO has ended: {fault}") from None
        except TraCIException:  # the vehicle has arrived meanwhile
            return False
        return True

    def _depart(self, route: tuple[str, ...]) -> None:
        self._departures += 1
        name = f"car-{self._departures}"
        self._connection.route.add(name, route)
        self._connection.vehicle.add(name, name, departLane="best", departPos="random_free", departSpeed="max")
        self._on_road.add(name)

    def _cars(self, rows: dict[str, dict[int, Any]]) -> Cars:
        names = sorted(rows)
        columns = [[rows[name][of] for name in names] for of in _VARIABLES]
        east, north = np.array(columns[0], np.float64).reshape(-1, 2).T
        latitudes, longitudes = self._projection.places(east, north)
        speeds, angles = (np.array(column, np.float64) for column in columns[1:3])
        is_on_map = np.isfinite(latitudes) & (east > tc.INVALID_DOUBLE_VALUE / 2)  # a teleporting vehicle has no position
        visible = np.flatnonzero(is_on_map)
        return Cars(
            tuple(names[at] for at in visible),
            latitudes[visible],
            longitudes[visible],
            angles[visible] % 360.0,
            np.maximum(speeds[visible], 0.0),
            tuple(columns[3][at] for at in visible),
        )


def connect_traci(port: int, is_alive: Callable[[], bool]) -> Any:
    """Return a TraCI connection to a SUMO that has just been started."""
    until = time.monotonic() + CONNECT_S_MAX
    while True:
        try:
            return traci.connect(port, numRetries=0, host="127.0.0.1")
        except (FatalTraCIError, TraCIException, OSError):
            if not is_alive() or time.monotonic() > until:
                raise SumoFault(f"no connection to SUMO within {CONNECT_S_MAX:g} s, or it has ended; see its log") from None
            time.sleep(0.05)


ERROR_SIGMA_M: Final = 3.0
"""Standard deviation of a receiver's error, in each direction."""
CORRELATION_S: Final = 30.0
"""Correlation time of the error."""
HEADING_SIGMA_DEG: Final = 4.0
SPEED_SIGMA_MPS: Final = 0.2
STANDING_MPS_MAX: Final = 0.3


class Receivers:
    """The GNSS receivers of all vehicles; equal seeds yield equal errors."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._errors_m: dict[str, Floats] = {}

    def observe(self, cars: Cars) -> Cars:
        """Return the positions, headings and speeds that the vehicles report; a standing vehicle does not know its heading."""
        decay = np.exp(-1.0 / CORRELATION_S)
        gain = np.sqrt(1 - decay * decay)
        innovations = self._rng.normal(0.0, ERROR_SIGMA_M, (len(cars), 2))
        errors_m = np.array(
            [
                innovations[at] if name not in self._errors_m else decay * self._errors_m[name] + gain * innovations[at]
                for at, name in enumerate(cars.names)
            ]
        ).reshape(-1, 2)
        self._errors_m = dict(zip(cars.names, errors_m, strict=True))
        is_standing = cars.speeds_mps < STANDING_MPS_MAX
        headings = cars.headings_deg + self._rng.normal(0.0, HEADING_SIGMA_DEG, len(cars))
        speeds = cars.speeds_mps + self._rng.normal(0.0, SPEED_SIGMA_MPS, len(cars)) * ~is_standing
        return Cars(
            cars.names,
            cars.latitudes + np.degrees(errors_m[:, 0] / EARTH_RADIUS_M),
            cars.longitudes + np.degrees(errors_m[:, 1] / EARTH_RADIUS_M) / np.cos(np.radians(cars.latitudes)),
            np.where(is_standing, self._rng.uniform(0.0, 360.0, len(cars)), headings) % 360.0,
            np.maximum(speeds, 0.0),
            cars.roads,
        )
