"""What a pipeline reads and writes, whichever log it is.

stream, table ─▶ LOG_ROW ─▶ transform ─▶ OUT_ROW ─▶ sink, append
"""

from collections.abc import Sequence
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter


class Source(Protocol):
    """The log of one site."""

    @property
    def prefix(self) -> str:
        """What topics begin with where Spark names them."""

    @property
    def is_real_time(self) -> bool:
        """Whether Spark can read and write it in real-time mode."""

    def stream(self, session: SparkSession, topics: Sequence[str], *, records_max: int | None) -> DataFrame:
        """LOG_ROW of topics from the oldest record on, at most so many at a time; for ever."""

    def table(self, session: SparkSession, topics: Sequence[str]) -> DataFrame:
        """LOG_ROW of topics, all that is there now."""

    def sink(self, rows: DataFrame, query: str) -> DataStreamWriter:
        """Where a stream of OUT_ROW goes; `query` is the same after a restart, and no other query's."""

    def append(self, rows: DataFrame) -> None:
        """Append OUT_ROW that are no stream."""
