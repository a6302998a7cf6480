"""`milepost where` and `milepost topology`: the state of sites, read from their logs."""

import argparse
import json
from pathlib import Path
from typing import Final

from milepost.cli.command_parser import Commands
from milepost.runtime.terminal import print_error, print_line

_WHERE_EPILOG: Final = """\
examples:
  milepost where truck-17 --config milepost.toml
  milepost where truck-17 --config milepost.toml --json | jq -r .edge

It reads the registry from the logs of the sites in [[hub.sites]], or of the one in [site]; no process needs to run.
The exit status is 1 if no site has the endpoint.
"""
_TOPOLOGY_EPILOG: Final = """\
examples:
  milepost topology --config milepost.toml
  milepost topology --config milepost.toml --json | jq .north.edges

It reads the logs of the sites in [[hub.sites]], or of the one in [site]. `hub` is the process of the central hub that
serves the site; its state is `up`, `down` (no heartbeat for 5 s) or `none`. `lag` is the number of records that it has not
processed.
"""


def add_to(commands: Commands) -> None:
    """Add `where` and `topology`."""
    where = commands.add_parser(
        "where",
        help="find an endpoint",
        description="Print which edge has an endpoint, and since when.",
        epilog=_WHERE_EPILOG,
    )
    where.add_argument("endpoint", metavar="ENDPOINT", help="the endpoint's id")
    _add_source(where)
    where.set_defaults(run=_where)
    topology = commands.add_parser(
        "topology",
        help="show sites and edges",
        description="Show sites, their edges, and the process of the central hub that serves each site.",
        epilog=_TOPOLOGY_EPILOG,
    )
    _add_source(topology)
    topology.set_defaults(run=_topology)


def _add_source(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", metavar="FILE", type=Path, required=True, help="the TOML file of settings")
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def _where(typed: argparse.Namespace) -> int:
    from time import time_ns  # noqa: PLC0415

    from milepost.cli.site_tables import location_of, shown_location  # noqa: PLC0415
    from milepost.config.settings import read_settings  # noqa: PLC0415  # imports numpy
    from milepost.model.endpoints import EndpointId  # noqa: PLC0415
    from milepost.model.instants import Instant  # noqa: PLC0415
    from milepost.runtime.site_view import view_sites  # noqa: PLC0415

    now = Instant(time_ns())
    with view_sites(read_settings(typed.config), now) as view:
        found = location_of(view, EndpointId(typed.endpoint))
    if found is None:
        print_error(f"milepost: no site has an endpoint {typed.endpoint!r}")
        return 1
    print_line(json.dumps(found, indent=2) if typed.json else shown_location(found, now))
    return 0


def _topology(typed: argparse.Namespace) -> int:
    from time import time_ns  # noqa: PLC0415

    from milepost.cli.site_tables import shown_topology, topology  # noqa: PLC0415
    from milepost.config.settings import read_settings  # noqa: PLC0415  # imports numpy
    from milepost.model.instants import Instant  # noqa: PLC0415
    from milepost.runtime.site_view import view_sites  # noqa: PLC0415

    now = Instant(time_ns())
    with view_sites(read_settings(typed.config), now) as view:
        found = topology(view, now)
    print_line(json.dumps(found, indent=2) if typed.json else shown_topology(found))
    return 0
