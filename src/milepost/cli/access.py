"""`milepost access explain`: which access rule decides what a client may do, and why."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final

from milepost.cli.client_options import read_option
from milepost.cli.command_parser import Commands
from milepost.cli.pub import PRIORITIES
from milepost.config.errors import UsageFault
from milepost.runtime.terminal import print_line

if TYPE_CHECKING:  # imports numpy
    from milepost.broker.access_explanation import AccessQuestion
    from milepost.model.areas import Area

VERBS: Final = ("publish", "subscribe", "geocast", "direct", "broadcast", "cancel")

_EPILOG: Final = """\
examples:
  milepost access explain ada publish fleet/truck-17 --config milepost.toml
  milepost access explain - publish Emergency              an anonymous client, default settings
  milepost access explain ada geocast warnings --to 'circle 40.7608,-111.891 2000' --at 40.76,-111.9 --valid-for 10m
  milepost access explain - geocast Alert --role operator --priority emergency --config milepost.toml

It applies the rules of the file as an edge does. A limit is checked if the options state what it is about; otherwise it is only
shown. The exit status is 0 if it is allowed, 1 if it is denied.
"""


def add_to(commands: Commands) -> None:
    """Add `access` and its subcommand."""
    access = commands.add_parser(
        "access", help="explain access rules", description="Explain access rules; see docs/reference/access.md."
    )
    verbs: Commands = access.add_subparsers(title="subcommands", metavar="SUBCOMMAND", required=True)
    parser = verbs.add_parser(
        "explain",
        help="show which rule decides",
        description="Show whether a client may do something, the rule that decides, and its limits.",
        epilog=_EPILOG,
    )
    parser.add_argument("user", metavar="USER", help="the proven user name; - or empty: none")
    parser.add_argument("verb", metavar="VERB", choices=VERBS, help=", ".join(VERBS))
    parser.add_argument("topic", metavar="TOPIC", help="the topic; of a subscription, its filter")
    parser.add_argument(
        "--to", metavar="ADDRESS", help="the address: an area for geocast, an endpoint for direct, an incident for cancel"
    )
    parser.add_argument("--client", metavar="ID", default="client", help="the client id (default: client)")
    parser.add_argument("--role", metavar="ROLE", help="the role in the certificate of the client (default: no certificate)")
    parser.add_argument("--at", metavar="LAT,LON", help="the position of the client")
    parser.add_argument("--place", metavar="LAT,LON", help="the place that the message is about")
    parser.add_argument("--priority", choices=PRIORITIES, help="the priority class (default: that of the topic)")
    parser.add_argument("--valid-for", metavar="TIME", help="the validity of the message, such as 10m")
    parser.add_argument("--config", metavar="FILE", type=Path, help="the TOML file of settings (default: the default settings)")
    parser.set_defaults(run=_explain)


def _explain(typed: argparse.Namespace) -> int:
    from time import time_ns  # noqa: PLC0415

    from milepost.broker.access_explanation import explain, shown_explanation  # noqa: PLC0415  # imports numpy
    from milepost.config.settings import Settings, read_settings  # noqa: PLC0415
    from milepost.model.instants import Instant  # noqa: PLC0415
    from milepost.runtime.admission_rules import message_limits, read_rules  # noqa: PLC0415

    settings = read_settings(typed.config) if typed.config else Settings()
    question = _question(typed)
    explanation = explain(read_rules(settings), message_limits(settings), question, Instant(time_ns()))
    print_line(shown_explanation(question, explanation))
    return 0 if explanation.is_allowed else 1


def _question(typed: argparse.Namespace) -> "AccessQuestion":
    from milepost.broker.access_explanation import AccessQuestion  # noqa: PLC0415  # imports numpy
    from milepost.model.instants import SECOND_NS  # noqa: PLC0415
    from milepost.model.priorities import Priority  # noqa: PLC0415
    from milepost.model.topics import check_filter, check_topic  # noqa: PLC0415
    from milepost.vetting.access import AccessAction, ClientIdentity  # noqa: PLC0415
    from milepost.wire.area_text import place_from_text  # noqa: PLC0415
    from milepost.wire.times import duration_from_text  # noqa: PLC0415

    read_option("TOPIC", check_filter if typed.verb == "subscribe" else check_topic, typed.topic)
    valid_ns = read_option("--valid-for", duration_from_text, typed.valid_for)
    return AccessQuestion(
        ClientIdentity(typed.client, None if typed.user in ("", "-") else typed.user, typed.role),
        AccessAction(typed.verb),
        typed.topic,
        Priority[typed.priority.upper()] if typed.priority else None,
        None if valid_ns is None else valid_ns / SECOND_NS,
        read_option("--place", place_from_text, typed.place),
        _area(typed.verb, typed.to),
        read_option("--at", place_from_text, typed.at),
    )


def _area(verb: str, to: str | None) -> "Area | None":
    """Return the area of a geocast; check the address of other verbs."""
    from milepost.model.addresses import check_incident_name  # noqa: PLC0415  # imports numpy
    from milepost.model.endpoints import endpoint_id  # noqa: PLC0415
    from milepost.wire.area_text import area_from_text  # noqa: PLC0415

    if verb == "geocast":
        return read_option("--to", area_from_text, to)
    if verb == "direct":
        read_option("--to", endpoint_id, to)
    elif verb == "cancel":
        read_option("--to", check_incident_name, to)
    elif to is not None:
        raise UsageFault(f"--to does not apply to {verb}: give it with geocast, direct or cancel")
    return None
