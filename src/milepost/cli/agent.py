"""`milepost agent`: one client of the edge for all local programs of a vehicle."""

import argparse
from typing import Final

from milepost.cli.client_options import CONNECTION_HELP, add_connection, client_from, read_option
from milepost.cli.command_parser import Commands
from milepost.config.errors import UsageFault

LISTEN: Final = "127.0.0.1:1883"
_LOOPBACK: Final = ("127.", "localhost:", "[::1]:")

_EPILOG: Final = f"""\
examples:
  milepost agent run --url udp://edge.example:4242 --certificate truck-7.cert --key truck-7.key --ca authority.pub \\
      --at 40.7608,-111.891
  mosquitto_sub -t 'Alert/#'                            a program on the vehicle receives alerts from the edge
  mosquitto_pub -t '$milepost/report' -m '{{"place": {{"latitude": 40.76, "longitude": -111.89}}}}'

Local programs connect to the agent by MQTT over loopback. The agent delivers a message of one program to the others at once, and
publishes it at the edge once, as the vehicle; it subscribes at the edge to all topics of the programs. It runs until SIGINT or
SIGTERM, and reconnects to the edge without end.
{CONNECTION_HELP}"""


def add_to(commands: Commands) -> None:
    """Add `agent` and its subcommand."""
    agent = commands.add_parser(
        "agent",
        help="run an MQTT broker inside a vehicle, bridged to an edge",
        description="One client of an edge for several local programs.",
    )
    verbs: Commands = agent.add_subparsers(title="subcommands", metavar="SUBCOMMAND", required=True)
    run = verbs.add_parser("run", help="run the agent", description="Serve local programs over loopback.", epilog=_EPILOG)
    run.add_argument("--listen", metavar="ADDR", default=LISTEN, help=f"HOST:PORT for local programs (default: {LISTEN})")
    run.add_argument("--at", metavar="LAT,LON", help="udp: position of the vehicle until a program reports one")
    add_connection(run)
    run.set_defaults(run=_run)


def _run(typed: argparse.Namespace) -> int:
    if not typed.listen.startswith(_LOOPBACK):
        raise UsageFault(f"--listen: {typed.listen} is not a loopback address: other machines could publish as the vehicle")
    from milepost.wire.area_text import place_from_text  # noqa: PLC0415

    edge = client_from(typed, read_option("--at", place_from_text, typed.at), retries_forever=True)
    from milepost.runtime.agent import AgentService  # noqa: PLC0415  # slow import, after the options are checked
    from milepost.runtime.structured_log import StructuredLog  # noqa: PLC0415

    return AgentService(edge, typed.listen, StructuredLog()).run()
