"""A site's log on one machine, by a data source of our own (`embedded_reading`, `embedded_writing`)."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructType

from milepost.model.survives import Survives
from milepost.pipelines.records.schema import LOG_ROW
from milepost.pipelines.sources.embedded_reading import LogReader, LogStreamReader
from milepost.pipelines.sources.embedded_writing import Appender, Batch, LogWriter, entries_of

FORMAT: Final = "milepost_log"


class EmbeddedLogSource(DataSource):
    """Options: `folder` of the log; to read `topics`, with commas between, and maybe `records_max`; to write `survives`."""

    @classmethod
    def name(cls) -> str:
        """What Spark calls it."""
        return FORMAT

    def schema(self) -> str:
        """Of what is read."""
        return LOG_ROW

    def reader(self, schema: StructType) -> LogReader:
        """For a table."""
        del schema
        return LogReader(Path(self.options["folder"]), self._topics())

    def streamReader(self, schema: StructType) -> LogStreamReader:  # noqa: N802  # Spark's name
        """For a stream."""
        del schema
        limit = self.options.get("records_max")
        return LogStreamReader(Path(self.options["folder"]), self._topics(), None if limit is None else int(limit))

    def writer(self, schema: StructType, overwrite: bool) -> LogWriter:
        """For rows that are no stream."""
        self._check(schema, overwrite)
        return LogWriter(Path(self.options["folder"]), Survives(self.options["survives"]))

    def _topics(self) -> tuple[str, ...]:
        return tuple(self.options["topics"].split(","))

    @staticmethod
    def _check(schema: StructType, overwrite: bool) -> None:
        if schema.fieldNames() != ["topic", "key", "value"] or overwrite:
            raise ValueError("the log takes rows of topic, key and value, and only appends them")


@dataclass(frozen=True, slots=True)
class EmbeddedSource:
    """The log in a folder."""

    folder: Path
    survives: Survives

    @property
    def prefix(self) -> str:
        """There is none."""
        return ""

    @property
    def is_real_time(self) -> bool:
        """Data sources in Python are read and written in batches."""
        return False

    def stream(self, session: SparkSession, topics: Sequence[str], *, records_max: int | None) -> DataFrame:
        """LOG_ROW of topics, for ever."""
        session.dataSource.register(EmbeddedLogSource)
        reader = session.readStream.format(FORMAT).options(folder=str(self.folder), topics=",".join(topics))
        return (reader if records_max is None else reader.option("records_max", records_max)).load()

    def table(self, session: SparkSession, topics: Sequence[str]) -> DataFrame:
        """LOG_ROW of topics, all that is there now."""
        session.dataSource.register(EmbeddedLogSource)
        return session.read.format(FORMAT).options(folder=str(self.folder), topics=",".join(topics)).load()

    def sink(self, rows: DataFrame, query: str) -> DataStreamWriter:
        """Where a stream of OUT_ROW goes: each batch once."""

        appender = Appender(self.folder, self.survives)

        # Not by the data source: Spark gives it no updates, and starts several processes for each batch.
        def append(batch: DataFrame, number: int) -> None:
            appender.append(list(entries_of(batch.toArrow().to_batches())), Batch(query, number))

        return rows.writeStream.foreachBatch(append)

    def append(self, rows: DataFrame) -> None:
        """Append OUT_ROW that are no stream: all at once, or none."""
        rows.sparkSession.dataSource.register(EmbeddedLogSource)
        rows.write.format(FORMAT).options(folder=str(self.folder), survives=self.survives.value).mode("append").save()
