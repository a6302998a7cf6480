"""`milepost where`: which edge has an endpoint."""

import argparse
import json
from pathlib import Path
from typing import Final

from milepost.service.parsers import Commands
from milepost.service.terminal import complain, say

_EPILOG: Final = """\
examples:
  milepost where truck-17 --config milepost.toml
  milepost where truck-17 --config milepost.toml --json | jq -r .edge

It reads the register that stands in the logs of the sites in [[centre.sites]], or of the one in [site]; no process needs to run.
The exit status is 1 if no site has the endpoint.
"""


def add_to(commands: Commands) -> None:
    """Add `where`."""
    where = commands.add_parser(
        "where", help="say where an endpoint is", description="Say which edge has an endpoint, and since when.", epilog=_EPILOG
    )
    where.add_argument("endpoint", metavar="ENDPOINT", help="the endpoint's id")
    where.add_argument("--config", metavar="FILE", type=Path, required=True, help="the TOML file of settings")
    where.add_argument("--json", action="store_true", help="print JSON instead of lines")
    where.set_defaults(run=_run)


def _run(typed: argparse.Namespace) -> int:
    from time import time_ns  # noqa: PLC0415

    from milepost.model.endpoints import EndpointId  # noqa: PLC0415
    from milepost.model.instants import Instant  # noqa: PLC0415
    from milepost.service.settings import read_settings  # noqa: PLC0415  # brings numpy
    from milepost.service.site_tables import shown_whereabouts, whereabouts  # noqa: PLC0415
    from milepost.service.site_view import viewed  # noqa: PLC0415

    now = Instant(time_ns())
    with viewed(read_settings(typed.config), now) as view:
        found = whereabouts(view, EndpointId(typed.endpoint))
    if found is None:
        complain(f"milepost: no site has {typed.endpoint!r}")
        return 1
    say(json.dumps(found, indent=2) if typed.json else shown_whereabouts(found, now))
    return 0
