"""An edge that anyone on the network could use by oversight: it does not start, and says what to do."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from live.mqtt.brokers import free_port
from live.mqtt.certificates import make_certificates
from live.mqtt.connections import MakeBroker
from live.mqtt.raw_client import RawClient
from milepost.wire.mqtt import Code
from parts import ROOT

START_S = 60.0
OPEN = "127.1:0"
"""Loopback for the system, but not an address that the check knows as such: the test opens nothing to the network."""


def edge_file(folder: Path, *tables: str) -> Path:
    path = folder / "edge.toml"
    common = [f'[edge]\ndata = "{folder / "data"}"', '[http]\naddress = ""', *tables]
    path.write_text("\n".join([*common, ""]))
    return path


def listen(address: str, *more: str) -> str:
    return "\n".join(["[[mqtt.listen]]", f'address = "{address}"', *more])


def run_edge(*options: str) -> "subprocess.CompletedProcess[str]":
    """Run an edge that must not start; one that starts is killed at the deadline, which fails the test."""
    command = [sys.executable, "-m", "milepost", "edge", *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=START_S)


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "edge.example"])
def test_an_edge_open_to_the_network_does_not_start(tmp_path: Path, host: str) -> None:
    address = f"{host}:{free_port()}"
    path = edge_file(tmp_path, listen("127.0.0.1:0"), listen(address))
    for verb in ("run", "check"):
        ended = run_edge(verb, "--config", str(path))
        assert ended.returncode == 2, ended.stderr
        assert f"[[mqtt.listen]] {address} would let anyone on the network publish" in ended.stderr
        for way in ("[access] users", "client_ca", "[access] anonymous = true"):
            assert way in ended.stderr
        assert "edge ready" not in ended.stderr
    assert not (tmp_path / "data").exists(), "nothing was started"


def test_the_command_line_opens_no_listener_either(tmp_path: Path) -> None:
    ended = run_edge("run", "--listen", f"0.0.0.0:{free_port()}", "--data", str(tmp_path / "data"))
    assert ended.returncode == 2
    assert "would let anyone on the network publish" in ended.stderr


def test_a_plain_udp_listener_open_to_the_network_does_not_start(tmp_path: Path) -> None:
    udp = f'[udp]\naddress = "0.0.0.0:{free_port()}"\nencryption = "none"'
    ended = run_edge("run", "--config", str(edge_file(tmp_path, listen("127.0.0.1:0"), udp)))
    assert ended.returncode == 2
    assert "would let anyone on the network send as any endpoint" in ended.stderr
    assert "[access] anonymous = true" in ended.stderr


@pytest.mark.parametrize("way", ["users", "client_ca", "anonymous"])
def test_each_way_that_the_error_names_starts_the_edge(tmp_path: Path, way: str) -> None:
    made = make_certificates(tmp_path / "made")
    users = tmp_path / "users"
    users.touch(mode=0o600)
    tls = ('transport = "tls"', f'certificate = "{made.server}"', f'key = "{made.server_key}"', f'client_ca = "{made.ca}"')
    tables = {
        "users": [f'[access]\nusers = "{users}"', listen(OPEN)],
        "client_ca": [listen(OPEN, *tls)],
        "anonymous": ["[access]\nanonymous = true", listen(OPEN)],
    }[way]
    checked = run_edge("check", "--config", str(edge_file(tmp_path, *tables)))
    assert (checked.returncode, checked.stderr) == (0, "")
    command = [sys.executable, "-m", "milepost", "edge", "run", "--config", str(edge_file(tmp_path, *tables))]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as edge:
        assert edge.stderr is not None
        first = edge.stderr.readline()
        edge.terminate()
        edge.stderr.read()
        assert edge.wait(START_S) == 0
    assert "edge ready" in first


def test_with_users_a_client_without_a_name_is_anonymous_and_a_wrong_password_is_refused(make_broker: MakeBroker) -> None:
    broker = make_broker(users={"ada": "right"}, is_anonymous=True)
    with RawClient(broker.tcp) as nobody:
        assert nobody.try_join().reason == Code.SUCCESS
    with RawClient(broker.tcp) as wrong:
        assert wrong.try_join(user="ada", password=b"wrong").reason == Code.BAD_USER_NAME_OR_PASSWORD
    with RawClient(broker.tcp) as unknown:
        assert unknown.try_join(user="eve", password=b"").reason == Code.BAD_USER_NAME_OR_PASSWORD
    with RawClient(broker.tcp) as right:
        assert right.try_join(user="ada", password=b"right").reason == Code.SUCCESS


def test_a_reload_cannot_open_a_listener_either(tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.touch(mode=0o600)
    path = edge_file(tmp_path, f'[access]\nusers = "{users}"', listen(OPEN))
    with subprocess.Popen(
        [sys.executable, "-m", "milepost", "edge", "run", "--config", str(path)], cwd=ROOT, stderr=subprocess.PIPE, text=True
    ) as edge:
        assert edge.stderr is not None
        assert "edge ready" in edge.stderr.readline()
        edge_file(tmp_path, listen(OPEN))
        edge.send_signal(signal.SIGHUP)
        answer = edge.stderr.readline()
        edge.terminate()
        edge.stderr.read()
    assert "reload failed" in answer
    assert "would let anyone on the network" in answer
