"""Traffic: SUMO step by step over TraCI, second by second of its own time; the clock is the caller's.

What must hold:
- as many drive as are wanted, if the scenario leaves that to us: whoever arrives is replaced;
- places are by the projection of the net, to the numbers that `milepost.roads` reads from the same file.
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

from milepost.simulator.installed import SumoFault, program
from milepost.simulator.scenarios import Floats, Scenario

STEP_S: Final = 1.0
SET_OUT_MAX: Final = 3
"""So many set out in one step, at the most: streets fill up, they do not flood."""
CONNECT_S_MAX: Final = 60.0
_STUCK_S: Final = 120
"""Who stands for so long without a reason is taken out: a town that is jammed for good shows nothing."""
_OF_EACH: Final = (tc.VAR_POSITION, tc.VAR_SPEED, tc.VAR_ANGLE, tc.VAR_ROAD_ID)


@dataclass(frozen=True, slots=True)
class Cars:
    """Who drives at one moment, truly where, as columns."""

    names: tuple[str, ...]
    latitudes: Floats
    longitudes: Floats
    headings_deg: Floats
    speeds_mps: Floats
    roads: tuple[str, ...]
    """By the ids of edges; inside of a junction, by one that begins with a colon."""

    def __len__(self) -> int:
        return len(self.names)


def command(scenario: Scenario, *, port: int, seed: int) -> list[str]:
    """What runs SUMO for this scenario, waiting for us at a port."""
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
    """A SUMO that runs."""

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
        """One more second; who drives after it."""
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
        """Whether nobody drives any more, nor will."""
        return self._routes is None and not self._connection.simulation.getMinExpectedNumber()

    def halt(self, name: str) -> bool:
        """Let somebody stop where he is, and stay; whether he is still there."""
        return self._try(lambda: self._connection.vehicle.setSpeed(name, 0.0))

    def let_go(self, name: str) -> bool:
        """Let somebody drive on."""
        return self._try(lambda: self._connection.vehicle.setSpeed(name, -1.0))

    def close(self) -> None:
        """Let SUMO end; whoever was interrupted in the middle of a word reads half an answer here."""
        with suppress(FatalTraCIError, TraCIException, OSError, struct.error):
            self._connection.close(False)

    def _try(self, act: Callable[[], None]) -> bool:
        try:
            act()
        except FatalTraCIError as fault:
            raise SumoFault(f"SUMO has ended: {fault}") from None
        except TraCIException:  # he has arrived meanwhile
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
        is_on_map = np.isfinite(latitudes) & (east > tc.INVALID_DOUBLE_VALUE / 2)  # who is being teleported is nowhere
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
    """A connection to a SUMO that has just been started."""
    until = time.monotonic() + CONNECT_S_MAX
    while True:
        try:
            return traci.connect(port, numRetries=0, host="127.0.0.1")
        except (FatalTraCIError, TraCIException, OSError):
            if not is_alive() or time.monotonic() > until:
                raise SumoFault("SUMO does not start") from None
            time.sleep(0.05)
