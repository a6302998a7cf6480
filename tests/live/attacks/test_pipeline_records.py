"""Records of a site's log forged for its pipelines: with the site's key, Spark reads only authentic ones, and writes such."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from live.pipelines.logs import SiteLog, embedded_site, kafka_site, wait_until, with_key
from milepost.eventlog.log import Entry
from milepost.pipelines.plan import OUT_ROW

GENUINE = [Entry("in", "k1", b'{"n": 1}'), Entry("in", "\u00e4/\n", "\U0001f69a \u00e9".encode()), Entry("in", "", b"")]
FORGED = [
    Entry("in", "k1", b'{"n": 2}'),
    Entry("in", "k2", b""),
    Entry("in", "k2", b'{"n": 2}\n=' + b"0" * 64),
    Entry("in", "k1", None),
    Entry("in", "k1", b"\n-" + b"0" * 64),
]


@pytest.fixture(params=["embedded", "kafka"])
def plain(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SiteLog]:
    """A site on each kind of log, as a process without its key has it."""
    found = embedded_site(tmp_path / "log") if request.param == "embedded" else kafka_site(request.getfixturevalue("kafka"))
    yield found
    found.log.close()


@pytest.fixture
def site(plain: SiteLog, tmp_path: Path) -> SiteLog:
    return with_key(plain, tmp_path / "north.key")


def rows_of(table: DataFrame) -> list[Entry]:
    return [Entry(row.topic, row.key, row.value.encode()) for row in table.orderBy("offset").collect()]


def test_a_table_and_a_stream_have_authentic_records_only(
    spark: SparkSession, plain: SiteLog, site: SiteLog, tmp_path: Path
) -> None:
    plain.append(FORGED)
    site.append(GENUINE)
    plain.append(FORGED)
    assert rows_of(site.source.table(spark, ["in"])) == GENUINE
    found: list[Entry] = []

    def take(rows: DataFrame, _: int) -> None:
        found.extend(rows_of(rows))

    sink = site.source.stream(spark, ["in"], records_max=4).writeStream.foreachBatch(take)
    query = sink.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    wait_until(lambda: len(found) >= len(GENUINE), "all authentic records are read")
    query.processAllAvailable()
    query.stop()
    assert found == GENUINE, "batches of forged records only are empty, and the stream goes on"


def test_records_that_spark_appends_are_authentic_and_of_another_key_they_are_not(
    spark: SparkSession, plain: SiteLog, site: SiteLog, tmp_path: Path
) -> None:
    plain.log.make("in")
    rows = spark.createDataFrame([(topic, key, (value or b"").decode()) for topic, key, value in GENUINE], OUT_ROW)
    site.source.append(rows)
    assert sorted(Entry(record.topic, record.key, record.value) for record in site.records("in")) == sorted(GENUINE)
    plain.source.append(rows)
    with_key(plain, tmp_path / "other.key").source.append(rows)
    assert len(list(site.records("in"))) == len(GENUINE)
    assert len(list(plain.records("in"))) == 3 * len(GENUINE)


def test_a_stream_turns_authentic_records_into_authentic_ones(
    spark: SparkSession, plain: SiteLog, site: SiteLog, tmp_path: Path
) -> None:
    """In the mode of urgent pipelines, which is real time on Kafka."""
    plain.log.make("out")
    plain.append(FORGED)
    site.append(GENUINE)
    rows = site.source.stream(spark, ["in"], records_max=None).select(f.lit("out").alias("topic"), "key", "value")
    sink = site.source.sink(rows, "copy-1").outputMode("update").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = (sink.trigger(realTime="5 seconds") if site.source.is_real_time else sink.trigger(processingTime="0 seconds")).start()  # type: ignore[call-overload]
    wait_until(lambda: len(list(site.records("out"))) >= len(GENUINE), "authentic records are copied")
    query.stop()
    assert [(record.key, record.value) for record in site.records("out")] == [(key, value) for _, key, value in GENUINE]
    assert len(list(plain.records("out"))) == len(GENUINE), "forged ones are not"
