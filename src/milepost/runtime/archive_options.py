"""Shared parts of the archive commands: archive folder, time window, area and Spark session."""

import argparse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from time import time_ns
from typing import TYPE_CHECKING, Final

from milepost.config.errors import StartFault, UsageFault, missing_extra
from milepost.model.areas import Area
from milepost.model.instants import BEGINNING, FOREVER, Instant
from milepost.model.reasons import Malformed
from milepost.model.time_windows import TimeWindow
from milepost.runtime.services.jars import find_java
from milepost.wire.area_text import area_from_text
from milepost.wire.times import instant_from_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TASKS: Final = "local[*]"


def archive_in(typed: argparse.Namespace) -> Path:
    """Return the archive folder of --archive."""
    folder: Path = typed.archive
    if not folder.is_dir():
        raise UsageFault(f"--archive: {folder} is not a folder: give the one that the pipeline `archive` writes")
    return folder


def time_window_in(typed: argparse.Namespace) -> TimeWindow:
    """Return the time window from --from up to, but not including, --to."""
    start = BEGINNING if typed.start is None else instant_in("--from", typed.start)
    end = FOREVER if typed.end is None else Instant(instant_in("--to", typed.end) - 1)
    if end < start:
        raise UsageFault("--to is not after --from: exchange them, or leave one out")
    return TimeWindow(start, end)


def instant_in(option: str, text: str) -> Instant:
    """Parse the time of an option."""
    try:
        return instant_from_text(text, Instant(time_ns()))
    except Malformed as fault:
        raise UsageFault(f"{option}: {fault.detail}; give a time such as 2026-11-16T12:00:00Z or `2 hours ago`") from None


def area_in(text: str) -> Area:
    """Parse the area of --area."""
    try:
        return area_from_text(text)
    except Malformed as fault:
        raise UsageFault(f"--area: {fault.detail}; give `circle LATITUDE,LONGITUDE METRES`, WKT or GeoJSON") from None


@contextmanager
def spark_session(name: str, conf: Mapping[str, str]) -> "Iterator[SparkSession]":
    """Open a local Spark session, with the user's settings of Spark, for the duration of a command."""
    try:
        from milepost.pipelines.spark_session import SparkDoesNotStart, open_session  # noqa: PLC0415  # starts Java
    except ImportError:
        raise missing_extra("this command", "spark") from None
    find_java()
    with TemporaryDirectory(prefix="milepost-") as folder:
        try:
            session = open_session(name, master=_TASKS, settings=conf, log_file=Path(folder) / "spark.log")
        except SparkDoesNotStart as fault:
            raise StartFault(str(fault)) from None
        try:
            yield session
        finally:
            session.stop()
