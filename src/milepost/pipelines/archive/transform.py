"""Rows on their way into the archive and out of it."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from milepost.model.messages import UNPUBLISH, UNPUBLISHED_ID
from milepost.pipelines.archive.cells import CELL_SQL, NOWHERE
from milepost.pipelines.archive.schema import Table
from milepost.pipelines.records.transform import AHEAD_S, BEHIND_S


def timely(rows: DataFrame, table: Table) -> DataFrame:
    """The rows with a time that can be: others have no hour to be kept in."""
    appended_us = f.unix_micros("appended_at")
    return rows.where(f.col(table.time).between(appended_us - BEHIND_S * 1_000_000, appended_us + AHEAD_S * 1_000_000))


def with_hour(rows: DataFrame, table: Table) -> DataFrame:
    """Adds `date` and `hour`, as the folders have them."""
    at = f.timestamp_micros(table.time)
    return rows.withColumn("date", f.date_format(at, "yyyy-MM-dd")).withColumn("hour", f.date_format(at, "HH"))


def with_cell(rows: DataFrame, table: Table) -> DataFrame:
    """Adds `cell`, as the folders have it."""
    return rows.withColumn("cell", f.expr(CELL_SQL) if table.has_places else f.lit(NOWHERE))


def unpublished(messages: DataFrame) -> DataFrame:
    """What messages take back, as UNPUBLISHED_ROW."""
    taken_back = (
        messages.where(f.col("topic") == UNPUBLISH).withColumn("_id", f.col("fields")[UNPUBLISHED_ID]).where("_id is not null")
    )
    return taken_back.select("source", f.col("_id").alias("id"), "seen_at_us", "offset", "appended_at")


def published(messages: DataFrame, taken_back: DataFrame) -> DataFrame:
    """The messages that their sources have not taken back (T6)."""
    names = f.broadcast(taken_back.select("source", "id").distinct())
    return messages.join(names, on=["source", "id"], how="left_anti").select(*messages.columns)
