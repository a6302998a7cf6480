"""Real development servers: started, queried, killed and stopped, without touching other processes."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from milepost.cli.main import main
from milepost.config.errors import StartFault
from milepost.runtime.services import processes
from milepost.runtime.services.kafka import Kafka, live_brokers
from milepost.runtime.services.zookeeper import ZooKeeper, running_zookeeper

STUBBORN = ["/bin/sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.05; done"]


def wait_until(is_so: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < until, f"never: {what}"
        time.sleep(0.02)


def is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def test_a_process_ends_on_sigterm(tmp_path: Path) -> None:
    processes.launch(tmp_path, ["/bin/sleep", "60"])
    pid = processes.find_pid(tmp_path)
    assert pid is not None
    assert processes.terminate([tmp_path]) == []
    assert processes.find_pid(tmp_path) is None
    assert not is_there(pid)


def test_a_process_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    processes.launch(tmp_path, STUBBORN)
    wait_until(lambda: processes.last_lines(tmp_path, 1) == ["up"], "it does not listen to SIGTERM now")
    assert processes.terminate([tmp_path], timeout_s=0.3) == [tmp_path]
    assert processes.find_pid(tmp_path) is None


def test_a_paused_process_is_ended(tmp_path: Path) -> None:
    processes.launch(tmp_path, ["/bin/sleep", "60"])
    processes.send(tmp_path, signal.SIGSTOP)
    assert processes.terminate([tmp_path]) == []


@pytest.mark.parametrize("changed", [{"tick": 1}, {"boot": "another"}])
def test_a_reused_process_id_is_not_signalled(tmp_path: Path, changed: dict[str, object]) -> None:
    with subprocess.Popen(["/bin/sleep", "60"]) as other:
        processes.launch(tmp_path, ["/bin/sleep", "0"])
        wait_until(lambda: processes.find_pid(tmp_path) is None, "ours has ended")
        note = tmp_path / "process.json"
        tick = int(Path(f"/proc/{other.pid}/stat").read_text().rpartition(")")[2].split()[19])
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        note.write_text(json.dumps({"pid": other.pid, "tick": tick, "boot": boot}))
        assert processes.find_pid(tmp_path) == other.pid, "the note would do otherwise"
        note.write_text(json.dumps({"pid": other.pid, "tick": tick, "boot": boot, **changed}))
        assert processes.find_pid(tmp_path) is None
        processes.terminate([tmp_path])
        processes.kill([tmp_path])
        assert other.poll() is None
        other.kill()


def test_kafka_and_zookeeper_are_started_shown_and_stopped(
    need_java: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = ["--folder", str(tmp_path)]
    try:
        assert main(["services", "start", "kafka", "zookeeper", *folder]) == 0
        table = capsys.readouterr().out.splitlines()
        assert [line.split()[:3] for line in table[1:]] == [["kafka", "4.3.1", "serving"], ["zookeeper", "3.9.5", "serving"]]

        assert main(["services", "status", "--json", *folder]) == 0
        found = json.loads(capsys.readouterr().out)
        kafka_pid = found["kafka"]["pids"]["1"]
        host, _, port = found["kafka"]["address"].partition(":")
        assert live_brokers(host, int(port)) == {1}
        client = KazooClient(found["zookeeper"]["address"])
        client.start(timeout=10)
        assert client.exists("/zookeeper")
        client.stop()
        client.close()

        assert main(["services", "start", "kafka", *folder]) == 0
        assert f"kafka is running already: {found['kafka']['address']}" in capsys.readouterr().err
        assert main(["services", "status", "--json", *folder]) == 0
        assert json.loads(capsys.readouterr().out) == found

        assert main(["services", "stop", "kafka", *folder]) == 0
        assert capsys.readouterr().out == "kafka is stopped\n"
        assert not is_there(kafka_pid)
        assert main(["services", "status", *folder]) == 0
        states = [line.split()[2] for line in capsys.readouterr().out.splitlines()[1:]]
        assert states == ["stopped", "serving"]
    finally:
        assert main(["services", "stop", *folder]) == 0
    assert "zookeeper is stopped" in capsys.readouterr().out


def test_a_service_that_hangs_is_shown_as_not_serving(need_java: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with running_zookeeper(tmp_path / "zookeeper") as zookeeper:
        zookeeper.pause()
        assert main(["services", "status", "--folder", str(tmp_path)]) == 1
        assert "not serving" in capsys.readouterr().out
        zookeeper.resume()
        assert main(["services", "status", "--folder", str(tmp_path)]) == 0


def test_data_and_address_are_the_same_after_a_stop_and_a_start(need_java: str, tmp_path: Path) -> None:
    address = ""
    for turn in range(2):
        with running_zookeeper(tmp_path) as zookeeper:
            assert zookeeper.address == address or turn == 0
            address = zookeeper.address
            client = KazooClient(address)
            client.start(timeout=10)
            if turn == 0:
                client.create("/kept", b"value")
            assert client.get("/kept")[0] == b"value"
            client.stop()
            client.close()


def test_a_start_that_fails_shows_the_end_of_the_log_and_leaves_nothing_running(need_java: str, tmp_path: Path) -> None:
    zookeeper = ZooKeeper.open_in(tmp_path, servers=1, port=None)
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "data").write_text("a file where a folder should be")
    with pytest.raises(
        StartFault, match=r"zookeeper exited at once(.|\n)*remove .* and start again(.|\n)*Unable to create data directory"
    ):
        zookeeper.start()
    assert zookeeper.running() == []


def test_a_port_in_use_is_reported_before_anything_starts(tmp_path: Path) -> None:
    kafka = Kafka.open_in(tmp_path / "one", servers=1, port=None)
    port = kafka.ports[0][0]
    with socket.create_server(("127.0.0.1", port)):
        with pytest.raises(StartFault, match=f"kafka cannot listen at 127.0.0.1:{port}, which is in use"):
            kafka.start()
        with pytest.raises(StartFault, match="which is in use"):
            Kafka.open_in(tmp_path / "other", servers=1, port=port)
    assert kafka.running() == []
    assert Kafka.find_in(tmp_path / "other") is None


RUNS = """
import sys, time
from pathlib import Path
from milepost.runtime.services.zookeeper import running_zookeeper
with running_zookeeper(Path(sys.argv[1])) as zookeeper:
    print(zookeeper.find_pid(1), flush=True)
    time.sleep(600)
