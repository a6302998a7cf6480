"""A site in a folder, for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from live.handlers.fake_edge import FakeEdge


@pytest.fixture
def edge(tmp_path: Path) -> Iterator[FakeEdge]:
    fake = FakeEdge(tmp_path)
    yield fake
    fake.log.close()
