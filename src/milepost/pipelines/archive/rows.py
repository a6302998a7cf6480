"""Rows on their way into the archive and out of it, without unpublished messages."""

from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from milepost.model.areas import Area
from milepost.model.messages import UNPUBLISH, UNPUBLISHED_ID
from milepost.model.time_windows import ALWAYS, TimeWindow
from milepost.pipelines.archive.files import files_of
from milepost.pipelines.archive.schema import CELL_SQL, MESSAGES, NOWHERE, UNPUBLISHED, ArchiveTable
from milepost.pipelines.records import AHEAD_S_MAX, BEHIND_S_MAX


def with_plausible_time(rows: DataFrame, table: ArchiveTable) -> DataFrame:
    """Return the rows with a plausible time; others have no hour to be stored in."""
    appended_us = f.unix_micros("appended_at")
    return rows.where(f.col(table.time).between(appended_us - BEHIND_S_MAX * 1_000_000, appended_us + AHEAD_S_MAX * 1_000_000))


def with_hour(rows: DataFrame, table: ArchiveTable) -> DataFrame:
    """Add `date` and `hour`, as in the folder names."""
    at = f.timestamp_micros(table.time)
    return rows.withColumn("date", f.date_format(at, "yyyy-MM-dd")).withColumn("hour", f.date_format(at, "HH"))


def with_cell(rows: DataFrame, table: ArchiveTable) -> DataFrame:
    """Add `cell`, as in the folder names."""
    return rows.withColumn("cell", f.expr(CELL_SQL) if table.has_places else f.lit(NOWHERE))


def unpublished(messages: DataFrame) -> DataFrame:
    """Return the messages that *messages* unpublish, as UNPUBLISHED_ROW."""
    withdrawn = (
        messages.where(f.col("topic") == UNPUBLISH).withColumn("_id", f.col("fields")[UNPUBLISHED_ID]).where("_id is not null")
    )
    return withdrawn.select("source", f.col("_id").alias("id"), "seen_at_us", "offset", "appended_at")


def published(messages: DataFrame, withdrawn: DataFrame) -> DataFrame:
    """Return the messages that their sources have not unpublished (T6)."""
    keys = f.broadcast(withdrawn.select("source", "id").distinct())
    return messages.join(keys, on=["source", "id"], how="left_anti").select(*messages.columns)


_MICRO_NS: Final = 1_000


def read(
    session: SparkSession, folder: Path, table: ArchiveTable, *, time_window: TimeWindow = ALWAYS, area: Area | None = None
) -> DataFrame:
    """Return the rows of a table in a time window. With *area*: a superset of its rows, from the cells that it touches."""
    rows = read_files(session, table, files_of(folder, table, time_window=time_window, area=area))
    if time_window != ALWAYS:
        at_us = f.col(table.time)
        rows = rows.where(at_us.between(-(-time_window.start // _MICRO_NS), time_window.end // _MICRO_NS))
    return visible(session, folder, table, rows)


def visible(session: SparkSession, folder: Path, table: ArchiveTable, rows: DataFrame) -> DataFrame:
    """Return the rows of a table without unpublished messages."""
    if table != MESSAGES:
        return rows
    return published(rows, read_files(session, UNPUBLISHED, files_of(folder, UNPUBLISHED)))


def read_files(session: SparkSession, table: ArchiveTable, files: list[str]) -> DataFrame:
    """Return the rows of some files of a table."""
    if not files:
        return session.createDataFrame([], table.row)
    return session.read.schema(table.row).parquet(*files)
