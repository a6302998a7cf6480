"""The Spark session that all pipelines of a process share.

What must hold: results do not depend on where Spark runs. Time is UTC, numbers that cannot be read are nothing and not a fault,
and state that streams keep is in RocksDB with a changelog, so that it may be larger than memory and is written in small pieces.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

SHUFFLE_PARTITIONS: Final = 2
"""Of a laptop: more would only wait for each other."""

_ROCKSDB: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

SETTINGS: Final[Mapping[str, str]] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.streaming.stateStore.providerClass": _ROCKSDB,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.stateStore.rocksdb.boundedMemoryUsage": "true",
    "spark.sql.streaming.stateStore.rocksdb.maxMemoryUsageMB": "256",
    "spark.sql.streaming.minBatchesToRetain": "20",
    "spark.sql.streaming.numRecentProgressUpdates": "4",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "100000",
    "spark.driver.extraJavaOptions": "-Xss4m",
    "spark.log.level": "ERROR",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
"""What the results depend on: the same everywhere."""


def open_session(
    name: str, *, master: str | None = None, jars: Sequence[Path] = (), settings: Mapping[str, str] | None = None
) -> SparkSession:
    """The session; without a master it is the one that `spark-submit` was told of."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name)
    if master is not None:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        builder = builder.master(master)
        builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
        builder = builder.config("spark.sql.shuffle.partitions", str(SHUFFLE_PARTITIONS))
    if jars:
        builder = builder.config("spark.jars", ",".join(map(str, jars)))
    for key, value in (*SETTINGS.items(), *(settings or {}).items()):
        builder = builder.config(key, value)
    return builder.getOrCreate()
