"""`milepost pub`: publish a message, or one for each line of standard input."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from milepost.cli.client_options import CONNECTION_HELP, add_connection, client_from, read_option, run_client
from milepost.cli.command_parser import Commands
from milepost.config.errors import UsageFault, cannot_read

if TYPE_CHECKING:  # --help must import neither asyncio nor numpy
    from milepost.client import Client

PRIORITIES: Final = ("emergency", "safety", "traffic", "convenience")
UNANSWERED_MAX: Final = 200
"""Maximum lines in flight."""

_EPILOG: Final = f"""\
examples:
  milepost pub -t fleet/truck-17 -m hello
  milepost pub -t road/i80 -m ice --tag ice --tag bridge --place 40.7608,-111.891 --priority safety --valid-for 30m
  milepost pub -t road/i80 -m 'leave the road' --to-area 'circle 40.7608,-111.891 2000' --priority emergency   needs a rule
  milepost pub -t road/i80 -m ice --place 40.7608,-111.891 --url udp://127.0.0.1:4242
  milepost pub -t Alert/Closure -m closed --to-area 'circle 40.7608,-111.891 2000' --valid-for 30m --sign \\
    --ca authority.pub --certificate control-room.cert --key control-room.key
  tail -f positions.log | milepost pub -t fleet/log --stdin-lines

Without a rule of the edge, areas may be addressed only near the own position, with a proven identity and up to class traffic; the
class emergency and alert topics need a rule: docs/reference/access.md.
An area is `circle LATITUDE,LONGITUDE METRES`, GeoJSON or WKT: docs/reference/subscriptions.md has them all.
Without an access rule of the edge, only proven identities reach an area, close to them and below the class safety:
docs/reference/access.md.
{CONNECTION_HELP}"""


def add_to(commands: Commands) -> None:
    """Add `pub`."""
    parser = commands.add_parser("pub", help="publish messages", description="Publish messages.", epilog=_EPILOG)
    parser.add_argument("-t", "--topic", required=True, help="the topic")
    body = parser.add_mutually_exclusive_group(required=True)
    body.add_argument("-m", "--message", metavar="TEXT", help="the body of the message")
    body.add_argument("--file", metavar="FILE", type=Path, help="a file with the body")
    body.add_argument("--stdin-lines", action="store_true", help="publish each line of standard input as it arrives")
    parser.add_argument("--tag", metavar="TAG", action="append", default=[], help="a tag that queries match; may be repeated")
    parser.add_argument("--place", metavar="LAT,LON", help="the place that the message is about")
    parser.add_argument("--at", metavar="LAT,LON", help="udp: position of this endpoint (default: --place)")
    to = parser.add_mutually_exclusive_group()
    to.add_argument(
        "--to-area",
        metavar="AREA",
        help="to all endpoints inside, subscribed or not; with --valid-for also to those that enter later",
    )
    to.add_argument("--to-notified", metavar="NAME", help="to all endpoints that were notified of an incident: the all-clear")
    to.add_argument("--to-endpoint", metavar="NAME", help="to one endpoint, by its id")
    to.add_argument("--to-everyone", action="store_true", help="to all connected endpoints")
    to.add_argument("--within", metavar="AREA", help="to endpoints inside whose subscription matches")
    parser.add_argument("--incident", metavar="NAME", help="with --to-area: the incident; replaces its last message")
    parser.add_argument(
        "--priority",
        choices=PRIORITIES,
        default="convenience",
        help="the priority class (default: by the edge's rules, else convenience); an explicit convenience has no effect",
    )
    parser.add_argument(
        "--qos", type=int, choices=(0, 1, 2), default=1, help="0: at most once, 1: at least once (default), 2: exactly once"
    )
    parser.add_argument("--retain", action="store_true", help="retain the message for later subscribers")
    parser.add_argument(
        "--valid-for", metavar="TIME", help="validity: the message is not delivered later; such as 10m or 2 hours"
    )
    parser.add_argument(
        "--sign", action="store_true", help="sign as the operator of --certificate and --key; needs --valid-for, at most 24 hours"
    )
    add_connection(parser)
    parser.set_defaults(run=_run)


def _run(typed: argparse.Namespace) -> int:
    options = _options(typed)
    bodies = None if typed.stdin_lines else _body(typed)
    return run_client(lambda: _publish(typed, bodies, options))


def _body(typed: argparse.Namespace) -> bytes:
    if typed.file is None:
        return str(typed.message).encode(errors="surrogateescape")
    try:
        found: bytes = typed.file.read_bytes()
    except OSError as error:
        raise cannot_read(typed.file, error) from None
    return found


def _options(typed: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of `Client.publish` besides topic and body."""
    from milepost.model.addresses import Address, ToArea, ToEndpoint, ToEveryone, ToNotified  # noqa: PLC0415  # imports numpy
    from milepost.model.endpoints import endpoint_id  # noqa: PLC0415
    from milepost.model.instants import SECOND_NS  # noqa: PLC0415
    from milepost.model.priorities import Priority  # noqa: PLC0415
    from milepost.model.tags import tag  # noqa: PLC0415
    from milepost.wire.area_text import area_from_text, place_from_text  # noqa: PLC0415
    from milepost.wire.times import duration_from_text  # noqa: PLC0415

    area = read_option("--to-area", area_from_text, typed.to_area)
    endpoint = read_option("--to-endpoint", endpoint_id, typed.to_endpoint)
    to: Address | None = ToEveryone() if typed.to_everyone else None
    if typed.incident is not None and area is None:
        raise UsageFault("--incident applies to messages to an area: give --to-area, too")
    if area is not None:
        to = read_option("--incident", lambda name: ToArea(area, name), typed.incident or "")
    elif typed.to_notified is not None:
        to = read_option("--to-notified", lambda name: ToNotified((name,)), typed.to_notified)
    elif endpoint is not None:
        to = ToEndpoint(endpoint)
    valid_for_ns = read_option("--valid-for", duration_from_text, typed.valid_for)
    if typed.sign:
        _check_signed_validity(valid_for_ns)
    return {
        "tags": {read_option("--tag", tag, one) for one in typed.tag},
        "place": read_option("--place", place_from_text, typed.place),
        "to": to,
        "within": read_option("--within", area_from_text, typed.within),
        "priority": Priority[typed.priority.upper()],
        "qos": typed.qos,
        "retain": typed.retain,
        "sign": typed.sign,
        "valid_for_s": None if valid_for_ns is None else valid_for_ns / SECOND_NS,
    }


