"""`milepost sub`: subscribe, and print received messages."""

import argparse
from typing import TYPE_CHECKING, Any, Final

from milepost.cli.client_options import CONNECTION_HELP, add_connection, client_from, read_option, run_client
from milepost.cli.command_parser import Commands
from milepost.config.errors import STATUS_FAILED, UsageFault
from milepost.runtime.terminal import print_error, print_line

if TYPE_CHECKING:  # --help must import neither asyncio nor numpy
    from milepost.cli.message_output import Show
    from milepost.client import Client, Inbox
    from milepost.client.events import Suppressed

_EPILOG: Final = f"""\
examples:
  milepost sub                                          all messages
  milepost sub -t 'fleet/#' -t 'road/#'
  milepost sub --query 'collision & (i80 | i15) & !cleared' --area 'circle 40.7608,-111.891 5000'
  milepost sub --time-window 'since 10 minutes ago' --json | jq .topic
  milepost sub --url udp+find:// --at 40.7608,-111.891  over udp, from whichever edge answers nearby
  milepost sub -t 'fleet/#' --count 1 --timeout 5 --format '{{seen_at}} {{topic}} {{body}}'

With `around METRES` the area is around --at. Queries, areas and time windows: docs/reference/subscriptions.md. A format may
have {{topic}}, {{body}}, {{tags}}, {{place}}, {{source}}, {{age}}, {{seen_at}}, {{received_at}}, {{priority}}, {{qos}},
{{retained}} and {{signer}}.
The exit status is 1 if fewer than --count messages arrived before the --timeout.
{CONNECTION_HELP}"""


def add_to(commands: Commands) -> None:
    """Add `sub`."""
    parser = commands.add_parser(
        "sub", help="subscribe and print", description="Subscribe, and print messages as they arrive.", epilog=_EPILOG
    )
    parser.add_argument("-t", "--topic", metavar="FILTER", action="append", help="a topic filter; may be repeated (default: #)")
    parser.add_argument("--query", metavar="FORMULA", help="a formula over tags and topics that messages must match, too")
    parser.add_argument("--area", metavar="AREA", help="the area that the place of a message must be in")
    parser.add_argument("--at", metavar="LAT,LON", help="position of this endpoint, reported before it subscribes")
    parser.add_argument(
        "--time-window", metavar="PHRASE", help="time window of `seen_at`, such as 'last 10 minutes' or 'next 2 hours'"
    )
    parser.add_argument(
        "--qos", type=int, choices=(0, 1, 2), default=1, help="0: at most once, 1: at least once (default), 2: exactly once"
    )
    parser.add_argument("--count", metavar="N", type=int, help="stop after N messages")
    parser.add_argument("--timeout", metavar="S", type=float, help="stop after S seconds")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print one line of JSON per message")
    form.add_argument("--format", metavar="TEXT", help="print messages in this format, such as '{topic}: {body}'")
    add_connection(parser)
    parser.add_argument(
        "--signed-topic",
        metavar="FILTER",
        action="append",
        help="with --ca: a topic filter whose messages must be signed; may be repeated (default: alerts)",
    )
    parser.add_argument(
        "--unsigned", action="store_const", const=[], dest="signed_topic", help="with --ca: no message needs a signature"
    )
    parser.set_defaults(run=_run)


def _run(typed: argparse.Namespace) -> int:
    if typed.count is not None and typed.count < 1:
        raise UsageFault(f"--count: {typed.count} is not above 0")
    if typed.timeout is not None and not typed.timeout > 0:
        raise UsageFault(f"--timeout: {typed.timeout} is not above 0 seconds")
    show = _show(typed)
    options = _options(typed)
    return run_client(lambda: _listen(typed, options, show))


def _show(typed: argparse.Namespace) -> "Show":
    from milepost.cli.message_output import as_json, as_line, by_format  # noqa: PLC0415  # imports numpy

    if typed.format is not None:
        return by_format(typed.format)
    return as_json if typed.json else as_line


