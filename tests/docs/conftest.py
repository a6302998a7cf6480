"""Fixtures: readers that follow a page in a network namespace of their own."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.follower import Follower, following
from docs.pages import ROOT
from live.udp.networks import networks
from milepost.runtime.services.jars import downloaded_folder
from milepost.runtime.services.kafka import Kafka
from parts import need


@pytest.fixture(scope="session")
def fetched(need_java: str, spark_jars: list[Path]) -> None:
    """Download the parts of the services that pages start, before a test enters a network without internet access."""
    downloaded_folder(Kafka.JARS, need_java, print)


@pytest.fixture(scope="session")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy the repository to a folder of its own, with the environment of `make edge`."""
    folder = tmp_path_factory.mktemp("clone")
    command = ["git", "ls-files", "-z"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0")
    for name in names:
        if name and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    subprocess.run(["make", ".venv-edge/synced"], cwd=folder, check=True, capture_output=True, timeout=500)
    return folder


@pytest.fixture
def newcomer(clone: Path) -> Iterator[Follower]:
    """Yield a reader with a fresh clone, whose PATH contains no Python environment."""
    need("mosquitto_pub", debian="mosquitto-clients")
    need("stdbuf", debian="coreutils")
    mine = str(Path(sys.executable).parent)
    path = ":".join(one for one in os.environ["PATH"].split(":") if one != mine)
    with networks() as make, make().inside(), following(clone, path) as follower:
        yield follower


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Follower]:
    """Yield a reader with a network of its own."""
    need("mosquitto_pub", debian="mosquitto-clients")
    need("stdbuf", debian="coreutils")
    with networks() as make, make().inside(), following(tmp_path) as follower:
        yield follower
