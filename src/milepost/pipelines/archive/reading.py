"""Reading the archive: the rows that count, without what was unpublished."""

from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from milepost.model.areas import Area
from milepost.model.frames import ALWAYS, Frame
from milepost.pipelines.archive.files import files_of
from milepost.pipelines.archive.schema import MESSAGES, UNPUBLISHED, Table
from milepost.pipelines.archive.transform import published

_MICRO_NS: Final = 1_000


def read(session: SparkSession, folder: Path, table: Table, *, frame: Frame = ALWAYS, area: Area | None = None) -> DataFrame:
    """The rows in a frame, as the table has them. With an area: those in cells that it touches, and some more."""
    rows = read_files(session, table, files_of(folder, table, frame=frame, area=area))
    if frame != ALWAYS:
        at_us = f.col(table.time)
        rows = rows.where(at_us.between(-(-frame.start // _MICRO_NS), frame.end // _MICRO_NS))
    return visible(session, folder, table, rows)


def visible(session: SparkSession, folder: Path, table: Table, rows: DataFrame) -> DataFrame:
    """The rows of a table without messages that were unpublished."""
    if table != MESSAGES:
        return rows
    return published(rows, read_files(session, UNPUBLISHED, files_of(folder, UNPUBLISHED)))


def read_files(session: SparkSession, table: Table, files: list[str]) -> DataFrame:
    """The rows of some files of a table."""
    if not files:
        return session.createDataFrame([], table.row)
    return session.read.schema(table.row).parquet(*files)
