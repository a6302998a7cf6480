"""The archive's queries: append the records of the log to the archive's tables, exactly once.

    batch ─▶ rows after the table's `upto` ─▶ one file for each hour ─▶ moved into place ─▶ `upto` ─▶ readers see all of it

Invariants:
- a repeated batch writes the same files under the same names or, if it had been finished, none;
- this also holds if the stream restarts from scratch, with other batches: rows are identified by their offset in the log;
- an hour never has more than a few files that are not sorted into cells.
"""

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import time_ns

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from milepost.model.instants import Instant
from milepost.pipelines.archive.compaction import maybe_gather
from milepost.pipelines.archive.files import Hour, TableFolder, TableState, put
from milepost.pipelines.archive.rows import timely, unpublished, with_hour
from milepost.pipelines.archive.schema import DELIVERIES, MESSAGES, REPORTS, UNPUBLISHED
from milepost.pipelines.plan import Plan
from milepost.pipelines.records import DELIVERIES_TOPIC, MESSAGES_TOPIC, REPORTS_TOPIC, deliveries, messages, reports
from milepost.pipelines.settings import PipelineSettings


def archive_of(settings: PipelineSettings) -> Path:
    """Return the folder of the archive."""
    return Path(settings.folder) / "archive"


def plans(settings: PipelineSettings) -> list[Plan]:
    """Return one query for each archived topic."""
    folder = archive_of(settings)
    table_folders = {table.name: TableFolder(folder, table) for table in (MESSAGES, REPORTS, DELIVERIES)}

    def into(name: str) -> Callable[[DataFrame, int], None]:
        return lambda rows, _: append(rows, table_folders[name])

    def messages_into(rows: DataFrame, number: int) -> None:
        kept = rows.persist()
        try:
            taken_back = unpublished(kept)
            if not taken_back.isEmpty():
                append(taken_back, TableFolder(folder, UNPUBLISHED))
            into(MESSAGES.name)(kept, number)
        finally:
            kept.unpersist()

    return [
        Plan("archive-messages", (MESSAGES_TOPIC,), 1, messages, "append", into=messages_into),
        Plan("archive-reports", (REPORTS_TOPIC,), 1, reports, "append", into=into(REPORTS.name)),
        Plan("archive-deliveries", (DELIVERIES_TOPIC,), 1, deliveries, "append", into=into(DELIVERIES.name)),
    ]


def append(rows: DataFrame, folder_of_table: TableFolder) -> None:
    """Append to a table the rows that it does not have yet."""
    with _alone(folder_of_table):
        upto = _mended(folder_of_table)
        made = _made(timely(rows.where(f.col("offset") > upto), folder_of_table.table), folder_of_table)
        if not made:
            return
        last = rows.sparkSession.read.schema("offset bigint").parquet(*map(str, made.values())).agg(f.max("offset")).first()
        assert last is not None
        folder_of_table.become(TableState(upto, next=last[0]))
        for hour, path in made.items():
            put(path, hour.batch(last[0]))
        folder_of_table.become(TableState(last[0]))
    for hour in made:
        maybe_gather(rows.sparkSession, folder_of_table, hour, now=Instant(time_ns()))


def _mended(folder_of_table: TableFolder) -> int:
    """Return the table's `upto`, after removing files of a batch whose writer crashed: that batch will be repeated."""
    state = folder_of_table.state()
    if state.next is not None:
        for hour in folder_of_table.hours():
            hour.batch(state.next).unlink(missing_ok=True)
    return state.upto


def _made(rows: DataFrame, folder_of_table: TableFolder) -> dict[Hour, Path]:
    """Write the rows to staging, one file for each hour."""
    staging = folder_of_table.staging("append")
    placed = with_hour(rows, folder_of_table.table).repartition("date", "hour").sortWithinPartitions("date", "hour", "offset")
    placed.write.partitionBy("date", "hour").option("compression", "zstd").parquet(str(staging))
    paths = list(staging.glob("date=*/hour=*/*.parquet"))
    found = {folder_of_table.hour_of(path.parent): path for path in paths}
    assert len(found) == len(paths), "one file for each hour"
    return found


@contextmanager
def _alone(folder_of_table: TableFolder) -> Iterator[None]:
    """Hold the table's append lock."""
    folder_of_table.path.mkdir(parents=True, exist_ok=True)
    with (folder_of_table.path / "_append.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
