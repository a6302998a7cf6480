"""The archive stores every row once, through repeated batches, compaction and unpublished messages (T6)."""

import json
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
from pyspark.sql import functions as f

from live.pipelines.archives import (
    HOUR_US,
    NOON_US,
    Row,
    append_batch,
    between,
    delivery,
    frame_of,
    instant,
    message,
    offsets,
    report,
)
from milepost.model.areas import Circle
from milepost.model.endpoints import EndpointId
from milepost.model.messages import Message, MessageId
from milepost.model.places import Place
from milepost.model.site_records import EdgeRef, ForwardedMessage
from milepost.pipelines.archive import compaction
from milepost.pipelines.archive.compaction import GRACE_S, ArchiveBusy, compact
from milepost.pipelines.archive.files import RETENTION_S_MIN, TableFolder, files_of
from milepost.pipelines.archive.ingest import plans
from milepost.pipelines.archive.rows import read
from milepost.pipelines.archive.schema import DELIVERIES, MESSAGES, REPORTS, TABLES, UNPUBLISHED
from milepost.pipelines.records import DELIVERIES_TOPIC, LOG_ROW, MESSAGES_TOPIC, REPORTS_TOPIC
from milepost.pipelines.settings import PipelineSettings
from milepost.wire.records import to_record

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


def test_rows_are_read_back_unchanged_before_and_after_compaction(spark: SparkSession, tmp_path: Path) -> None:
    rows = scattered(60, seed=1)
    for first in (0, 20, 40):
        append_batch(spark, tmp_path, REPORTS, rows[first : first + 20])
    expected = sorted(map(tuple, frame_of(spark, REPORTS, rows).collect()))
    assert sorted(map(tuple, read(spark, tmp_path, REPORTS).collect())) == expected
    assert compact(spark, tmp_path, now=LATER).hours_sorted == 3
    assert sorted(map(tuple, read(spark, tmp_path, REPORTS).collect())) == expected


def test_a_time_window_and_an_area_select_few_files(spark: SparkSession, tmp_path: Path) -> None:
    rows = scattered(60, seed=2)
    append_batch(spark, tmp_path, REPORTS, rows)
    compact(spark, tmp_path, now=LATER)
    hour = between(NOON_US + HOUR_US, NOON_US + 2 * HOUR_US - 1)
    expected = sorted(row[-2] for row in rows if NOON_US + HOUR_US <= row[2] < NOON_US + 2 * HOUR_US)
    assert offsets(spark, tmp_path, REPORTS, time_window=hour) == expected
    assert len(files_of(tmp_path, REPORTS)) == 9
    assert len(files_of(tmp_path, REPORTS, time_window=hour)) == 3
    assert len(files_of(tmp_path, REPORTS, time_window=hour, area=Circle(Place(*TOWNS[1]), 500.0))) == 1


def test_a_repeated_batch_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    for rows in ([report(0), report(1)], [report(0), report(1)], [report(1), report(2)]):
        append_batch(spark, tmp_path, REPORTS, rows)
    assert offsets(spark, tmp_path, REPORTS) == [0, 1, 2]


def test_half_a_batch_is_invisible_and_completed_by_the_next_writer(spark: SparkSession, tmp_path: Path) -> None:
    table_folder = TableFolder(tmp_path, REPORTS)
    append_batch(spark, tmp_path, REPORTS, [report(0)])
    spread = [report(offset, NOON_US + offset * HOUR_US) for offset in range(1, 5)]
    obstacle = table_folder.hour_of(Path("date=2030-03-17/hour=20")).batch(4)
    (obstacle / "obstacle").mkdir(parents=True)
    with pytest.raises(OSError):  # noqa: PT011  # the error depends on the file system
        append_batch(spark, tmp_path, REPORTS, spread)
    assert offsets(spark, tmp_path, REPORTS) == [0]
    (obstacle / "obstacle").rmdir()
    obstacle.rmdir()
    for rows in (spread[:2], spread):
        append_batch(spark, tmp_path, REPORTS, rows)
    assert offsets(spark, tmp_path, REPORTS) == [0, 1, 2, 3, 4]


CHILD: Final = """
import sys
from pathlib import Path
from live.pipelines.archives import HOUR_US, NOON_US, append_batch, report
from milepost.pipelines.archive.schema import REPORTS
from milepost.pipelines.spark_session import open_session
spark = open_session("killed", master="local[1]")
for first in range(0, 5_000, 5):
    rows = [report(offset, NOON_US + offset % 8 * HOUR_US) for offset in range(first, first + 5)]
    append_batch(spark, Path(sys.argv[1]), REPORTS, rows)
"""


