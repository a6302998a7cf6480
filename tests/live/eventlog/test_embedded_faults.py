"""Disks that are full or taken away, locks that are held, readers that block: said, borne, and over when they are over."""

import os
import signal
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path

import pytest

from conformance.log_claims import append, bodies, numbered
from conformance.log_group_claims import Worker
from conformance.log_keeping_claims import keys, poke
from conformance.logs import EmbeddedLogs, Heard, Told
from live.eventlog.embedded_processes import running, wait_until
from live.storage.test_disks import Disk
from milepost.eventlog.embedded import EmbeddedLog
from milepost.eventlog.embedded.database import PAGE_BYTES, open_database
from milepost.eventlog.embedded.group import BEAT_S
from milepost.eventlog.embedded.retention import EVERY_S
from milepost.eventlog.embedded.rows import BATCH_BYTES_MAX
from milepost.eventlog.embedded.writer import PATIENCE_S, WAL_PAGES_MAX
from milepost.eventlog.log import RECORD_BYTES_MAX, Edge, Entry, LogUnavailable, Record, TopicSettings
from milepost.model.durability import Durability


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[EmbeddedLogs]:
    logs = EmbeddedLogs(tmp_path / "log")
    yield logs
    logs.close()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    if os.geteuid() != 0:
        pytest.skip("only root may mount a disk; fix: sudo make test")
    disk = Disk(tmp_path)
    yield disk
    disk.remove()


def fault_of(log: EmbeddedLog, entries: list[Entry]) -> str:
    """Append, and wait for the fault it meets."""
    told = Told()
    log.append(entries, told.done(""))
    wait_until(lambda: bool(told.outcomes))
    fault = told.outcomes[0][1]
    assert isinstance(fault, LogUnavailable)
    return str(fault)


def test_a_full_disk_is_waited_for_then_told_and_over_when_there_is_space(disk: Disk) -> None:
    log, told = EmbeddedLog(disk.at / "log", Durability.PROCESS_CRASH), Told()
    ballast = disk.at / "ballast"
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass
    began = time.monotonic()
    for number in range(3):
        log.append([Entry("t", "", bytes(500_000))], told.done(number))
    wait_until(lambda: len(told.outcomes) == 3)
    assert time.monotonic() - began > PATIENCE_S
    assert told.words == [0, 1, 2]
    assert all("the disk is full: it goes on by itself" in str(fault) for _, fault in told.outcomes)
    assert "the disk is full" in (log.trouble or "")
    log.append([Entry("t", "", b"later")], told.done(3))
    ballast.unlink()
    wait_until(lambda: len(told.outcomes) == 4)
    assert told.outcomes[3] == (3, None)
    assert log.trouble is None
    assert [record.value for record in log.read("t", 0, 10)] == [b"later"]
    log.close()


def test_a_disk_that_is_full_for_a_moment_fails_nothing(disk: Disk) -> None:
    log, told, heard = EmbeddedLog(disk.at / "log", Durability.PROCESS_CRASH), Told(), Heard()
    log.follow({"t": 0}, heard, heard.lost)
    ballast = disk.at / "ballast"
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass
    for number in range(20):
        log.append([Entry("t", "", b"%d" % number + bytes(20_000))], told.done(number))
    wait_until(lambda: log.trouble is not None)
    ballast.unlink()
    wait_until(lambda: len(told.outcomes) == 20)
    assert told.outcomes == [(number, None) for number in range(20)]
    wait_until(lambda: len(heard.records) == 20)
    assert [record.offset for record in heard.records] == list(range(20))
    log.close()


def test_a_lock_that_is_held_for_too_long_is_told_to_all_that_wait_and_later_ones_are_written(logs: EmbeddedLogs) -> None:
    log, told = logs.open(), Told()
    log.make("t")
    with logs.stalled():
        began = time.monotonic()
        for number in range(20):
            log.append(numbered("t", number, number + 1), told.done(number))
            time.sleep(0.01)  # the first is tried alone, the others wait
        wait_until(lambda: len(told.outcomes) == 20)
        assert PATIENCE_S < time.monotonic() - began < 1.8 * PATIENCE_S
    assert told.words == list(range(20))
    assert all("another process has held it for too long" in str(fault) for _, fault in told.outcomes)
    append(logs, log, numbered("t", 20, 21))
    assert [record.value for record in log.read("t", 0, 100)] == bodies(20, 21)


def test_a_directory_that_is_taken_away_is_noticed_and_used_again_when_it_is_back(tmp_path: Path) -> None:
    log, heard = EmbeddedLog(tmp_path / "log", Durability.PROCESS_CRASH), Heard()
    log.follow({"t": 0}, heard, heard.lost)
    (tmp_path / "log").rename(tmp_path / "away")
    assert "was removed or replaced: put it back" in fault_of(log, numbered("t", 0, 1))
    wait_until(lambda: "was removed or replaced" in (log.trouble or ""))
    (tmp_path / "away").rename(tmp_path / "log")
    told = Told()
    log.append(numbered("t", 1, 2), told.done(""))
    wait_until(lambda: told.outcomes == [("", None)])
    wait_until(lambda: heard.values("t") == bodies(1, 2))
    wait_until(lambda: log.trouble is None)
    log.close()


