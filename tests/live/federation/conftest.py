"""A deployment that most tests share, deployments of single tests, and pools of clients."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Final

import pytest

from live.federation.client_pool import ClientPool, client_pool
from live.federation.deployment import Deployment, deployment_in

NUMBERS: Final = count(1)
HANDOVER_TIMEOUT_S: Final = 4.0
"""Maximum wait of a client for its session."""


@pytest.fixture(scope="session")
def shared_deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """north: n1, n2; south: s1; and the central hub."""
    with deployment_in(tmp_path_factory.mktemp("town")) as deployment:
        for site, edges in (("north", ("n1", "n2")), ("south", ("s1",))):
            deployment.add_site(site)
            for name in edges:
                deployment.add_edge(site, name, limits=f"handover_timeout_s = {HANDOVER_TIMEOUT_S}", starts=False)
        deployment.add_hub(starts=False)
        yield deployment


@pytest.fixture
def deployment(shared_deployment: Deployment) -> Iterator[Deployment]:
    """The deployment that tests share; processes that a test has stopped are restarted for the next."""
    shared_deployment.repair()
    before = len(shared_deployment.faults())
    yield shared_deployment
    assert shared_deployment.faults()[before:] == []


@pytest.fixture
def own_deployment(tmp_path: Path) -> Iterator[Deployment]:
    """An empty deployment for one test."""
    with deployment_in(tmp_path) as deployment:
        yield deployment
        assert deployment.faults() == []


@pytest.fixture(name="pool")
def pool_of_a_test() -> Iterator[ClientPool]:
    with client_pool() as made:
        yield made


@pytest.fixture
def name() -> str:
    """A name that no other test uses, for topics and endpoints."""
    return f"h{next(NUMBERS)}"
