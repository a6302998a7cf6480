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
from milepost.cli import (
    access,
    agent,
    edge,
    handler,
    log,
    passwd,
    pipeline,
    pub,
    report,
    services,
    site_processes,
    sub,
    topology,
    trust,
)
from milepost.cli.command_parser import CommandParser, Commands
from milepost.config.errors import StartFault
from milepost.runtime.terminal import print_error

COMMANDS: Final = (
    edge,
    site_processes,
    agent,
    pub,
    sub,
    report,
    topology,
    log,
    access,
    passwd,
    trust,
    services,
    handler,
    pipeline,
)
EXPERIMENTS: Final = ("milepost_experiments.demo.command", "milepost_experiments.papers.command")
"""Subcommands of the package `milepost_experiments`, loaded by name so that the product does not import it."""

STATUS_INTERRUPTED: Final = 130
_ONE_THREAD: Final = {"OPENBLAS_NUM_THREADS": "1"}
"""Disables the thread pool of numpy: it costs memory, and the arrays here are small."""

_EPILOG: Final = """\
examples:
  milepost demo                              a simulated city with all components, on a live map
  milepost edge run                          a broker on 127.0.0.1:1883 that stores its state in data/edge
  milepost edge run --config milepost.toml   a broker with the settings of a file
  milepost edge check --config milepost.toml check the settings and print a summary
  milepost sub -t 'fleet/#'                  print received messages
  milepost pub -t fleet/truck-17 -m hello    publish a message
  milepost report --along route.geojson      drive a simulated vehicle along a line
  milepost agent run --url udp+find:// ...   on a vehicle: one client of an edge for all its programs
  milepost handler run parking.py ...        a third party's request/reply service, behind validators
  milepost incidents run --config ...        raise and clear alerts from the reports of many vehicles
  milepost pipeline run all --config ...     Spark over a site's log: cells, positions, an archive
  milepost dashboard run --config ...        a live map of a site
  milepost hub run --config hub.toml         connect the sites that the file names
  milepost where truck-17 --config ...       the edge that an endpoint is connected to
  milepost topology --config hub.toml        sites, their edges, and the hub process of each site
  milepost log tail cross-hub --config ...   print new records of a site's log
  milepost access explain ada geocast ice    whether a user may send something, and the rule that decides
  milepost passwd users ada                  add a user, or change a password
  milepost trust init ca                     create a certificate authority
  milepost services start kafka              a Kafka on loopback, for development
  milepost paper mercury --quick             a paper's evaluation on this machine, our results beside the paper's

`milepost COMMAND --help` has the details of a command. milepost.example.toml explains every setting.
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
        print_error(f"milepost: {fault}")
        return fault.status
    except KeyboardInterrupt:
        return STATUS_INTERRUPTED
    except BrokenPipeError:  # the reader of the output has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return status


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    parser = CommandParser(
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
