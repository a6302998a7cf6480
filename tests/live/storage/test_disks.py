"""Disks that are full, read-only or removed; and the recovery from each."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from live.storage.writer import last_tick, tick_changes
from milepost.broker.effects import Queued, StateChanges, StorageUnavailable
from milepost.model.durability import Durability
from milepost.storage import SqliteStorage, open_storage
from milepost.storage.sqlite import REOPEN_S
from parts import need

FULL = r"the disk is full \(SQLITE_FULL\): .*state\.db"


class Disk:
    """A separate file system in memory."""

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
        pytest.skip("mounting a disk needs root: sudo make test")
    disk = Disk(tmp_path)
    yield disk
    disk.remove()


def written(storage: SqliteStorage, ticks: Callable[[int], StateChanges], start: int = 1, end: int = 10_000) -> int:
    """Write ticks until one fails, or up to *end*; return the last one stored."""
    for number in range(start, end):
        try:
            storage.write(ticks(number))
        except StorageUnavailable as fault:
            if re.search(FULL, str(fault)):
                return number - 1
            raise
    return end - 1


def test_a_full_disk_fails_a_tick_as_a_whole_and_the_next_one_works_once_there_is_space(disk: Disk) -> None:
    storage = SqliteStorage(disk.at / "state", Durability.PROCESS_CRASH)
    ballast = disk.at / "ballast"
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass
    with pytest.raises(StorageUnavailable, match=FULL):
        storage.write(tick_changes(1))
    assert last_tick(storage.load()) == 0
    ballast.unlink()
    storage.write(tick_changes(1))
    storage.write(tick_changes(2))
    assert last_tick(storage.load()) == 2
    storage.close()
    storage = SqliteStorage(disk.at / "state", Durability.PROCESS_CRASH)
    assert last_tick(storage.load()) == 2
    storage.close()


def test_a_disk_filled_by_the_write_ahead_log_is_freed_by_a_checkpoint(disk: Disk) -> None:
    storage = SqliteStorage(disk.at / "state", Durability.PROCESS_CRASH)
    assert written(storage, tick_changes, end=20) == 19
    storage.close()
    storage = SqliteStorage(disk.at / "state", Durability.PROCESS_CRASH)
    stored = written(storage, tick_changes, start=20)
    assert 20 < stored < 1_000
    assert last_tick(storage.load()) == stored
    storage.write(tick_changes(stored + 1))
    assert last_tick(storage.load()) == stored + 1
    storage.close()


def test_a_disk_filled_by_stored_state_works_again_once_it_grows(disk: Disk) -> None:
    storage = SqliteStorage(disk.at / "state", Durability.PROCESS_CRASH)

    def growing(number: int) -> StateChanges:
        return StateChanges(messages={number: bytes(20_000)})

    stored = 0
    while (more := written(storage, growing, start=stored + 1)) > stored:
        stored = more
    assert sorted(storage.load().messages) == list(range(1, stored + 1))
    disk.remount("size=8m")
    storage.write(growing(stored + 1))
    assert sorted(storage.load().messages) == list(range(1, stored + 2))
    storage.close()


def test_a_read_only_disk_is_reported_and_used_again_once_it_is_writable(disk: Disk) -> None:
    folder = disk.at / "state"
    storage = open_storage(folder, Durability.PROCESS_CRASH)
    storage.write(tick_changes(1))
    storage.close()
    disk.remount("ro")
    with pytest.raises(StorageUnavailable, match=f"cannot lock {folder}: Read-only file system"):
        open_storage(folder, Durability.PROCESS_CRASH)
    with pytest.raises(StorageUnavailable, match=r"cannot create .*: Read-only file system"):
        open_storage(disk.at / "other", Durability.PROCESS_CRASH)
    disk.remount("rw")
    storage = open_storage(folder, Durability.PROCESS_CRASH)
    assert last_tick(storage.load()) == 1
    storage.close()


def test_a_removed_directory_is_detected_and_used_again_once_it_is_restored(tmp_path: Path) -> None:
    storage = open_storage(tmp_path / "state", Durability.PROCESS_CRASH)
    storage.write(tick_changes(1))
    (tmp_path / "state").rename(tmp_path / "away")
    for _ in range(3):
        with pytest.raises(StorageUnavailable, match="was removed or replaced: restore it"):
            storage.write(tick_changes(2))
    (tmp_path / "away").rename(tmp_path / "state")
    storage.write(tick_changes(2))
    assert last_tick(storage.load()) == 2
    storage.close()


def test_a_file_replaced_by_a_copy_is_detected(tmp_path: Path) -> None:
    storage = open_storage(tmp_path, Durability.PROCESS_CRASH)
    storage.write(tick_changes(1))
    shutil.copy(tmp_path / "state.db", tmp_path / "copy")
    (tmp_path / "copy").replace(tmp_path / "state.db")
    with pytest.raises(StorageUnavailable, match="was removed or replaced: restore it"):
        storage.write(tick_changes(2))
    storage.close()


class Clock:
    """A clock that the test sets."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def spoil_descriptors(file: Path) -> None:
    """Make every open descriptor of a file unwritable, as after a network file system has lost it."""
    for entry in Path("/proc/self/fd").iterdir():
        if entry.is_symlink() and entry.readlink() == file:
            readable = os.open(file, os.O_RDONLY)
            os.dup2(readable, int(entry.name), inheritable=False)
            os.close(readable)


def test_a_connection_that_fails_twice_is_reopened_after_a_delay(tmp_path: Path) -> None:
    clock = Clock()
    storage = SqliteStorage(tmp_path, Durability.PROCESS_CRASH, clock_s=clock)
    storage.write(tick_changes(1))
    spoil_descriptors(tmp_path / "state.db-wal")
    for _ in range(3):
        with pytest.raises(StorageUnavailable, match="SQLITE_IOERR_WRITE"):
            storage.write(tick_changes(2))
    clock.now_s += REOPEN_S
    storage.write(tick_changes(2))
    assert last_tick(storage.load()) == 2
    storage.close()


def test_a_file_that_changed_while_closed_is_not_written(tmp_path: Path) -> None:
    clock = Clock()
    storage = SqliteStorage(tmp_path / "state", Durability.PROCESS_CRASH, clock_s=clock)
    storage.write(tick_changes(1))
    spoil_descriptors(tmp_path / "state" / "state.db-wal")
    for _ in range(2):
        with pytest.raises(StorageUnavailable, match="SQLITE_IOERR_WRITE"):
            storage.write(tick_changes(2))
    (tmp_path / "state" / "lock").unlink()
    other = SqliteStorage(tmp_path / "state", Durability.PROCESS_CRASH)
    other.write(StateChanges(queued={(1, 1): Queued(1, 1, False, b"")}))
    other.close()
    clock.now_s += REOPEN_S
    with pytest.raises(StorageUnavailable, match="lacks the last changes"):
        storage.write(tick_changes(2))
    storage.close()
