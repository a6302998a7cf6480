"""The log of a site as a Spark source and sink: Kafka by Spark's connector, the embedded log by a custom data source.

stream, table ─▶ LOG_ROW ─▶ transform ─▶ OUT_ROW ─▶ sink, append
"""

from collections.abc import Sequence
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter


def records_per_task(session: SparkSession, records_max: int) -> int:
    """Return the maximum records of a task, so that a full batch has about as many tasks as there are shuffle partitions."""
    return -(-records_max // int(session.conf.get("spark.sql.shuffle.partitions") or 1))


class Source(Protocol):
    """The log of one site."""

    @property
    def prefix(self) -> str:
        """The prefix of topic names in Spark's progress."""

    @property
    def is_real_time(self) -> bool:
        """Whether the log supports Spark's real-time mode."""

    def stream(self, session: SparkSession, topics: Sequence[str], *, records_max: int | None) -> DataFrame:
        """Return the records of topics from the oldest on, with schema LOG_ROW, as a stream; at most *records_max* a batch.

        Topics with more records waiting get more of a batch, so that all topics reach the end of a backlog at the same time. A
        full batch is divided among all cores.
        """

    def table(self, session: SparkSession, topics: Sequence[str]) -> DataFrame:
        """Return all current records of topics, with schema LOG_ROW."""

    def sink(self, rows: DataFrame, query: str) -> DataStreamWriter:
        """Return the sink of a stream of OUT_ROW; `query` is unique, and the same after a restart."""

    def append(self, rows: DataFrame) -> None:
        """Append a static DataFrame of OUT_ROW."""
