"""`milepost incidents`: watch over the incidents of a site."""

import argparse
from pathlib import Path
from typing import Final

from milepost.service.parsers import Commands

_RUN_EPILOG: Final = """\
example:
  milepost incidents run --config milepost.toml

It reads cells from the site's log (topic `cells`, written by the pipeline `hazards`), raises alerts to the areas of incidents,
and says when they are over. Clients that publish on Area-of-Interest are told what is going on there. Of several such processes
one acts, and another takes over when it dies. [[incidents.kinds]] in the file says what is an incident.
"""


def add_to(commands: Commands) -> None:
    """Add `incidents` and its verb."""
    incidents = commands.add_parser("incidents", help="watch over the incidents of a site", description="Incidents of a site.")
    verbs: Commands = incidents.add_subparsers(title="verbs", metavar="VERB", required=True)
    run = verbs.add_parser("run", help="raise and clear alerts", description="Turn cells into alerts.", epilog=_RUN_EPILOG)
    run.add_argument("--config", metavar="FILE", type=Path, required=True, help="the TOML file of settings")
    run.set_defaults(run=_run)


def _run(typed: argparse.Namespace) -> int:
    from milepost.service.incidents import run  # noqa: PLC0415  # heavy
    from milepost.service.settings import read_settings  # noqa: PLC0415  # brings numpy

    return run(read_settings(typed.config))
