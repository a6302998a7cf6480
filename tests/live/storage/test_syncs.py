"""Writes and syncs to the disk, as traced in the kernel; and injected faults of the kernel."""

import re
from pathlib import Path

import pytest

from live.storage.writer import last_tick
from live.storage.writer_process import lines, writer
from milepost.model.durability import Durability
from milepost.storage import open_storage
from parts import need

TICKS = 40
SYNC = re.compile(r"\b(?:fsync|fdatasync)\(")


def traced(folder: Path, level: Durability, *options: str, ticks: int = TICKS) -> tuple[list[str], list[str]]:
    """Return the output of the writer between its first and last line, and the traced system calls."""
    trace = folder.parent / "trace"
    under = (need("strace", debian="strace"), "--follow-forks", "--quiet=all", f"--output={trace}", *options)
    with writer(folder, level, ticks, under) as process:
        output = list(lines(process))
        process.communicate("")
    assert output[0] == "ready"
    calls = trace.read_text().splitlines()
    return output[1:-1], calls


@pytest.mark.parametrize(("level", "each"), [(Durability.PROCESS_CRASH, "."), (Durability.POWER_LOSS, "s.")])
def test_each_write_is_synced_only_for_durability_against_power_loss(tmp_path: Path, level: Durability, each: str) -> None:
    output, calls = traced(tmp_path / "state", level, "--trace=fsync,fdatasync,write")
    assert output == [f"stored {number}" for number in range(1, TICKS + 1)]
    marks = "".join("s" if SYNC.search(call) else "." for call in calls if SYNC.search(call) or '"stored ' in call)
    _, _, after_first = marks.partition(".")  # the first write creates the log, which is synced at every level
    assert after_first[: len(each) * (TICKS - 1)] == each * (TICKS - 1)


@pytest.mark.parametrize(
    ("level", "call", "error", "text"),
    [
        (Durability.PROCESS_CRASH, "pwrite64", "ENOSPC", "the disk is full (SQLITE_FULL)"),
        (Durability.PROCESS_CRASH, "pwrite64", "EIO", "the disk failed to read or write (SQLITE_IOERR_WRITE)"),
        (Durability.PROCESS_CRASH, "pwrite64", "EROFS", "the disk failed to read or write (SQLITE_IOERR_WRITE)"),
        (Durability.POWER_LOSS, "fdatasync", "EIO", "the disk failed to read or write (SQLITE_IOERR_FSYNC)"),
    ],
)
def test_a_disk_with_a_passing_fault_is_used_again_once_it_works(
    tmp_path: Path, level: Durability, call: str, error: str, text: str
) -> None:
    folder = tmp_path / "state"
    # Once, then several times in a row.
    when = ("100", "200..204") if call == "pwrite64" else ("20", "30..40")
    for occurrence in when:
        output, _ = traced(folder, level, f"--trace={call}", f"--inject={call}:error={error}:when={occurrence}")
        failed = [line for line in output if line.startswith("failed")]
        assert failed
        assert failed[0] == f"failed {text}: {folder / 'state.db'}"
        assert output[-1].startswith("stored ")
        storage = open_storage(folder, level)
        assert last_tick(storage.load()) == int(output[-1].removeprefix("stored "))
        storage.close()
