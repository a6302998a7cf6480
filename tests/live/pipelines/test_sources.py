"""Both sources, end to end: appended records are read back completely, in bounded batches, and a batch is appended once."""

from datetime import UTC, datetime
from itertools import chain
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from live.pipelines.logs import SiteLog, embedded_site, wait_until
from milepost.eventlog.log import RECORD_BYTES_MAX, Entry, LogRefused, TopicSettings
from milepost.model.durability import Durability
from milepost.pipelines.plan import OUT_ROW
from milepost.pipelines.records import LOG_ROW
from milepost.pipelines.sources.embedded import BatchAppender, QueryBatch

ENTRIES = [
    Entry("north.a", "k1", b'{"n": 1}'),
    Entry("north.a", "ä/\n", "🚚 é".encode()),
    Entry("north.b", "gone", None),
    Entry("north.b", "", b""),
]


def rows_of(spark: SparkSession, entries: list[Entry]) -> DataFrame:
    rows = [(topic, key, None if value is None else value.decode()) for topic, key, value in entries]
    return spark.createDataFrame(rows, OUT_ROW)


def test_records_appended_by_spark_are_in_the_log_and_read_back(spark: SparkSession, site: SiteLog) -> None:
    for topic in ("north.a", "north.b", "north.empty"):
        site.log.make(topic)
    site.source.append(rows_of(spark, ENTRIES))
    records = [*site.records("north.a"), *site.records("north.b")]
    assert sorted(Entry(record.topic, record.key, record.value) for record in records) == sorted(ENTRIES)
    table = site.source.table(spark, ["north.a", "north.b", "north.empty"])
    assert table.schema == spark.createDataFrame([], LOG_ROW).schema
    found = {(row.topic, row.offset): (row.key, row.value, row.appended_at.astimezone(UTC)) for row in table.collect()}
    assert found == {
        (record.topic, record.offset): (
            record.key,
            None if record.value is None else record.value.decode(),
            datetime.fromtimestamp(record.appended_at // 1000 / 1_000_000, UTC),
        )
        for record in records
    }


def test_a_stream_reads_everything_in_bounded_batches_and_resumes(spark: SparkSession, site: SiteLog, tmp_path: Path) -> None:
    for topic in ("a", "b"):
        site.log.make(topic)
    batches: dict[int, list[tuple[str, int]]] = {}

    def take(rows: DataFrame, number: int) -> None:
        found = sorted((row.topic, row.offset) for row in rows.select("topic", "offset").collect())
        # a stream stopped before it recorded a batch as done repeats the same batch
        assert batches.setdefault(number, found) == found

    for total in (250, 500):
        site.append([Entry("ab"[number % 2], "k", str(number).encode()) for number in range(total - 250, total)])
        sink = site.source.stream(spark, ["a", "b"], records_max=60).writeStream.foreachBatch(take)
        query = sink.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        wait_until(lambda total=total: sum(map(len, batches.values())) >= total, "all records are read")  # type: ignore[misc]
        query.stop()
        assert query.exception() is None
    assert max(map(len, batches.values())) <= 60
    assert sorted(chain(*batches.values())) == [(topic, record.offset) for topic in "ab" for record in site.records(topic)]


@pytest.fixture
def embedded(tmp_path: Path) -> SiteLog:
    return embedded_site(tmp_path / "log")


def test_a_repeated_batch_is_appended_once(embedded: SiteLog, tmp_path: Path) -> None:
    entries = [Entry("cells", "k", b"1"), Entry("cells", "k", b"2")]
    tries = [("a-1", 5), ("a-1", 5), ("a-1", 4), ("b-1", 0), ("a-1", 6), ("b-1", 0)]
    outcomes = []
    for query, number in tries:
        appender = BatchAppender(tmp_path / "log", Durability.PROCESS_CRASH)
        outcomes.append(appender.append(entries, QueryBatch(query, number)))
        appender.close()
    assert outcomes == [True, False, False, True, True, False]
    assert embedded.log.ends("cells") == (0, 6)
    embedded.log.close()


def test_a_batch_that_fails_to_append_is_not_recorded(embedded: SiteLog, tmp_path: Path) -> None:
    appender = BatchAppender(tmp_path / "log", Durability.PROCESS_CRASH)
    good, large = Entry("cells", "k", b"1"), Entry("cells", "k", b"x" * (RECORD_BYTES_MAX + 1))
    with pytest.raises(LogRefused):
        appender.append([good, large], QueryBatch("a-1", 0))
    assert embedded.log.ends("cells") == (0, 0)
    assert appender.append([good], QueryBatch("a-1", 0))
    appender.close()
    embedded.log.close()


def test_the_appending_process_enforces_retention(embedded: SiteLog, tmp_path: Path) -> None:
    embedded.log.make("cells", TopicSettings(retention_bytes=2_000))
    appender = BatchAppender(tmp_path / "log", Durability.PROCESS_CRASH)
    appender.append([Entry("cells", "k", b"x" * 1_000)] * 50, QueryBatch("a-1", 0))
    assert embedded.log.ends("cells")[0] >= 45
    appender.close()
    embedded.log.close()


def test_other_processes_are_notified_of_a_batch(embedded: SiteLog, tmp_path: Path) -> None:
    received: list[bytes | None] = []
    following = embedded.log.follow({"cells": 0}, lambda records: received.extend(record.value for record in records), print)
    appender = BatchAppender(tmp_path / "log", Durability.PROCESS_CRASH)
    appender.append([Entry("cells", "k", b"1")], QueryBatch("a-1", 0))
    wait_until(lambda: received == [b"1"], "the record is received", seconds=5)
    following.close()
    appender.close()
    embedded.log.close()
