"""Fixtures for a real Kafka and a real ZooKeeper: started on first use, one each for the whole run, stopped at its end.

All tests share them: use your own topics (a prefix) and paths, and leave the servers as they were. A test that breaks a server
starts its own with `running_kafka`, after `need_java`.
"""

from collections.abc import Iterator
from importlib.util import find_spec

import pytest

import parts
from milepost.runtime.services.kafka import Kafka, running_kafka
from milepost.runtime.services.zookeeper import ZooKeeper, running_zookeeper


@pytest.fixture(scope="session")
def kafka(need_java: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """A Kafka of one broker."""
    with running_kafka(tmp_path_factory.mktemp("kafka")) as service:
        yield service


@pytest.fixture(scope="session")
def zookeeper(need_java: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    """A ZooKeeper of one server."""
    with running_zookeeper(tmp_path_factory.mktemp("zookeeper")) as service:
        yield service


@pytest.fixture(scope="session")
def need_java() -> str:
    """Skip the test if Java, PySpark or a client library is missing: the servers need them."""
    for name in ("confluent_kafka", "kazoo", "pyspark"):
        if find_spec(name) is None:
            pytest.skip(f"{name} is not installed; fix: .venv/bin/uv sync --frozen --all-groups")
    return parts.need("java", debian="openjdk-17-jre-headless")
