"""The archive keeps every row once, through batches that come again, compaction, and what was unpublished (T6)."""

import random
import signal
import subprocess
import sys
import threading
from pathlib import Path
from time import monotonic, sleep
from typing import Final

import pytest
from pyspark.sql import SparkSession

from live.pipelines.shelves import HOUR_US, NOON_US, Row, between, frame_of, instant, keep, message, offsets, report
from milepost.model.areas import Circle
from milepost.model.places import Place
from milepost.pipelines.archive import job
from milepost.pipelines.archive.compaction import GRACE_S, Busy, compact
from milepost.pipelines.archive.files import KEEP_S_MIN, Shelf, files_of
from milepost.pipelines.archive.job import plans
from milepost.pipelines.archive.reading import read
from milepost.pipelines.archive.schema import MESSAGES, REPORTS, TABLES, UNPUBLISHED
from milepost.pipelines.settings import PipelineSettings

LATER: Final = instant(NOON_US + 5 * HOUR_US)
MUCH_LATER: Final = instant(NOON_US + 6 * HOUR_US)
TOWNS: Final = ((40.7608, -111.891), (52.52, 13.405), (-33.87, 151.21))


def scattered(count: int, *, seed: int) -> list[Row]:
    """Reports of three hours and three towns."""
    chance = random.Random(seed)
    return [
        report(offset, NOON_US + chance.randrange(3 * HOUR_US), endpoint=f"car-{offset % 7}", place=chance.choice(TOWNS))
        for offset in range(count)
    ]


def test_what_went_in_comes_out_as_it_was_before_and_after_compaction(spark: SparkSession, tmp_path: Path) -> None:
    rows = scattered(60, seed=1)
    for first in (0, 20, 40):
        keep(spark, tmp_path, REPORTS, rows[first : first + 20])
    expected = sorted(map(tuple, frame_of(spark, REPORTS, rows).collect()))
    assert sorted(map(tuple, read(spark, tmp_path, REPORTS).collect())) == expected
    assert compact(spark, tmp_path, now=LATER).sorted == 3
    assert sorted(map(tuple, read(spark, tmp_path, REPORTS).collect())) == expected


def test_a_frame_and_an_area_need_few_of_the_files(spark: SparkSession, tmp_path: Path) -> None:
    rows = scattered(60, seed=2)
    keep(spark, tmp_path, REPORTS, rows)
    compact(spark, tmp_path, now=LATER)
    hour = between(NOON_US + HOUR_US, NOON_US + 2 * HOUR_US - 1)
    expected = sorted(row[-2] for row in rows if NOON_US + HOUR_US <= row[2] < NOON_US + 2 * HOUR_US)
    assert offsets(spark, tmp_path, REPORTS, frame=hour) == expected
    assert len(files_of(tmp_path, REPORTS)) == 9
    assert len(files_of(tmp_path, REPORTS, frame=hour)) == 3
    assert len(files_of(tmp_path, REPORTS, frame=hour, area=Circle(Place(*TOWNS[1]), 500.0))) == 1


def test_a_batch_that_comes_again_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    for rows in ([report(0), report(1)], [report(0), report(1)], [report(1), report(2)]):
        keep(spark, tmp_path, REPORTS, rows)
    assert offsets(spark, tmp_path, REPORTS) == [0, 1, 2]


def test_half_a_batch_is_seen_by_nobody_and_made_good_by_whoever_comes_next(spark: SparkSession, tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, REPORTS)
    keep(spark, tmp_path, REPORTS, [report(0)])
    spread = [report(offset, NOON_US + offset * HOUR_US) for offset in range(1, 5)]
    obstacle = shelf.hour_of(Path("date=2030-03-17/hour=20")).batch(4)
    (obstacle / "in-the-way").mkdir(parents=True)
    with pytest.raises(OSError):  # noqa: PT011  # whatever a file system says
        keep(spark, tmp_path, REPORTS, spread)
    assert offsets(spark, tmp_path, REPORTS) == [0]
    (obstacle / "in-the-way").rmdir()
    obstacle.rmdir()
    for rows in (spread[:2], spread):
        keep(spark, tmp_path, REPORTS, rows)
    assert offsets(spark, tmp_path, REPORTS) == [0, 1, 2, 3, 4]


CHILD: Final = """
import sys
from pathlib import Path
from live.pipelines.shelves import HOUR_US, NOON_US, keep, report
from milepost.pipelines.archive.schema import REPORTS
from milepost.pipelines.session import open_session
spark = open_session("killed", master="local[1]")
for first in range(0, 5_000, 5):
    rows = [report(offset, NOON_US + offset % 8 * HOUR_US) for offset in range(first, first + 5)]
    keep(spark, Path(sys.argv[1]), REPORTS, rows)
"""


def test_a_process_killed_in_the_middle_of_a_batch_leaves_every_row_once(spark: SparkSession, tmp_path: Path) -> None:
    shelf, root = Shelf(tmp_path, REPORTS), Path(__file__).parents[3]
    paths = f"{root}/tests:{root}/src"
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(tmp_path)], env={"PYTHONPATH": paths}, start_new_session=True)
    end = monotonic() + 120
    while shelf.upto() < 20:
        assert child.poll() is None
        assert monotonic() < end
        sleep(0.05)
    sleep(random.random())
    child.send_signal(signal.SIGKILL)
    child.wait()
    done = shelf.upto()
    assert offsets(spark, tmp_path, REPORTS) == list(range(done + 1))
    rows = [report(offset, NOON_US + offset % 8 * HOUR_US) for offset in range(done + 30)]
    for first in range(0, len(rows), 12):
        keep(spark, tmp_path, REPORTS, rows[first : first + 12])
    assert offsets(spark, tmp_path, REPORTS) == list(range(done + 30))


