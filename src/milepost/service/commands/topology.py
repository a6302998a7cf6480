"""`milepost topology`: sites, their edges, and who acts for them."""

import argparse
import json
from pathlib import Path
from typing import Final

from milepost.service.parsers import Commands
from milepost.service.terminal import say

_EPILOG: Final = """\
examples:
  milepost topology --config milepost.toml
  milepost topology --config milepost.toml --json | jq .north.edges

It reads what stands in the logs of the sites in [[centre.sites]], or of the one in [site]. `lag` counts the records that no
centre has dealt with yet; `centre` is the process that acts for the site, and `away` if it gave no sign of life for 5 s.
"""


def add_to(commands: Commands) -> None:
    """Add `topology`."""
    topology = commands.add_parser(
        "topology", help="show sites and edges", description="Show sites, their edges, and who acts for them.", epilog=_EPILOG
    )
    topology.add_argument("--config", metavar="FILE", type=Path, required=True, help="the TOML file of settings")
    topology.add_argument("--json", action="store_true", help="print JSON instead of tables")
    topology.set_defaults(run=_run)


def _run(typed: argparse.Namespace) -> int:
    from time import time_ns  # noqa: PLC0415

    from milepost.model.instants import Instant  # noqa: PLC0415
    from milepost.service.settings import read_settings  # noqa: PLC0415  # brings numpy
    from milepost.service.site_tables import shown_topology, topology  # noqa: PLC0415
    from milepost.service.site_view import viewed  # noqa: PLC0415

    now = Instant(time_ns())
    with viewed(read_settings(typed.config), now) as view:
        found = topology(view, now)
    say(json.dumps(found, indent=2) if typed.json else shown_topology(found))
    return 0
