"""The Spark session that all pipelines of a process share.

Invariants: results do not depend on where Spark runs. Time is UTC, unreadable numbers are null and not an error (no ANSI mode),
and streaming state is in RocksDB with changelog checkpoints, so that it may exceed memory and is written in small increments.
"""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

SPARK_ENDED: Final = (Py4JError, ConnectionError)
"""Exceptions of any call after Spark's process has ended."""

SHUFFLE_PARTITIONS: Final = 2
"""Shuffle partitions in local mode: more would only wait for each other on a laptop."""

_LOG_TAIL_LINES: Final = 4

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
"""Settings on which results depend: the same everywhere."""


class SparkDoesNotStart(Exception):
    """Spark failed to start; the message has the last lines of its output."""


def open_session(
    name: str,
    *,
    master: str | None = None,
    jars: Sequence[Path] = (),
    settings: Mapping[str, str] | None = None,
    log_file: Path | None = None,
) -> SparkSession:
    """Return the session; without *master*, that of `spark-submit` is used. Spark's output goes to *log_file*."""
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
    if log_file is None:
        return builder.getOrCreate()
    try:
        with _redirect_output(log_file):
            return builder.getOrCreate()
    except PySparkRuntimeError as fault:
        last = " ".join(log_file.read_text(errors="replace").split("\n")[-_LOG_TAIL_LINES:]).strip()
        raise SparkDoesNotStart(f"Spark does not start: {last or fault}") from None


@contextmanager
def _redirect_output(path: Path) -> Iterator[None]:
    """Redirect the output of processes started inside the block to a file, for their whole life."""
    with path.open("wb") as output:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        saved = {number: os.dup(number) for number in (1, 2)}
        try:
            for number in saved:
                os.dup2(output.fileno(), number)
            yield
        finally:
            for number, copy in saved.items():
                os.dup2(copy, number)
                os.close(copy)