def test_compaction_beside_readers_is_not_seen_by_them(spark: SparkSession, tmp_path: Path) -> None:
    for first in (0, 10, 20):
        keep(spark, tmp_path, REPORTS, scattered(30, seed=3)[first : first + 10])
    begun = read(spark, tmp_path, REPORTS)
    counted: list[int] = []
    is_over = threading.Event()

    def count() -> None:
        while not is_over.is_set():
            counted.append(read(spark, tmp_path, REPORTS).count())

    reader = threading.Thread(target=count)
    reader.start()
    compact(spark, tmp_path, now=LATER)
    keep(spark, tmp_path, REPORTS, [])
    is_over.set()
    reader.join()
    assert set(counted) == {30}
    assert begun.count() == 30
    again = compact(spark, tmp_path, now=MUCH_LATER)
    assert (again.sorted, again.files_removed) == (0, 9)
    assert offsets(spark, tmp_path, REPORTS) == list(range(30))
    assert sum(1 for _ in tmp_path.rglob("*.parquet")) == len(files_of(tmp_path, REPORTS))


def test_what_comes_late_is_sorted_in_at_the_next_compaction(spark: SparkSession, tmp_path: Path) -> None:
    keep(spark, tmp_path, REPORTS, [report(0), report(1)])
    compact(spark, tmp_path, now=LATER)
    keep(spark, tmp_path, REPORTS, [report(2), report(3, place=TOWNS[1])])
    assert offsets(spark, tmp_path, REPORTS) == [0, 1, 2, 3]
    compact(spark, tmp_path, now=MUCH_LATER)
    assert offsets(spark, tmp_path, REPORTS) == [0, 1, 2, 3]
    assert len(files_of(tmp_path, REPORTS)) == 2


def test_an_hour_with_many_batches_is_sorted_at_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "BATCHES_MAX", 3)
    for offset in range(9):
        keep(spark, tmp_path, REPORTS, [report(offset)])
        assert len(files_of(tmp_path, REPORTS)) <= 4
    assert offsets(spark, tmp_path, REPORTS) == list(range(9))


def test_an_unpublished_message_is_hidden_at_once_and_removed_by_compaction(spark: SparkSession, tmp_path: Path) -> None:
    taken_back = message(3, NOON_US + HOUR_US, topic="Unpublish", fields={"id": "77"}, place=None)
    log = [message(0, number=77), message(1, number=77, source="car-2"), message(2, number=78), taken_back]
    into = plans(PipelineSettings(folder=str(tmp_path)))[0].into
    assert into is not None
    into(frame_of(spark, MESSAGES, log[:3]), 0)
    assert offsets(spark, tmp_path / "archive", MESSAGES) == [0, 1, 2]
    into(frame_of(spark, MESSAGES, log[3:]), 1)
    assert offsets(spark, tmp_path / "archive", MESSAGES) == [1, 2, 3]
    assert stored(spark, tmp_path / "archive") == [0, 1, 2, 3]
    compact(spark, tmp_path / "archive", now=instant(NOON_US + HOUR_US))  # no hour is over yet
    compact(spark, tmp_path / "archive", now=instant(NOON_US + HOUR_US + (GRACE_S + 1) * 1_000_000))
    assert stored(spark, tmp_path / "archive") == [1, 2, 3]
    assert offsets(spark, tmp_path / "archive", MESSAGES) == [1, 2, 3]


def stored(spark: SparkSession, folder: Path) -> list[int]:
    """Offsets of all messages that stand in any file, counting or not."""
    files = [str(path) for path in (folder / "messages").rglob("*.parquet")]
    return sorted({row[0] for row in spark.read.parquet(*files).select("offset").collect()})


def test_what_is_too_old_goes_and_what_was_unpublished_is_forgotten_last(spark: SparkSession, tmp_path: Path) -> None:
    keep(spark, tmp_path, REPORTS, [report(0), report(1, NOON_US + 10 * 86_400_000_000)])
    keep(spark, tmp_path, UNPUBLISHED, [("car-1", "77", NOON_US, 0, report(0)[-1])])
    now = instant(NOON_US + HOUR_US + KEEP_S_MIN * 1_000_000)
    assert compact(spark, tmp_path, now=now, keep_s=KEEP_S_MIN).gone == 2
    assert offsets(spark, tmp_path, REPORTS) == [1]
    later = instant(NOON_US + HOUR_US + (KEEP_S_MIN + GRACE_S) * 1_000_000)
    assert compact(spark, tmp_path, now=later, keep_s=KEEP_S_MIN).files_removed == 2
    assert [hour.path.parent.name for table in TABLES for hour in Shelf(tmp_path, table).hours()] == ["date=2030-03-27"]


def test_two_processes_do_not_compact_one_archive(spark: SparkSession, tmp_path: Path) -> None:
    keep(spark, tmp_path, REPORTS, [report(0)])
    holds = "import fcntl, sys; file = open(sys.argv[1], 'w'); fcntl.flock(file, fcntl.LOCK_EX); print(flush=True); input()"
    words = [sys.executable, "-c", holds, str(tmp_path / "_compact.lock")]
    holder = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout is not None
    holder.stdout.readline()
    with pytest.raises(Busy):
        compact(spark, tmp_path, now=LATER)
    holder.communicate(b"\n")
    assert compact(spark, tmp_path, now=LATER).sorted == 1
