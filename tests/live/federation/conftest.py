"""A town that most tests share, towns of a test's own, and crowds."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Final

import pytest

from live.federation.crowds import Crowd, crowd
from live.federation.town import Town, town_in

NUMBERS: Final = count(1)
HOLD_S: Final = 4.0
"""A client that may have a session at an edge that does not answer waits so long for it."""


@pytest.fixture(scope="session")
def shared_town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    """north: n1, n2; south: s1; and the centre."""
    with town_in(tmp_path_factory.mktemp("town")) as town:
        for site, edges in (("north", ("n1", "n2")), ("south", ("s1",))):
            town.add_site(site)
            for name in edges:
                town.add_edge(site, name, limits=f"hold_s = {HOLD_S}", starts=False)
        town.add_centre(starts=False)
        yield town


@pytest.fixture
def town(shared_town: Town) -> Iterator[Town]:
    """The town that tests share; whatever a test ends is started again for the next."""
    shared_town.repair()
    before = len(shared_town.faults())
    yield shared_town
    assert shared_town.faults()[before:] == []


@pytest.fixture
def own_town(tmp_path: Path) -> Iterator[Town]:
    """An empty town of the test's own."""
    with town_in(tmp_path) as town:
        yield town
        assert town.faults() == []


@pytest.fixture(name="crowd")
def crowd_of_a_test() -> Iterator[Crowd]:
    with crowd() as made:
        yield made


@pytest.fixture
def name() -> str:
    """A word no other test uses: for topics and endpoints."""
    return f"h{next(NUMBERS)}"
