"""Writes and syncs to the disk, as traced in the kernel."""

import re
from pathlib import Path

import pytest

from live.eventlog.embedded_processes import running
from milepost.model.durability import Durability
from parts import need

SYNC = re.compile(r"\b(?:fsync|fdatasync)\(")


@pytest.mark.parametrize(
    ("level", "each"), [(Durability.NONE, "."), (Durability.PROCESS_CRASH, "."), (Durability.POWER_LOSS, "s.")]
)
def test_an_append_waits_for_the_disk_only_with_durability_power_loss(tmp_path: Path, level: Durability, each: str) -> None:
    trace = tmp_path / "trace"
    strace = (need("strace", debian="strace"), "--follow-forks", "--quiet=all", f"--output={trace}")
    under = (*strace, "--trace=fsync,fdatasync,write")
    with running(tmp_path / "log", "append", "a", "600", "slowly", level=level, under=under) as it:
        it.resume()
        it.wait_for(lambda output: output[-1:] == ["done"])
    calls = [call for call in trace.read_text().splitlines() if SYNC.search(call) or '"confirmed ' in call]
    marks = "".join("s" if SYNC.search(call) else "." for call in calls)
    _, _, after_first = marks.partition(".")  # the first write creates the log, which is synced at any level
    appends = after_first.rstrip("s")  # closing checkpoints the write-ahead log
    assert appends == each * appends.count(".")
    assert appends.count(".") > 20