"""


def test_servers_of_a_program_end_with_it_however_it_ends(need_java: str, tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", RUNS, str(tmp_path)], stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        pid = int(program.stdout.readline())
        assert is_there(pid)
        os.kill(program.pid, signal.SIGKILL)
    wait_until(lambda: not is_there(pid), "the server is gone")


def test_three_brokers_are_one_cluster_and_serve_without_one(need_java: str, tmp_path: Path) -> None:
    kafka = Kafka.open_in(tmp_path, servers=3, port=None)
    try:
        kafka.start()
        ports = [port for port, _ in kafka.ports]
        assert [live_brokers("127.0.0.1", port) for port in ports] == [{1, 2, 3}] * 3
        kafka.kill(2)
        assert kafka.running() == [1, 3]
        wait_until(lambda: live_brokers("127.0.0.1", ports[0]) == {1, 3}, "the others notice")
        kafka.start(2)
        assert live_brokers("127.0.0.1", ports[1]) == {1, 2, 3}
    finally:
        kafka.stop()
    assert kafka.running() == []


def test_a_cluster_id_may_begin_with_a_hyphen(need_java: str, tmp_path: Path) -> None:
    """One random id in 64 begins with a hyphen."""
    kafka = Kafka.open_in(tmp_path, servers=1, port=None)
    (kafka.folder / "cluster").write_text("-" + "A" * 21)
    try:
        kafka.start()
        assert kafka.running() == [1]
    finally:
        kafka.stop()