def spoil_descriptors(file: Path) -> None:
    """Make every open descriptor of a file one that cannot be written."""
    for entry in Path("/proc/self/fd").iterdir():
        if entry.is_symlink() and entry.readlink() == file:
            readable = os.open(file, os.O_RDONLY)
            os.dup2(readable, int(entry.name), inheritable=False)
            os.close(readable)


def test_a_connection_that_cannot_write_any_more_is_replaced(logs: EmbeddedLogs, tmp_path: Path) -> None:
    log = logs.open()
    append(logs, log, numbered("t", 0, 1))
    spoil_descriptors(tmp_path / "log" / "log.db-wal")
    append(logs, log, numbered("t", 1, 2))
    assert [record.value for record in log.read("t", 0, 10)] == bodies(0, 2)


def test_a_take_that_blocks_makes_nobody_else_wait(logs: EmbeddedLogs) -> None:
    log, heard, go_on = logs.open(), Heard(), threading.Event()
    blocked: list[Record] = []

    def block(records: Sequence[Record]) -> None:
        go_on.wait()
        blocked.extend(records)

    log.follow({"t": 0}, block, heard.lost)
    log.follow({"t": 0}, heard, heard.lost)
    for number in range(100):
        append(logs, log, numbered("t", number, number + 1))
    wait_until(lambda: len(heard.records) == 100)
    assert blocked == []
    go_on.set()
    wait_until(lambda: len(blocked) == 100)


def test_a_batch_of_large_records_is_handed_over_before_it_fills_the_memory(logs: EmbeddedLogs) -> None:
    log, heard = logs.open(), Heard()
    append(logs, log, [Entry("t", "", bytes(RECORD_BYTES_MAX))] * 20)
    log.follow({"t": 0}, heard, heard.lost)
    wait_until(lambda: len(heard.records) == 20)
    assert max(len(batch) for batch in heard.batches) * RECORD_BYTES_MAX < BATCH_BYTES_MAX + RECORD_BYTES_MAX


def takeover_s(logs: EmbeddedLogs, group: str) -> float:
    """How long after a member has left another one has its topics."""
    leaving, staying = (Worker(logs.open(), group, ["t", "u"]) for _ in range(2))
    wait_until(lambda: len(leaving.has) == len(staying.has) == 1)
    began = time.monotonic()
    leaving.close()
    wait_until(lambda: len(staying.has) == 2)
    return time.monotonic() - began


def test_what_a_member_had_that_leaves_is_taken_up_before_the_next_heartbeat(logs: EmbeddedLogs) -> None:
    assert min(takeover_s(logs, f"g{number}") for number in range(5)) < BEAT_S / 4


def test_closing_waits_for_the_batch_that_is_being_taken(logs: EmbeddedLogs) -> None:
    log, heard, entered, go_on, left = logs.open(), Heard(), threading.Event(), threading.Event(), threading.Event()

    def block(records: Sequence[Record]) -> None:
        entered.set()
        go_on.wait()
        left.set()

    following = log.follow({"t": 0}, block, heard.lost)
    append(logs, log, numbered("t", 0, 1))
    entered.wait()
    closing_thread = threading.Thread(target=following.close)
    closing_thread.start()
    closing_thread.join(0.2)
    assert closing_thread.is_alive()
    go_on.set()
    closing_thread.join()
    assert left.is_set()


def test_a_callback_that_raises_stops_nobody_else(logs: EmbeddedLogs, monkeypatch: pytest.MonkeyPatch) -> None:
    raised: list[str] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: raised.append(str(args.exc_value)))
    log, heard = logs.open(), Heard()

    def fail(what: object) -> None:
        raise RuntimeError("told")

    log.follow({"t": 0}, fail, heard.lost)
    log.follow({"t": 0}, heard, heard.lost)
    log.append(numbered("t", 0, 1), fail)
    append(logs, log, numbered("t", 1, 2))
    wait_until(lambda: len(heard.records) == 2)
    wait_until(lambda: len(raised) >= 2)
    assert set(raised) == {"told"}


def test_a_fault_of_ours_in_the_writer_leaves_nobody_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raised: list[str] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: raised.append(str(args.exc_value)))

    def fail() -> int:
        time.sleep(0.1)
        raise RuntimeError("no clock")

    log, told = EmbeddedLog(tmp_path, Durability.PROCESS_CRASH, clock_ns=fail), Told()
    for number in range(3):
        log.append(numbered("t", number, number + 1), told.done(number))
        time.sleep(0.02)
    wait_until(lambda: len(told.outcomes) == 3)
    assert told.words == [0, 1, 2]
    assert {type(fault) for _, fault in told.outcomes} == {LogUnavailable}
    with pytest.raises(LogUnavailable, match="closed"):
        log.append(numbered("t", 3, 4))
    log.close()
    assert raised == ["no clock"]


