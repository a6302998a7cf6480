"""What reaches the disk, and when, as the kernel saw it; and what happens if the kernel says no."""

import re
from pathlib import Path

import pytest

from live.storage.processes import lines, writer
from live.storage.writer import last_turn
from milepost.model.durability import Durability
from milepost.storage import open_storage
from parts import need

TURNS = 40
SYNC = re.compile(r"\b(?:fsync|fdatasync)\(")


def traced(folder: Path, level: Durability, *options: str, turns: int = TURNS) -> tuple[list[str], list[str]]:
    """What the writer said between its first word and its last, and the calls that were seen."""
    trace = folder.parent / "trace"
    under = (need("strace", debian="strace"), "--follow-forks", "--quiet=all", f"--output={trace}", *options)
    with writer(folder, level, turns, under) as process:
        said = list(lines(process))
        process.communicate("")
    assert said[0] == "ready"
    calls = trace.read_text().splitlines()
    return said[1:-1], calls


@pytest.mark.parametrize(("level", "each"), [(Durability.PROCESS_CRASH, "."), (Durability.POWER_LOSS, "s.")])
def test_each_write_waits_for_the_disk_only_where_a_power_loss_is_to_be_survived(
    tmp_path: Path, level: Durability, each: str
) -> None:
    said, calls = traced(tmp_path / "kept", level, "--trace=fsync,fdatasync,write")
    assert said == [f"kept {number}" for number in range(1, TURNS + 1)]
    marks = "".join("s" if SYNC.search(call) else "." for call in calls if SYNC.search(call) or '"kept ' in call)
    _, _, after_first = marks.partition(".")  # with the first write a log begins, which is synced at any level
    assert after_first[: len(each) * (TURNS - 1)] == each * (TURNS - 1)


@pytest.mark.parametrize(
    ("level", "call", "error", "text"),
    [
        (Durability.PROCESS_CRASH, "pwrite64", "ENOSPC", "the disk is full (SQLITE_FULL)"),
        (Durability.PROCESS_CRASH, "pwrite64", "EIO", "the disk failed to read or write (SQLITE_IOERR_WRITE)"),
        (Durability.PROCESS_CRASH, "pwrite64", "EROFS", "the disk failed to read or write (SQLITE_IOERR_WRITE)"),
        (Durability.POWER_LOSS, "fdatasync", "EIO", "the disk failed to read or write (SQLITE_IOERR_FSYNC)"),
    ],
)
def test_a_disk_that_fails_for_a_while_is_used_again_when_it_works(
    tmp_path: Path, level: Durability, call: str, error: str, text: str
) -> None:
    folder = tmp_path / "kept"
    # Once, and from there on several times in a row.
    when = ("100", "200..204") if call == "pwrite64" else ("20", "30..40")
    for place in when:
        said, _ = traced(folder, level, f"--trace={call}", f"--inject={call}:error={error}:when={place}")
        failed = [line for line in said if line.startswith("failed")]
        assert failed
        assert failed[0] == f"failed {text}: {folder / 'kept.db'}"
        assert said[-1].startswith("kept ")
        storage = open_storage(folder, level)
        assert last_turn(storage.load()) == int(said[-1].removeprefix("kept "))
        storage.close()
