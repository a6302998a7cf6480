"""The choice of Spark's Kafka connector."""

from importlib.metadata import version
from pathlib import Path

import pytest

from milepost.config.errors import StartFault
from milepost.runtime.services import jars
from milepost.runtime.services.jars import KNOWN_CONNECTORS, kafka_jars

EXACT = version("pyspark")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a download tool that always fails."""
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


def test_the_connector_of_sparks_version_is_preferred(cache: Path) -> None:
    have(cache, KNOWN_CONNECTORS[0][0])
    own = have(cache, EXACT)
    assert kafka_jars() == [own]


def test_a_tested_connector_is_the_fallback(cache: Path) -> None:
    known, lines = have(cache, KNOWN_CONNECTORS[0][0]), list[str]()
    assert kafka_jars(progress=lines.append) == [known]
    assert lines == [f"Spark's Kafka connector is {KNOWN_CONNECTORS[0][0]}"]


def test_a_configured_connector_version_has_no_fallback(cache: Path) -> None:
    have(cache, EXACT)
    with pytest.raises(StartFault, match="could not be downloaded"):
        kafka_jars(version="1.2.3")


def test_all_connectors_are_tried_before_it_fails(cache: Path) -> None:
    lines: list[str] = []
    with pytest.raises(StartFault, match=rf"spark-kafka {KNOWN_CONNECTORS[-1][0]} could not be downloaded"):
        kafka_jars(progress=lines.append)
    assert any(f"no connector {EXACT}" in line for line in lines)


def test_complete_coordinates_exclude_transitive_dependencies() -> None:
    alone = jars.Jars("x", "1", ("a:b:1",), are_all=True)
    assert 'conf="server->master"' in jars._ivy_file(alone)
    assert 'conf="server->default"' in jars._ivy_file(jars.Jars("x", "1", ("a:b:1",)))
