"""Damaged files are reported with a remedy, and never taken for an empty state."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from live.storage.writer import tick_changes
from milepost.broker.effects import Queued, StateChanges
from milepost.model.durability import Durability
from milepost.storage import StorageDamaged, StorageTooNew, open_storage
from milepost.storage.database import FORMAT

PAGE = 4096
CYCLES = 1_000_000
BATCH = 200


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A directory with stored state."""
    folder = tmp_path / "state"
    storage = open_storage(folder, Durability.PROCESS_CRASH)
    for number in range(1, 30):
        storage.write(tick_changes(number))
    storage.close()
    return folder


def load(folder: Path) -> None:
    storage = open_storage(folder, Durability.PROCESS_CRASH)
    try:
        storage.load()
    finally:
        storage.close()


def check_damage(folder: Path, what: str) -> None:
    before = sorted(path.name for path in folder.iterdir())
    with pytest.raises(
        StorageDamaged, match=f"^{folder / 'state.db'}: .*{what}.* move the directory away: mv {folder} {folder}.damaged"
    ):
        load(folder)
    assert sorted(path.name for path in folder.iterdir()) == before
    folder.rename(f"{folder}.damaged")
    load(folder)


@pytest.mark.parametrize("page", range(1, 8))
def test_a_damaged_page_is_detected(folder: Path, page: int) -> None:
    with (folder / "state.db").open("r+b") as file:
        file.seek(page * PAGE)
        file.write(os.urandom(PAGE))
    check_damage(folder, "damaged")


def test_a_truncated_file_is_detected(folder: Path) -> None:
    os.truncate(folder / "state.db", 3 * PAGE)
    check_damage(folder, "damaged")


def test_an_empty_file_is_damage_and_not_an_empty_state(folder: Path) -> None:
    os.truncate(folder / "state.db", 0)
    check_damage(folder, "it is not a database of Milepost")


def test_a_file_that_is_no_database_is_detected(folder: Path) -> None:
    (folder / "state.db").write_text("other content " * 1000)
    check_damage(folder, "it is not a database")


def test_a_database_of_another_program_is_detected(folder: Path) -> None:
    (folder / "state.db").unlink()
    with closing(sqlite3.connect(folder / "state.db")) as connection:
        connection.execute("CREATE TABLE messages (number INTEGER)")
    check_damage(folder, "it is not a database of Milepost")


def test_a_write_ahead_log_without_its_database_is_detected(folder: Path) -> None:
    (folder / "state.db").rename(folder / "state.db-wal")
    check_damage(folder, "it is missing, although state.db-wal exists")


def test_a_text_that_is_not_utf_8_is_detected(folder: Path) -> None:
    with closing(sqlite3.connect(folder / "state.db")) as connection:
        connection.execute("INSERT INTO retained VALUES (CAST(x'ff' AS TEXT), x'')")
        connection.commit()
    check_damage(folder, "Could not decode to UTF-8")


def test_a_file_of_a_newer_release_is_refused_and_left_unchanged(folder: Path) -> None:
    with closing(sqlite3.connect(folder / "state.db")) as connection:
        connection.execute(f"PRAGMA user_version = {FORMAT + 1}")
    with pytest.raises(StorageTooNew, match=f"has format {FORMAT + 1}, and this release reads formats up to {FORMAT}"):
        load(folder)
    with closing(sqlite3.connect(folder / "state.db")) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (FORMAT + 1,)


def test_an_unfinished_database_is_created_again(tmp_path: Path) -> None:
    (tmp_path / "state.db.new").write_bytes(b"half")
    (tmp_path / "state.db.new-journal").write_bytes(b"half")
    load(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lock", "state.db"]


def test_a_million_stored_and_deleted_messages_leave_a_small_file(tmp_path: Path) -> None:
    storage = open_storage(tmp_path, Durability.PROCESS_CRASH)
    largest = 0
    for start in range(0, CYCLES, BATCH):
        numbers = range(start, start + BATCH)
        changes = StateChanges(messages=dict.fromkeys(numbers, b"x" * 100))
        changes.queued = {(one % 50, one): Queued(one, 1, False, b"") for one in numbers}
        storage.write(changes)
        deleted = range(start - 5 * BATCH, start - 4 * BATCH)
        storage.write(StateChanges(messages=dict.fromkeys(deleted), queued={(one % 50, one): None for one in deleted}))
        largest = max(largest, sum(path.stat().st_size for path in tmp_path.iterdir()))
    storage.close()
    assert largest < 20_000_000
    assert (tmp_path / "state.db").stat().st_size < 500_000
