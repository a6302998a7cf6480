"""Servers for development: the parts that need none of them."""

import struct
from pathlib import Path

import pytest

from milepost.cli.main import main
from milepost.config.errors import StartFault, UsageFault
from milepost.runtime.services import jars, ports
from milepost.runtime.services.jars import cache_folder, class_path
from milepost.runtime.services.kafka import Kafka, brokers_in, checked
from milepost.runtime.services.zookeeper import ZooKeeper


def answer(*brokers: tuple[int, str, str | None]) -> bytes:
    """What a broker says about brokers: node, host and rack of each."""
    parts = [struct.pack(">iii", 1, 0, len(brokers))]
    for node, host, rack in brokers:
        text = struct.pack(">h", -1) if rack is None else struct.pack(">h", len(rack)) + rack.encode()
        parts.append(struct.pack(">ih", node, len(host)) + host.encode() + struct.pack(">i", 9092) + text)
    return b"".join(parts)


def test_the_brokers_of_an_answer_are_found() -> None:
    assert brokers_in(answer((1, "127.0.0.1", None), (7, "localhost", "rack"), (3, "", None))) == {1, 3, 7}
    assert brokers_in(answer()) == set()


@pytest.mark.parametrize("length", range(12, len(answer((1, "127.0.0.1", None), (7, "localhost", "r"))) - 2))
def test_an_answer_that_ends_too_early_is_none(length: int) -> None:
    whole = answer((1, "127.0.0.1", None), (7, "localhost", "r"))
    with pytest.raises(OSError, match="ends too early"):
        brokers_in(whole[:length])


@pytest.mark.parametrize("brokers", [0, 2, 4, -1])
def test_a_number_of_brokers_that_makes_no_sense_is_refused(brokers: int) -> None:
    with pytest.raises(UsageFault, match=f"{brokers} brokers: take 1 or 3"):
        checked(brokers)


def test_free_ports_are_different_and_below_those_of_outgoing_connections() -> None:
    found = ports.free_ports(6)
    assert len(set(found)) == 6
    assert all(port < 32_768 and ports.is_free(port) for port in found)


def test_the_cache_is_where_the_user_keeps_caches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "milepost" / "servers"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "ada"))
    assert cache_folder() == tmp_path / "ada" / ".cache" / "milepost" / "servers"


def test_what_is_in_the_cache_is_not_fetched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "milepost" / "servers" / f"kafka-{Kafka.JARS.version}").mkdir(parents=True)
    told: list[str] = []
    assert class_path(Kafka.JARS, "/no/java", told.append) == f"{tmp_path}/milepost/servers/kafka-{Kafka.JARS.version}/*"
    assert told == []


def test_without_a_tool_to_fetch_jars_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(jars, "_maybe_ivy", lambda: None)
    with pytest.raises(StartFault, match=r"without Maven \(mvn\) needs the extra 'spark'"):
        class_path(ZooKeeper.JARS, "/no/java", lambda _: None)


@pytest.mark.parametrize(("status", "fault"), [(1, "could not be fetched"), (0, "but not zookeeper-3.9.5.jar")])
def test_a_fetch_that_fails_or_is_not_whole_leaves_nothing(
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


def test_the_last_words_of_a_fetch_that_failed_are_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(jars, "_maybe_ivy", lambda: Path("ivy.jar"))
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\necho the registry is on strike\nexit 1\n")
    java.chmod(0o700)
    with pytest.raises(StartFault, match=r"is there a network(.|\n)*the registry is on strike"):
        class_path(ZooKeeper.JARS, str(java), lambda _: None)


def test_a_service_is_found_again_with_its_ports(tmp_path: Path) -> None:
    made = Kafka.made_in(tmp_path, servers=3, port=None)
    found = Kafka.made_in(tmp_path, servers=None, port=None)
    assert found.ports == made.ports
    assert found.address == made.address
    assert found.address.count(",") == 2
    assert found.running() == []


def test_ports_of_ones_own_count_up_from_the_first(tmp_path: Path) -> None:
    first = next(port for port in ports.free_ports(20) if all(ports.is_free(port + step) for step in range(3)))
    made = Kafka.made_in(tmp_path, servers=3, port=first)
    assert [of_one[0] for of_one in made.ports] == [first, first + 1, first + 2]


def test_another_number_of_servers_or_another_port_needs_another_folder(tmp_path: Path) -> None:
    made = Kafka.made_in(tmp_path, servers=1, port=None)
    with pytest.raises(UsageFault, match=r"holds a kafka of 1 server\(s\), not 3"):
        Kafka.made_in(tmp_path, servers=3, port=None)
    with pytest.raises(UsageFault, match=f"holds a kafka of port {made.ports[0][0]}, not 1"):
        Kafka.made_in(tmp_path, servers=None, port=1)


@pytest.mark.parametrize(
    ("typed", "complaint"),
    [
        (["start", "cassandra"], "there is no service 'cassandra': take kafka or zookeeper"),
        (["start", "kafka=many"], "'many' is no port"),
        (["start", "kafka=0"], "'0' is no port"),
        (["start", "kafka=65536"], "'65536' is no port"),
        (["start", "kafka", "--brokers", "2"], "2 brokers: take 1 or 3"),
        (["stop", "cassandra"], "there is no service 'cassandra'"),
    ],
)
def test_a_wrong_command_line_is_told_in_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, typed: list[str], complaint: str
) -> None:
    assert main(["services", *typed, "--folder", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert complaint in said
    assert said.count("\n") == 1


def test_a_folder_that_cannot_be_made_is_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert main(["services", "start", "kafka", "--folder", str(tmp_path / "file" / "folder")]) == 1
    assert "cannot be made: Not a directory; take another (--folder)" in capsys.readouterr().err


def test_a_damaged_note_is_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "kafka").mkdir()
    for damaged in ("{", "[]", "{}"):
        (tmp_path / "kafka" / "service.json").write_text(damaged)
        assert main(["services", "status", "--folder", str(tmp_path)]) == 2
        assert "service.json is damaged: remove" in capsys.readouterr().err


def test_where_nothing_was_started_it_says_so(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["services", "status", "--folder", str(tmp_path)]) == 0
    assert main(["services", "status", "--json", "--folder", str(tmp_path)]) == 0
    assert main(["services", "stop", "--folder", str(tmp_path)]) == 0
    assert main(["services", "stop", "kafka", "--folder", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"nothing was started in {tmp_path}\n{{}}\nkafka does not run\n"
