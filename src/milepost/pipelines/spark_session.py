"""The Spark session that all pipelines of a process share.

Invariant: results do not depend on where Spark runs, nor on the user's settings of it (`spark_settings`).
"""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from milepost.pipelines.spark_settings import SHUFFLE_PARTITIONS, with_defaults

SPARK_ENDED: Final = (Py4JError, ConnectionError)
"""Exceptions of any call after Spark's process has ended."""

_LOG_TAIL_LINES: Final = 4

_CHECKPOINT_FILES: Final = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"

LOCAL_SETTINGS: Final[Mapping[str, str]] = {
    SHUFFLE_PARTITIONS: "2",  # more would only wait for each other on a laptop
    # Without its native library, Hadoop's local file system starts chmod and readlink as processes, with Spark's default manager
    # five times as many as with this one. Hadoop's own .crc files remain; Spark's checksums would be a second file for each.
    "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINT_FILES,
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
}
"""Settings of local mode, where checkpoints are in a folder of this machine."""


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
    """Return the session; a ValueError refuses *settings* on which results depend, the others win over our defaults.

    Without *master*, that of `spark-submit` is used, and its settings win over all. Spark's output goes to *log_file*.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if master is None:
        found = with_defaults({"spark.app.name": name, **(settings or {}), **_submitted_settings()})
    else:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        found = with_defaults({"spark.app.name": name, **_local_settings(master), **(settings or {})})
    if jars:
        found["spark.jars"] = ",".join([*map(str, jars), *filter(None, [found.get("spark.jars")])])
    builder = SparkSession.builder.config(map={**found})
    if log_file is None:
        return builder.getOrCreate()
    try:
        with _redirect_output(log_file):
            return builder.getOrCreate()
    except PySparkRuntimeError as fault:
        last = " ".join(log_file.read_text(errors="replace").split("\n")[-_LOG_TAIL_LINES:]).strip()
        raise SparkDoesNotStart(f"Spark does not start: {last or fault}") from None


def _local_settings(master: str) -> dict[str, str]:
    return {
        "spark.master": master,
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        **LOCAL_SETTINGS,
    }


def _submitted_settings() -> dict[str, str]:
    """Return the settings of spark-submit: its options, and the file with the defaults of the installation."""
    SparkContext._ensure_initialized()  # without it, SparkConf does not know them
    return dict(SparkConf().getAll())


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
