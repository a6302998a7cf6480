"""`milepost centre`: join the logs of sites."""

import argparse
from pathlib import Path
from typing import Final

from milepost.service.parsers import Commands

_RUN_EPILOG: Final = """\
example:
  milepost centre run --config milepost.toml

The file names the sites and their logs, at least two:
  [[centre.sites]]
  name = "north"
  folder = "/var/lib/milepost/north"
  [[centre.sites]]
  name = "south"
  folder = "/var/lib/milepost/south"

Several processes with the same file share the sites among them; if one dies, the others take over within seconds. It runs in the
foreground until SIGINT or SIGTERM. `milepost topology` shows who has what.
"""


def add_to(commands: Commands) -> None:
    """Add `centre` and its verb."""
    centre = commands.add_parser("centre", help="join the logs of sites", description="The centre, between sites.")
    verbs: Commands = centre.add_subparsers(title="verbs", metavar="VERB", required=True)
    run = verbs.add_parser(
        "run",
        help="run a process of the centre",
        description="Keep the register of who is where, and bring to each site what it wants of the others.",
        epilog=_RUN_EPILOG,
    )
    run.add_argument("--config", metavar="FILE", type=Path, required=True, help="the TOML file of settings")
    run.set_defaults(run=_run)


def _run(typed: argparse.Namespace) -> int:
    from milepost.service.settings import read_settings  # noqa: PLC0415  # brings numpy

    settings = read_settings(typed.config)
    from milepost.service.centre_run import run  # noqa: PLC0415  # heavy, and not wanted before the settings are good

    return run(settings)
