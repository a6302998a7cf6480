"""A certificate authority for all tests, a shared edge, and edges for single tests."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Final

import pytest

from live.mqtt.brokers import OPEN_RULE
from live.udp.edges import EDGE_NAME, MakeUdpEdge, UdpEdge, edge_in
from live.udp.local_authority import LocalAuthority
from live.udp.networks import MakeNetwork, networks

NUMBERS: Final = count(1)
ALERTS: Final = '[[rules.alert]]\ntopic = "Emergency"\n[[access.rules]]\nallow = false\naction = "both"\ntopics = "secret/#"\n'


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> LocalAuthority:
    return LocalAuthority.open(tmp_path_factory.mktemp("udp-office"))


@pytest.fixture(scope="session")
def shared_edge(tmp_path_factory: pytest.TempPathFactory, authority: LocalAuthority) -> Iterator[UdpEdge]:
    edge = edge_in(tmp_path_factory.mktemp("udp-edge"), authority, more=ALERTS + OPEN_RULE)
    yield edge
    edge.end()


@pytest.fixture
def edge(shared_edge: UdpEdge) -> Iterator[UdpEdge]:
    """Return the shared edge; it must survive each test without a fault."""
    if not shared_edge.is_alive():
        shared_edge.start()
    yield shared_edge
    assert shared_edge.is_alive(), shared_edge.log()[-3000:]
    assert shared_edge.faults() == [], shared_edge.log()[-5000:]


@pytest.fixture
def make_edge(tmp_path: Path, authority: LocalAuthority) -> Iterator[MakeUdpEdge]:
    made: list[UdpEdge] = []

    def make(
        *,
        udp: str = "",
        more: str = "",
        name: str = EDGE_NAME,
        coverage: str = "",
        is_sealed: bool = True,
        host: str = "127.0.0.1",
        is_started: bool = True,
    ) -> UdpEdge:
        folder = tmp_path / f"edge-{len(made)}"
        folder.mkdir()
        trusted = authority if is_sealed else None
        made.append(edge_in(folder, trusted, udp=udp, more=more, name=name, coverage=coverage, host=host))
        if is_started:
            made[-1].start()
        return made[-1]

    yield make
    for one in made:
        one.end()
        assert one.faults() == [], one.log()[-5000:]


@pytest.fixture
def name() -> str:
    """Return a name that no other test uses, for topics and endpoints."""
    return f"u{next(NUMBERS)}"


@pytest.fixture
def make_network() -> Iterator[MakeNetwork]:
    """Create network namespaces that are removed when the test ends."""
    with networks() as make:
        yield make
