"""`milepost demo`: a simulated city in which all of Milepost runs, with a map and a verdict."""

import argparse
import time
from pathlib import Path
from typing import Final

from milepost.cli.command_parser import Commands
from milepost.config.errors import UsageFault, missing_extra

_VEHICLES: Final = 300
_VEHICLES_MAX: Final = 5_000
_SEED: Final = 7
_PORT_MAX: Final = 65_535
_SECONDS_HEADLESS: Final = 60
_FOLDER: Final = "data/demo"

_EPILOG: Final = """\
examples:
  milepost demo                        a city until Ctrl-C; prints the address of the map
  milepost demo --headless             60 seconds of it, then a table and a report, without a user
  milepost demo --log kafka            the same on Kafka, with Spark in real-time mode
  milepost demo --sumo osm.sumocfg     a SUMO scenario of your own; its network must be georeferenced

The demo runs two sites with two edges each, a central hub, Spark and incidents per site, the map, SUMO, and vehicles: clients
over UDP and MQTT that move from edge to edge. A vehicle stops on the road, others report it, and vehicles on the way there are
warned. The demo records positions and deliveries itself and verifies them. The exit status is 0 only if all vehicles that were
inside an alert's area or entered it were warned, no other vehicle was, and no message was lost or duplicated. It needs Java 17
and the extra `experiments`.
"""


def add_to(commands: Commands) -> None:
    """Add `demo`."""
    demo = commands.add_parser(
        "demo",
        help="run a simulated city with all parts of Milepost",
        description="A simulated city, on a live map.",
        epilog=_EPILOG,
    )
    demo.add_argument(
        "--headless", action="store_true", help=f"end automatically, after {_SECONDS_HEADLESS} s unless --seconds is given"
    )
    demo.add_argument("--seconds", metavar="N", type=int, help="duration, without the start")
    demo.add_argument(
        "--vehicles", metavar="N", type=int, default=_VEHICLES, help=f"number of vehicles at a time; default {_VEHICLES}"
    )
    demo.add_argument("--log", choices=("embedded", "kafka"), default="embedded", help="storage of the sites' logs")
    demo.add_argument("--sumo", metavar="FILE.sumocfg", type=Path, help="a SUMO scenario of your own")
    demo.add_argument("--seed", metavar="N", type=int, default=_SEED, help="random seed of the traffic")
    demo.add_argument("--out", metavar="DIR", type=Path, help=f"a new folder for logs and the report; default {_FOLDER}/TIME")
    demo.add_argument("--port", metavar="N", type=int, help="port of the map; default 8470, or a free one if that is in use")
    demo.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    if not 1 <= arguments.vehicles <= _VEHICLES_MAX:
        raise UsageFault(f"--vehicles {arguments.vehicles}: expected 1 to {_VEHICLES_MAX}")
    if arguments.seconds is not None and arguments.seconds < 1:
        raise UsageFault(f"--seconds {arguments.seconds}: expected at least 1")
    if arguments.port is not None and not 0 < arguments.port <= _PORT_MAX:
        raise UsageFault(f"--port {arguments.port}: expected 1 to {_PORT_MAX}")
    seconds = _SECONDS_HEADLESS if arguments.headless and arguments.seconds is None else arguments.seconds
    out = arguments.out or Path(_FOLDER, time.strftime("%Y%m%d-%H%M%S"))
    try:
        from milepost.config.site_settings import LogType  # noqa: PLC0415
        from milepost_experiments.demo.run import run  # noqa: PLC0415
        from milepost_experiments.demo.startup import Options  # noqa: PLC0415  # slow to import, not needed for --help
    except ModuleNotFoundError:
        raise missing_extra("milepost demo", "experiments") from None
    return run(Options(arguments.vehicles, seconds, LogType(arguments.log), arguments.sumo, arguments.seed, out, arguments.port))