def test_the_write_ahead_log_does_not_grow_without_end_while_others_read(logs: EmbeddedLogs, tmp_path: Path) -> None:
    log, readers = logs.open(), [Heard() for _ in range(3)]
    log.make("t", TopicSettings(retention_bytes=20_000_000))
    for heard in readers:
        logs.open().follow({"t": 0}, lambda records: time.sleep(0.001), heard.lost)
    largest = 0
    for _ in range(100):
        append(logs, log, [Entry("t", "k", bytes(1_000))] * 1_000 * 2)
        largest = max(largest, (tmp_path / "log" / "log.db-wal").stat().st_size)
    assert largest < 1.5 * WAL_PAGES_MAX * PAGE_BYTES
    wait_until(lambda: log.ends("t")[1] - log.ends("t")[0] < 20_000)
    assert (tmp_path / "log" / "log.db").stat().st_size < 100_000_000


@pytest.mark.parametrize("settings", [TopicSettings(is_compacted=True), TopicSettings(retention_bytes=5_000)])
def test_what_is_removed_is_taken_off_the_count_of_bytes(logs: EmbeddedLogs, tmp_path: Path, settings: TopicSettings) -> None:
    log = logs.open()
    log.make("t", settings)
    for turn in range(4):
        append(logs, log, [Entry("t", f"Ω\0{number % 30}", bytes(number + turn)) for number in range(100)])
        logs.pass_time(7_200)
    wait_until(lambda: sum(1 for _ in log.read("t", log.ends("t")[0], 1_000)) < 100)
    log.close()
    with closing(sqlite3.connect(tmp_path / "log" / "log.db")) as connection:
        (counted,) = connection.execute("SELECT bytes FROM topics").fetchone()
        sizes = connection.execute("SELECT length(CAST(key AS BLOB)) + length(value) FROM records").fetchall()
    assert counted == sum(size for (size,) in sizes)


def test_compaction_that_can_remember_few_keys_goes_on_where_it_left_off(
    logs: EmbeddedLogs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("milepost.eventlog.embedded.retention.KEYS_MAX", 40)
    monkeypatch.setattr("milepost.eventlog.embedded.retention.SLICE_RECORDS", 10)
    log, left = logs.open(), [200]
    log.make("t", TopicSettings(is_compacted=True))
    append(logs, log, [Entry("t", f"k{number % 100}", b"%d" % number) for number in range(200)])
    while left[-1] > 100:
        assert len(left) < 100
        logs.pass_time(120)
        poke(logs, log, "t")
        time.sleep(1.5 * EVERY_S)
        left.append(len(keys(log, "t")))
    assert len(set(left)) > 2, "it was done in one run"
    assert keys(log, "t") == [(f"k{number - 100}", b"%d" % number) for number in range(100, 200)]


def test_followers_that_have_nothing_to_do_cost_nothing(logs: EmbeddedLogs) -> None:
    log, heard = logs.open(), Heard()
    for _ in range(10):
        log.follow({f"t{number}": Edge.END for number in range(10)}, heard, heard.lost)
    log.join("g", ["t0"], heard, heard.lost)
    time.sleep(0.5)
    began = time.process_time()
    time.sleep(2)
    assert time.process_time() - began < 0.1


def test_a_writer_that_was_stopped_in_its_turn_is_named(tmp_path: Path) -> None:
    log = EmbeddedLog(tmp_path, Durability.PROCESS_CRASH)
    with running(tmp_path, "append", "a", str(10**9)) as process:
        process.go()
        process.wait_for(lambda said: len(said) > 5)
        while True:  # until it is stopped inside a transaction
            process.popen.send_signal(signal.SIGSTOP)
            with closing(open_database(tmp_path, Durability.PROCESS_CRASH).connect()) as connection:
                connection.execute("PRAGMA busy_timeout = 0")
                with suppress(sqlite3.OperationalError):
                    connection.execute("BEGIN IMMEDIATE")
                if not connection.in_transaction:
                    break
            process.popen.send_signal(signal.SIGCONT)
            time.sleep(0.001)
        assert "another process has held it for too long: look for one that was stopped" in fault_of(log, numbered("t", 0, 1))
        process.popen.send_signal(signal.SIGCONT)
    told = Told()
    log.append(numbered("t", 1, 2), told.done(""))
    wait_until(lambda: told.outcomes == [("", None)])
    assert [record.value for record in log.read("t", 0, 10)] == bodies(1, 2)
    log.close()
