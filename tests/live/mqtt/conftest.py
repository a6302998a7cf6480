"""The broker under test, and connections to it that are closed when the test ends."""

import resource
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Final, Unpack

import pytest

from live.mqtt.brokers import Broker, Setup
from live.mqtt.certificates import Certificates, make_certificates
from live.mqtt.connections import Connections, ConnectTo, MakeBroker, SetupOptions

NUMBERS: Final = count(1)
OPEN_FILES: Final = 20_000


@pytest.fixture(scope="session")
def open_files() -> int:
    """Raise the limit of open files for this process and its brokers as far as possible; return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, OPEN_FILES), max(hard, OPEN_FILES)))
    except ValueError:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates") / "made")


@pytest.fixture(scope="session")
def shared_broker(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates, open_files: int) -> Iterator[Broker]:
    broker = Broker(Setup(tmp_path_factory.mktemp("broker"), certificates=certificates))
    yield broker
    broker.end()


@pytest.fixture
def broker(shared_broker: Broker) -> Iterator[Broker]:
    """Return the shared broker: every transport, no passwords. It must survive each test without a fault."""
    if not shared_broker.is_alive():
        shared_broker.start()
    before = len(shared_broker.faults())
    yield shared_broker
    assert shared_broker.is_alive(), f"the broker ended:\n{shared_broker.log()[-3000:]}"
    assert shared_broker.faults()[before:] == []


@pytest.fixture
def make_broker(tmp_path: Path, open_files: int) -> Iterator[MakeBroker]:
    """Start a broker for one test, with the fields of `Setup`."""
    made: list[Broker] = []

    def make(**options: Unpack[SetupOptions]) -> Broker:
        folder = tmp_path / f"broker-{len(made)}"
        folder.mkdir()
        made.append(Broker(Setup(folder, **options)))
        made[-1].start()
        return made[-1]

    yield make
    for one in made:
        one.end()
        assert one.faults() == []


@pytest.fixture
def name() -> str:
    """Return a name that no other test uses, for topics and client identifiers."""
    return f"t{next(NUMBERS)}"


@pytest.fixture
def connect_to(name: str) -> Iterator[ConnectTo]:
    """Open connections to a broker of the test."""
    made: list[Connections] = []

    def connect_to(broker: Broker) -> Connections:
        made.append(Connections(broker, name))
        return made[-1]

    yield connect_to
    for one in made:
        one.close()


@pytest.fixture
def connections(broker: Broker, connect_to: ConnectTo) -> Connections:
    """Return connections to the shared broker."""
    return connect_to(broker)
