"""Development servers: the parts that run without Java."""

import struct
from pathlib import Path

import pytest

from milepost.cli.main import main
from milepost.config.errors import StartFault, UsageFault, missing_java
from milepost.runtime.services import jars, ports
from milepost.runtime.services.jars import cache_folder, class_path
from milepost.runtime.services.kafka import Kafka, brokers_in, checked
from milepost.runtime.services.zookeeper import ZooKeeper


def answer(*brokers: tuple[int, str, str | None]) -> bytes:
    """Return a metadata response with node, host and rack of each broker."""
    parts = [struct.pack(">iii", 1, 0, len(brokers))]
    for node, host, rack in brokers:
        text = struct.pack(">h", -1) if rack is None else struct.pack(">h", len(rack)) + rack.encode()
        parts.append(struct.pack(">ih", node, len(host)) + host.encode() + struct.pack(">i", 9092) + text)
    return b"".join(parts)


def test_broker_ids_are_parsed_from_a_metadata_response() -> None:
    assert brokers_in(answer((1, "127.0.0.1", None), (7, "localhost", "rack"), (3, "", None))) == {1, 3, 7}
    assert brokers_in(answer()) == set()


@pytest.mark.parametrize("length", range(12, len(answer((1, "127.0.0.1", None), (7, "localhost", "r"))) - 2))
def test_a_truncated_metadata_response_is_refused(length: int) -> None:
    whole = answer((1, "127.0.0.1", None), (7, "localhost", "r"))
    with pytest.raises(OSError, match="ends too early"):
        brokers_in(whole[:length])


@pytest.mark.parametrize("brokers", [0, 2, 4, -1])
def test_an_unsupported_number_of_brokers_is_refused(brokers: int) -> None:
    with pytest.raises(UsageFault, match=f"{brokers} brokers: choose 1 or 3"):
        checked(brokers)


def test_free_ports_are_different_and_below_those_of_outgoing_connections() -> None:
    found = ports.free_ports(6)
    assert len(set(found)) == 6
    assert all(port < 32_768 and ports.is_free(port) for port in found)


def test_the_cache_folder_follows_the_xdg_convention(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "milepost" / "servers"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "ada"))
    assert cache_folder() == tmp_path / "ada" / ".cache" / "milepost" / "servers"


def test_cached_jars_are_not_downloaded_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "milepost" / "servers" / f"kafka-{Kafka.JARS.version}").mkdir(parents=True)
    lines: list[str] = []
    assert class_path(Kafka.JARS, "/no/java", lines.append) == f"{tmp_path}/milepost/servers/kafka-{Kafka.JARS.version}/*"
    assert lines == []


def test_without_a_download_tool_the_fault_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(jars, "_maybe_ivy", lambda: None)
    with pytest.raises(StartFault, match=r"without Maven \(mvn\) needs the extra 'spark'"):
        class_path(ZooKeeper.JARS, "/no/java", lambda _: None)


@pytest.mark.parametrize(("status", "fault"), [(1, "could not be downloaded"), (0, "but not zookeeper-3.9.5.jar")])
def test_a_failed_or_incomplete_download_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, status: int, fault: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    java = tmp_path / "java"
    java.write_text(f'#!/bin/sh\nmkdir "$(dirname "$4")/jars"\necho "no network here"\nexit {status}\n')
    java.chmod(0o700)
    monkeypatch.setattr(jars, "_maybe_ivy", lambda: Path("ivy.jar"))
    with pytest.raises(StartFault, match=fault):
        class_path(ZooKeeper.JARS, str(java), lambda _: None)
    assert list((tmp_path / "cache" / "milepost" / "servers").iterdir()) == []


def test_the_last_lines_of_a_failed_download_are_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(jars, "_maybe_ivy", lambda: Path("ivy.jar"))
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\necho the registry is on strike\nexit 1\n")
    java.chmod(0o700)
    with pytest.raises(StartFault, match=r"is there a network(.|\n)*the registry is on strike"):
        class_path(ZooKeeper.JARS, str(java), lambda _: None)


HINT = "install it (on Debian: apt-get install openjdk-17-jre-headless), or set JAVA_HOME"


