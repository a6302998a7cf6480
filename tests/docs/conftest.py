"""Who follows pages."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.following import Follower, following
from docs.pages import ROOT
from live.udp.networks import networks
from milepost.runtime.services.jars import fetched_folder
from milepost.runtime.services.kafka import Kafka
from parts import need


@pytest.fixture(scope="session")
def fetched(need_java: str, spark_jars: list[Path]) -> None:
    """What pages start has parts that are fetched, once: before anybody is in a network without a way out."""
    fetched_folder(Kafka.JARS, need_java, print)


@pytest.fixture(scope="session")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the repository in a folder of their own, with the environment of `make edge`, which is fetched."""
    folder = tmp_path_factory.mktemp("clone")
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0")
    for name in names:
        if name and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    subprocess.run(["make", ".venv-edge/synced"], cwd=folder, check=True, capture_output=True, timeout=500)
    return folder


@pytest.fixture
def newcomer(clone: Path) -> Iterator[Follower]:
    """A user of a fresh clone, whose PATH has no environment of Python in it."""
    need("mosquitto_pub", debian="mosquitto-clients")
    need("stdbuf", debian="coreutils")
    mine = str(Path(sys.executable).parent)
    path = ":".join(one for one in os.environ["PATH"].split(":") if one != mine)
    with networks() as make, make().inside(), following(clone, path) as follower:
        yield follower


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Follower]:
    """Somebody with a machine of one's own, as far as the network goes."""
    need("mosquitto_pub", debian="mosquitto-clients")
    need("stdbuf", debian="coreutils")
    with networks() as make, make().inside(), following(tmp_path) as follower:
        yield follower
