"""What reaches the disk, and when, as the kernel saw it."""

import re
from pathlib import Path

import pytest

from live.eventlog.embedded_processes import running
from milepost.model.durability import Durability
from parts import need

SYNC = re.compile(r"\b(?:fsync|fdatasync)\(")


@pytest.mark.parametrize(
    ("level", "each"), [(Durability.NOTHING, "."), (Durability.PROCESS_CRASH, "."), (Durability.POWER_LOSS, "s.")]
)
def test_an_append_waits_for_the_disk_only_where_a_power_loss_is_to_be_survived(
    tmp_path: Path, level: Durability, each: str
) -> None:
    trace = tmp_path / "trace"
    strace = (need("strace", debian="strace"), "--follow-forks", "--quiet=all", f"--output={trace}")
    under = (*strace, "--trace=fsync,fdatasync,write")
    with running(tmp_path / "log", "append", "a", "600", "slowly", level=level, under=under) as it:
        it.go()
        it.wait_for(lambda said: said[-1:] == ["done"])
    calls = [call for call in trace.read_text().splitlines() if SYNC.search(call) or '"kept ' in call]
    marks = "".join("s" if SYNC.search(call) else "." for call in calls)
    _, _, after_first = marks.partition(".")  # with the first write a log begins, which is synced at any level
    appends = after_first.rstrip("s")  # closing takes the write-ahead log over
    assert appends == each * appends.count(".")
    assert appends.count(".") > 20
