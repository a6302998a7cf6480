"""`milepost report`: a simulated vehicle that drives along a line, reports its position, and prints received messages."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from milepost.cli.client_options import CONNECTION_HELP, add_connection, client_from, run_client
from milepost.cli.command_parser import Commands
from milepost.config.errors import UsageFault, cannot_read
from milepost.runtime.terminal import print_error, print_line

if TYPE_CHECKING:  # --help must import neither asyncio nor numpy
    from milepost.cli.drive_routes import DriveRoute
    from milepost.client import Client

SPEED_KMH_MAX: Final = 1_800.0
"""500 m/s, the maximum speed of a report."""

_EPILOG: Final = f"""\
examples:
  milepost report --along route.geojson
  milepost report --along route.geojson --speed-kmh 80 --every-s 0.5 --forever --id truck-17
  milepost report --along route.geojson --url udp://127.0.0.1:4242 \\
      --ca trust/authority.pub --certificate truck-17.cert --key truck-17.key

The file has a GeoJSON LineString, or a Feature or FeatureCollection with one; the first is used. At the end of the line the
vehicle turns round, or continues if the line is closed; each pass is a lap. Messages addressed to the vehicle, or to an area that
it is in, are printed; `milepost sub` prints those of subscriptions.
{CONNECTION_HELP}"""


def add_to(commands: Commands) -> None:
    """Add `report`."""
    description = "Drive a simulated vehicle along a line, and report its position."
    parser = commands.add_parser("report", help="drive a simulated vehicle", description=description, epilog=_EPILOG)
    parser.add_argument("--along", metavar="FILE", type=Path, required=True, help="the line, as GeoJSON")
    parser.add_argument("--speed-kmh", metavar="N", type=float, default=50.0, help="speed in km/h (default: 50)")
    parser.add_argument("--every-s", metavar="S", type=float, default=1.0, help="seconds between reports (default: 1)")
    laps = parser.add_mutually_exclusive_group()
    laps.add_argument("--laps", metavar="N", type=int, default=1, help="number of laps (default: 1)")
    laps.add_argument("--forever", action="store_true", help="drive until stopped")
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
    return run_client(lambda: _drive(typed, route))


def _route(path: Path) -> "DriveRoute":
    from milepost.cli.drive_routes import route_from_geojson  # noqa: PLC0415  # imports numpy

    try:
        return route_from_geojson(path.read_bytes())
    except OSError as error:
        raise cannot_read(path, error) from None
    except ValueError as fault:
        raise UsageFault(f"--along: {path}: {fault}") from None


async def _drive(typed: argparse.Namespace, route: "DriveRoute") -> int:
    import asyncio  # noqa: PLC0415

    async with client_from(typed, route.at(0.0).place) as client:
        listening = asyncio.create_task(_print(client))
        try:
            driven_m, reports = await _go(client, typed, route)
        finally:
            listening.cancel()
            await asyncio.wait([listening])
        _progress(client, route, driven_m, reports, is_last=True)
    return 0


async def _go(client: "Client", typed: argparse.Namespace, route: "DriveRoute") -> tuple[float, int]:
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
            await client.report(place.latitude, place.longitude, heading_deg=heading_deg, speed_mps=speed_mps)
        except RefusedByEdge as fault:
            if fault.name != refused:  # print repeated refusals of one reason once
                print_error(f"milepost: a report was refused: {fault}")
            refused = fault.name
        _progress(client, route, driven_m, reports)
        await asyncio.sleep(max(0.0, began + reports * typed.every_s - monotonic()))
    return driven_m, reports


def _progress(client: "Client", route: "DriveRoute", driven_m: float, reports: int, *, is_last: bool = False) -> None:
    """Overwrite the progress line; if standard error is not a terminal, print only the last one."""
    place = route.at(driven_m).place
    where = f"{place.latitude:.5f},{place.longitude:.5f}  {driven_m / 1_000:.2f} km"
    line = f"{where}  {reports} reports  {client.counters.received} messages"
    if sys.stderr.isatty():
        sys.stderr.write(f"\r{line}\x1b[K" + ("\n" if is_last else ""))
        sys.stderr.flush()
    elif is_last:
        print_error(line)


async def _print(client: "Client") -> None:
    """Print all messages that the vehicle receives."""
    from time import time_ns  # noqa: PLC0415

    from milepost.cli.message_output import as_line  # noqa: PLC0415
    from milepost.model.instants import Instant  # noqa: PLC0415

    async with client.messages() as inbox:
        async for message in inbox:
            if sys.stderr.isatty():
                sys.stderr.write("\r\x1b[K")
            print_line(as_line(message, Instant(time_ns())))
            sys.stdout.flush()
