"""The command `milepost`: parses and runs the subcommand, and turns each fault into one line and an exit status.

Importing this module imports neither numpy nor asyncio nor ssl.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final

import milepost
from milepost.cli import agent, edge, handler, log, passwd, pipeline, pub, report, services, site_processes, sites, sub, trust
from milepost.cli.parsers import Arguments, Commands
from milepost.config.errors import StartFault
from milepost.runtime.terminal import complain

COMMANDS: Final = (edge, site_processes, agent, pub, sub, report, sites, log, passwd, trust, services, handler, pipeline)
EXPERIMENTS: Final = ("milepost_experiments.demo.command", "milepost_experiments.papers.command")
"""Subcommands of the package `milepost_experiments`, loaded by name so that the product does not import it."""

STATUS_INTERRUPTED: Final = 130
_ONE_THREAD: Final = {"OPENBLAS_NUM_THREADS": "1"}
"""Disables the thread pool of numpy: it costs memory, and the arrays here are small."""

_EPILOG: Final = """\
examples:
  milepost demo                              a city that shows all of it, on a live map
  milepost edge run                          a broker on 127.0.0.1:1883 that keeps its state in data/edge
  milepost edge run --config milepost.toml   the same as the file says
  milepost edge check --config milepost.toml read the file and say what it would do
  milepost sub -t 'fleet/#'                  print what comes in
  milepost pub -t fleet/truck-17 -m hello    publish a message
  milepost report --along route.geojson      drive a made-up vehicle along a line
  milepost agent run --url udp+find:// ...   on a vehicle: one client of an edge for all its programs
  milepost handler run parking.py ...        a third party's service, behind validators
  milepost incidents run --config ...        alerts from what many report, and when they are over
  milepost pipeline run all --config ...     Spark over a site's log: cells, positions, an archive
  milepost dashboard run --config ...        all of it on a live map
  milepost centre run --config centre.toml   join the sites that the file names
  milepost where truck-17 --config ...       which edge has an endpoint
  milepost topology --config centre.toml     sites, edges, and who acts for them
  milepost log tail cross-hub --config ...   what stands in the log of a site, as it comes
  milepost passwd users ada                  add a user, or change a password
  milepost trust init ca                     an authority of your own, for certificates
  milepost services start kafka              a Kafka on loopback, for development
  milepost paper mercury --quick             a paper's evaluation on this machine, ours beside theirs

milepost COMMAND --help says more about each. milepost.example.toml explains every setting.
"""


def main(typed: Sequence[str] | None = None) -> int:
    """Run a command line; return the exit status: 0 done, 1 failed, 2 for a wrong command line or file."""
    for name, value in _ONE_THREAD.items():
        os.environ.setdefault(name, value)
    arguments = make_parser().parse_args(typed)
    try:
        status: int = arguments.run(arguments)
        sys.stdout.flush()
    except StartFault as fault:
        complain(f"milepost: {fault}")
        return fault.status
    except KeyboardInterrupt:
        return STATUS_INTERRUPTED
    except BrokenPipeError:  # the reader of the output has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return status


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    parser = Arguments(
        prog="milepost",
        description="Publish/subscribe for things that move: what, where and when in one subscription.",
        epilog=_EPILOG,
    )
    parser.add_argument(
        "--version", action="version", version=f"milepost {milepost.__version__}", help="print the version and exit"
    )
    commands: Commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in (*COMMANDS, *map(import_module, EXPERIMENTS)):
        command.add_to(commands)
    return parser
