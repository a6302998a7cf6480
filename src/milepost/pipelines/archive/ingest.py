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
from milepost.pipelines.archive.compaction import maybe_merge
from milepost.pipelines.archive.files import Hour, TableFolder, TableState, move_into_place
from milepost.pipelines.archive.rows import unpublished, with_hour, with_plausible_time
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

    def writer_of(name: str) -> Callable[[DataFrame, int], None]:
        return lambda rows, _: append(rows, table_folders[name])

    def write_messages(rows: DataFrame, number: int) -> None:
        cached = rows.persist()
        try:
            withdrawn = unpublished(cached)
            if not withdrawn.isEmpty():
                append(withdrawn, TableFolder(folder, UNPUBLISHED))
            writer_of(MESSAGES.name)(cached, number)
        finally:
            cached.unpersist()

    return [
        Plan("archive-messages", (MESSAGES_TOPIC,), 1, messages, "append", batch_sink=write_messages),
        Plan("archive-reports", (REPORTS_TOPIC,), 1, reports, "append", batch_sink=writer_of(REPORTS.name)),
        Plan("archive-deliveries", (DELIVERIES_TOPIC,), 1, deliveries, "append", batch_sink=writer_of(DELIVERIES.name)),
    ]


def append(rows: DataFrame, table_folder: TableFolder) -> None:
    """Append to a table the rows that it does not have yet."""
    with _append_lock(table_folder):
        upto = _recover(table_folder)
        staged = _write_staging(with_plausible_time(rows.where(f.col("offset") > upto), table_folder.table), table_folder)
        if not staged:
            return
        last = rows.sparkSession.read.schema("offset bigint").parquet(*map(str, staged.values())).agg(f.max("offset")).first()
        assert last is not None
        table_folder.write_state(TableState(upto, next=last[0]))
        for hour, path in staged.items():
            move_into_place(path, hour.batch(last[0]))
        table_folder.write_state(TableState(last[0]))
    for hour in staged:
        maybe_merge(rows.sparkSession, table_folder, hour, now=Instant(time_ns()))


def _recover(table_folder: TableFolder) -> int:
    """Return the table's `upto`, after removing files of a batch whose writer crashed: that batch will be repeated."""
    state = table_folder.state()
    if state.next is not None:
        for hour in table_folder.hours():
            hour.batch(state.next).unlink(missing_ok=True)
    return state.upto


def _write_staging(rows: DataFrame, table_folder: TableFolder) -> dict[Hour, Path]:
    """Write the rows to staging, one file for each hour."""
    staging = table_folder.staging("append")
    placed = with_hour(rows, table_folder.table).repartition("date", "hour").sortWithinPartitions("date", "hour", "offset")
    placed.write.partitionBy("date", "hour").option("compression", "zstd").parquet(str(staging))
    paths = list(staging.glob("date=*/hour=*/*.parquet"))
    found = {table_folder.hour_of(path.parent): path for path in paths}
    assert len(found) == len(paths), "one file for each hour"
    return found


@contextmanager
def _append_lock(table_folder: TableFolder) -> Iterator[None]:
    """Hold the table's append lock."""
    table_folder.path.mkdir(parents=True, exist_ok=True)
    with (table_folder.path / "_append.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
