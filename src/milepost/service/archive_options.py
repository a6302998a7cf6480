"""The options of commands about the archive; light, because `milepost --help` reads them."""

import argparse
from pathlib import Path
from typing import Final

ARCHIVE: Final = Path("data/pipelines/archive")


def add_archive(parser: argparse.ArgumentParser) -> None:
    """Which archive."""
    parser.add_argument(
        "--archive", metavar="FOLDER", type=Path, default=ARCHIVE, help=f"where the archive is; {ARCHIVE} unless told"
    )


def add_times(parser: argparse.ArgumentParser, *, are_needed: bool = False) -> None:
    """From when to when."""
    parser.add_argument(
        "--from", metavar="TIME", dest="start", required=are_needed, help="the first instant, as 2026-11-16T12:00Z"
    )
    parser.add_argument("--to", metavar="TIME", dest="end", required=are_needed, help="the end: the instant after the last")


def add_area(parser: argparse.ArgumentParser) -> None:
    """Where."""
    parser.add_argument("--area", metavar="AREA", help="`circle LATITUDE,LONGITUDE METRES`, WKT or GeoJSON")
