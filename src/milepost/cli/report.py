"""`milepost report`: a simulated vehicle that drives along a line, reports its position, and prints received messages."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from milepost.cli.client_options import CONNECTION_HELP, add_connection, carry_out, edge_from
from milepost.cli.parsers import Commands
from milepost.config.errors import UsageFault, cannot_read
from milepost.runtime.terminal import complain, say

if TYPE_CHECKING:  # --help must import neither asyncio nor numpy
    from milepost.cli.drive_routes import Route
    from milepost.client import Edge

SPEED_KMH_MAX: Final = 1_800.0
"""500 m/s, the maximum speed of a report."""

_EPILOG: Final = f"""\
examples:
  milepost report --along route.geojson
  milepost report --along route.geojson --speed-kmh 80 --every-s 0.5 --forever --id truck-17
  milepost report --along route.geojson --url udp://127.0.0.1:4242 \\
      --authority trust/authority.pub --certificate truck-17.cert --key truck-17.key

The file holds a GeoJSON LineString, or a Feature or FeatureCollection with one in it; the first counts. At its end the vehicle
turns round, or goes on if the line leads back to where it began; each time along it is a lap. What is addressed to the vehicle,
or to an area it is in, is printed; `milepost sub` asks for more.
{CONNECTION_HELP}"""


def add_to(commands: Commands) -> None:
    """Add `report`."""
    description = "Drive a made-up vehicle along a line."
    parser = commands.add_parser("report", help="drive a made-up vehicle", description=description, epilog=_EPILOG)
    parser.add_argument("--along", metavar="FILE", type=Path, required=True, help="the line, as GeoJSON")
    parser.add_argument("--speed-kmh", metavar="N", type=float, default=50.0, help="how fast it drives (default: 50)")
    parser.add_argument("--every-s", metavar="S", type=float, default=1.0, help="how often it reports (default: 1)")
    laps = parser.add_mutually_exclusive_group()
    laps.add_argument("--laps", metavar="N", type=int, default=1, help="how often it drives along the line (default: 1)")
    laps.add_argument("--forever", action="store_true", help="until it is stopped")
    add_connection(parser)
    parser.set_defaults(run=_run)


def _run(typed: argparse.Namespace) -> int:
    if not 0 < typed.speed_kmh <= SPEED_KMH_MAX:
        raise UsageFault(f"--speed-kmh: {typed.speed_kmh:g} is not above 0 and up to {SPEED_KMH_MAX:g}")
    if not 0.01 <= typed.every_s <= 3_600:
        raise UsageFault(f"--every-s: {typed.every_s:g} is not from 0.01 to 3600 seconds")
    if typed.laps < 1:
        raise UsageFault(f"--laps: {typed.laps} is not above 0")
    route = _route(typed.along)
    return carry_out(lambda: _drive(typed, route))


def _route(path: Path) -> "Route":
    from milepost.cli.drive_routes import route_from_geojson  # noqa: PLC0415  # imports numpy

    try:
        return route_from_geojson(path.read_bytes())
    except OSError as error:
        raise cannot_read(path, error) from None
    except ValueError as fault:
        raise UsageFault(f"--along: {path}: {fault}") from None


async def _drive(typed: argparse.Namespace, route: "Route") -> int:
    import asyncio  # noqa: PLC0415

    async with edge_from(typed, route.at(0.0).place) as edge:
        listening = asyncio.create_task(_print(edge))
        try:
            driven_m, reports = await _go(edge, typed, route)
        finally:
            listening.cancel()
            await asyncio.wait([listening])
        _progress(edge, route, driven_m, reports, is_last=True)
    return 0


async def _go(edge: "Edge", typed: argparse.Namespace, route: "Route") -> tuple[float, int]:
    """Drive to the end; return the distance in metres and the number of reports."""
    import asyncio  # noqa: PLC0415
    from math import inf  # noqa: PLC0415
    from time import monotonic  # noqa: PLC0415

    from milepost.client import RefusedByEdge  # noqa: PLC0415

    speed_mps, until_m = typed.speed_kmh / 3.6, inf if typed.forever else typed.laps * route.length_m
    began, reports, driven_m, refused = monotonic(), 0, 0.0, ""
    while driven_m < until_m:
        driven_m = min(until_m, (monotonic() - began) * speed_mps)
        place, heading_deg = route.at(driven_m)
        reports += 1
        try:
            await edge.report(place.latitude, place.longitude, heading_deg=heading_deg, speed_mps=speed_mps)
        except RefusedByEdge as fault:
            if fault.name != refused:  # print repeated refusals of one reason once
                complain(f"milepost: a report was refused: {fault}")
            refused = fault.name
        _progress(edge, route, driven_m, reports)
        await asyncio.sleep(max(0.0, began + reports * typed.every_s - monotonic()))
    return driven_m, reports


def _progress(edge: "Edge", route: "Route", driven_m: float, reports: int, *, is_last: bool = False) -> None:
    """Overwrite the progress line; if standard error is not a terminal, print only the last one."""
    place = route.at(driven_m).place
    where = f"{place.latitude:.5f},{place.longitude:.5f}  {driven_m / 1_000:.2f} km"
    line = f"{where}  {reports} reports  {edge.counts.received} messages"
    if sys.stderr.isatty():
        sys.stderr.write(f"\r{line}\x1b[K" + ("\n" if is_last else ""))
        sys.stderr.flush()
    elif is_last:
        complain(line)


async def _print(edge: "Edge") -> None:
    """Print all messages that the vehicle receives."""
    from time import time_ns  # noqa: PLC0415

    from milepost.cli.message_output import as_line  # noqa: PLC0415
    from milepost.model.instants import Instant  # noqa: PLC0415

    async with edge.messages() as inbox:
        async for message in inbox:
            if sys.stderr.isatty():
                sys.stderr.write("\r\x1b[K")
            say(as_line(message, Instant(time_ns())))
            sys.stdout.flush()
