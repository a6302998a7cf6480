"""`milepost dashboard`: the live map of a site."""

import argparse
from pathlib import Path
from typing import Final

from milepost.service.parsers import Commands

_RUN_EPILOG: Final = """\
example:
  milepost dashboard run --config milepost.toml

It reads the logs of the sites in [[centre.sites]], or of the one in [site], and serves a map of what goes on there: vehicles,
edges, hazards, incidents, alerts and who got them. It prints where to look, and a token without which nothing can be published.
[dashboard] in the file says where it is served, and which roads are drawn.
"""


def add_to(commands: Commands) -> None:
    """Add `dashboard` and its verb."""
    dashboard = commands.add_parser("dashboard", help="show a site on a live map", description="The live map of a site.")
    verbs: Commands = dashboard.add_subparsers(title="verbs", metavar="VERB", required=True)
    run = verbs.add_parser("run", help="serve the map", description="Serve the map.", epilog=_RUN_EPILOG)
    run.add_argument("--config", metavar="FILE", type=Path, required=True, help="the TOML file of settings")
    run.set_defaults(run=_run)


def _run(typed: argparse.Namespace) -> int:
    from milepost.service.dashboard import run  # noqa: PLC0415  # heavy
    from milepost.service.settings import read_settings  # noqa: PLC0415  # brings numpy

    return run(read_settings(typed.config))