def _check_signed_validity(valid_for_ns: int | None) -> None:
    """Raise a `UsageFault` if a message with this validity cannot be signed."""
    from milepost.trust.signing import VALIDITY_NS_MAX  # noqa: PLC0415  # imports OpenSSL

    if valid_for_ns is None or valid_for_ns > VALIDITY_NS_MAX:
        raise UsageFault("--sign: a signed message is valid for at most 24 hours: give --valid-for, such as 30m or 24h")


async def _publish(typed: argparse.Namespace, body: bytes | None, options: dict[str, Any]) -> int:
    from milepost.wire.area_text import place_from_text  # noqa: PLC0415

    at = read_option("--at", place_from_text, typed.at)
    async with client_from(typed, options["place"] if at is None else at) as client:
        if body is None:
            await _publish_lines(client, typed.topic, options)
        else:
            await client.publish(typed.topic, body, **options)
    return 0


async def _publish_lines(client: "Client", topic: str, options: dict[str, Any]) -> None:
    """Publish lines of standard input without waiting for each answer; stop at the first refusal."""
    import asyncio  # noqa: PLC0415

    from milepost.cli.stdin_lines import lines_of_stdin  # noqa: PLC0415

    unanswered: set[asyncio.Task[None]] = set()
    async for line in lines_of_stdin():
        unanswered.add(asyncio.create_task(client.publish(topic, line, **options)))
        await asyncio.sleep(0)  # sends it before the next line
        is_full = len(unanswered) >= UNANSWERED_MAX
        done = {task for task in unanswered if task.done()}
        if is_full and not done:
            done, _ = await asyncio.wait(unanswered, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        unanswered -= done
    await asyncio.gather(*unanswered)
