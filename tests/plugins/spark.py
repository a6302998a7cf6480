"""A fixture for one Spark session: started on first use, the only one of the whole run, stopped at its end.

All tests share it: give your views and queries unique names, and stop the queries that you start. A test that needs a separate
process (a driver that is killed, a cluster) starts one.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CORES: Final = 4
"""Parallel tasks: real-time mode needs one for each Kafka partition and each shuffle partition of a query."""


@pytest.fixture(scope="session")
def spark_jars(need_java: str) -> list[Path]:
    """Spark's Kafka connector, fetched once."""
    from milepost.runtime.services.jars import kafka_jars  # noqa: PLC0415  # tests without Spark must not load it

    return kafka_jars(progress=print)


@pytest.fixture(scope="session")
def spark(spark_jars: list[Path], tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    """The session, with the Kafka connector."""
    from milepost.pipelines.spark_session import open_session  # noqa: PLC0415  # as above

    folder = tmp_path_factory.mktemp("spark")
    settings = {
        "spark.driver.memory": "1g",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    session = open_session("tests", master=f"local[{CORES}]", jars=spark_jars, settings=settings)
    yield session
    session.stop()
