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
SET_OUT_MAX: Final = 3
"""Maximum departures per step: streets fill gradually."""
CONNECT_S_MAX: Final = 60.0
_STUCK_S: Final = 120
"""Time after which a stuck vehicle is removed: a permanently jammed town shows nothing."""
_OF_EACH: Final = (tc.VAR_POSITION, tc.VAR_SPEED, tc.VAR_ANGLE, tc.VAR_ROAD_ID)


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


def command(scenario: Scenario, *, port: int, seed: int) -> list[str]:
    """Return the command that runs SUMO for this scenario, with TraCI on a port."""
    source = ["-n", str(scenario.net)] if scenario.config is None else ["-c", str(scenario.config)]
    quiet = ["--no-step-log", "--no-warnings", "--duration-log.disable"]
    calm = [
        "--time-to-teleport",
        str(_STUCK_S),
        "--time-to-teleport.remove",
        "true",
        "--collision.action",
        "none",
        "--step-length",
        str(STEP_S),
    ]
    told = ["--device.rerouting.probability", "0.7", "--device.rerouting.period", "30"] if scenario.config is None else []
    return [program("sumo"), *source, "--remote-port", str(port), "--seed", str(seed), *quiet, *calm, *told]


class Traffic:
    """A running SUMO."""

    def __init__(self, scenario: Scenario, connection: Any, *, wanted: int, seed: int) -> None:
        self._connection = connection
        self._wanted = wanted
        self._ground = scenario.ground
        routes = list(scenario.routes)
        Random(seed).shuffle(routes)
        self._routes: Iterator[tuple[str, ...]] | None = cycle(routes) if routes else None
        self._is_on_the_way: set[str] = set()
        self._set_out = 0

    def step(self) -> Cars:
        """Simulate one second; return the vehicles after it."""
        connection = self._connection
        if self._routes is not None:
            for _ in range(min(SET_OUT_MAX, self._wanted - len(self._is_on_the_way))):
                self._send_out(next(self._routes))
        try:
            connection.simulationStep()
            for name in connection.simulation.getDepartedIDList():
                connection.vehicle.subscribe(name, _OF_EACH)
            self._is_on_the_way -= set(connection.simulation.getArrivedIDList())
            rows: dict[str, dict[int, Any]] = connection.vehicle.getAllSubscriptionResults()
        except (FatalTraCIError, OSError) as fault:
            raise SumoFault(f"SUMO has ended: {fault}") from None
        return self._cars(rows)

    def is_over(self) -> bool:
        """Return whether no vehicle drives or will depart any more."""
        return self._routes is None and not self._connection.simulation.getMinExpectedNumber()

    def halt(self, name: str) -> bool:
        """Stop a vehicle where it is; return whether it still exists."""
        return self._try(lambda: self._connection.vehicle.setSpeed(name, 0.0))

    def let_go(self, name: str) -> bool:
        """Let a vehicle drive on; return whether it still exists."""
        return self._try(lambda: self._connection.vehicle.setSpeed(name, -1.0))

    def close(self) -> None:
        """End SUMO; after an interrupted call the answer may be truncated (`struct.error`)."""
        with suppress(FatalTraCIError, TraCIException, OSError, struct.error):
            self._connection.close(False)

    def _try(self, act: Callable[[], None]) -> bool:
        try:
            act()
        except FatalTraCIError as fault:
            raise SumoFault(f"SUMO has ended: {fault}") from None
        except TraCIException:  # the vehicle has arrived meanwhile
            return False
        return True

    def _send_out(self, route: tuple[str, ...]) -> None:
        self._set_out += 1
        name = f"car-{self._set_out}"
        self._connection.route.add(name, route)
        self._connection.vehicle.add(name, name, departLane="best", departPos="random_free", departSpeed="max")
        self._is_on_the_way.add(name)

    def _cars(self, rows: dict[str, dict[int, Any]]) -> Cars:
        names = sorted(rows)
        columns = [[rows[name][of] for name in names] for of in _OF_EACH]
        east, north = np.array(columns[0], np.float64).reshape(-1, 2).T
        latitudes, longitudes = self._ground.places(east, north)
        speeds, angles = (np.array(column, np.float64) for column in columns[1:3])
        is_on_map = np.isfinite(latitudes) & (east > tc.INVALID_DOUBLE_VALUE / 2)  # a teleporting vehicle has no position
        kept = np.flatnonzero(is_on_map)
        return Cars(
            tuple(names[at] for at in kept),
            latitudes[kept],
            longitudes[kept],
            angles[kept] % 360.0,
            np.maximum(speeds[kept], 0.0),
            tuple(columns[3][at] for at in kept),
        )


def connected(port: int, is_alive: Callable[[], bool]) -> Any:
    """Return a TraCI connection to a SUMO that has just been started."""
    until = time.monotonic() + CONNECT_S_MAX
    while True:
        try:
            return traci.connect(port, numRetries=0, host="127.0.0.1")
        except (FatalTraCIError, TraCIException, OSError):
            if not is_alive() or time.monotonic() > until:
                raise SumoFault("SUMO does not start") from None
            time.sleep(0.05)


SPREAD_M: Final = 3.0
"""Standard deviation of a receiver's error, in each direction."""
LASTING_S: Final = 30.0
"""Correlation time of the error."""
HEADING_SPREAD_DEG: Final = 4.0
SPEED_SPREAD_MPS: Final = 0.2
STANDS_MPS: Final = 0.3


class Receivers:
    """The GNSS receivers of all vehicles; equal seeds yield equal errors."""

    def __init__(self, seed: int) -> None:
        self._draw = np.random.default_rng(seed)
        self._off_m: dict[str, Floats] = {}

    def seen(self, cars: Cars) -> Cars:
        """Return the positions, headings and speeds that the vehicles report; a standing vehicle does not know its heading."""
        keep = np.exp(-1.0 / LASTING_S)
        pushes = self._draw.normal(0.0, SPREAD_M, (len(cars), 2))
        off_m = np.array(
            [
                pushes[at] if name not in self._off_m else keep * self._off_m[name] + np.sqrt(1 - keep * keep) * pushes[at]
                for at, name in enumerate(cars.names)
            ]
        ).reshape(-1, 2)
        self._off_m = dict(zip(cars.names, off_m, strict=True))
        is_standing = cars.speeds_mps < STANDS_MPS
        headings = cars.headings_deg + self._draw.normal(0.0, HEADING_SPREAD_DEG, len(cars))
        speeds = cars.speeds_mps + self._draw.normal(0.0, SPEED_SPREAD_MPS, len(cars)) * ~is_standing
        return Cars(
            cars.names,
            cars.latitudes + np.degrees(off_m[:, 0] / EARTH_RADIUS_M),
            cars.longitudes + np.degrees(off_m[:, 1] / EARTH_RADIUS_M) / np.cos(np.radians(cars.latitudes)),
            np.where(is_standing, self._draw.uniform(0.0, 360.0, len(cars)), headings) % 360.0,
            np.maximum(speeds, 0.0),
            cars.roads,
        )
