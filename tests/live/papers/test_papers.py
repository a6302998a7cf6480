"""The papers' evaluations by the command line: quick, complete, and interrupted (M31, M34, D13, D14)."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from parts import ROOT, need

MARK = "MILEPOST_PAPERS_TEST"
RUN_S_MAX = 280.0
EXIT_S_MAX = 20.0


@pytest.fixture
def mark() -> Iterator[str]:
    """A mark in the environment of all processes of a test; none of them may remain at its end."""
    need("gcc", debian="gcc")
    sections = uuid4().hex
    yield sections
    until = time.monotonic() + EXIT_S_MAX
    while (remaining := running(sections)) and time.monotonic() < until:
        time.sleep(0.1)
    assert remaining == []


def running(mark: str) -> list[str]:
    """Return the commands of processes with the mark."""
    sections = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={mark}".encode() in (folder / "environ").read_bytes():
                sections.append((folder / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return sections


def start_paper(mark: str, *arguments: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "milepost", "paper", *arguments]
    environment = {**os.environ, MARK: mark}
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run_paper(mark: str, *arguments: str) -> str:
    """Return its output; it must succeed."""
    with start_paper(mark, *arguments) as process:
        printed, errors = process.communicate(timeout=RUN_S_MAX)
    assert process.returncode == 0, errors[-2_000:]
    return printed


def saved(folder: Path, *figures: str) -> dict[str, dict[str, object]]:
    """Return the sections of the results; the page and all figures must exist."""
    page = (folder / "report.html").read_text()
    assert page.count("data:image/png;base64,") == len(figures)
    for name in figures:
        assert (folder / f"{name}.png").read_bytes()[:4] == b"\x89PNG"
    report = json.loads((folder / "report.json").read_text())
    assert report["violations"] == []
    sections: dict[str, dict[str, object]] = report["sections"]
    return sections


def test_the_quick_evaluation_of_mercury_is_complete(mark: str, tmp_path: Path) -> None:
    # M31, M34
    printed = run_paper(mark, "mercury", "--quick", "--out", str(tmp_path))
    for title in ("Endpoints tracked", "Areas interpreted", "Response time", "Forged and altered", "False reports", "Comparison"):
        assert title in printed
    distributions = ("mercury-response-load", "mercury-response-spread")
    sections = saved(tmp_path, "mercury-tracking", "mercury-areas-precision", "mercury-areas-recall", *distributions)
    for protocol in ("MQTT", "UDP"):
        tracking = sections["tracking"][protocol]
        assert isinstance(tracking, dict)
        assert tracking["moves"] > 0
        assert tracking["lost"] == 0
        assert tracking["expected"] > 1_000
    exact = sections["areas"]["0 m, 1 s"]
    assert isinstance(exact, dict)
    assert min(exact[shape]["recall"] for shape in ("circle", "corridor", "upstream")) > 0.95
    attacks = sections["forgery"]["attacks"]
    assert isinstance(attacks, list)
    assert [one["accepted"] for one in attacks] == [0] * 12
    assert all(sum(one["refused"].values()) == one["sent"] for one in attacks)
    honest = sections["collusion"]["no attacker"]
    assert isinstance(honest, dict)
    assert honest["witnesses weighted"]["false"] == 0
    assert honest["nearby witnesses weighted"] == honest["witnesses weighted"]
    colluding = sections["collusion"]["ten colluding attackers at a time"]
    assert isinstance(colluding, dict)
    assert colluding["nearby witnesses weighted"]["false"] < colluding["witnesses weighted"]["false"]


def test_the_quick_evaluation_of_dpsmd_is_complete(mark: str, tmp_path: Path) -> None:
    # D13, D14
    printed = run_paper(mark, "dpsmd", "--quick", "--out", str(tmp_path))
    assert "at most 21.5 ms" in printed
    sections = saved(tmp_path, "dpsmd-times")
    cells = sections["times"]["cells"]
    assert isinstance(cells, list)
    assert {(cell["subscribers"], cell["publishers"]) for cell in cells} == {(5, 10), (5, 100), (20, 10), (20, 100)}
    assert [cell["lost"] + cell["wrong"] for cell in cells] == [0] * len(cells)
    series = sections["moves"]["series"]
    assert isinstance(series, dict)
    assert [(one["lost"], one["duplicated"]) for one in series.values()] == [(0, 0), (0, 0)]


@pytest.mark.parametrize(
    ("paper", "text"),
    [("mercury", "running SUMO"), ("mercury", "tracking: second 2 "), ("dpsmd", "across edges")],
)
def test_an_interrupted_evaluation_leaves_no_process_running(mark: str, tmp_path: Path, paper: str, text: str) -> None:
    with start_paper(mark, paper, "--quick", "--out", str(tmp_path)) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if text in line:
                break
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
