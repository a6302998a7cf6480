"""Who follows pages."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.following import Follower, following
from live.udp.networks import networks
from milepost.service.services.jars import fetched_folder
from milepost.service.services.kafka import Kafka
from parts import need


@pytest.fixture(scope="session")
def fetched(need_java: str, spark_jars: list[Path]) -> None:
    """What pages start has parts that are fetched, once: before anybody is in a network without a way out."""
    fetched_folder(Kafka.JARS, need_java, print)


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Follower]:
    """Somebody with a machine of one's own, as far as the network goes."""
    need("mosquitto_pub", debian="mosquitto-clients")
    need("stdbuf", debian="coreutils")
    with networks() as make, make().inside(), following(tmp_path) as follower:
        yield follower
