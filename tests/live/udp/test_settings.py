"""Settings of the UDP door as a person gives them: what `edge check` shows, and one clear line for each mistake."""

import subprocess
import sys
from pathlib import Path

import pytest

from live.udp.edges import EDGE_NAME, UdpEdge
from live.udp.offices import Office
from milepost.cli.main import main
from milepost.runtime.trust_files import Kind, write_new

SECOND = "edge-2"
MISTAKES = ["nothing", "another key", "another edge", "no edge", "no file", "a short key", "another kind"]


def milepost(*typed: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "milepost", *typed]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def settings(folder: Path, trust: str, *, seal: str = "noise", port: int = 0) -> str:
    path = folder / "edge.toml"
    lines = ["[edge]", f'data = "{folder / "data"}"', "[http]", 'address = ""', "[[mqtt.listen]]", 'address = "127.0.0.1:0"']
    path.write_text("\n".join([*lines, "[udp]", f'address = "127.0.0.1:{port}"', f'seal = "{seal}"', trust, ""]))
    return str(path)


def test_check_shows_who_the_edge_is_and_whether_it_seals(tmp_path: Path, office: Office) -> None:
    office.admit_edge(EDGE_NAME)
    sealed = milepost("edge", "check", "--config", settings(tmp_path, office.table(EDGE_NAME)))
    assert (sealed.returncode, sealed.stderr) == (0, "")
    assert "udp        127.0.0.1:0, sealed, as edge-1 until 20" in sealed.stdout
    assert str(office.authority) in sealed.stdout
    plain = milepost("edge", "check", "--config", settings(tmp_path, "", seal="none"))
    assert (plain.returncode, plain.stderr) == (0, "")
    assert "udp        127.0.0.1:0, sealing nothing: for experiments only" in plain.stdout


def mistaken(folder: Path, office: Office) -> dict[str, tuple[str, str]]:
    """Tables [trust] with one mistake each, and what must be said about it."""
    for edge in (EDGE_NAME, SECOND):
        office.admit_edge(edge)
    office.trust("car")
    right, issued = office.table(EDGE_NAME), office.issued
    short = folder / "short.key"
    write_new(short, Kind.KEY, b"short")
    return {
        "nothing": ("", 'needs authority, certificate and key in [trust]: make them with "milepost trust init DIR"'),
        "another key": (right.replace("edge-1.key", "edge-2.key"), "edge-2.key is not the key of"),
        "another edge": (office.table(SECOND), "is for 'edge-2', the edge is named 'edge-1': make them equal"),
        "no edge": (right.replace(str(issued / EDGE_NAME), str(issued / "car")), "is of the role vehicle: issue one with"),
        "no file": (right.replace("edge-1.cert", "edge-3.cert"), "edge-3.cert"),
        "a short key": (right.replace(str(issued / "edge-1.key"), str(short)), "short.key"),
        "another kind": (right.replace("edge-1.cert", "edge-1.key"), "edge-1.key"),
    }


def check_told(status: int, told: str, expected: str) -> None:
    assert status == 2, told
    assert expected in told
    assert len(told.splitlines()) == 1
    assert told.startswith("milepost: ")


@pytest.mark.parametrize("mistake", MISTAKES)
def test_files_of_trust_that_do_not_fit_are_one_clear_line(
    tmp_path: Path, office: Office, mistake: str, capsys: pytest.CaptureFixture[str]
) -> None:
    trust, expected = mistaken(tmp_path, office)[mistake]
    status = main(["edge", "check", "--config", settings(tmp_path, trust)])
    check_told(status, capsys.readouterr().err, expected)


@pytest.mark.parametrize("mistake", ["nothing", "another key"])
def test_an_edge_does_not_start_with_files_of_trust_that_do_not_fit(tmp_path: Path, office: Office, mistake: str) -> None:
    trust, expected = mistaken(tmp_path, office)[mistake]
    done = milepost("edge", "run", "--config", settings(tmp_path, trust))
    check_told(done.returncode, done.stderr, expected)


def test_an_address_that_is_taken_is_one_clear_line(tmp_path: Path, edge: UdpEdge) -> None:
    done = milepost("edge", "run", "--config", settings(tmp_path, "", seal="none", port=edge.udp))
    assert done.returncode == 1
    assert f"127.0.0.1:{edge.udp}" in done.stderr
    assert len(done.stderr.splitlines()) == 1
