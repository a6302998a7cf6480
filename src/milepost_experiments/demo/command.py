"""`milepost demo`: a simulated city in which all of Milepost runs, with a map and a verdict."""

import argparse
import time
from pathlib import Path
from typing import Final

from milepost.cli.parsers import Commands
from milepost.config.errors import UsageFault, missing_extra

_VEHICLES: Final = 300
_VEHICLES_MAX: Final = 5_000
_SEED: Final = 7
_PORT_MAX: Final = 65_535
_SECONDS_HEADLESS: Final = 60
_FOLDER: Final = "data/demo"

_EPILOG: Final = """\
examples:
  milepost demo                                   a city until Ctrl-C; it prints where to look
  milepost demo --headless                        60 seconds of it, then a table and a report; nobody has to look
  milepost demo --backbone kafka                  the same on Kafka, with Spark in real-time mode
  milepost demo --sumo osm.sumocfg                your own SUMO scenario; its net must say where on Earth it is

Two sites with two edges each and a centre, Spark for each site, incidents, the map, SUMO, and vehicles that are clients over UDP
and MQTT and go from edge to edge. A vehicle stops where it should not, others report it, and who is on the way there is warned.
The demo keeps books of its own: the exit status is 0 only if all who were inside an alert's area or drove into it were warned,
nobody else was, and nothing was lost or came twice. It needs Java 17 and the extra `experiments`.
"""


def add_to(commands: Commands) -> None:
    """Add `demo`."""
    demo = commands.add_parser("demo", help="a city that shows all of it", description="A city, on a map.", epilog=_EPILOG)
    demo.add_argument(
        "--headless", action="store_true", help=f"end by itself: after {_SECONDS_HEADLESS} s unless --seconds says else"
    )
    demo.add_argument("--seconds", metavar="N", type=int, help="end after so many seconds, start not counted")
    demo.add_argument(
        "--vehicles", metavar="N", type=int, default=_VEHICLES, help=f"how many drive at a time; {_VEHICLES} unless told"
    )
    demo.add_argument("--backbone", choices=("embedded", "kafka"), default="embedded", help="what the sites' logs are kept by")
    demo.add_argument("--sumo", metavar="FILE.sumocfg", type=Path, help="a scenario of your own")
    demo.add_argument("--seed", metavar="N", type=int, default=_SEED, help="of the traffic; the same gives the same trips")
    demo.add_argument("--out", metavar="DIR", type=Path, help=f"a new folder for logs and the report; {_FOLDER}/TIME unless told")
    demo.add_argument("--port", metavar="N", type=int, help="of the map; 8470 unless told, or a free one if that is taken")
    demo.set_defaults(run=_run)


def _run(typed: argparse.Namespace) -> int:
    if not 1 <= typed.vehicles <= _VEHICLES_MAX:
        raise UsageFault(f"--vehicles {typed.vehicles}: give 1 to {_VEHICLES_MAX}")
    if typed.seconds is not None and typed.seconds < 1:
        raise UsageFault(f"--seconds {typed.seconds}: give at least 1")
    if typed.port is not None and not 0 < typed.port <= _PORT_MAX:
        raise UsageFault(f"--port {typed.port}: that is no port")
    seconds = _SECONDS_HEADLESS if typed.headless and typed.seconds is None else typed.seconds
    out = typed.out or Path(_FOLDER, time.strftime("%Y%m%d-%H%M%S"))
    try:
        from milepost.config.site_settings import Backbone  # noqa: PLC0415
        from milepost_experiments.demo.run import run  # noqa: PLC0415
        from milepost_experiments.demo.startup import Options  # noqa: PLC0415  # slow to import, not needed for --help
    except ModuleNotFoundError:
        raise missing_extra("milepost demo", "experiments") from None
    return run(Options(typed.vehicles, seconds, Backbone(typed.backbone), typed.sumo, typed.seed, out, typed.port))
