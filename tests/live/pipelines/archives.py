"""Rows for an archive, and helpers that write and read them."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from milepost.model.instants import Instant
from milepost.model.time_windows import ALWAYS, TimeWindow
from milepost.pipelines.archive.files import TableFolder
from milepost.pipelines.archive.ingest import append
from milepost.pipelines.archive.rows import read
from milepost.pipelines.archive.schema import ArchiveTable

NOON_US: Final = 1_900_000_800_000_000
"""2030-03-17T18:00:00Z: the beginning of an hour."""
HOUR_US: Final = 3_600_000_000
FOREVER_US: Final = 2**63 - 1

Row = tuple[Any, ...]


def instant(micros: int) -> Instant:
    return Instant(micros * 1_000)


def between(first_us: int, last_us: int) -> TimeWindow:
    return TimeWindow(instant(first_us), instant(last_us))


def message(
    offset: int,
    at_us: int = NOON_US,
    *,
    number: int | None = None,
    source: str = "car-1",
    topic: str = "Collision",
    place: tuple[float, float] | None = (40.7608, -111.891),
    tags: Iterable[str] = (),
    fields: dict[str, str] | None = None,
    address: str | None = None,
    valid_until_us: int = FOREVER_US,
) -> Row:
    """Build a row of messages."""
    latitude, longitude = place or (None, None)
    return (
        "north/edge-1", offset, 1, str(offset if number is None else number), source, topic, at_us, valid_until_us,
        latitude, longitude, "safety", sorted(tags), address, fields or {}, b"", offset, _appended(at_us),
    )  # fmt: skip


def report(
    offset: int,
    at_us: int = NOON_US,
    *,
    endpoint: str = "car-1",
    place: tuple[float, float] = (40.7608, -111.891),
    speed_mps: float | None = 10.0,
    verdict: int = 0,
    covered: int = 0,
    edge: str = "north/edge-1",
) -> Row:
    """Build a row of reports."""
    return edge, endpoint, at_us, *place, 90.0, speed_mps, int(verdict), covered, offset, _appended(at_us)


def delivery(
    offset: int, at_us: int, endpoint: str, state: str, *, reason: int = 0, source: str = "car-1", number: int = 1
) -> Row:
    """Build a row of deliveries."""
    return "north/edge-1", source, str(number), "Collision", endpoint, state, at_us, int(reason), offset, _appended(at_us)


def frame_of(spark: SparkSession, table: ArchiveTable, rows: Iterable[Row]) -> DataFrame:
    """Return rows as a DataFrame."""
    return spark.createDataFrame(list(rows), table.row)


def append_batch(spark: SparkSession, folder: Path, table: ArchiveTable, rows: Iterable[Row]) -> None:
    """Append one batch."""
    append(frame_of(spark, table, rows), TableFolder(folder, table))


def offsets(spark: SparkSession, folder: Path, table: ArchiveTable, *, time_window: TimeWindow = ALWAYS) -> list[int]:
    """Return the sorted offsets of the rows in the archive."""
    return sorted(row[0] for row in read(spark, folder, table, time_window=time_window).select("offset").collect())


def _appended(at_us: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at_us + 250_000)
