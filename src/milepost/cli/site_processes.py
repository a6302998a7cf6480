"""`milepost hub | incidents | dashboard run`: processes over the logs of sites."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from milepost.cli.command_parser import Commands

if TYPE_CHECKING:  # imports numpy
    from milepost.config.settings import Settings


def _run_hub(settings: "Settings") -> int:
    from milepost.runtime.central_hub import run  # noqa: PLC0415

    return run(settings)


def _run_incidents(settings: "Settings") -> int:
    from milepost.runtime.incidents import run  # noqa: PLC0415

    return run(settings)


def _run_dashboard(settings: "Settings") -> int:
    from milepost.runtime.dashboard import run  # noqa: PLC0415

    return run(settings)


class _Process(NamedTuple):
    """The help texts of a command, and its function."""

    name: str
    run: "Callable[[Settings], int]"
    summary: str
    description: str
    verb_summary: str
    verb_description: str
    epilog: str


_PROCESSES: Final = (
    _Process(
        "hub",
        _run_hub,
        "run the central hub, which forwards between sites",
        "The central hub between sites.",
        "run a process of the central hub",
        "Keep the registry of endpoints, and forward to each site the messages that it subscribes to.",
        """\
example:
  milepost hub run --config milepost.toml

The file names the sites and their logs, at least two:
  [[hub.sites]]
  name = "north"
  folder = "/var/lib/milepost/north"
  [[hub.sites]]
  name = "south"
  folder = "/var/lib/milepost/south"

Several processes with the same file share the sites among them; if one fails, the others take over within seconds. It runs in the
foreground until SIGINT or SIGTERM. `milepost topology` shows which process serves which site.
""",
    ),
    _Process(
        "incidents",
        _run_incidents,
        "detect incidents of a site",
        "Incidents of a site.",
        "raise and clear alerts",
        "Turn cells of reports into incidents, and incidents into alerts.",
        """\
example:
  milepost incidents run --config milepost.toml

It reads cells from the site's log (topic `cells`, written by the pipeline `hazards`), raises alerts to the areas of incidents,
and clears them. Clients that publish on Area-of-Interest receive the incidents there. Of several such processes one is active,
and another takes over when it fails. [[incidents.kinds]] in the file defines what is an incident.
""",
    ),
    _Process(
        "dashboard",
        _run_dashboard,
        "show a site on a live map",
        "The live map of a site.",
        "serve the map",
        "Serve the map.",
        """\
example:
  milepost dashboard run --config milepost.toml

It reads the logs of the sites in [[hub.sites]], or of the one in [site], and serves a map of vehicles, edges, hazards,
incidents, alerts and their receivers. It prints its address, and the token that is required to publish from the map.
[dashboard] in the file has its address, and the roads that are drawn.
""",
    ),
)


def add_to(commands: Commands) -> None:
    """Add the commands, each with the subcommand `run`."""
    for one in _PROCESSES:
        parser = commands.add_parser(one.name, help=one.summary, description=one.description)
        verbs: Commands = parser.add_subparsers(title="subcommands", metavar="SUBCOMMAND", required=True)
        verb = verbs.add_parser("run", help=one.verb_summary, description=one.verb_description, epilog=one.epilog)
        verb.add_argument("--config", metavar="FILE", type=Path, required=True, help="the TOML file of settings")
        verb.set_defaults(run=_run, process=one)


def _run(typed: argparse.Namespace) -> int:
    from milepost.config.settings import read_settings  # noqa: PLC0415  # imports numpy

    process: _Process = typed.process
    return process.run(read_settings(typed.config))