def _options(typed: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of `Client.subscribe` besides the filter, parsed here so that faults name their option."""
    from time import time_ns  # noqa: PLC0415

    from milepost.model.areas import Around  # noqa: PLC0415  # imports numpy
    from milepost.model.instants import Instant  # noqa: PLC0415
    from milepost.model.queries import parse_query  # noqa: PLC0415
    from milepost.model.topics import check_filter  # noqa: PLC0415
    from milepost.wire.area_text import where_from_text  # noqa: PLC0415
    from milepost.wire.times import time_window_from_text  # noqa: PLC0415

    for one in typed.topic or ():
        read_option("--topic", check_filter, one)
    read_option("--time-window", lambda text: time_window_from_text(text, Instant(time_ns())), typed.time_window)
    area = read_option("--area", where_from_text, typed.area)
    if isinstance(area, Around) and typed.at is None:
        raise UsageFault("--area: `around` needs the position of this endpoint: give it with --at LAT,LON")
    return {
        "query": read_option("--query", parse_query, typed.query),
        "area": area,
        "time_window": typed.time_window,
        "qos": typed.qos,
    }


async def _listen(typed: argparse.Namespace, options: dict[str, Any], show: "Show") -> int:
    import asyncio  # noqa: PLC0415
    from contextlib import AsyncExitStack  # noqa: PLC0415

    from milepost.wire.area_text import place_from_text  # noqa: PLC0415

    place = read_option("--at", place_from_text, typed.at)
    client = client_from(typed, place)
    client.suppression_observer = _report_forged
    async with client, AsyncExitStack() as stack:
        if place is not None:
            await client.report(place.latitude, place.longitude)
        everything = await stack.enter_async_context(client.messages())
        inboxes = [await stack.enter_async_context(client.subscribe(one, **options)) for one in typed.topic or ["#"]]
        jobs = [_print(everything, typed.count, show), _follow(client), *(_drain(inbox) for inbox in inboxes)]
        tasks = [asyncio.create_task(job) for job in jobs]
        stack.push_async_callback(_end, tasks)
        done, _ = await asyncio.wait(tasks, timeout=typed.timeout, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    if not done and typed.count is not None:
        print_error(
            f"milepost: fewer than {typed.count} messages arrived in {typed.timeout:g} s; widen the filter, or wait longer"
        )
        return STATUS_FAILED
    return 0


def _report_forged(suppressed: "Suppressed") -> None:
    from milepost.client.events import Suppression  # noqa: PLC0415

    if suppressed.reason is Suppression.FORGED:
        print_error(f"milepost: a message on {suppressed.topic} was suppressed: {suppressed.detail}")


async def _end(tasks: "list[Any]") -> None:
    import asyncio  # noqa: PLC0415

    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _print(inbox: "Inbox", count: int | None, show: "Show") -> None:
    """Print each message once, even if several filters match; also messages addressed to this endpoint."""
    import sys  # noqa: PLC0415
    from time import time_ns  # noqa: PLC0415

    from milepost.model.instants import Instant  # noqa: PLC0415

    number = 0
    async for message in inbox:
        print_line(show(message, Instant(time_ns())))
        sys.stdout.flush()
        number += 1
        if number == count:
            return


async def _drain(inbox: "Inbox") -> None:
    """Empty the inbox of a subscription, whose messages `_print` prints; raise if the subscription is refused."""
    async for _ in inbox:
        pass


async def _follow(client: "Client") -> None:
    """Report lost and restored connections."""
    from milepost.client import ClientState  # noqa: PLC0415

    async for change in client.changes():
        if change.state is ClientState.RECONNECTING:
            print_error(f"milepost: the connection is lost ({change.reason}); reconnecting")
        elif change.state is ClientState.CONNECTED:
            print_error("milepost: reconnected")