def test_a_process_killed_in_the_middle_of_a_batch_leaves_every_row_once(spark: SparkSession, tmp_path: Path) -> None:
    table_folder, root = TableFolder(tmp_path, REPORTS), Path(__file__).parents[3]
    paths = f"{root}/tests:{root}/src"
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(tmp_path)], env={"PYTHONPATH": paths}, start_new_session=True)
    end = monotonic() + 120
    while table_folder.upto() < 20:
        assert child.poll() is None
        assert monotonic() < end
        sleep(0.05)
    sleep(random.random())
    child.send_signal(signal.SIGKILL)
    child.wait()
    done = table_folder.upto()
    assert offsets(spark, tmp_path, REPORTS) == list(range(done + 1))
    rows = [report(offset, NOON_US + offset % 8 * HOUR_US) for offset in range(done + 30)]
    for first in range(0, len(rows), 12):
        append_batch(spark, tmp_path, REPORTS, rows[first : first + 12])
    assert offsets(spark, tmp_path, REPORTS) == list(range(done + 30))


def test_readers_do_not_notice_a_concurrent_compaction(spark: SparkSession, tmp_path: Path) -> None:
    for first in (0, 10, 20):
        append_batch(spark, tmp_path, REPORTS, scattered(30, seed=3)[first : first + 10])
    begun = read(spark, tmp_path, REPORTS)
    counted: list[int] = []
    is_done = threading.Event()

    def count() -> None:
        while not is_done.is_set():
            counted.append(read(spark, tmp_path, REPORTS).count())

    reader = threading.Thread(target=count)
    reader.start()
    compact(spark, tmp_path, now=LATER)
    append_batch(spark, tmp_path, REPORTS, [])
    is_done.set()
    reader.join()
    assert set(counted) == {30}
    assert begun.count() == 30
    again = compact(spark, tmp_path, now=MUCH_LATER)
    assert (again.hours_sorted, again.files_removed) == (0, 9)
    assert offsets(spark, tmp_path, REPORTS) == list(range(30))
    assert sum(1 for _ in tmp_path.rglob("*.parquet")) == len(files_of(tmp_path, REPORTS))


def test_late_rows_are_sorted_in_at_the_next_compaction(spark: SparkSession, tmp_path: Path) -> None:
    append_batch(spark, tmp_path, REPORTS, [report(0), report(1)])
    compact(spark, tmp_path, now=LATER)
    append_batch(spark, tmp_path, REPORTS, [report(2), report(3, place=TOWNS[1])])
    assert offsets(spark, tmp_path, REPORTS) == [0, 1, 2, 3]
    compact(spark, tmp_path, now=MUCH_LATER)
    assert offsets(spark, tmp_path, REPORTS) == [0, 1, 2, 3]
    assert len(files_of(tmp_path, REPORTS)) == 2


def test_many_batches_of_an_hour_are_merged(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "BATCHES_MAX", 3)
    for offset in range(14):
        append_batch(spark, tmp_path, REPORTS, [report(offset)])
        assert len(files_of(tmp_path, REPORTS)) <= 3
    assert offsets(spark, tmp_path, REPORTS) == list(range(14))
    monkeypatch.setattr(compaction, "GRACE_S", 0)
    append_batch(spark, tmp_path, REPORTS, [report(14)])
    assert [str(path) for path in sorted(tmp_path.rglob("*.parquet"))] == files_of(tmp_path, REPORTS)
    compact(spark, tmp_path, now=LATER)
    assert offsets(spark, tmp_path, REPORTS) == list(range(15))
    assert len(files_of(tmp_path, REPORTS)) == 1


def test_an_unpublished_message_is_hidden_at_once_and_removed_by_compaction(spark: SparkSession, tmp_path: Path) -> None:
    # T6
    withdrawn = message(3, NOON_US + HOUR_US, topic="Unpublish", fields={"id": "77"}, place=None)
    log = [message(0, number=77), message(1, number=77, source="car-2"), message(2, number=78), withdrawn]
    sink = plans(PipelineSettings(folder=str(tmp_path)))[0].batch_sink
    assert sink is not None
    sink(frame_of(spark, MESSAGES, log[:3]), 0)
    assert offsets(spark, tmp_path / "archive", MESSAGES) == [0, 1, 2]
    sink(frame_of(spark, MESSAGES, log[3:]), 1)
    assert offsets(spark, tmp_path / "archive", MESSAGES) == [1, 2, 3]
    assert stored(spark, tmp_path / "archive") == [0, 1, 2, 3]
    compact(spark, tmp_path / "archive", now=instant(NOON_US + HOUR_US))  # no hour is over yet
    compact(spark, tmp_path / "archive", now=instant(NOON_US + HOUR_US + (GRACE_S + 1) * 1_000_000))
    assert stored(spark, tmp_path / "archive") == [1, 2, 3]
    assert offsets(spark, tmp_path / "archive", MESSAGES) == [1, 2, 3]


def stored(spark: SparkSession, folder: Path) -> list[int]:
    """Return the offsets of all messages in any file, current or not."""
    files = [str(path) for path in (folder / "messages").rglob("*.parquet")]
    return sorted({row[0] for row in spark.read.parquet(*files).select("offset").collect()})


