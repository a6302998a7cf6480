"""Fixtures of the pipeline tests: a site on each kind of log."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from live.pipelines.logs import SiteLog, embedded_site, kafka_site


@pytest.fixture(params=["embedded", "kafka"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SiteLog]:
    """A site on each kind of log."""
    found = embedded_site(tmp_path / "log") if request.param == "embedded" else kafka_site(request.getfixturevalue("kafka"))
    yield found
    found.log.close()


@pytest.fixture
def on_kafka(request: pytest.FixtureRequest) -> Iterator[SiteLog]:
    """A site on Kafka."""
    found = kafka_site(request.getfixturevalue("kafka"))
    yield found
    found.log.close()
