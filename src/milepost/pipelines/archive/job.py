"""The archive's streams: what comes in through the log is put on the shelves, once.

    batch ─▶ rows beyond the shelf's `upto` ─▶ one file for each hour ─▶ in their places ─▶ `upto` ─▶ readers see all of it

What must hold:
- a batch that comes again makes the same files under the same names, or, if it had been finished, none;
- this also holds if the stream begins anew, with other batches: rows are known by their offset in the log;
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
from milepost.pipelines.archive.files import Hour, Shelf, TableState, put
from milepost.pipelines.archive.schema import DELIVERIES, MESSAGES, REPORTS, UNPUBLISHED
from milepost.pipelines.archive.transform import timely, unpublished, with_hour
from milepost.pipelines.plans import Plan
from milepost.pipelines.records.transform import (
    DELIVERIES_TOPIC,
    MESSAGES_TOPIC,
    REPORTS_TOPIC,
    deliveries,
    messages,
    reports,
)
from milepost.pipelines.settings import PipelineSettings


def archive_of(settings: PipelineSettings) -> Path:
    """The folder of the archive."""
    return Path(settings.folder) / "archive"


def plans(settings: PipelineSettings) -> list[Plan]:
    """A stream for each topic that is kept."""
    folder = archive_of(settings)
    shelves = {table.name: Shelf(folder, table) for table in (MESSAGES, REPORTS, DELIVERIES)}

    def into(name: str) -> Callable[[DataFrame, int], None]:
        return lambda rows, _: append(rows, shelves[name])

    def messages_into(rows: DataFrame, number: int) -> None:
        kept = rows.persist()
        try:
            taken_back = unpublished(kept)
            if not taken_back.isEmpty():
                append(taken_back, Shelf(folder, UNPUBLISHED))
            into(MESSAGES.name)(kept, number)
        finally:
            kept.unpersist()

    return [
        Plan("archive-messages", (MESSAGES_TOPIC,), 1, messages, "append", into=messages_into),
        Plan("archive-reports", (REPORTS_TOPIC,), 1, reports, "append", into=into(REPORTS.name)),
        Plan("archive-deliveries", (DELIVERIES_TOPIC,), 1, deliveries, "append", into=into(DELIVERIES.name)),
    ]


def append(rows: DataFrame, shelf: Shelf) -> None:
    """Put on a shelf what it does not have yet."""
    with _alone(shelf):
        upto = _mended(shelf)
        made = _made(timely(rows.where(f.col("offset") > upto), shelf.table), shelf)
        if not made:
            return
        last = rows.sparkSession.read.schema("offset bigint").parquet(*map(str, made.values())).agg(f.max("offset")).first()
        assert last is not None
        shelf.become(TableState(upto, next=last[0]))
        for hour, path in made.items():
            put(path, hour.batch(last[0]))
        shelf.become(TableState(last[0]))
    for hour in made:
        maybe_gather(rows.sparkSession, shelf, hour, now=Instant(time_ns()))


def _mended(shelf: Shelf) -> int:
    """Up to where the shelf counts, without what somebody left behind who died over a batch: all of that will come again."""
    state = shelf.state()
    if state.next is not None:
        for hour in shelf.hours():
            hour.batch(state.next).unlink(missing_ok=True)
    return state.upto


def _made(rows: DataFrame, shelf: Shelf) -> dict[Hour, Path]:
    """The rows as files, one for each hour."""
    staging = shelf.staging("append")
    placed = with_hour(rows, shelf.table).repartition("date", "hour").sortWithinPartitions("date", "hour", "offset")
    placed.write.partitionBy("date", "hour").option("compression", "zstd").parquet(str(staging))
    paths = list(staging.glob("date=*/hour=*/*.parquet"))
    found = {shelf.hour_of(path.parent): path for path in paths}
    assert len(found) == len(paths), "one file for each hour"
    return found


@contextmanager
def _alone(shelf: Shelf) -> Iterator[None]:
    """While no other process appends to the shelf."""
    shelf.path.mkdir(parents=True, exist_ok=True)
    with (shelf.path / "_append.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
