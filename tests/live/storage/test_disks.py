"""Disks that are full, can only be read, or are taken away; and the way back."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from live.storage.writer import last_turn, turn
from milepost.broker.effects import Changes, Queued, StorageUnavailable
from milepost.model.durability import Durability
from milepost.storage import SqliteStorage, open_storage
from milepost.storage.sqlite import REOPEN_S
from parts import need

FULL = r"the disk is full \(SQLITE_FULL\): .*kept\.db"


class Disk:
    """A file system of its own, in memory."""

    def __init__(self, at: Path) -> None:
        self.at = at
        self._mount = need("mount", debian="mount")
        self._run(self._mount, "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(at))

    def remount(self, option: str) -> None:
        self._run(self._mount, "-o", f"remount,{option}", str(self.at))

    def remove(self) -> None:
        self._run(need("umount", debian="mount"), "--lazy", str(self.at))

    def _run(self, *command: str) -> None:
        subprocess.run(command, check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    if os.geteuid() != 0:
        pytest.skip("only root may mount a disk; fix: sudo make test")
    disk = Disk(tmp_path)
    yield disk
    disk.remove()


def written(storage: SqliteStorage, turns: Callable[[int], Changes], start: int = 1, end: int = 10_000) -> int:
    """Write turns until one fails or the end; the number of the last that was kept."""
    for number in range(start, end):
        try:
            storage.write(turns(number))
        except StorageUnavailable as fault:
            if re.search(FULL, str(fault)):
                return number - 1
            raise
    return end - 1


def test_a_full_disk_fails_a_turn_as_a_whole_and_the_next_one_works_when_there_is_space(disk: Disk) -> None:
    storage = SqliteStorage(disk.at / "kept", Durability.PROCESS_CRASH)
    ballast = disk.at / "ballast"
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass
    with pytest.raises(StorageUnavailable, match=FULL):
        storage.write(turn(1))
    assert last_turn(storage.load()) == 0
    ballast.unlink()
    storage.write(turn(1))
    storage.write(turn(2))
    assert last_turn(storage.load()) == 2
    storage.close()
    storage = SqliteStorage(disk.at / "kept", Durability.PROCESS_CRASH)
    assert last_turn(storage.load()) == 2
    storage.close()


def test_a_disk_that_its_own_log_has_filled_is_freed_by_taking_the_log_over(disk: Disk) -> None:
    storage = SqliteStorage(disk.at / "kept", Durability.PROCESS_CRASH)
    assert written(storage, turn, end=20) == 19
    storage.close()
    storage = SqliteStorage(disk.at / "kept", Durability.PROCESS_CRASH)
    kept = written(storage, turn, start=20)
    assert 20 < kept < 1_000
    assert last_turn(storage.load()) == kept
    storage.write(turn(kept + 1))
    assert last_turn(storage.load()) == kept + 1
    storage.close()


def test_a_disk_that_is_full_of_what_is_kept_works_again_when_it_grows(disk: Disk) -> None:
    storage = SqliteStorage(disk.at / "kept", Durability.PROCESS_CRASH)

    def growing(number: int) -> Changes:
        return Changes(messages={number: bytes(20_000)})

    kept = 0
    while (more := written(storage, growing, start=kept + 1)) > kept:
        kept = more
    assert sorted(storage.load().messages) == list(range(1, kept + 1))
    disk.remount("size=8m")
    storage.write(growing(kept + 1))
    assert sorted(storage.load().messages) == list(range(1, kept + 2))
    storage.close()


def test_a_disk_that_can_only_be_read_is_named_and_used_again_when_it_can_be_written(disk: Disk) -> None:
    folder = disk.at / "kept"
    storage = open_storage(folder, Durability.PROCESS_CRASH)
    storage.write(turn(1))
    storage.close()
    disk.remount("ro")
    with pytest.raises(StorageUnavailable, match=f"cannot lock {folder}: Read-only file system"):
        open_storage(folder, Durability.PROCESS_CRASH)
    with pytest.raises(StorageUnavailable, match=r"cannot make .*: Read-only file system"):
        open_storage(disk.at / "other", Durability.PROCESS_CRASH)
    disk.remount("rw")
    storage = open_storage(folder, Durability.PROCESS_CRASH)
    assert last_turn(storage.load()) == 1
    storage.close()


def test_a_directory_that_is_taken_away_is_noticed_and_used_again_when_it_is_back(tmp_path: Path) -> None:
    storage = open_storage(tmp_path / "kept", Durability.PROCESS_CRASH)
    storage.write(turn(1))
    (tmp_path / "kept").rename(tmp_path / "away")
    for _ in range(3):
        with pytest.raises(StorageUnavailable, match="was removed or replaced: put it back"):
            storage.write(turn(2))
    (tmp_path / "away").rename(tmp_path / "kept")
    storage.write(turn(2))
    assert last_turn(storage.load()) == 2
    storage.close()


def test_a_file_that_was_replaced_by_a_copy_is_noticed(tmp_path: Path) -> None:
    storage = open_storage(tmp_path, Durability.PROCESS_CRASH)
    storage.write(turn(1))
    shutil.copy(tmp_path / "kept.db", tmp_path / "copy")
    (tmp_path / "copy").replace(tmp_path / "kept.db")
    with pytest.raises(StorageUnavailable, match="was removed or replaced: put it back"):
        storage.write(turn(2))
    storage.close()


class Clock:
    """A clock that a test moves."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def spoil_descriptors(file: Path) -> None:
    """Make every open descriptor of a file one that cannot be written, as after a network file system lost it."""
    for entry in Path("/proc/self/fd").iterdir():
        if entry.is_symlink() and entry.readlink() == file:
            readable = os.open(file, os.O_RDONLY)
            os.dup2(readable, int(entry.name), inheritable=False)
            os.close(readable)


def test_a_connection_that_fails_twice_is_opened_again_but_not_at_once(tmp_path: Path) -> None:
    clock = Clock()
    storage = SqliteStorage(tmp_path, Durability.PROCESS_CRASH, clock_s=clock)
    storage.write(turn(1))
    spoil_descriptors(tmp_path / "kept.db-wal")
    for _ in range(3):
        with pytest.raises(StorageUnavailable, match="SQLITE_IOERR_WRITE"):
            storage.write(turn(2))
    clock.now_s += REOPEN_S
    storage.write(turn(2))
    assert last_turn(storage.load()) == 2
    storage.close()


def test_a_file_that_changed_while_it_was_closed_is_not_written_to(tmp_path: Path) -> None:
    clock = Clock()
    storage = SqliteStorage(tmp_path / "kept", Durability.PROCESS_CRASH, clock_s=clock)
    storage.write(turn(1))
    spoil_descriptors(tmp_path / "kept" / "kept.db-wal")
    for _ in range(2):
        with pytest.raises(StorageUnavailable, match="SQLITE_IOERR_WRITE"):
            storage.write(turn(2))
    (tmp_path / "kept" / "lock").unlink()
    other = SqliteStorage(tmp_path / "kept", Durability.PROCESS_CRASH)
    other.write(Changes(queued={(1, 1): Queued(1, 1, False, b"")}))
    other.close()
    clock.now_s += REOPEN_S
    with pytest.raises(StorageUnavailable, match="has not what was last written to it"):
        storage.write(turn(2))
    storage.close()
