"""Compaction: hours that are over are sorted into cells, what was unpublished is taken out, what is too old goes; and meanwhile
small files are put together.

    an hour       is sorted anew when                                         and then
    over          batches have come since it was sorted                       one file for each cell
    any           it has messages that were unpublished since the last time   the same, without them
    too old       –                                                           it is gone

What must hold:
- readers see an hour as it was before or as it is after, never something between (`files`);
- files that no longer count are removed when no reader can be at them: `grace_s` later, at the next compaction;
- what was unpublished is remembered for longer than a copy of it can be on its way.
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
from milepost.pipelines.archive.files import KEEP_S_MIN, Batch, Hour, HourState, Shelf, files_of, put
from milepost.pipelines.archive.reading import read_files, visible
from milepost.pipelines.archive.schema import MESSAGES, TABLES, UNPUBLISHED
from milepost.pipelines.archive.transform import with_cell, with_hour

BATCHES_MAX: Final = 64
"""Of an hour that has more files of batches, these are put together."""
OVER_AFTER_S: Final = 3_600
"""So long after its end an hour counts as over: most of what comes late has come."""
GRACE_S: Final = 600


@dataclass(frozen=True, slots=True)
class Compacted:
    """What was done."""

    sorted: int = 0
    gone: int = 0
    files_removed: int = 0


class Busy(Exception):
    """Another process compacts this archive."""


def compact(
    session: SparkSession, folder: Path, *, now: Instant, keep_s: float | None = None, grace_s: float = GRACE_S
) -> Compacted:
    """Bring an archive in order, and remove what is older than `keep_s`."""
    assert keep_s is None or keep_s >= KEEP_S_MIN, f"at least {KEEP_S_MIN} s are kept"
    done = Compacted()
    with _alone(folder):
        over_before = Instant(now - OVER_AFTER_S * SECOND_NS)
        keeps_from = BEGINNING if keep_s is None else Instant(now - int(keep_s * SECOND_NS))
        marked = _hours_with_unpublished(session, folder)
        for shelf in (Shelf(folder, table) for table in TABLES):
            upto = shelf.upto()
            forgets = Instant(now - KEEP_S_MIN * SECOND_NS) if shelf.table == UNPUBLISHED else keeps_from
            for hour in shelf.hours():
                if hour.end <= forgets:
                    done = _let_go(hour, done, now, grace_s)
                    continue
                if hour.path in marked or (hour.end <= over_before and hour.unsorted(upto)):
                    _sort(session, shelf, hour, now)
                    done = replace(done, sorted=done.sorted + 1)
                done = replace(done, files_removed=done.files_removed + _remove_outdated(hour, now, grace_s))
    return done


def maybe_gather(session: SparkSession, shelf: Shelf, hour: Hour, *, now: Instant) -> None:
    """Put batches of an hour together if there are many, unless somebody compacts."""
    try:
        with _alone(shelf.folder):
            found = hour.unsorted(shelf.upto())
            single = [batch for batch in found if batch.first == batch.upto]
            # Once those that were put together are many themselves, all of them: each row is written again seldom.
            some = found if 2 * len(single) <= len(found) else single
            if len(found) > BATCHES_MAX:
                _gather(session, shelf, hour, some)
            _remove_gathered(hour, now)
    except Busy:
        return


def _gather(session: SparkSession, shelf: Shelf, hour: Hour, batches: Sequence[Batch]) -> None:
    staging = shelf.staging("gather")
    rows = read_files(session, shelf.table, [str(batch.path) for batch in batches])
    rows.repartition(1).sortWithinPartitions("offset").write.option("compression", "zstd").parquet(str(staging))
    (made,) = staging.glob("*.parquet")
    put(made, hour.batch(max(batch.upto for batch in batches), min(batch.first for batch in batches)))


def _remove_gathered(hour: Hour, now: Instant) -> None:
    batches = hour.batches()
    settled = [batch for batch in batches if now - batch.path.stat().st_mtime_ns >= GRACE_S * SECOND_NS]
    for batch in batches:
        if any(whole.holds(batch) for whole in settled):
            batch.path.unlink()


def _sort(session: SparkSession, shelf: Shelf, hour: Hour, now: Instant) -> None:
    """Make the next generation of an hour, and let it count."""
    state, upto = hour.state(), shelf.upto()
    number = state.generation + 1
    for left_behind in hour.generation(number):
        left_behind.unlink()
    rows = read_files(session, shelf.table, [str(path) for path in hour.current(upto)])
    staging = shelf.staging("sort")
    placed = (
        with_cell(visible(session, shelf.folder, shelf.table, rows), shelf.table)
        .repartition("cell")
        .sortWithinPartitions("cell", shelf.table.time, "offset")
    )
    placed.write.partitionBy("cell").option("compression", "zstd").parquet(str(staging))
    for path in staging.glob("cell=*/*.parquet"):
        put(path, hour.path / path.parent.name / f"g{number}.parquet")
    hour.become(HourState(number, upto, now))


def _let_go(hour: Hour, done: Compacted, now: Instant, grace_s: float) -> Compacted:
    """An hour that is too old: first it does not count, later it is removed."""
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
    """The hours in which messages still stand that were unpublished."""
    names = read_files(session, UNPUBLISHED, files_of(folder, UNPUBLISHED)).select("source", "id").distinct()
    if names.isEmpty():
        return set()
    shelf = Shelf(folder, MESSAGES)
    rows = read_files(session, MESSAGES, files_of(folder, MESSAGES)).join(f.broadcast(names), ["source", "id"], "left_semi")
    hours = with_hour(rows, MESSAGES).select("date", "hour").distinct().collect()
    return {shelf.path / f"date={date}" / f"hour={hour}" for date, hour in hours}


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """While no other process compacts the archive."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "_compact.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy(f"another process compacts {folder}") from None
        yield
