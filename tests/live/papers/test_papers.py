"""The papers' evaluations as somebody types them: quick, whole, and stopped in the middle (M31, M34, D13, D14)."""

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
GONE_S_MAX = 20.0


@pytest.fixture
def mark() -> Iterator[str]:
    """What all processes of a test have in their environment; none of them is there when it ends."""
    need("gcc", debian="gcc")
    found = uuid4().hex
    yield found
    until = time.monotonic() + GONE_S_MAX
    while (left := running(found)) and time.monotonic() < until:
        time.sleep(0.1)
    assert left == []


def running(mark: str) -> list[str]:
    """The commands of processes that have the mark."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={mark}".encode() in (folder / "environ").read_bytes():
                found.append((folder / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found


def started(mark: str, *words: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "milepost", "paper", *words]
    environment = {**os.environ, MARK: mark}
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ran(mark: str, *words: str) -> str:
    """What it printed; it must have ended well."""
    with started(mark, *words) as process:
        said, complained = process.communicate(timeout=RUN_S_MAX)
    assert process.returncode == 0, complained[-2_000:]
    return said


def kept(folder: Path, *pictures: str) -> dict[str, dict[str, object]]:
    """The sections of the figures; the page and all pictures must be there."""
    page = (folder / "report.html").read_text()
    assert page.count("data:image/png;base64,") == len(pictures)
    for name in pictures:
        assert (folder / f"{name}.png").read_bytes()[:4] == b"\x89PNG"
    report = json.loads((folder / "report.json").read_text())
    assert report["broken"] == []
    sections: dict[str, dict[str, object]] = report["sections"]
    return sections


def test_mercury_is_evaluated_whole_and_quickly(mark: str, tmp_path: Path) -> None:
    # M31, M34
    said = ran(mark, "mercury", "--quick", "--out", str(tmp_path))
    for title in ("Endpoints tracked", "Areas interpreted", "Response time", "Forged and altered", "Gaming", "How far ours is"):
        assert title in said
    spreads = ("mercury-response-load", "mercury-response-spread")
    found = kept(tmp_path, "mercury-tracking", "mercury-areas-precision", "mercury-areas-recall", *spreads)
    for carrier in ("MQTT", "UDP"):
        tracked = found["tracking"][carrier]
        assert isinstance(tracked, dict)
        assert tracked["moves"] > 0
        assert tracked["lost"] == 0
        assert tracked["expected"] > 1_000
    exact = found["areas"]["0 m, 1 s"]
    assert isinstance(exact, dict)
    assert min(exact[sort]["recall"] for sort in ("circle", "corridor", "upstream")) > 0.95
    attacks = found["forging"]["attacks"]
    assert isinstance(attacks, list)
    assert [one["got_through"] for one in attacks] == [0] * 12
    assert all(sum(one["refused"].values()) == one["sent"] for one in attacks)
    honest = found["gaming"]["nobody lies"]
    assert isinstance(honest, dict)
    assert honest["witnesses weighed"]["false"] == 0
    assert honest["witnesses near, weighed"] == honest["witnesses weighed"]
    agreed = found["gaming"]["ten at a time who agree"]
    assert isinstance(agreed, dict)
    assert agreed["witnesses near, weighed"]["false"] < agreed["witnesses weighed"]["false"]


def test_dpsmd_is_evaluated_whole_and_quickly(mark: str, tmp_path: Path) -> None:
    # D13, D14
    said = ran(mark, "dpsmd", "--quick", "--out", str(tmp_path))
    assert "at most 21.5 ms" in said
    found = kept(tmp_path, "dpsmd-times")
    cells = found["times"]["cells"]
    assert isinstance(cells, list)
    assert {(cell["subscribers"], cell["publishers"]) for cell in cells} == {(5, 10), (5, 100), (20, 10), (20, 100)}
    assert [cell["lost"] + cell["wrong"] for cell in cells] == [0] * len(cells)
    trips = found["moves"]["trips"]
    assert isinstance(trips, dict)
    assert [(trip["lost"], trip["doubled"]) for trip in trips.values()] == [(0, 0), (0, 0)]


@pytest.mark.parametrize(
    ("paper", "words"),
    [("mercury", "SUMO drives"), ("mercury", "tracking: second 2 "), ("dpsmd", "across edges")],
)
def test_stopped_in_the_middle_it_leaves_nothing_running(mark: str, tmp_path: Path, paper: str, words: str) -> None:
    with started(mark, paper, "--quick", "--out", str(tmp_path)) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if words in line:
                break
        process.send_signal(signal.SIGINT)
        _, complained = process.communicate(timeout=60)
    assert process.returncode == 130, complained
    assert "Traceback" not in complained
