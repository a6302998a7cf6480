"""Codes of authenticated records, computed by Spark: equal to those of the log."""

from pyspark.sql import SparkSession

from milepost.eventlog.authenticated import RecordAuthenticator
from milepost.eventlog.log import Entry
from milepost.pipelines.plan import OUT_ROW
from milepost.pipelines.sources.kafka import authentic, sealed

KEY = bytes(range(100, 132))
VALUES = ["", "x", '{"a":"\u00e9\U0001f69a"}', "\n=", "y" * 70_000, *(f"{'z' * size}" for size in range(50, 70))]
ENTRIES = [Entry("cells", key, value.encode()) for value in VALUES for key in ("", "k", "\u03a9\n\u8a9e")]


def test_the_codes_of_spark_are_those_of_the_log(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(topic, key, (value or b"").decode()) for topic, key, value in ENTRIES], OUT_ROW)
    found = {(row.topic, row.key, bytes(row.value)) for row in sealed(rows, KEY).collect()}
    assert found == set(RecordAuthenticator(KEY).sealed(ENTRIES))


def test_spark_accepts_the_codes_of_the_log_and_no_others(spark: SparkSession) -> None:
    good = list(RecordAuthenticator(KEY).sealed(ENTRIES))
    bad = [
        *RecordAuthenticator(bytes(32)).sealed(ENTRIES),
        *(Entry("reputation", key, value) for _, key, value in good),
        *(Entry(topic, f"{key}x", value) for topic, key, value in good),
        *(Entry(topic, key, b"x" + (value or b"")) for topic, key, value in good),
        *RecordAuthenticator(KEY).sealed([Entry("cells", "k", None)]),
        Entry("cells", "k", b"short"),
    ]
    schema = "topic string, key binary, value binary"
    records = spark.createDataFrame([(topic, key.encode(), value) for topic, key, value in good + bad], schema)
    found = [(row.topic, bytes(row.key).decode(), bytes(row.value)) for row in authentic(records, KEY).collect()]
    assert sorted(found) == sorted(ENTRIES)
