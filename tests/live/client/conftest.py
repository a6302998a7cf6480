"""The broker under the client: a Milepost edge, and Mosquitto where a test requests both."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Final

import pytest

from live.client.deadline import MakeEdge
from live.mqtt import brokers
from live.mqtt.brokers import OPEN_RULE, Broker, Setup
from live.mqtt.certificates import Certificates, make_certificates

NUMBERS: Final = count(1)


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("client-certificates") / "made")


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[Broker]:
    """A Milepost edge, over every transport."""
    more = f"[vetting]\nmove_mps_max = 0\n{OPEN_RULE}"  # tests report positions far apart
    broker = Broker(Setup(tmp_path_factory.mktemp("client-edge"), certificates=certificates, more=more))
    broker.start()
    yield broker
    broker.end()
    assert broker.faults() == [], broker.log()[-5000:]


@pytest.fixture(scope="session")
def mosquitto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    broker = Broker(Setup(tmp_path_factory.mktemp("client-mosquitto")))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(brokers, "IS_REFERENCE", True)
        broker.start()
    yield broker
    broker.end()


@pytest.fixture(params=["milepost", "mosquitto"])
def either(request: pytest.FixtureRequest) -> Broker:
    """Run the test on both brokers."""
    found: Broker = request.getfixturevalue("broker" if request.param == "milepost" else "mosquitto")
    return found


@pytest.fixture
def make_edge(tmp_path: Path) -> Iterator[MakeEdge]:
    """Start an edge for this test, with additional settings."""
    made: list[Broker] = []

    def make(*, more: str = "", users: dict[str, str] | None = None, is_reference: bool = False) -> Broker:
        folder = tmp_path / f"edge-{len(made)}"
        folder.mkdir()
        made.append(Broker(Setup(folder, more=more, users=users)))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(brokers, "IS_REFERENCE", is_reference)
            made[-1].start()
        return made[-1]

    yield make
    for one in made:
        one.end()
        assert one.faults() == [], one.log()[-5000:]


@pytest.fixture
def name() -> str:
    """A name unique to this test, for topics and client identifiers."""
    return f"c{next(NUMBERS)}"