def test_expired_hours_are_removed_and_unpublished_messages_forgotten_last(spark: SparkSession, tmp_path: Path) -> None:
    append_batch(spark, tmp_path, REPORTS, [report(0), report(1, NOON_US + 10 * 86_400_000_000)])
    append_batch(spark, tmp_path, UNPUBLISHED, [("car-1", "77", NOON_US, 0, report(0)[-1])])
    now = instant(NOON_US + HOUR_US + RETENTION_S_MIN * 1_000_000)
    assert compact(spark, tmp_path, now=now, retention_s=RETENTION_S_MIN).hours_expired == 2
    assert offsets(spark, tmp_path, REPORTS) == [1]
    later = instant(NOON_US + HOUR_US + (RETENTION_S_MIN + GRACE_S) * 1_000_000)
    assert compact(spark, tmp_path, now=later, retention_s=RETENTION_S_MIN).files_removed == 2
    assert [hour.path.parent.name for table in TABLES for hour in TableFolder(tmp_path, table).hours()] == ["date=2030-03-27"]


def test_two_processes_do_not_compact_one_archive(spark: SparkSession, tmp_path: Path) -> None:
    append_batch(spark, tmp_path, REPORTS, [report(0)])
    holds = "import fcntl, sys; file = open(sys.argv[1], 'w'); fcntl.flock(file, fcntl.LOCK_EX); print(flush=True); input()"
    command = [sys.executable, "-c", holds, str(tmp_path / "_compact.lock")]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout is not None
    holder.stdout.readline()
    with pytest.raises(ArchiveBusy):
        compact(spark, tmp_path, now=LATER)
    holder.communicate(b"\n")
    assert compact(spark, tmp_path, now=LATER).hours_sorted == 1


def test_rows_without_a_plausible_time_are_not_stored(spark: SparkSession, tmp_path: Path) -> None:
    times = (None, -(2**62), 2**62, NOON_US - 8 * 86_400_000_000, NOON_US)
    good = delivery(0, NOON_US, "car-1", "sent")
    append_batch(
        spark, tmp_path, DELIVERIES, [(*good[:6], at_us, *good[7:8], offset, good[-1]) for offset, at_us in enumerate(times)]
    )
    assert offsets(spark, tmp_path, DELIVERIES) == [4]


def test_the_streams_store_each_record_once_even_if_they_restart_from_scratch(spark: SparkSession, tmp_path: Path) -> None:
    messages = [
        Message(MessageId(n + 1), EndpointId("car-1"), "Collision", instant(NOON_US), place=Place(*TOWNS[0])) for n in range(3)
    ]
    messages.append(Message(MessageId(4), EndpointId("car-1"), "Unpublish", instant(NOON_US), fields={"id": "2"}))
    values = {
        MESSAGES_TOPIC: [to_record(ForwardedMessage(EdgeRef("north", "e1"), n, one)).decode() for n, one in enumerate(messages)]
    }
    seen = {"type": "reports", "edge": "north/e1", "endpoints": ["car-1", "car-2"], "seen_at_us": [NOON_US] * 2}
    where = {"latitudes": [40.7] * 2, "longitudes": [-111.9] * 2, "headings_deg": [None] * 2, "speeds_mps": [1.5, None]}
    values[REPORTS_TOPIC] = [json.dumps({**seen, **where, "verdicts": [0, 0], "covered": [0, 0]}), "nonsense"]
    about = {"type": "deliveries", "edge": "north/e1", "source": "car-1", "id": "1", "topic": "Collision"}
    got = {"endpoints": ["car-1"], "states": ["sent"], "at_us": [NOON_US], "reasons": [0]}
    values[DELIVERIES_TOPIC] = [json.dumps({**about, **got})]
    (tmp_path / "log").mkdir()
    lines = [
        json.dumps({"topic": topic, "value": value, "offset": offset, "appended_at": "2030-03-17T18:00:01Z"})
        for topic, some in values.items()
        for offset, value in enumerate(some)
    ]
    (tmp_path / "log" / "records.json").write_text("\n".join(lines))
    for attempt in ("first", "restarted"):
        for plan in plans(PipelineSettings(folder=str(tmp_path / "archive-data"))):
            assert plan.batch_sink is not None
            log = spark.readStream.schema(LOG_ROW).json(str(tmp_path / "log"))
            stream = plan.transform(log.where(f.col("topic").isin(list(plan.topics)))).writeStream.foreachBatch(plan.batch_sink)
            begun = stream.option("checkpointLocation", str(tmp_path / attempt / plan.name)).trigger(availableNow=True).start()
            begun.awaitTermination()
        counts = {table.name: offsets(spark, tmp_path / "archive-data" / "archive", table) for table in TABLES}
        assert counts == {"messages": [0, 2, 3], "reports": [0, 0], "deliveries": [0], "unpublished": [3]}
