"""Which of Spark's Kafka connectors is taken."""

from importlib.metadata import version
from pathlib import Path

import pytest

from milepost.config.errors import StartFault
from milepost.runtime.services import jars
from milepost.runtime.services.jars import KNOWN_CONNECTORS, kafka_jars

EXACT = version("pyspark")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a tool that can fetch nothing."""
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\necho 'no such module'\nexit 1\n")
    java.chmod(0o755)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(jars, "find_java", lambda: str(java))
    monkeypatch.setattr(jars, "_maybe_ivy", lambda: Path("ivy.jar"))
    return jars.cache_folder()


def have(cache: Path, connector: str) -> Path:
    folder = cache / f"spark-kafka-{connector}"
    folder.mkdir(parents=True)
    (folder / "a.jar").touch()
    return folder / "a.jar"


def test_the_connector_of_sparks_own_version_comes_first(cache: Path) -> None:
    have(cache, KNOWN_CONNECTORS[0][0])
    own = have(cache, EXACT)
    assert kafka_jars() == [own]


def test_one_that_is_known_to_work_is_taken_where_that_is_not_had(cache: Path) -> None:
    known, told = have(cache, KNOWN_CONNECTORS[0][0]), list[str]()
    assert kafka_jars(told=told.append) == [known]
    assert told == [f"Spark's Kafka connector is {KNOWN_CONNECTORS[0][0]}"]


def test_a_version_that_was_asked_for_is_taken_or_nothing(cache: Path) -> None:
    have(cache, EXACT)
    with pytest.raises(StartFault, match="could not be fetched"):
        kafka_jars(version="1.2.3")


def test_both_are_tried_before_it_is_a_fault(cache: Path) -> None:
    told: list[str] = []
    with pytest.raises(StartFault, match=rf"spark-kafka {KNOWN_CONNECTORS[-1][0]} could not be fetched"):
        kafka_jars(told=told.append)
    assert any(f"no connector {EXACT}" in line for line in told)


def test_jars_that_are_all_there_is_are_taken_alone() -> None:
    alone = jars.Jars("x", "1", ("a:b:1",), are_all=True)
    assert 'conf="server->master"' in jars._ivy_file(alone)
    assert 'conf="server->default"' in jars._ivy_file(jars.Jars("x", "1", ("a:b:1",)))
