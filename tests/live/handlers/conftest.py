"""A site with a fake edge for each test: its log in a folder, or on the shared Kafka."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Final

import pytest

from live.handlers.fake_edge import SITE, FakeEdge
from milepost.config.site_settings import LogType, SiteLog
from milepost.runtime.services.kafka import Kafka

PREFIXES: Final = count(1)


@pytest.fixture
def edge(tmp_path: Path) -> Iterator[FakeEdge]:
    fake = FakeEdge(tmp_path, SiteLog(SITE, folder=str(tmp_path / "site")))
    yield fake
    fake.log.close()


@pytest.fixture
def kafka_edge(tmp_path: Path, kafka: Kafka) -> Iterator[FakeEdge]:
    prefix = f"handlers-{next(PREFIXES)}."
    fake = FakeEdge(tmp_path, SiteLog(SITE, LogType.KAFKA, address=kafka.address, prefix=prefix))
    yield fake
    fake.log.close()
