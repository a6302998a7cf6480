"""Damaged files are reported with the remedy, and never treated as an empty log; how files are created."""

import os
import sqlite3
import stat
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from conformance.log_suite import numbered
from conformance.logs import AppendOutcomes, ReceivedRecords
from live.eventlog.embedded_processes import wait_until
from milepost.eventlog.embedded import EmbeddedLog
from milepost.eventlog.embedded.database import FORMAT, PAGE_BYTES
from milepost.eventlog.log import LogUnavailable
from milepost.model.durability import Durability


def damage(folder: Path, how: Callable[[Path], None]) -> str:
    log = EmbeddedLog(folder, Durability.PROCESS_CRASH)
    confirmations = AppendOutcomes()
    log.append(numbered("t", 0, 500), confirmations.done(""))
    log.close()
    how(folder / "log.db")
    before = sorted(path.name for path in folder.iterdir())
    with pytest.raises(LogUnavailable) as caught:
        EmbeddedLog(folder, Durability.PROCESS_CRASH).read("t", 0, 1_000)
    assert sorted(path.name for path in folder.iterdir()) == before
    return str(caught.value)


def to_other_database(file: Path) -> None:
    file.unlink()
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE records (number INTEGER)")


@pytest.mark.parametrize(
    ("how", "what"),
    [
        (lambda file: file.write_text("something else " * 1_000), "it is not a database"),
        (lambda file: os.truncate(file, 0), "it was not written by Milepost"),
        (to_other_database, "it was not written by Milepost"),
        (lambda file: file.rename(f"{file}-wal"), "it is missing, but log.db-wal exists"),
    ],
)
def test_a_damaged_file_is_reported_and_left_unchanged(tmp_path: Path, how: Callable[[Path], None], what: str) -> None:
    text = damage(tmp_path / "log", how)
    assert what in text
    assert f"move the directory away (mv {tmp_path / 'log'} {tmp_path / 'log'}.damaged)" in text


def test_a_file_of_a_newer_release_is_refused(tmp_path: Path) -> None:
    def age(file: Path) -> None:
        with closing(sqlite3.connect(file)) as connection:
            connection.execute(f"PRAGMA user_version = {FORMAT + 1}")

    wanted = f"has format {FORMAT + 1}, and this release reads formats up to {FORMAT}: start the newer release"
    assert wanted in damage(tmp_path / "log", age)


def test_a_file_of_an_early_release_is_refused(tmp_path: Path) -> None:
    def age(file: Path) -> None:
        with closing(sqlite3.connect(file)) as connection:
            connection.execute(f"PRAGMA user_version = {FORMAT - 1}")

    assert f"it has format {FORMAT - 1} of an early release, and this one reads {FORMAT}" in damage(tmp_path / "log", age)


def test_a_damaged_page_is_reported_on_reading_and_writing(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    log, confirmations = EmbeddedLog(folder, Durability.PROCESS_CRASH), AppendOutcomes()
    log.append(numbered("t", 0, 5_000), confirmations.done(""))
    log.close()
    size = (folder / "log.db").stat().st_size
    with (folder / "log.db").open("r+b") as file:
        file.seek(10 * PAGE_BYTES)
        file.write(os.urandom(size - 10 * PAGE_BYTES))
    log = EmbeddedLog(folder, Durability.PROCESS_CRASH)
    received = ReceivedRecords()
    with pytest.raises(LogUnavailable, match="damaged"):
        log.read("t", 0, 10_000)
    log.follow({"t": 0}, received, received.on_gap)
    wait_until(lambda: "damaged" in (log.fault or ""))
    log.close()


def test_an_unfinished_database_is_created_again(tmp_path: Path) -> None:
    (tmp_path / "log.db.new").write_bytes(b"half")
    (tmp_path / "log.db.new-journal").write_bytes(b"half")
    EmbeddedLog(tmp_path, Durability.PROCESS_CRASH).close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["commit-signal", "fairness.lock", "lock", "log.db"]


def test_the_directory_is_created_for_its_owner_alone(tmp_path: Path) -> None:
    EmbeddedLog(tmp_path / "deep" / "log", Durability.PROCESS_CRASH).close()
    assert stat.S_IMODE((tmp_path / "deep" / "log").stat().st_mode) == 0o700


def test_a_directory_that_cannot_be_created_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LogUnavailable, match=f"cannot create or open {tmp_path}/file/log/log.db: Not a directory"):
        EmbeddedLog(tmp_path / "file" / "log", Durability.PROCESS_CRASH)


def test_processes_that_start_together_create_one_log(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    logs: list[EmbeddedLog] = []
    threads = [threading.Thread(target=lambda: logs.append(EmbeddedLog(folder, Durability.PROCESS_CRASH))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    confirmations = AppendOutcomes()
    for log in logs:
        log.append(numbered("t", 0, 10), confirmations.done(""))
    wait_until(lambda: len(confirmations.outcomes) == 8)
    assert {log.ends("t") for log in logs} == {(0, 80)}
    for log in logs:
        log.close()
