"""Compaction: sort finished hours into cells, remove unpublished messages and expired hours; between runs, merge small files.

    hour          sorted again when                                           result
    over          batches have arrived since it was sorted                    one file for each cell
    any           it has messages unpublished since the last compaction       the same, without them
    expired       –                                                           removed

Invariants:
- readers see an hour as before or as after, never in between (`files`);
- outdated files are removed when no reader can be using them: `grace_s` later, at the next compaction;
- an unpublished message is remembered for longer than a copy of it can be in flight.
"""

import fcntl
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from milepost.model.instants import BEGINNING, SECOND_NS, Instant
from milepost.pipelines.archive.files import RETENTION_S_MIN, BatchFile, Hour, HourState, TableFolder, files_of, move_into_place
from milepost.pipelines.archive.rows import read_files, visible, with_cell, with_hour
from milepost.pipelines.archive.schema import MESSAGES, TABLES, UNPUBLISHED

BATCHES_MAX: Final = 64
"""Maximum batch files of an hour; more are merged."""
OVER_AFTER_S: Final = 3_600
"""Time after its end when an hour counts as over: most late rows have arrived."""
GRACE_S: Final = 600


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """Counts of a compaction: hours sorted, hours expired, files removed."""

    hours_sorted: int = 0
    hours_expired: int = 0
    files_removed: int = 0


class ArchiveBusy(Exception):
    """Another process compacts this archive."""


def compact(
    session: SparkSession, folder: Path, *, now: Instant, retention_s: float | None = None, grace_s: float = GRACE_S
) -> CompactionResult:
    """Compact an archive, and remove hours older than `retention_s`."""
    assert retention_s is None or retention_s >= RETENTION_S_MIN, f"retention_s must be at least {RETENTION_S_MIN}"
    done = CompactionResult()
    with _compaction_lock(folder):
        over_before = Instant(now - OVER_AFTER_S * SECOND_NS)
        retained_from = BEGINNING if retention_s is None else Instant(now - int(retention_s * SECOND_NS))
        with_unpublished = _hours_with_unpublished(session, folder)
        for table_folder in (TableFolder(folder, table) for table in TABLES):
            upto = table_folder.upto()
            expires_before = Instant(now - RETENTION_S_MIN * SECOND_NS) if table_folder.table == UNPUBLISHED else retained_from
            for hour in table_folder.hours():
                if hour.end <= expires_before:
                    done = _expire(hour, done, now, grace_s)
                    continue
                if hour.path in with_unpublished or (hour.end <= over_before and hour.unsorted(upto)):
                    _sort(session, table_folder, hour, now)
                    done = replace(done, hours_sorted=done.hours_sorted + 1)
                done = replace(done, files_removed=done.files_removed + _remove_outdated(hour, now, grace_s))
    return done


def maybe_merge(session: SparkSession, table_folder: TableFolder, hour: Hour, *, now: Instant) -> None:
    """Merge batch files of an hour if there are many, unless another process compacts."""
    try:
        with _compaction_lock(table_folder.folder):
            found = hour.unsorted(table_folder.upto())
            single = [batch for batch in found if batch.first == batch.upto]
            # Merge all files only once merged ones are at least half of them: each row is rewritten seldom.
            some = found if 2 * len(single) <= len(found) else single
            if len(found) > BATCHES_MAX:
                _merge(session, table_folder, hour, some)
            _remove_merged(hour, now)
    except ArchiveBusy:
        return


def _merge(session: SparkSession, table_folder: TableFolder, hour: Hour, batches: Sequence[BatchFile]) -> None:
    staging = table_folder.staging("merge")
    rows = read_files(session, table_folder.table, [str(batch.path) for batch in batches])
    rows.repartition(1).sortWithinPartitions("offset").write.option("compression", "zstd").parquet(str(staging))
    (merged,) = staging.glob("*.parquet")
    move_into_place(merged, hour.batch(max(batch.upto for batch in batches), min(batch.first for batch in batches)))


def _remove_merged(hour: Hour, now: Instant) -> None:
    batches = hour.batches()
    old_enough = [batch for batch in batches if now - batch.path.stat().st_mtime_ns >= GRACE_S * SECOND_NS]
    for batch in batches:
        if any(whole.contains(batch) for whole in old_enough):
            batch.path.unlink()


def _sort(session: SparkSession, table_folder: TableFolder, hour: Hour, now: Instant) -> None:
    """Write the next generation of an hour, and make it current."""
    state, upto = hour.state(), table_folder.upto()
    number = state.generation + 1
    for leftover in hour.generation(number):
        leftover.unlink()
    rows = read_files(session, table_folder.table, [str(path) for path in hour.current(upto)])
    staging = table_folder.staging("sort")
    placed = (
        with_cell(visible(session, table_folder.folder, table_folder.table, rows), table_folder.table)
        .repartition("cell")
        .sortWithinPartitions("cell", table_folder.table.time, "offset")
    )
    placed.write.partitionBy("cell").option("compression", "zstd").parquet(str(staging))
    for path in staging.glob("cell=*/*.parquet"):
        move_into_place(path, hour.path / path.parent.name / f"g{number}.parquet")
    hour.write_state(HourState(number, upto, now))


def _expire(hour: Hour, done: CompactionResult, now: Instant, grace_s: float) -> CompactionResult:
    """Expire an hour: first hide it from readers, later remove it."""
    state = hour.state()
    if not state.is_expired:
        hour.write_state(replace(state, is_expired=True, at=now))
        return replace(done, hours_expired=done.hours_expired + 1)
    if now - state.at < grace_s * SECOND_NS:
        return done
    files = len(list(hour.path.glob("cell=*/*.parquet")))
    shutil.rmtree(hour.path)
    return replace(done, files_removed=done.files_removed + files)


def _remove_outdated(hour: Hour, now: Instant, grace_s: float) -> int:
    if now - hour.state().at < grace_s * SECOND_NS:
        return 0
    outdated = hour.outdated()
    for path in outdated:
        path.unlink()
    return len(outdated)


def _hours_with_unpublished(session: SparkSession, folder: Path) -> set[Path]:
    """Return the hours that still contain unpublished messages."""
    names = read_files(session, UNPUBLISHED, files_of(folder, UNPUBLISHED)).select("source", "id").distinct()
    if names.isEmpty():
        return set()
    table_folder = TableFolder(folder, MESSAGES)
    rows = read_files(session, MESSAGES, files_of(folder, MESSAGES)).join(f.broadcast(names), ["source", "id"], "left_semi")
    hours = with_hour(rows, MESSAGES).select("date", "hour").distinct().collect()
    return {table_folder.path / f"date={date}" / f"hour={hour}" for date, hour in hours}


@contextmanager
def _compaction_lock(folder: Path) -> Iterator[None]:
    """Hold the archive's compaction lock, or raise `ArchiveBusy`."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "_compact.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ArchiveBusy(f"another process compacts {folder}") from None
        yield
