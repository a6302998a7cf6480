"""The command `milepost`: finds the subcommand, runs it, and turns each fault into one line and an exit status.

Importing this file imports neither numpy nor asyncio nor ssl.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Final

from milepost.service.commands import (
    agent,
    centre,
    dashboard,
    demo,
    edge,
    handler,
    incidents,
    log,
    paper,
    passwd,
    pipeline,
    pub,
    report,
    services,
    sub,
    topology,
    trust,
    where,
)
from milepost.service.faults import StartFault
from milepost.service.parsers import Arguments, Commands
from milepost.service.terminal import complain

COMMANDS: Final = (
    edge,
    centre,
    agent,
    pub,
    sub,
    report,
    where,
    topology,
    log,
    passwd,
    trust,
    services,
    handler,
    incidents,
    pipeline,
    dashboard,
    demo,
    paper,
)

STATUS_INTERRUPTED: Final = 130
_ONE_THREAD: Final = {"OPENBLAS_NUM_THREADS": "1"}
"""numpy's threads would cost memory and bring nothing: its arrays here are small."""

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
    """Run what was typed; gives the exit status: 0 done, 1 failed, 2 for a wrong command line or file."""
    for name, value in _ONE_THREAD.items():
        os.environ.setdefault(name, value)
    arguments = _parser().parse_args(typed)
    try:
        status: int = arguments.run(arguments)
        sys.stdout.flush()
    except StartFault as fault:
        complain(f"milepost: {fault}")
        return fault.status
    except KeyboardInterrupt:
        return STATUS_INTERRUPTED
    except BrokenPipeError:  # whoever read our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return status


def _parser() -> argparse.ArgumentParser:
    parser = Arguments(
        prog="milepost",
        description="Publish/subscribe for things that move: what, where and when in one subscription.",
        epilog=_EPILOG,
    )
    commands: Commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add_to(commands)
    return parser
