"""Settings of the UDP listener: the output of `edge check`, and one clear line for each mistake."""

import subprocess
import sys
from pathlib import Path

import pytest

from live.udp.edges import EDGE_NAME, UdpEdge
from live.udp.local_authority import LocalAuthority
from milepost.cli.main import main
from milepost.runtime.trust_files import TrustFileType, write_new

SECOND = "edge-2"
MISTAKES = ["nothing", "another key", "another edge", "no edge", "no file", "a short key", "another kind"]


def milepost(*typed: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "milepost", *typed]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def settings(folder: Path, trust: str, *, seal: str = "noise", port: int = 0) -> str:
    path = folder / "edge.toml"
    lines = ["[edge]", f'data = "{folder / "data"}"', "[http]", 'address = ""', "[[mqtt.listen]]", 'address = "127.0.0.1:0"']
    path.write_text("\n".join([*lines, "[udp]", f'address = "127.0.0.1:{port}"', f'encryption = "{seal}"', trust, ""]))
    return str(path)


def test_check_shows_the_edge_s_identity_and_encryption(tmp_path: Path, authority: LocalAuthority) -> None:
    authority.issue_edge(EDGE_NAME)
    sealed = milepost("edge", "check", "--config", settings(tmp_path, authority.trust_table(EDGE_NAME)))
    assert (sealed.returncode, sealed.stderr) == (0, "")
    assert "udp        127.0.0.1:0, encrypted, certificate of edge-1 until 20" in sealed.stdout
    assert str(authority.ca_file) in sealed.stdout
    plain = milepost("edge", "check", "--config", settings(tmp_path, "", seal="none"))
    assert (plain.returncode, plain.stderr) == (0, "")
    assert "udp        127.0.0.1:0, not encrypted: for experiments only" in plain.stdout


def mistakes_in(folder: Path, authority: LocalAuthority) -> dict[str, tuple[str, str]]:
    """Return tables [trust] with one mistake each, and the expected error."""
    for edge in (EDGE_NAME, SECOND):
        authority.issue_edge(edge)
    authority.credentials("car")
    right, issued = authority.trust_table(EDGE_NAME), authority.issued
    short = folder / "short.key"
    write_new(short, TrustFileType.KEY, b"short")
    return {
        "nothing": ("", 'needs ca, certificate and key in [trust]: create them with "milepost trust init DIR"'),
        "another key": (right.replace("edge-1.key", "edge-2.key"), "edge-2.key is not the key of"),
        "another edge": (authority.trust_table(SECOND), "is for 'edge-2', but [edge] name is 'edge-1': issue one for this name"),
        "no edge": (
            right.replace(str(issued / EDGE_NAME), str(issued / "car")),
            "has the role vehicle, not edge: issue one with",
        ),
        "no file": (right.replace("edge-1.cert", "edge-3.cert"), "edge-3.cert"),
        "a short key": (right.replace(str(issued / "edge-1.key"), str(short)), "short.key"),
        "another kind": (right.replace("edge-1.cert", "edge-1.key"), "edge-1.key"),
    }


def check_output(status: int, output: str, expected: str) -> None:
    assert status == 2, output
    assert expected in output
    assert len(output.splitlines()) == 1
    assert output.startswith("milepost: ")


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mismatched_trust_files_are_reported_in_one_line(
    tmp_path: Path, authority: LocalAuthority, mistake: str, capsys: pytest.CaptureFixture[str]
) -> None:
    trust, expected = mistakes_in(tmp_path, authority)[mistake]
    status = main(["edge", "check", "--config", settings(tmp_path, trust)])
    check_output(status, capsys.readouterr().err, expected)


@pytest.mark.parametrize("mistake", ["nothing", "another key"])
def test_an_edge_does_not_start_with_mismatched_trust_files(tmp_path: Path, authority: LocalAuthority, mistake: str) -> None:
    trust, expected = mistakes_in(tmp_path, authority)[mistake]
    done = milepost("edge", "run", "--config", settings(tmp_path, trust))
    check_output(done.returncode, done.stderr, expected)


def test_an_address_in_use_is_reported_in_one_line(tmp_path: Path, edge: UdpEdge) -> None:
    done = milepost("edge", "run", "--config", settings(tmp_path, "", seal="none", port=edge.udp))
    assert done.returncode == 1
    assert f"127.0.0.1:{edge.udp}" in done.stderr
    assert len(done.stderr.splitlines()) == 1
