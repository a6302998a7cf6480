"""Settings of Spark, by its own names: those on which results depend, defaults that users may change, and the order of both.

    DEFAULTS  <  [pipelines.spark]  <  --conf  <  the options of spark-submit          REQUIRED: refused if they differ

Does not import Spark.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

_PREFIX: Final = "spark."

SHUFFLE_PARTITIONS: Final = "spark.sql.shuffle.partitions"
CHECKPOINT_FORMAT: Final = "spark.sql.streaming.stateStore.checkpointFormatVersion"
JVM_OPTIONS: Final = "spark.driver.defaultJavaOptions"
"""Spark puts them before `spark.driver.extraJavaOptions`, which are the user's."""

_ROCKSDB: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


class SparkSetting(NamedTuple):
    """A value that Milepost sets, and why."""

    value: str
    reason: str


REQUIRED: Final[Mapping[str, SparkSetting]] = {
    "spark.sql.session.timeZone": SparkSetting("UTC", "times are written and compared in UTC"),
    "spark.sql.ansi.enabled": SparkSetting("false", "an unreadable number must be null, not the end of the query"),
    "spark.sql.streaming.stateStore.providerClass": SparkSetting(
        _ROCKSDB, "state may exceed memory, and checkpoints have the format of RocksDB"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": SparkSetting(
        "true", "a batch writes the changes of its state, not all of it"
    ),
    CHECKPOINT_FORMAT: SparkSetting(
        "2", "real-time mode refuses version 1, in which a repeated batch can reuse the files of a failed one"
    ),
}
"""Settings on which results or checkpoints depend: another value is refused."""

DEFAULTS: Final[Mapping[str, SparkSetting]] = {
    "spark.sql.execution.arrow.pyspark.enabled": SparkSetting("true", "rows reach Python in Arrow batches, not one by one"),
    "spark.sql.streaming.stateStore.rocksdb.boundedMemoryUsage": SparkSetting("true", "one limit for the state of all queries"),
    "spark.sql.streaming.stateStore.rocksdb.maxMemoryUsageMB": SparkSetting("256", "that limit, outside the Java heap"),
    "spark.sql.streaming.minBatchesToRetain": SparkSetting("20", "checkpoints of 20 batches are enough to resume"),
    "spark.sql.streaming.numRecentProgressUpdates": SparkSetting("64", "batches between two looks at them"),
    "spark.shuffle.streaming.networkBufferMaxWaitTimeMs": SparkSetting(
        "2", "real-time mode holds a shuffled row no longer; the default of 50 ms was most of an alert's latency"
    ),
    "spark.sql.streaming.metricsEnabled": SparkSetting("false", "Milepost has metrics of its own"),
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": SparkSetting(
        "100000", "sketches of witnesses by hash, not by sort"
    ),
    JVM_OPTIONS: SparkSetting("-Xss4m", "Spark compiles deep expressions by recursion"),
    "spark.log.level": SparkSetting("ERROR", "Milepost logs the faults of queries"),
    "spark.ui.enabled": SparkSetting("false", "a port and memory that nobody asked for"),
    "spark.ui.showConsoleProgress": SparkSetting("false", "it overwrites the progress line"),
}
"""Settings that users may change."""


def check_spark_settings(given: Mapping[str, str]) -> None:
    """Raise a ValueError if a user's settings contain one that is not Spark's, or on which results depend."""
    for name, value in given.items():
        if not name.startswith(_PREFIX):
            raise ValueError(f'"{name}" is not a setting of Spark: names begin with "{_PREFIX}"')
        required = REQUIRED.get(name)
        if required is not None and value.lower() != required.value.lower():
            raise ValueError(f'"{name}" must be "{required.value}", not "{value}": {required.reason}; remove it')


def spark_settings_from(texts: list[str]) -> dict[str, str]:
    """Parse and check settings such as `spark.ui.enabled=true`; raise a ValueError."""
    found = {}
    for text in texts:
        name, is_separated, value = text.partition("=")
        if not is_separated:
            raise ValueError(f'"{text}" has no value: give NAME=VALUE, such as spark.ui.enabled=true')
        found[name.strip()] = value.strip()
    check_spark_settings(found)
    return found


def with_defaults(given: Mapping[str, str]) -> dict[str, str]:
    """Return a user's settings with the required ones and the defaults of the others."""
    check_spark_settings(given)
    return {**_values(DEFAULTS), **given, **_values(REQUIRED)}


def required_values() -> dict[str, str]:
    """Return the required settings."""
    return _values(REQUIRED)


def _values(settings: Mapping[str, SparkSetting]) -> dict[str, str]:
    return {name: one.value for name, one in settings.items()}
