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
from milepost.pipelines.archive.files import KEEP_S_MIN, Batch, Hour, HourState, TableFolder, files_of, put
from milepost.pipelines.archive.rows import read_files, visible, with_cell, with_hour
from milepost.pipelines.archive.schema import MESSAGES, TABLES, UNPUBLISHED

BATCHES_MAX: Final = 64
"""Maximum batch files of an hour; more are merged."""
OVER_AFTER_S: Final = 3_600
"""Time after its end when an hour counts as over: most late rows have arrived."""
GRACE_S: Final = 600


@dataclass(frozen=True, slots=True)
class Compacted:
    """Counts of a compaction: hours sorted, hours expired, files removed."""

    sorted: int = 0
    gone: int = 0
    files_removed: int = 0


class Busy(Exception):
    """Another process compacts this archive."""


def compact(
    session: SparkSession, folder: Path, *, now: Instant, keep_s: float | None = None, grace_s: float = GRACE_S
) -> Compacted:
    """Compact an archive, and remove hours older than `keep_s`."""
    assert keep_s is None or keep_s >= KEEP_S_MIN, f"at least {KEEP_S_MIN} s are kept"
    done = Compacted()
    with _alone(folder):
        over_before = Instant(now - OVER_AFTER_S * SECOND_NS)
        keeps_from = BEGINNING if keep_s is None else Instant(now - int(keep_s * SECOND_NS))
        marked = _hours_with_unpublished(session, folder)
        for table_folder in (TableFolder(folder, table) for table in TABLES):
            upto = table_folder.upto()
            forgets = Instant(now - KEEP_S_MIN * SECOND_NS) if table_folder.table == UNPUBLISHED else keeps_from
            for hour in table_folder.hours():
                if hour.end <= forgets:
                    done = _let_go(hour, done, now, grace_s)
                    continue
                if hour.path in marked or (hour.end <= over_before and hour.unsorted(upto)):
                    _sort(session, table_folder, hour, now)
                    done = replace(done, sorted=done.sorted + 1)
                done = replace(done, files_removed=done.files_removed + _remove_outdated(hour, now, grace_s))
    return done


def maybe_gather(session: SparkSession, table_folder: TableFolder, hour: Hour, *, now: Instant) -> None:
    """Merge batch files of an hour if there are many, unless another process compacts."""
    try:
        with _alone(table_folder.folder):
            found = hour.unsorted(table_folder.upto())
            single = [batch for batch in found if batch.first == batch.upto]
            # Merge all files only once merged ones are at least half of them: each row is rewritten seldom.
            some = found if 2 * len(single) <= len(found) else single
            if len(found) > BATCHES_MAX:
                _gather(session, table_folder, hour, some)
            _remove_gathered(hour, now)
    except Busy:
        return


def _gather(session: SparkSession, table_folder: TableFolder, hour: Hour, batches: Sequence[Batch]) -> None:
    staging = table_folder.staging("gather")
    rows = read_files(session, table_folder.table, [str(batch.path) for batch in batches])
    rows.repartition(1).sortWithinPartitions("offset").write.option("compression", "zstd").parquet(str(staging))
    (made,) = staging.glob("*.parquet")
    put(made, hour.batch(max(batch.upto for batch in batches), min(batch.first for batch in batches)))


def _remove_gathered(hour: Hour, now: Instant) -> None:
    batches = hour.batches()
    settled = [batch for batch in batches if now - batch.path.stat().st_mtime_ns >= GRACE_S * SECOND_NS]
    for batch in batches:
        if any(whole.holds(batch) for whole in settled):
            batch.path.unlink()


def _sort(session: SparkSession, table_folder: TableFolder, hour: Hour, now: Instant) -> None:
    """Write the next generation of an hour, and make it current."""
    state, upto = hour.state(), table_folder.upto()
    number = state.generation + 1
    for left_behind in hour.generation(number):
        left_behind.unlink()
    rows = read_files(session, table_folder.table, [str(path) for path in hour.current(upto)])
    staging = table_folder.staging("sort")
    placed = (
        with_cell(visible(session, table_folder.folder, table_folder.table, rows), table_folder.table)
        .repartition("cell")
        .sortWithinPartitions("cell", table_folder.table.time, "offset")
    )
    placed.write.partitionBy("cell").option("compression", "zstd").parquet(str(staging))
    for path in staging.glob("cell=*/*.parquet"):
        put(path, hour.path / path.parent.name / f"g{number}.parquet")
    hour.become(HourState(number, upto, now))


def _let_go(hour: Hour, done: Compacted, now: Instant, grace_s: float) -> Compacted:
    """Expire an hour: first hide it from readers, later remove it."""
    state = hour.state()
    if not state.is_gone:
        hour.become(replace(state, is_gone=True, at=now))
        return replace(done, gone=done.gone + 1)
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
def _alone(folder: Path) -> Iterator[None]:
    """Hold the archive's compaction lock, or raise `Busy`."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "_compact.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy(f"another process compacts {folder}") from None
        yield