@pytest.mark.parametrize(
    ("script", "found"),
    [
        (None, "there is no java in PATH"),
        ("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n", "/java is Java 11"),
        ("#!/no/such/interpreter\n", "/java does not run ("),
    ],
)
def test_a_java_that_is_missing_old_or_broken_gives_one_hint(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str | None, found: str
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    if script is not None:
        (tmp_path / "java").write_text(script)
        (tmp_path / "java").chmod(0o700)
    with pytest.raises(StartFault) as caught:
        jars.find_java()
    assert str(caught.value).startswith("Kafka, ZooKeeper and Spark need Java 17 or newer, but ")
    assert found in str(caught.value)
    assert str(caught.value).endswith(HINT)


@pytest.mark.parametrize(
    "typed", [("pipeline", "archive", "compact", "--archive", "."), ("services", "start", "zookeeper", "--folder", ".")]
)
def test_spark_and_the_servers_give_the_same_hint_about_java(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], typed: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(list(typed)) == 1
    assert capsys.readouterr().err == f"milepost: {missing_java('there is no java in PATH')}\n"


def test_a_service_keeps_its_ports(tmp_path: Path) -> None:
    made = Kafka.open_in(tmp_path, servers=3, port=None)
    found = Kafka.open_in(tmp_path, servers=None, port=None)
    assert found.ports == made.ports
    assert found.address == made.address
    assert found.address.count(",") == 2
    assert found.running() == []


def test_given_ports_count_up_from_the_first(tmp_path: Path) -> None:
    first = next(port for port in ports.free_ports(20) if all(ports.is_free(port + step) for step in range(3)))
    made = Kafka.open_in(tmp_path, servers=3, port=first)
    assert [of_one[0] for of_one in made.ports] == [first, first + 1, first + 2]


def test_another_number_of_servers_or_another_port_needs_another_folder(tmp_path: Path) -> None:
    made = Kafka.open_in(tmp_path, servers=1, port=None)
    with pytest.raises(UsageFault, match=r"has a kafka with 1 server\(s\), not 3"):
        Kafka.open_in(tmp_path, servers=3, port=None)
    with pytest.raises(UsageFault, match=f"has a kafka with port {made.ports[0][0]}, not 1"):
        Kafka.open_in(tmp_path, servers=None, port=1)


@pytest.mark.parametrize(
    ("typed", "complaint"),
    [
        (["start", "cassandra"], "there is no service 'cassandra': choose kafka or zookeeper"),
        (["start", "kafka=many"], "'many' is not a port"),
        (["start", "kafka=0"], "'0' is not a port"),
        (["start", "kafka=65536"], "'65536' is not a port"),
        (["start", "kafka", "--brokers", "2"], "2 brokers: choose 1 or 3"),
        (["stop", "cassandra"], "there is no service 'cassandra'"),
    ],
)
def test_a_wrong_services_command_is_one_line_and_status_2(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, typed: list[str], complaint: str
) -> None:
    assert main(["services", *typed, "--folder", str(tmp_path)]) == 2
    output = capsys.readouterr().err
    assert complaint in output
    assert output.count("\n") == 1


def test_a_folder_that_cannot_be_created_is_reported(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert main(["services", "start", "kafka", "--folder", str(tmp_path / "file" / "folder")]) == 1
    assert "cannot be created: Not a directory; use another (--folder)" in capsys.readouterr().err


def test_a_damaged_state_file_is_reported(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "kafka").mkdir()
    for damaged in ("{", "[]", "{}"):
        (tmp_path / "kafka" / "service.json").write_text(damaged)
        assert main(["services", "status", "--folder", str(tmp_path)]) == 2
        assert "service.json is damaged: remove" in capsys.readouterr().err


def test_status_and_stop_without_services(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["services", "status", "--folder", str(tmp_path)]) == 0
    assert main(["services", "status", "--json", "--folder", str(tmp_path)]) == 0
    assert main(["services", "stop", "--folder", str(tmp_path)]) == 0
    assert main(["services", "stop", "kafka", "--folder", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"no services have been started in {tmp_path}\n{{}}\nkafka is not running\n"
